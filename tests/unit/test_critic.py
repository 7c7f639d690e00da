"""Privileged critic: a value of the true state, which is available in training only."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_training import SETTINGS

from skills.envs.environment import SkillEnv
from tpsrl.errors import UserError
from tpsrl.rl.envs.vec_env import EnvSpec
from tpsrl.rl.policy.actor_critic import VALUE_PARTS, ActorCritic
from tpsrl.rl.policy.settings import PolicySettings
from tpsrl.rl.run import checkpoint as checkpoints
from tpsrl.rl.run import halving, warm_start

SPEC = EnvSpec({"state": (5,), "critic": (7,)}, (True, True, False))
SMALL = PolicySettings(encoder="state", state_width=8, lstm_layers=1, lstm_width=6, critic=True)


def shown(rows: int = 4) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        name: torch.randn((rows, *shape), generator=generator)
        for name, shape in SPEC.observations.items()
    }


def acted(policy: ActorCritic, observation: dict[str, torch.Tensor]):
    rows = len(observation["state"])
    first = torch.ones(rows, dtype=torch.bool)
    with torch.inference_mode():
        return policy.act(observation, torch.zeros(rows, 3), policy.initial_memory(rows), first)


def test_the_value_depends_only_on_the_true_state_and_the_action_never_does() -> None:
    policy, seen = ActorCritic(SPEC, SMALL), shown()
    before = acted(policy, seen)
    other = acted(policy, {**seen, "critic": seen["critic"] + 1.0})
    assert torch.equal(before.mean, other.mean)
    assert not torch.allclose(before.value, other.value)
    moved = acted(policy, {**seen, "state": seen["state"] + 1.0})
    assert torch.equal(before.value, moved.value)
    assert not torch.allclose(before.mean, moved.mean)


def test_a_policy_acts_without_the_true_state() -> None:
    policy, seen = ActorCritic(SPEC, SMALL), shown()
    blind = acted(policy, {"state": seen["state"]})
    assert torch.equal(blind.mean, acted(policy, seen).mean)
    assert torch.equal(blind.value, torch.zeros(4))


def test_the_gradient_of_the_value_reaches_only_the_critics_parameters() -> None:
    policy, seen = ActorCritic(SPEC, SMALL), shown()
    first = torch.ones(4, dtype=torch.bool)
    step = policy.act(seen, torch.zeros(4, 3), policy.initial_memory(4), first)
    step.value.sum().backward()
    touched = {name for name, p in policy.named_parameters() if p.grad is not None and p.grad.any()}
    assert touched
    assert all(name.startswith(VALUE_PARTS) for name in touched)


def test_a_critic_needs_the_true_state_and_contradicts_separate_value() -> None:
    without = EnvSpec({"state": (5,)}, SPEC.mask)
    with pytest.raises(
        UserError, match=r"^critic: the environments do not provide the true state$"
    ):
        ActorCritic(without, SMALL)
    with pytest.raises(UserError, match=r"^separate_value: contradicts critic"):
        ActorCritic(SPEC, dataclasses.replace(SMALL, separate_value=True))


def test_a_halved_checkpoint_lacks_the_critic_and_acts_the_same(tmp_path: Path) -> None:
    policy = ActorCritic(SPEC, SMALL).eval()
    tensors, note = checkpoints.policy_part(policy)
    checkpoints.save(tmp_path / "whole", tensors, note)
    small, about = halving.halved(checkpoints.load(tmp_path / "whole"))
    checkpoints.save(tmp_path / "small", small, about)
    acting = checkpoints.load_policy(checkpoints.load(tmp_path / "small"))
    assert "critic" not in acting.spec.observations
    assert not any(".critic" in name for name in small)
    assert halving.difference(policy, acting) < 1e-2
    assert halving.digest(policy, {}) == halving.digest(acting, {})


def test_a_warm_start_adds_a_critic_to_a_cloned_policy(tmp_path: Path) -> None:
    alone = EnvSpec({"state": (5,)}, SPEC.mask)
    settings = dataclasses.replace(SMALL, critic=False)
    cloned = ActorCritic(alone, settings)
    tensors, note = checkpoints.policy_part(cloned)
    checkpoints.save(tmp_path / "clone", tensors, note)
    found = checkpoints.load(tmp_path / "clone")
    own = dataclasses.replace(SETTINGS.policy, critic=True, separate_value=False)
    network = warm_start.network(own, found)
    assert network.critic and not network.separate_value
    policy = ActorCritic(SPEC, network)
    warm_start.take_over(policy, found)
    seen = shown()
    assert torch.equal(acted(policy, seen).mean, acted(cloned, {"state": seen["state"]}).mean)


@pytest.mark.slow
def test_an_environment_with_critic_set_has_the_true_state_in_its_observation() -> None:
    env = SkillEnv("close_drawer", num_episodes=1, critic=True, sensors="habitat")
    seen, _ = env.reset(seed=0)
    assert seen["critic"].shape == env.batch.options.shapes()["critic"]
    assert env.observation_space["critic"].shape == seen["critic"].shape
    assert np.isfinite(seen["critic"]).all()
    assert len(seen["critic"]) > len(seen["state"])
    env.close()
