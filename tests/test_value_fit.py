"""Further passes of the value alone."""

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
    """A policy whose value is read off the true state, of environments that show it."""
    monkeypatch.setattr(random_rollouts, "SPEC", SPEC)
    torch.manual_seed(0)
    policy = ActorCritic(SPEC, SMALL)
    policy.calls = []  # type: ignore[assignment]  # what the driver counts
    return policy


def error(policy: ActorCritic, rollout: Rollout) -> float:
    rows = torch.as_tensor(rollout.rows)
    with torch.no_grad():
        found = policy.value(rollout.observation[CRITIC][rows]) - rollout.returns[rows]
    return float(found.square().mean())


def test_more_passes_fit_the_returns_better_and_leave_the_policy_alone(seeing: ActorCritic) -> None:
    before = {name: t.clone() for name, t in seeing.state_dict().items()}
    rollout, *_ = collected(seed=1, policy=seeing)
    results = []
    for settings in (ONCE, OFTEN):
        seeing.load_state_dict(before)
        PPO(seeing, settings).update(rollout, value_only=True)
        results.append(error(seeing, rollout))
        for name, tensor in seeing.state_dict().items():
            assert torch.equal(tensor, before[name]) is not name.startswith(VALUE_PARTS)
    assert results[1] < 0.85 * results[0]


def test_the_policy_learns_the_same_with_and_without(seeing: ActorCritic) -> None:
    before = {name: t.clone() for name, t in seeing.state_dict().items()}
    rollout, *_ = collected(seed=1, policy=seeing)
    learned = []
    for settings in (ONCE, OFTEN):
        seeing.load_state_dict(before)
        PPO(seeing, settings).update(rollout)
        learned.append({name: t.clone() for name, t in seeing.state_dict().items()})
    own = [name for name in before if not name.startswith(VALUE_PARTS)]
    assert all(torch.equal(learned[0][name], learned[1][name]) for name in own)
    assert any(not torch.equal(learned[0][name], before[name]) for name in own)


def test_a_value_that_shares_the_policys_network_is_refused() -> None:
    with pytest.raises(UserError, match="value_epochs"):
        PPO(ActorCritic(SPEC, dataclasses.replace(SMALL, critic=False)), OFTEN)
    PPO(TinyPolicy(), ONCE)
