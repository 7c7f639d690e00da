"""Additional passes that train only the value."""

import dataclasses

import pytest
import random_rollouts
import torch
from random_rollouts import MASK, TinyPolicy, collected

from tpsrl.errors import UserError
from tpsrl.rl.collection.rollout import Rollout
from tpsrl.rl.envs.vec_env import EnvSpec
from tpsrl.rl.learning.ppo import PPO
from tpsrl.rl.learning.settings import PPOSettings
from tpsrl.rl.policy.actor_critic import CRITIC, VALUE_PARTS, ActorCritic
from tpsrl.rl.policy.settings import PolicySettings

SPEC = EnvSpec({"state": (4,), CRITIC: (3,)}, MASK)
SMALL = PolicySettings(encoder="state", state_width=8, lstm_layers=1, lstm_width=6, critic=True)
ONCE = PPOSettings(epochs=1, minibatches=1, value_learning_rate=1e-3, normalise_advantage=True)
OFTEN = dataclasses.replace(ONCE, value_epochs=50)


@pytest.fixture
def seeing(monkeypatch: pytest.MonkeyPatch) -> ActorCritic:
    """Policy with a privileged critic, for environments that observe the true state."""
    monkeypatch.setattr(random_rollouts, "SPEC", SPEC)
    torch.manual_seed(0)
    policy = ActorCritic(SPEC, SMALL)
    policy.calls = []  # type: ignore[assignment]  # counted by the driver
    return policy


def error(policy: ActorCritic, rollout: Rollout) -> float:
    rows = torch.as_tensor(rollout.rows)
    with torch.no_grad():
        found = policy.value(rollout.observation[CRITIC][rows]) - rollout.returns[rows]
    return float(found.square().mean())


@pytest.mark.parametrize("value_only", [True, False])
def test_more_value_passes_fit_returns_better_and_change_only_the_value(
    seeing: ActorCritic, value_only: bool
) -> None:
    before = {name: t.clone() for name, t in seeing.state_dict().items()}
    rollout, *_ = collected(seed=1, policy=seeing)
    errors, learned = [], []
    for settings in (ONCE, OFTEN):
        seeing.load_state_dict(before)
        PPO(seeing, settings).update(rollout, value_only=value_only)
        errors.append(error(seeing, rollout))
        learned.append({name: t.clone() for name, t in seeing.state_dict().items()})
    assert errors[1] < 0.85 * errors[0]
    for name, tensor in before.items():
        if name.startswith(VALUE_PARTS):
            assert not torch.equal(learned[1][name], learned[0][name])
        else:
            assert torch.equal(learned[1][name], learned[0][name])
            assert torch.equal(learned[0][name], tensor) is value_only


def test_value_passes_are_refused_if_the_value_shares_the_policys_network() -> None:
    with pytest.raises(UserError, match="value_epochs"):
        PPO(ActorCritic(SPEC, dataclasses.replace(SMALL, critic=False)), OFTEN)
    PPO(TinyPolicy(), ONCE)
