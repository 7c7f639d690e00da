"""A value that is read off the true state, which only training knows."""

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


def test_the_value_depends_on_the_true_state_alone_and_the_action_not_at_all() -> None:
    policy, seen = ActorCritic(SPEC, SMALL), shown()
    before = acted(policy, seen)
    other = acted(policy, {**seen, "critic": seen["critic"] + 1.0})
    assert torch.equal(before.mean, other.mean)
    assert not torch.allclose(before.value, other.value)
    moved = acted(policy, {**seen, "state": seen["state"] + 1.0})
    assert torch.equal(before.value, moved.value)
    assert not torch.allclose(before.mean, moved.mean)


def test_a_policy_acts_where_nobody_knows_the_true_state() -> None:
    policy, seen = ActorCritic(SPEC, SMALL), shown()
    blind = acted(policy, {"state": seen["state"]})
    assert torch.equal(blind.mean, acted(policy, seen).mean)
    assert torch.equal(blind.value, torch.zeros(4))


def test_only_the_critics_parameters_belong_to_the_value() -> None:
    policy, seen = ActorCritic(SPEC, SMALL), shown()
    first = torch.ones(4, dtype=torch.bool)
    step = policy.act(seen, torch.zeros(4, 3), policy.initial_memory(4), first)
    step.value.sum().backward()
    touched = {name for name, p in policy.named_parameters() if p.grad is not None and p.grad.any()}
    assert touched
    assert all(name.startswith(VALUE_PARTS) for name in touched)


def test_it_is_refused_where_the_homes_do_not_show_it_and_beside_another_value() -> None:
    without = EnvSpec({"state": (5,)}, SPEC.mask)
    with pytest.raises(
        UserError, match=r"^critic: the environments do not provide the true state$"
    ):
        ActorCritic(without, SMALL)
    with pytest.raises(UserError, match=r"^separate_value: contradicts critic"):
        ActorCritic(SPEC, dataclasses.replace(SMALL, separate_value=True))


def test_what_is_shipped_lacks_it_and_acts_the_same(tmp_path: Path) -> None:
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


def test_a_clone_that_has_none_is_given_one(tmp_path: Path) -> None:
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
def test_a_home_shows_the_true_state_if_asked_to() -> None:
    env = SkillEnv("close_drawer", num_episodes=1, critic=True, sensors="habitat")
    seen, _ = env.reset(seed=0)
    assert seen["critic"].shape == env.batch.options.shapes()["critic"]
    assert env.observation_space["critic"].shape == seen["critic"].shape
    assert np.isfinite(seen["critic"]).all()
    assert len(seen["critic"]) > len(seen["state"])
    env.close()
