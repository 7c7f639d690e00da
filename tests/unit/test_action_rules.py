"""Policies whose grip or stop is set by a rule instead of by the network."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import tiny_policies
import torch

from skills.core.sensors import CARRIED
from skills.policies import follow, learned, steady, upright
from skills.policies.follow import PathFollowing
from skills.policies.learned import Network, NetworkActor
from skills.policies.rules import GRIP_SENSOR, STOP_SENSOR
from skills.policies.steady import SteadyRelease
from tpsrl.errors import UserError
from tpsrl.rl.policy import gaussian
from tpsrl.rl.run import checkpoint
from tpsrl.world import action as act
from tpsrl.world.collision import REST
from tpsrl.world.kinematics import cup_pose


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


def test_the_grip_of_an_empty_hand_is_open_far_from_the_object(tmp_path: Path) -> None:
    opening, plain = with_and_without(tmp_path, "pick", "grip_beyond", 0.12)
    layout = opening.inputs.layout()
    state = np.zeros((64, opening.inputs.size), np.float32)
    state[:, layout["arm"]] = np.random.default_rng(0).standard_normal((64, 7))
    state[:, layout[GRIP_SENSOR]] = [0.08, 0.1, 0.0]  # 0.128 m away
    found, usual = act_on(state, opening, plain)
    assert (usual[:, act.GRIP] > 0.0).any() and (found[:, act.GRIP] == -1.0).all()
    np.testing.assert_array_equal(*(np.delete(a, act.GRIP, axis=1) for a in (found, usual)))
    state[:32, layout[GRIP_SENSOR]] = [0.08, 0.08, 0.0]
    state[32:, layout[steady.HOLDING]] = 1.0  # it is carried away
    np.testing.assert_array_equal(*act_on(state, opening, plain))


def test_the_robot_stops_and_stands_where_the_compass_shows_a_near_goal(tmp_path: Path) -> None:
    stopping, plain = with_and_without(tmp_path, "pointnav", "stop_within", 0.2)
    state = np.zeros((2, stopping.inputs.size), np.float32)
    state[:, stopping.inputs.layout()[STOP_SENSOR]] = [[0.19, 0.0, 1.0], [0.21, 0.0, 1.0]]
    found, usual = act_on(state, stopping, plain)
    assert found[0, act.STOP] == 1.0 != usual[0, act.STOP]
    assert not found[0, act.BASE].any() and usual[0, act.BASE].all()
    np.testing.assert_array_equal(found[1], usual[1])


LAYOUT = {upright.GOAL: slice(0, 3), steady.HOLDING: slice(3, 4)}


def act_steadily(
    rule: SteadyRelease, grip: float, x: list[float], holds: list[float]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the grip (n,) and whether the robot moves (n,), for goals at (x, 0, 0)."""
    state = np.zeros((len(x), 4))
    state[:, 0], state[:, 3] = x, holds
    actions = np.full((len(x), act.SIZE), 0.5)
    actions[:, act.GRIP] = grip
    found = rule.changed(actions, state)
    assert (actions[:, act.GRIP] == grip).all()  # the policy's own actions stay
    return found[:, act.GRIP], found[:, np.r_[act.ARM, act.BASE]].any(1)


def test_the_robot_stands_still_to_release_from_a_slow_hand_and_until_the_object_lands() -> None:
    rule = SteadyRelease(0.1, 0, 0, LAYOUT, 2)
    grip, moves = act_steadily(rule, 0.5, [0.4, 0.4], [1, 1])
    assert grip.tolist() == [0.5, 0.5] and moves.all()  # nothing to release yet
    # At 30 Hz, 0.02 m a step are 0.6 m/s, and 0.003 m a step are 0.09 m/s.
    grip, moves = act_steadily(rule, -0.5, [0.38, 0.397], [1, 1])
    assert grip.tolist() == [1.0, -1.0] and not moves.any()
    # The first home waits, whatever its policy does; the second has released.
    for step in range(steady.LANDING):
        grip, moves = act_steadily(rule, 0.5, [0.36 - 0.02 * step, 0.397], [1, 0])
        assert grip.tolist() == [1.0, -1.0] and not moves.any()
    grip, moves = act_steadily(rule, 0.5, [0.2, 0.397], [1, 0])
    assert grip.tolist() == [1.0, 0.5] and moves.tolist() == [False, True]
    grip, moves = act_steadily(rule, 0.5, [0.2, 0.397], [1, 0])
    assert grip.tolist() == [-1.0, 0.5] and moves.tolist() == [False, True]


def test_a_hand_that_stays_fast_releases_after_a_while_and_a_new_episode_begins_anew() -> None:
    rule = SteadyRelease(0.1, 0, 0, LAYOUT, 1)
    grips = [act_steadily(rule, -1.0, [step % 2], [1])[0].item() for step in range(40)]
    assert grips == [1.0] * steady.LONGEST + [-1.0] * (40 - steady.LONGEST)
    rule.begin(np.ones(1, bool))
    grip, moves = act_steadily(rule, 0.5, [0.0], [1])
    assert grip == 0.5 and moves
    assert act_steadily(rule, -0.5, [0.0], [1])[0] == -1.0


def test_a_hand_that_stays_near_the_goal_releases_after_a_while() -> None:
    rule = SteadyRelease(0.1, 3, 0, LAYOUT, 3)
    outside = steady.NEAR_M + 0.01
    for x in ([0.151, 0.15, 0.15], [0.151, 0.15, 0.14]):
        grip, moves = act_steadily(rule, 0.5, x, [1, 1, 1])
        assert (grip == 0.5).all() and moves.all()
    # The second home's hand leaves, and the third's comes nearer.
    grip, moves = act_steadily(rule, 0.5, [0.15, outside, 0.13], [1, 1, 1])
    assert grip.tolist() == [-1.0, 0.5, 0.5] and moves.tolist() == [False, True, True]
    for _ in range(2):
        grip, moves = act_steadily(rule, 0.5, [0.15, 0.05, 0.13], [1, 1, 1])
    assert grip.tolist() == [-1.0, 0.5, -1.0] and moves.tolist() == [False, True, False]
    assert act_steadily(rule, 0.5, [0.15, 0.05, 0.13], [0, 1, 1])[0][1] == -1.0
    rule.begin(np.ones(3, bool))
    assert act_steadily(rule, 0.5, [0.15] * 3, [1, 1, 1])[1].all()
    # A hand that is too fast waits, without a speed none does.
    for speed, grip in ((0.1, 1.0), (0.0, -1.0)):
        rule = SteadyRelease(speed, 2, 0, LAYOUT, 1)
        assert [act_steadily(rule, 0.5, [x], [1])[0].item() for x in (0.1, 0.15)] == [0.5, grip]


def test_a_policy_with_a_release_speed_stands_still_to_release(tmp_path: Path) -> None:
    careful, plain = with_and_without(tmp_path, "place", "release_speed", 0.1)
    layout = careful.inputs.layout()
    state = np.random.default_rng(0).standard_normal((64, careful.inputs.size)).astype(np.float32)
    state[:, layout[steady.HOLDING]] = 1.0
    found, usual = act_on(state, careful, plain)
    opens = usual[:, act.GRIP] < 0.0
    assert opens.any() and not opens.all()
    assert (found[:, act.GRIP] >= 0.0).all() and not found[opens, act.ARM].any()
    np.testing.assert_array_equal(found[~opens], usual[~opens])


UPRIGHT_LAYOUT = {
    **LAYOUT,
    upright.ARM: slice(4, 11),
    CARRIED: slice(11, 17),
    upright.TO_REST: slice(17, 20),
}
CENTRE, UP = np.array([0.08, 0.02, -0.03]), np.array([-0.6, 0.48, 0.64])  # in the cup's frame


class Holding:
    """The resting arm of a robot that stands at its goal, with an object tilted in its hand."""

    def __init__(self, goal: list[float]) -> None:
        self.joints = REST.copy()
        tip, turn = cup_pose(REST)
        self.goal = tip + turn @ CENTRE + goal

    def seen(self, known: bool = True) -> np.ndarray:
        """Returns the state vector (20,) with the object in the hand."""
        tip, turn = cup_pose(self.joints)
        to_rest = cup_pose(REST)[0] - tip
        carried = np.r_[self.goal - tip - turn @ CENTRE, turn @ UP] if known else np.zeros(6)
        return np.r_[turn.T @ (self.goal - tip), 1.0, self.joints, carried, to_rest]

    def act(self, action: np.ndarray) -> None:
        """Moves the arm by an action (11,)."""
        assert np.abs(action).max() <= 1.0 and not action[act.BASE].any()
        self.joints += action[act.ARM] * act.ARM_DELTA_RAD

    @property
    def tilt(self) -> float:
        """Angle of what was up from the vertical, in rad."""
        return math.acos((cup_pose(self.joints)[1] @ UP)[2])


def released(rule: SteadyRelease, home: Holding, known: bool = True) -> int:
    """Returns the steps of a policy that wants to release until the grip opens."""
    rule.begin(np.ones(1, bool))
    for step in range(400):
        action = np.full((1, act.SIZE), 0.5)
        action[:, act.GRIP] = -0.5 if step == 0 else 0.5
        (done,) = rule.changed(action, home.seen(known)[None])
        if done[act.GRIP] < 0.0:
            return step
        home.act(done)
    raise AssertionError("the object was not released")


def test_an_object_is_turned_upright_over_its_goal_before_its_release() -> None:
    rule = SteadyRelease(0.1, 0, 80, UPRIGHT_LAYOUT, 1)
    home = Holding([0.06, -0.05, -0.1])
    before = home.tilt
    steps = released(rule, home)
    to_goal = home.seen()[UPRIGHT_LAYOUT[CARRIED]][:3]
    assert before > 0.5 and 20 < steps < 80
    assert home.tilt < 0.06 and math.hypot(*to_goal[:2]) < 0.02
    # It is lifted over its goal, but not lowered.
    assert to_goal[2] == pytest.approx(-0.1, abs=0.02)
    low = Holding([0.0, 0.0, 0.05])
    released(rule, low)
    assert low.seen()[UPRIGHT_LAYOUT[CARRIED]][2] == pytest.approx(-0.02, abs=0.01)


def test_turning_an_object_ends_early_where_it_is_of_no_use() -> None:
    rule = SteadyRelease(0.1, 0, 80, UPRIGHT_LAYOUT, 1)
    at_once = released(rule, Holding([0.02, 0.0, 0.0]), known=False)
    assert at_once <= 1
    assert released(rule, Holding([0.2, 0.0, 0.0])) <= at_once  # too far away
    few = SteadyRelease(0.1, 0, 10, UPRIGHT_LAYOUT, 1)
    assert 10 <= released(few, Holding([0.06, -0.05, -0.1])) <= 10 + steady.LONGEST
    stuck = Holding([0.06, -0.05, -0.1])
    stuck.act = lambda action: None  # type: ignore[method-assign]
    assert released(rule, stuck) < 20
    # A run of a plan has 200 steps.
    late = Holding([0.06, -0.05, -0.1])
    rule.begin(np.ones(1, bool))
    for _ in range(190):
        rule.changed(np.full((1, act.SIZE), 0.5), late.seen()[None])
    action = np.full((1, act.SIZE), -0.5)
    assert rule.changed(action, late.seen()[None])[0, act.GRIP] == -1.0


PATH_LAYOUT = {follow.VELOCITY: slice(0, 3), follow.PATH: slice(3, 6)}


def drive(
    rule: PathFollowing, velocity: tuple[float, float, float], path: tuple[float, float, float]
) -> list[float]:
    """Returns the base's actions (2,) and stop for a policy that turns and calls stop."""
    action = np.full((1, act.SIZE), 0.5)
    found = rule.changed(action, np.array([[*velocity, *path]]))
    assert (found[:, act.ARM] == 0.5).all()
    return [*found[0, act.BASE].tolist(), float(found[0, act.STOP])]


POLICY = [0.5, 0.5, 0.5]  # base and stop


def test_a_robot_that_stays_in_place_follows_its_path_for_a_while() -> None:
    rule = PathFollowing(4, PATH_LAYOUT, 1)
    turning = (0.1, 0.0, 2.0)
    for _ in range(follow.PATIENCE - 1):
        assert drive(rule, turning, (5.0, 1.0, 0.0)) == POLICY
    # It drives slowly to a near corner, and turns to one beside it.
    ahead, near, right, behind = (1.0, 0.0), (0.3, 0.0), (0.0, -1.0), (-1.0, 0.1)
    assert drive(rule, turning, (5.0, *ahead)) == [1.0, 0.0, -1.0]
    assert drive(rule, turning, (5.0, *near)) == [0.6, 0.0, -1.0]
    assert drive(rule, turning, (5.0, *right)) == [0.0, -1.0, -1.0]
    back, turn, stop = drive(rule, turning, (5.0, *behind))
    assert back == pytest.approx(-0.99, abs=0.01) and turn == pytest.approx(-0.25, abs=0.01)
    assert stop == -1.0
    for _ in range(follow.PATIENCE - 1):
        assert drive(rule, turning, (5.0, *ahead)) == POLICY
    # At the end of its path a robot turns to its goal, and nothing changes.
    assert drive(rule, turning, (0.0, 0.0, 0.0)) == POLICY


def test_a_robot_that_drives_does_not_follow_its_path() -> None:
    rule = PathFollowing(3, PATH_LAYOUT, 1)
    for i, velocity in enumerate([(0.5, 0.0, 0.0)] * 60 + [(0.0, -0.5, 0.0)] * 60):
        assert drive(rule, velocity, (5.0 - 0.02 * i, 1.0, 0.0)) == POLICY
    # Backwards after half a turn is onwards.
    rule.begin(np.ones(1, bool))
    forward, turn, backward = (0.225, 0.0, 0.0), (0.0, 0.0, 2.5 * np.pi), (-0.225, 0.0, 0.0)
    for i, velocity in enumerate([forward] * 20 + [turn] * 12 + [backward] * 20):
        assert drive(rule, velocity, (5.0 - 0.02 * i, 1.0, 0.0)) == POLICY


def test_a_robot_that_drives_and_does_not_advance_follows_its_path() -> None:
    rule = PathFollowing(2, PATH_LAYOUT, 1)
    # It drives to and fro; the length of its path varies by less than 0.3 m.
    velocities = [(0.6, 0.0, 0.0)] * 20 + [(-0.6, 0.0, 0.0)] * 20
    for i in range(follow.LATE):
        assert drive(rule, velocities[i % 40], (5.0 + 0.1 * (i % 2), 1.0, 0.0)) == POLICY
    for _ in range(2):
        assert drive(rule, velocities[0], (5.0, 1.0, 0.0)) == [1.0, 0.0, -1.0]
    assert drive(rule, velocities[0], (5.0, 1.0, 0.0)) == POLICY
    # A detour that is found on the way begins anew.
    rule.begin(np.ones(1, bool))
    for i in range(2 * follow.LATE - 10):
        length = 5.0 if i < follow.LATE - 5 else 7.0
        assert drive(rule, velocities[i % 40], (length, 1.0, 0.0)) == POLICY


def test_a_robot_that_backs_against_something_turns_round() -> None:
    rule = PathFollowing(100, PATH_LAYOUT, 1)
    still, behind = (0.0, 0.0, 0.0), (5.0, -1.0, 0.0)
    for _ in range(follow.PATIENCE - 1):
        assert drive(rule, still, behind) == POLICY
    moves = [drive(rule, still, behind)[:2] for _ in range(20)]
    assert moves[0] == [-1.0, 0.0] and moves[12] == [0.0, 1.0]
    # Where it cannot turn either, its policy drives again.
    assert drive(rule, still, behind) == POLICY


@pytest.mark.parametrize(
    ("rule", "sensor"),
    [
        ("grip_within", GRIP_SENSOR),
        ("grip_beyond", GRIP_SENSOR),
        ("stop_within", STOP_SENSOR),
        ("release_speed", upright.GOAL),
        ("release_after", upright.GOAL),
        ("release_upright", upright.GOAL),
        ("follow_path", follow.PATH),
    ],
)
def test_a_rule_without_the_needed_sensor_is_refused(
    tmp_path: Path, rule: str, sensor: str
) -> None:
    made, deploy = tiny_policies.policy("navigate", "fetch")
    value = 1 if rule in {"follow_path", "release_after", "release_upright"} else 0.1
    path = tiny_policies.save(tmp_path / "a.safetensors", made, {**deploy, rule: value})
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
