"""Policies whose grip or stop is set by a distance or a rule instead of by the network."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import tiny_policies
import torch

from skills.policies import learned
from skills.policies.deployed import GRIP_SENSOR, STOP_SENSOR
from skills.policies.learned import Network, NetworkActor
from tpsrl.errors import UserError
from tpsrl.rl.policy import gaussian
from tpsrl.rl.run import checkpoint
from tpsrl.world import action as act


def with_and_without(folder: Path, skill: str, rule: str, value: float) -> tuple[Network, Network]:
    """Returns a policy of the skill with the rule, and the same without."""
    made, deploy = tiny_policies.policy(skill, "habitat")
    path = tiny_policies.save(folder / "a.safetensors", made, {**deploy, rule: value})
    ruled = learned.load(skill, path)
    plain = learned.load(skill, tiny_policies.save(folder / "b.safetensors", made, deploy))
    assert ruled.digest != plain.digest
    assert learned.about(skill, path)[rule] == value
    return ruled, plain


def act_on(state: np.ndarray, *networks: Network) -> list[np.ndarray]:
    """Returns the mean actions of each policy for the same states."""
    count = len(state)
    return [NetworkActor(net, False, count, seed=0).act({"state": state}) for net in networks]


def test_the_grip_is_closed_near_the_object_and_nothing_else_changes(tmp_path: Path) -> None:
    closing, plain = with_and_without(tmp_path, "pick", "grip_within", 0.12)
    state = np.zeros((2, closing.inputs.size), np.float32)
    vector = closing.inputs.layout()[GRIP_SENSOR]
    state[:, vector] = [[0.08, 0.08, 0.0], [0.1, 0.08, 0.0]]  # 0.113 and 0.128 m away
    found, usual = act_on(state, closing, plain)
    assert found[0, act.GRIP] == 1.0 != usual[0, act.GRIP]
    np.testing.assert_array_equal(found[1], usual[1])
    np.testing.assert_array_equal(np.delete(found[0], act.GRIP), np.delete(usual[0], act.GRIP))


def test_the_robot_stops_and_stands_where_the_compass_shows_a_near_goal(tmp_path: Path) -> None:
    stopping, plain = with_and_without(tmp_path, "pointnav", "stop_within", 0.2)
    state = np.zeros((2, stopping.inputs.size), np.float32)
    state[:, stopping.inputs.layout()[STOP_SENSOR]] = [[0.19, 0.0, 1.0], [0.21, 0.0, 1.0]]
    found, usual = act_on(state, stopping, plain)
    assert found[0, act.STOP] == 1.0 != usual[0, act.STOP]
    assert not found[0, act.BASE].any() and usual[0, act.BASE].all()
    np.testing.assert_array_equal(found[1], usual[1])


@pytest.mark.parametrize(
    ("rule", "sensor"), [("grip_within", GRIP_SENSOR), ("stop_within", STOP_SENSOR)]
)
def test_a_rule_without_the_needed_sensor_is_refused(
    tmp_path: Path, rule: str, sensor: str
) -> None:
    made, deploy = tiny_policies.policy("navigate", "fetch")
    path = tiny_policies.save(tmp_path / "a.safetensors", made, {**deploy, rule: 0.1})
    with pytest.raises(UserError, match=f"has {rule}, but not the sensor {sensor}"):
        learned.load("navigate", path)


def test_a_rule_sets_the_grip_whatever_the_network_says(tmp_path: Path) -> None:
    network = dataclasses.replace(tiny_policies.STATE, switches=True, grip_rule=True)
    with pytest.raises(UserError, match=r"^grip_rule: needs the sensor grip_rule; nearest: false"):
        tiny_policies.policy("pick", "full", network)
    made, deploy = tiny_policies.policy("pick", "teacher", network)
    path = tiny_policies.save(tmp_path / "a.safetensors", made, deploy)
    loaded = checkpoint.load_policy(checkpoint.load(path))
    column, part = made.spec.grip_rule
    state = torch.randn(8, *made.spec.observations["state"])
    state[:, column] = torch.tensor([1.0, -1.0] * 4)
    memory, first = made.initial_memory(8), torch.ones(8, dtype=torch.bool)
    for each in (loaded, made):
        step = each.act({"state": state}, torch.zeros(8, act.SIZE), memory, first)
        drawn = gaussian.sample(step.mean, step.std, each.mask, torch.Generator())
        for action in (step.mean, drawn):
            assert torch.equal(action[:, part].sign(), state[:, column])
    # Its probability is 1, so that nothing is learned from it.
    (gradient,) = torch.autograd.grad(
        made.log_prob(step.mean, step.std, drawn.detach()).sum(), made.action_head.mean.bias
    )
    assert gradient[part] == 0.0 and torch.count_nonzero(gradient) > 0
