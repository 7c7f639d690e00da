import dataclasses
import math
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import yaml
from small_worlds import (
    DRAWER,
    FRIDGE,
    arrays_of,
    cup_at,
    failure,
    judged,
    mapped,
    opened,
    random_goals,
    random_worlds,
    rows,
    run,
    to_torch,
    world,
)

from skills.core import sensors as observation
from skills.core import task
from skills.core.choices import CHOICES
from skills.core.context import MeasureContext
from skills.core.inputs import PolicyInputs
from skills.core.interface import Grasp, SkillGoal
from skills.core.path_metrics import PathProgress
from skills.core.sensors import Readings, SensorContext
from skills.core.settings import changed
from skills.core.skill import FAILURES
from skills.core.state import Goals, TaskState
from skills.pick.task import Pick
from skills.registry import get, names, planned, registered
from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.world import action as act
from tpsrl.world.fetch import HEAD_CAMERA_POS, HEAD_CAMERA_TARGET, NEIGHBOUR_ROWS
from tpsrl.world.state import JOINTS, WorldState

AHEAD = SkillGoal(position=(1.0, 6.0, 0.8))  # 4 m in front of the robot
PICK = SkillGoal(1)  # at (1, 2, 0.8)
PLACE = SkillGoal(0, (1.0, 2.5, 0.8))
OPEN = SkillGoal(marker="fridge_push_point")


def at(x: float, y: float, yaw: float = math.pi / 2, **changes: object) -> WorldState:
    return world(base=np.array([[x, y, yaw]]), **changes)


def carrying(x: float, y: float, z: float, held: int = 0, **changes: object) -> WorldState:
    """Returns a world with object 0 at a position (m); `held` is the object in the cup or -1."""
    return world(
        object_pos=np.array([[[x, y, z], [1.0, 2.0, 0.8]]]), held=np.array([held]), **changes
    )


def pushed(force: float, total: float = 0.0) -> WorldState:
    """Returns a world with a force (N) and the sum of its rises so far (N)."""
    return world(force=np.array([force]), force_total=np.array([total]))


# -- Navigate ----------------------------------------------------------------------------------


def test_navigate_rewards_metres_of_progress_on_the_floor_plane():
    _, outcome = run("navigate", AHEAD, at(1, 2), at(1, 2.25))
    assert outcome.reward_terms["distance"][0] == pytest.approx(0.25)
    assert outcome.reward_terms["heading"][0] == 0.0
    assert outcome.reward[0] == pytest.approx(0.25 - 0.005)


def test_navigate_rewards_turning_to_the_goal_only_within_three_metres():
    turned = math.pi / 2 + 0.2
    _, far = run("navigate", AHEAD, at(1, 2.5, turned), at(1, 2.5, turned - 0.05))
    assert far.reward_terms["heading"][0] == 0.0
    _, near = run("navigate", AHEAD, at(1, 3.5, turned), at(1, 3.5, turned - 0.05))
    assert near.reward_terms["heading"][0] == pytest.approx(0.05)
    _, other_side = run("navigate", AHEAD, at(1, 3.5, turned), at(1, 3.5, turned - 0.3))
    assert other_side.reward_terms["heading"][0] == pytest.approx(0.1)


def test_navigate_gives_no_heading_reward_for_the_step_across_three_metres():
    turned = math.pi / 2 + 0.2
    _, outcome = run("navigate", AHEAD, at(1, 2.9, turned), at(1, 3.1, turned - 0.05))
    assert outcome.reward_terms["heading"][0] == 0.0


def test_navigate_ends_with_stop_in_success_or_failure():
    _, good = run("navigate", AHEAD, at(1, 4.5), at(1, 4.6), stop=True)
    assert good.success[0] and good.terminated[0] and good.reward_terms["success"][0] == 10.0
    _, bad = run("navigate", AHEAD, at(1, 4.0), at(1, 4.1), stop=True)
    assert not bad.success[0] and bad.terminated[0] and bad.reward_terms["success"][0] == 0.0
    assert FAILURES[bad.failure[0]] == "stopped"
    _, silent = run("navigate", AHEAD, at(1, 4.5), at(1, 4.6))
    assert not silent.success[0] and not silent.terminated[0]


def test_moving_other_drawers_and_doors_is_penalised_if_enabled():
    worlds = [opened(DRAWER, value) for value in (0.45, 0.44, 0.4405, 0.46)]
    for skill, goal in (("navigate", AHEAD), ("place", PLACE), ("open_fridge", OPEN)):
        _, outcome = run(skill, goal, *worlds, joints=10.0)
        assert outcome.reward_terms["joints"][0] == pytest.approx(-0.195)
        _, trembles = run(skill, goal, *worlds[:3], joints=10.0)
        assert trembles.reward_terms["joints"][0] == 0.0
        _, free = run(skill, goal, *worlds)
        assert "joints" not in free.reward_terms
    _, own = run("open_drawer", SkillGoal(marker=JOINTS[DRAWER]), *worlds, joints=10.0)
    assert own.reward_terms["joints"][0] == 0.0


def test_moving_other_objects_is_penalised_if_enabled():
    before = world().object_pos
    after = before + np.array([[0.3, 0.0, 0.0], [0.0, 0.1, 0.0]])  # both objects move

    def cost(target: int, moved: np.ndarray, held: int = -1) -> float:
        spec = get("pick")
        chosen = changed(spec.load_settings(), {"clutter": 5.0})
        state = task.begin(spec.definition, Goals.of([SkillGoal(target)]), world(), spec.thresholds)
        _, _, outcome = task.step(
            spec.definition,
            state,
            np.zeros((1, act.SIZE)),
            world(object_pos=moved, held=np.array([held])),
            chosen,
            spec.thresholds,
            object_pos=before,
        )
        return float(outcome.reward_terms["clutter"][0])

    assert cost(1, after, held=1) == pytest.approx(-1.5)  # the target's own motion is free
    assert cost(0, after, held=0) == pytest.approx(-0.5)
    assert cost(0, after) == cost(1, after) == pytest.approx(-2.0)  # not before it is held
    assert cost(1, before + 0.001) == 0.0  # at rest, except for trembling
    _, free = run("pick", PICK, world(), world(object_pos=after))
    assert "clutter" not in free.reward_terms


def test_a_cup_beside_another_object_is_penalised_on_its_way_if_enabled():
    spec = get("pick")
    begun = task.begin(spec.definition, Goals.of([PICK]), world(), spec.thresholds)

    def cost(gap_m: float, after: WorldState) -> float:
        _, _, outcome = task.step(
            spec.definition,
            begun,
            np.zeros((1, act.SIZE)),
            after,
            changed(spec.load_settings(), {"near": 5.0}),
            spec.thresholds,
            gaps=np.array([[np.inf, gap_m]]),
        )
        return float(outcome.reward_terms["near"][0])

    assert cost(0.02, world()) == pytest.approx(-0.15) and cost(0.06, world()) == 0.0
    assert cost(-0.5, world()) == pytest.approx(-0.25)  # inside the object
    assert cost(0.02, world(held=np.array([PICK.object]))) == 0.0
    _, free = run("pick", PICK, world(), world())
    assert "near" not in free.reward_terms


# -- Pick --------------------------------------------------------------------------------------


def test_pick_rewards_progress_of_the_cup_in_whole_millimetres():
    _, outcome = run("pick", PICK, cup_at(1, 2, 1.3), cup_at(1, 2, 1.2876))
    assert outcome.reward_terms["distance"][0] == pytest.approx(2 * 0.012)
    _, jitter = run("pick", PICK, cup_at(1, 2, 1.3), cup_at(1, 2, 1.2997))
    assert jitter.reward_terms["distance"][0] == 0.0


def test_pick_rewards_the_grasp_once_and_then_progress_to_rest():
    held = np.array([1])
    reached, taken = cup_at(1, 2, 0.9), cup_at(1, 2, 0.88, held=held)
    _, grasp = run("pick", PICK, reached, taken)
    assert grasp.reward_terms["pick"][0] == 2.0 and grasp.reward_terms["distance"][0] == 0.0
    lifted = cup_at(1, 2.3, 1.0, held=held)
    _, lift = run("pick", PICK, reached, taken, lifted)
    before = math.hypot(0.5, 0.12)
    assert lift.reward_terms["pick"][0] == 0.0
    assert lift.reward_terms["distance"][0] == pytest.approx(2 * round(before - 0.2, 3))
    assert not lift.terminated[0]
    _, done = run("pick", PICK, reached, taken, lifted, world(held=held))
    assert done.success[0] and done.reward_terms["success"][0] == 10.0


def test_pick_is_penalised_for_closing_the_grip_away_from_its_object():
    def penalty(now: WorldState) -> float:
        # The actions of `run` close the grip.
        _, outcome = run("pick", PICK, world(), now, grip=0.5)
        return float(outcome.reward_terms["grip"][0])

    def beside(x: float) -> WorldState:
        others = [[x, 2, 0.8], [1.0, 2.0, 0.8], [np.nan] * 3]
        return cup_at(1, 2, 0.9, object_pos=np.array([others]))

    assert penalty(cup_at(1, 2, 0.94)) == 0.0 and penalty(cup_at(1, 2, 0.96)) == -0.5
    assert penalty(beside(1.2)) == 0.0
    assert penalty(dataclasses.replace(beside(1.2), ee_pos=np.array([[1.15, 2, 0.8]]))) == -0.5
    assert penalty(cup_at(1, 2, 1.5, held=np.array([1]))) == 0.0
    _, free = run("pick", PICK, world(), cup_at(1, 2, 1.5))
    assert "grip" not in free.reward_terms


def test_pick_may_close_the_grip_when_about_to_touch_its_object_first() -> None:
    spec = get("pick")
    begun = task.begin(spec.definition, Goals.of([PICK]), world(), spec.thresholds)
    closed = np.zeros((1, act.SIZE))
    closed[:, act.GRIP] = 1.0

    def penalty(own: float, other: float) -> float:
        _, _, outcome = task.step(
            spec.definition,
            begun,
            closed,
            world(),
            changed(spec.load_settings(), {"grip": 0.5}),
            spec.thresholds,
            gaps=np.array([[own, other]]),
        )
        return float(outcome.reward_terms["grip"][0])

    assert penalty(0.02, 0.06) == penalty(0.1, 0.14) == 0.0
    assert penalty(0.0, 0.01) == 0.0
    assert penalty(0.02, 0.04) == penalty(0.2, 0.3) == penalty(0.4, 0.01) == -0.5


@pytest.mark.parametrize(
    ("own", "other", "held", "rule"),
    [
        (0.1, 0.14, -1, 1.0),
        (0.1, 0.12, -1, -1.0),
        (0.2, 0.4, -1, -1.0),
        (0.001, -0.01, -1, 1.0),
        (0.2, 0.01, 0, 1.0),
    ],
)
def test_the_rule_of_the_grip(own: float, other: float, held: int, rule: float) -> None:
    readings = Readings(gaps=np.array([[own, other]]))
    seen = SensorContext(None, None, world(held=np.array([held])), readings)
    assert observation.observe(get("pick").definition, ("grip_rule",), seen) == rule


def test_a_stop_that_is_called_too_early_is_penalised() -> None:
    here, there = at(1, 2), SkillGoal(position=(1.0, 3.0, 0.8))
    _, early = run("navigate", AHEAD, here, here, stop=True, wrong_stop=4.0)
    assert early.reward_terms["wrong_stop"][0] == -4.0 and early.terminated[0]
    _, right = run("navigate", there, here, here, stop=True, wrong_stop=4.0)
    assert right.reward_terms["wrong_stop"][0] == 0.0 and right.success[0]
    _, free = run("navigate", AHEAD, here, here, stop=True)
    assert "wrong_stop" not in free.reward_terms


def test_place_is_penalised_for_keeping_the_grip_closed_at_the_goal():
    def penalty(z: float, held: int = 0) -> float:
        _, outcome = run("place", PLACE, carrying(1, 2.5, 1.2), carrying(1, 2.5, z, held), grip=0.5)
        return float(outcome.reward_terms["grip"][0])

    assert penalty(0.87) == 0.0 and penalty(0.85) == -0.5 and penalty(0.85, held=-1) == 0.0


def test_pick_ends_when_the_object_is_dropped():
    _, outcome = run(
        "pick", PICK, cup_at(1, 2, 0.9), cup_at(1, 2, 0.9, held=np.array([1])), world()
    )
    assert outcome.reward_terms["drop"][0] == -0.5 and outcome.reward_terms["distance"][0] == 0.0
    assert outcome.terminated[0] and FAILURES[outcome.failure[0]] == "dropped"
    assert outcome.reward_terms["constraint"][0] == 0.0


def test_pick_is_penalised_for_a_broken_hold_in_addition_to_the_drop():
    broken = world(violation=np.array([True]))
    _, outcome = run("pick", PICK, world(held=np.array([1])), broken)
    assert outcome.reward_terms["constraint"][0] == -1.0 and outcome.reward_terms["drop"][0] == -0.5


def test_pick_ends_with_another_object_in_the_cup():
    _, outcome = run("pick", PICK, cup_at(1, 2, 0.9), cup_at(1, 2.1, 0.9, held=np.array([0])))
    assert outcome.reward_terms["wrong_pick"][0] == -0.5
    assert outcome.reward_terms["distance"][0] == 0.0
    assert outcome.terminated[0] and FAILURES[outcome.failure[0]] == "wrong_object"


def test_pick_that_starts_with_the_object_in_hand_gets_no_reward_for_the_grasp():
    held = np.array([1])
    _, outcome = run("pick", PICK, cup_at(1, 2, 0.9, held=held), cup_at(1, 2, 0.9, held=held))
    assert outcome.reward_terms["pick"][0] == 0.0


# -- Place -------------------------------------------------------------------------------------


def test_place_rewards_progress_of_the_object_until_15_cm_from_its_goal():
    _, far = run("place", PLACE, carrying(1, 2.5, 1.2), carrying(1, 2.5, 1.1))
    assert far.reward_terms["distance"][0] == pytest.approx(0.2)
    _, near = run("place", PLACE, carrying(1, 2.5, 0.96), carrying(1, 2.5, 0.9))
    assert near.reward_terms["distance"][0] == 0.0


def test_place_rewards_the_release_at_the_goal_once_and_then_progress_to_rest():
    low = np.array([[1.0, 2.5, 0.9]])
    holding = carrying(1, 2.5, 0.82, ee_pos=low)
    free = carrying(1, 2.5, 0.8, held=-1, ee_pos=low)
    state, release = run("place", PLACE, holding, free)
    assert release.reward_terms["place"][0] == 5.0 and release.reward_terms["distance"][0] == 0.0
    assert release.success[0] and state.memory.at_goal[0]  # 0.1 m from rest is near enough
    deep, less_deep = np.array([[1.0, 2.5, 0.7]]), np.array([[1.0, 2.5, 0.8]])
    first = carrying(1, 2.5, 0.8, held=-1, ee_pos=deep)
    higher = carrying(1, 2.5, 0.8, held=-1, ee_pos=less_deep)
    _, back = run("place", PLACE, carrying(1, 2.5, 0.82, ee_pos=deep), first, higher)
    assert back.reward_terms["place"][0] == 0.0
    assert back.reward_terms["distance"][0] == pytest.approx(0.2)
    again = carrying(1, 2.5, 0.8, ee_pos=deep)
    _, second = run("place", PLACE, again, first, again, first)
    assert second.reward_terms["place"][0] == 0.0


def test_place_ends_with_a_release_off_the_goal():
    _, outcome = run("place", PLACE, carrying(1, 2.5, 1.0), carrying(1, 2.5, 1.0, held=-1))
    assert outcome.terminated[0] and FAILURES[outcome.failure[0]] == "wrong_drop"
    assert outcome.reward[0] == pytest.approx(-0.005)
    broken = carrying(1, 2.5, 1.0, held=-1, violation=np.array([True]))
    _, dropped = run("place", PLACE, carrying(1, 2.5, 1.0), broken)
    assert FAILURES[dropped.failure[0]] == "dropped"
    _, priced = run("place", PLACE, carrying(1, 2.5, 1.0), broken, drop=0.7)
    assert priced.reward_terms["drop"][0] == -0.7


def test_place_is_penalised_for_throwing_if_enabled():
    still = carrying(1, 2.5, 0.8), carrying(1, 2.5, 0.8), carrying(1, 2.5, 0.8, held=-1)
    thrown = carrying(1, 2.5, 0.82), carrying(1, 2.5, 0.81), carrying(1, 2.51, 0.81, held=-1)
    for worlds, expected in ((still, 0.0), (thrown, -0.5 * 30 * 0.01)):
        _, outcome = run("place", PLACE, *worlds, throw=0.5)
        assert outcome.reward_terms["throw"][0] == pytest.approx(expected)
        _, later = run("place", PLACE, *worlds, carrying(1, 2.6, 0.8, held=-1), throw=0.5)
        assert later.reward_terms["throw"][0] == 0.0


def test_place_succeeds_only_with_the_object_still_if_enabled():
    limits = dataclasses.replace(get("place").thresholds, still=0.05)
    before, free = at_rest(0.8, held=0), at_rest(0.8)
    for last, success in ((at_rest(0.801), True), (at_rest(0.802), False)):  # 0.03 and 0.06 m/s
        found = judged("place", PLACE, before, free, last, thresholds=limits)
        assert found.conditions["still"].holds[0] == success == bool(found.success[0])
        assert judged("place", PLACE, before, free, last).success[0]


def test_place_that_starts_with_an_empty_cup_gets_no_reward_for_a_release():
    free = carrying(1, 2.5, 0.8, held=-1)
    _, outcome = run("place", PLACE, free, free)
    assert outcome.reward_terms["place"][0] == 0.0 and outcome.failure[0] == 0


def at_rest(z: float, held: int = -1, **changes: object) -> WorldState:
    """Returns a world with the arm at rest and object 0 at height `z` (m), above its goal."""
    return carrying(1, 2.5, z, held, **changes)


def arm_out(z: float, held: int = -1, **changes: object) -> WorldState:
    """Returns the world of `at_rest` with the cup 0.4 m in front of its resting point."""
    return carrying(1, 2.5, z, held, ee_pos=np.array([[1.0, 2.9, 1.0]]), **changes)


def test_a_wrong_drop_is_judged_at_the_release_or_with_the_arm_at_rest():
    begun, off, back = arm_out(1.2, held=0), arm_out(1.2), at_rest(1.2)
    assert failure("place", PLACE, begun, off) == "wrong_drop"
    assert failure("place", PLACE, begun, off, wrong_drop="release") == "wrong_drop"
    assert failure("place", PLACE, begun, off, wrong_drop="rest") == ""
    assert failure("place", PLACE, begun, off, back, wrong_drop="rest") == "wrong_drop"


def test_an_object_that_falls_onto_its_goal_is_placed_if_judged_at_rest():
    falling = [arm_out(1.0, held=0), arm_out(1.0), arm_out(0.8), at_rest(0.8)]
    assert failure("place", PLACE, *falling[:2], wrong_drop="release") == "wrong_drop"
    for count in (2, 3, 4):
        assert failure("place", PLACE, *falling[:count], wrong_drop="rest") == ""
    assert judged("place", PLACE, *falling, wrong_drop="rest").success[0]


def test_an_object_that_rolls_off_its_goal_is_a_wrong_drop_if_judged_at_rest():
    rolling = [arm_out(0.8, held=0), arm_out(0.8), arm_out(1.2), at_rest(1.2)]
    for count in (2, 3, 4):
        assert failure("place", PLACE, *rolling[:count], wrong_drop="release") == ""
    assert failure("place", PLACE, *rolling[:3], wrong_drop="rest") == ""
    assert failure("place", PLACE, *rolling, wrong_drop="rest") == "wrong_drop"


@pytest.mark.parametrize("wrong_drop", ["release", "rest"])
def test_an_object_that_rolls_farther_than_lost_m_ends_the_episode(wrong_drop: str) -> None:
    rolling = [arm_out(0.8, held=0), arm_out(0.8), arm_out(1.2)]  # 0.4 m off its goal
    for lost_m, ended in ((0.0, ""), (0.5, ""), (0.3, "wrong_drop")):
        assert failure("place", PLACE, *rolling, wrong_drop=wrong_drop, lost_m=lost_m) == ended
        assert failure("place", PLACE, *rolling[:2], wrong_drop=wrong_drop, lost_m=lost_m) == ""


def test_an_object_that_rolls_farther_than_lost_m_costs_the_drop_penalty() -> None:
    rolling = [arm_out(0.8, held=0), arm_out(0.8), arm_out(1.2)]
    for lost_m, penalty in ((0.0, 0.0), (0.3, -5.0)):
        terms = run("place", PLACE, *rolling, drop=5.0, lost_m=lost_m)[1].reward_terms
        assert terms["drop"][0] == penalty


@pytest.mark.parametrize(("precision", "share"), [(0.0, 1.0), (0.5, 2 / 3), (1.0, 1 / 3)])
def test_precision_scales_the_place_reward_by_distance_from_the_goal(
    precision: float, share: float
) -> None:
    near = [arm_out(0.9, held=0), arm_out(0.9)]  # 0.1 m off its goal; 0.15 m are allowed
    terms = run("place", PLACE, *near, precision=precision)[1].reward_terms
    assert terms["place"][0] == pytest.approx(5.0 * share)


def test_a_broken_hold_is_a_drop_at_once_for_any_wrong_drop_setting():
    holding, broken = arm_out(1.2, held=0), arm_out(1.2, violation=np.array([True]))
    for wrong_drop in ("release", "rest"):
        assert failure("place", PLACE, holding, broken, wrong_drop=wrong_drop) == "dropped"


def test_the_wrong_drop_setting_changes_termination_but_no_reward():
    off = [arm_out(1.2, held=0), arm_out(1.2)]
    for worlds in (off, [arm_out(0.82, held=0), arm_out(0.8)]):
        pair = [run("place", PLACE, *worlds, wrong_drop=w)[1] for w in ("release", "rest")]
        assert dict(pair[0].reward_terms) == dict(pair[1].reward_terms)
    assert run("place", PLACE, *off, wrong_drop="release")[1].terminated[0]
    assert not run("place", PLACE, *off, wrong_drop="rest")[1].terminated[0]


def test_plans_judge_a_wrong_drop_at_rest_and_training_at_the_release():
    spec = get("place")
    assert spec.load_settings().wrong_drop == "release"
    for values in spec.protocols.values():
        assert (values.limits.wrong_drop, values.alone.wrong_drop) == ("rest", "release")


# -- Open and close ----------------------------------------------------------------------------


def test_open_rewards_progress_of_the_empty_cup_to_the_handle():
    _, outcome = run("open_fridge", OPEN, cup_at(1, 2.5, 1), cup_at(1, 2.7, 1))
    assert outcome.reward_terms["handle"][0] == pytest.approx(0.2)
    held = cup_at(1, 2.7, 1, held_joint=np.array([FRIDGE]))
    _, holding = run("open_fridge", OPEN, cup_at(1, 2.5, 1), held)
    assert holding.reward_terms["handle"][0] == 0.0


def test_open_rewards_the_grasp_of_the_handle_once():
    holding = cup_at(1, 2.9, 1, held_joint=np.array([FRIDGE]))
    _, first = run("open_fridge", OPEN, cup_at(1, 2.9, 1), holding)
    assert first.reward_terms["grasp"][0] == 5.0
    _, again = run("open_fridge", OPEN, cup_at(1, 2.9, 1), holding, cup_at(1, 2.9, 1), holding)
    assert again.reward_terms["grasp"][0] == 0.0


def test_open_rewards_joint_progress_and_reaching_the_target_once():
    _, opening = run("open_fridge", OPEN, opened(FRIDGE, 0.5), opened(FRIDGE, 0.6))
    assert opening.reward_terms["joint"][0] == pytest.approx(1.0)
    assert opening.reward_terms["reached"][0] == 0.0
    _, there = run("open_fridge", OPEN, opened(FRIDGE, 1.1), opened(FRIDGE, 1.19))
    assert there.reward_terms["reached"][0] == 5.0 and there.reward_terms["joint"][0] == 0.0
    worlds = [opened(FRIDGE, value) for value in (1.1, 1.19, 1.1, 1.19)]
    _, again = run("open_fridge", OPEN, *worlds)
    assert again.reward_terms["reached"][0] == 0.0


def test_open_rewards_progress_to_rest_once_the_joint_is_at_its_target():
    low, rest = np.array([[1.0, 2.5, 0.7]]), np.array([[1.0, 2.5, 0.9]])
    before, after = opened(FRIDGE, 1.2, ee_pos=low), opened(FRIDGE, 1.2, ee_pos=rest)
    _, fridge = run("open_fridge", OPEN, before, after)
    assert (
        fridge.reward_terms["rest"][0] == pytest.approx(0.2)
        and fridge.reward_terms["handle"][0] == 0.0
    )
    drawer = SkillGoal(marker="cab_push_point_5")
    before, after = opened(DRAWER, 0.42, ee_pos=low), opened(DRAWER, 0.42, ee_pos=rest)
    _, outcome = run("open_drawer", drawer, before, after)
    assert outcome.reward_terms["rest"][0] == pytest.approx(2.0)


def test_open_ends_with_an_object_or_another_handle_in_the_cup():
    for changes in ({"held": np.array([0])}, {"held_joint": np.array([DRAWER])}):
        _, outcome = run("open_fridge", OPEN, world(), world(**changes))
        assert outcome.reward_terms["wrong_grasp"][0] == -5.0
        assert outcome.terminated[0] and FAILURES[outcome.failure[0]] == "wrong_grasp"


def test_open_and_close_end_with_stop_in_success_or_failure():
    _, good = run("open_fridge", OPEN, opened(FRIDGE, 1.2), opened(FRIDGE, 1.2), stop=True)
    assert good.success[0] and good.reward_terms["success"][0] == 10.0
    _, early = run("open_fridge", OPEN, opened(FRIDGE, 0.5), opened(FRIDGE, 0.5), stop=True)
    assert FAILURES[early.failure[0]] == "stopped"
    _, closed = run("close_fridge", OPEN, opened(FRIDGE, 0.1), opened(FRIDGE, 0.04), stop=True)
    assert closed.success[0]


def test_close_rewards_progress_of_the_joint_to_zero():
    _, outcome = run("close_fridge", OPEN, opened(FRIDGE, 1.0), opened(FRIDGE, 0.9))
    assert outcome.reward_terms["joint"][0] == pytest.approx(1.0)
    _, there = run("close_fridge", OPEN, opened(FRIDGE, 0.1), opened(FRIDGE, 0.05))
    assert there.reward_terms["reached"][0] == 5.0 and there.reward_terms["joint"][0] == 0.0


def test_a_broken_hold_costs_one_when_opening_and_ten_when_closing():
    broken = world(violation=np.array([True]))
    for name, penalty in (("open_drawer", -1.0), ("close_drawer", -10.0)):
        _, outcome = run(name, SkillGoal(marker="cab_push_point_5"), world(), broken)
        assert outcome.reward_terms["constraint"][0] == penalty


def test_the_broken_hold_penalty_of_pick_can_be_disabled():
    before, broken = world(held=np.array([1])), world(violation=np.array([True]))
    _, ours = run("pick", PICK, before, broken)
    assert (ours.reward_terms["constraint"][0], ours.reward_terms["drop"][0]) == (-1.0, -0.5)
    assert FAILURES[ours.failure[0]] == "dropped"
    _, habitat = run("pick", PICK, before, broken, constraint=0.0)
    assert habitat.reward[0] == pytest.approx(-0.5 - 0.005)


def test_opening_continues_with_the_arm_at_rest_until_stop_is_called():
    back = [world(), cup_at(1, 2.9, 1), world()]
    assert failure("open_fridge", OPEN, *back) == ""
    assert failure("open_fridge", OPEN, *back, stop=True) == "stopped"
    assert not judged("open_fridge", OPEN, *back, opened(FRIDGE, 1.3)).success[0]


def test_a_broken_hold_ends_opening_and_closing_in_training_and_not_within_a_plan():
    broken, goal = world(violation=np.array([True])), SkillGoal(marker="cab_push_point_5")
    for name in ("open_drawer", "close_drawer"):
        spec = get(name)
        assert failure(name, goal, world(), broken) == "hold_broken"
        assert failure(name, goal, world(), broken, broken_hold="goes_on") == ""
        assert run(name, goal, world(), broken)[1].terminated[0]
        habitat = spec.values("habitat")
        assert (habitat.alone.broken_hold, habitat.limits.broken_hold) == ("fails", "goes_on")
        assert {v.limits.broken_hold for v in spec.protocols.values()} == {"goes_on"}


# -- Shared by all skills ----------------------------------------------------------------------


def test_rises_of_force_are_penalised_up_to_a_cap_and_falls_are_free():
    costs = {30.0: 0.003, 90.0: 0.009, 500.0: 0.01, 0.0: 0.0}
    for rise, cost in costs.items():
        _, outcome = run("pick", PICK, pushed(0.0, 70.0), pushed(rise, 70.0 + rise))
        assert outcome.reward_terms["force"][0] == pytest.approx(-cost)
    _, falling = run("pick", PICK, pushed(500.0, 500.0), pushed(30.0, 500.0))
    assert falling.reward_terms["force"][0] == 0.0


def test_the_penalty_on_base_speed_is_quadratic() -> None:
    moving = world(base_velocity=np.array([[0.3, -0.4, 2.0]]))
    _, outcome = run("pick", PICK, world(), moving, speed=0.02)
    assert outcome.reward_terms["speed"][0] == pytest.approx(-0.02 * (0.25 + 1.0))
    assert "speed" not in run("pick", PICK, world(), moving)[1].reward_terms


@pytest.mark.parametrize(
    ("skill", "goal", "carried"),
    [("pick", PICK, True), ("place", PLACE, False), ("open_fridge", OPEN, True)],
)
def test_path_progress_is_rewarded_until_the_grasp_or_release(
    skill: str, goal: SkillGoal, carried: bool
) -> None:
    spec = get(skill)
    gained = PathProgress(*(np.array([metres]) for metres in (2.0, 1.0, 0.25, 1.0)))
    for arrived in (False, True):
        full = carried if arrived else not carried
        held = np.array([goal.object if full and goal.object >= 0 else -1])
        joint = np.array([FRIDGE if full and goal.marker else -1])
        here = world(held=held, held_joint=joint)
        state = task.begin(spec.definition, Goals.of([goal]), here, spec.thresholds)
        for weight in (0.0, 2.0):
            settings = changed(spec.load_settings(), {"way": weight})
            idle = np.zeros((1, act.SIZE))
            _, _, outcome = task.step(
                spec.definition, state, idle, here, settings, spec.thresholds, gained
            )
            assert outcome.reward_terms.get("way", 0.0) == (0.0 if arrived else weight * 0.25)


def test_a_task_sums_the_rises_of_force_since_it_began():
    state, _ = run("pick", PICK, pushed(0.0, 100.0), pushed(30.0, 130.0), pushed(0.0, 130.0))
    assert state.force_sum[0] == pytest.approx(30.0)


def test_exceeding_a_force_limit_ends_the_episode_with_a_penalty():
    _, instant = run("navigate", AHEAD, pushed(9000.0), pushed(10001.0))
    assert instant.reward_terms["force_end"][0] == -1.0
    assert instant.terminated[0] and FAILURES[instant.failure[0]] == "force_limit"
    bumps = [pushed(f, t) for f, t in ((0.0, 0.0), (6e3, 6e3), (0.0, 6e3), (6e3, 12e3))]
    _, summed = run("navigate", AHEAD, *bumps)
    assert FAILURES[summed.failure[0]] == "force_limit"
    _, drawer = run("open_drawer", SkillGoal(marker="cab_push_point_5"), *bumps)
    assert not drawer.terminated[0]
    hard = SkillGoal(marker="cab_push_point_5")
    _, opening = run("open_drawer", hard, pushed(0.0), pushed(10001.0))
    assert opening.reward_terms["force_end"][0] == -10.0
    _, closing = run("close_drawer", hard, pushed(0.0), pushed(1e6))
    assert not closing.terminated[0] and "force_end" not in closing.reward_terms


def test_the_horizon_truncates_and_does_not_terminate():
    _, before = run("pick", PICK, *[world()] * 3, horizon=3)
    assert not before.truncated[0]
    _, outcome = run("pick", PICK, *[world()] * 4, horizon=3)
    assert outcome.truncated[0] and not outcome.terminated[0]
    _, success = run("pick", PICK, *[world()] * 3, world(held=np.array([1])), horizon=3)
    assert success.terminated[0] and not success.truncated[0]


def test_a_step_without_change_costs_only_the_slack():
    for name in planned():
        goal = SkillGoal(1, (1.0, 9.0, 0.8), "fridge_push_point")
        start = world(held=np.array([1])) if name == "place" else opened(FRIDGE, 0.3)
        _, outcome = run(name, goal, start, start)
        slack = 0.005 if name in ("navigate", "pick", "place") else 0.0
        assert outcome.reward[0] == pytest.approx(-slack, abs=1e-12)


@pytest.mark.parametrize("name", planned())
def test_the_reward_is_the_sum_of_its_terms(name: str):
    worlds = random_worlds(np.random.default_rng(3), 50)
    goals = random_goals(np.random.default_rng(4), worlds)
    spec, actions = get(name), np.ones((50, act.SIZE))
    skill, settings, limits = spec.definition, spec.load_settings(), spec.thresholds
    state = task.begin(skill, goals, rows(worlds, slice(None, None, -1)), limits)
    _, _, outcome = task.step(skill, state, actions, worlds, settings, limits)
    assert outcome.reward == pytest.approx(sum(outcome.reward_terms.values()))
    assert np.isfinite(outcome.reward).all()


# -- Numpy, torch, batches ---------------------------------------------------------------------


def two_steps(name: str, worlds: list, goals: Goals, actions: list) -> dict[str, Any]:
    """Runs two steps; returns task state, measures, outcomes and observations by name."""
    spec = get(name)
    skill, settings, limits = spec.definition, spec.load_settings(), spec.thresholds
    state = task.begin(skill, goals, worlds[0], limits)
    found: dict[str, Any] = {}
    for number, (world_, action) in enumerate(zip(worlds[1:], actions, strict=True)):
        held, joint = world_.held, world_.held_joint
        masked = task.masked(action, skill.mask(), held, joint, skill.grip)
        state, measures, outcome = task.step(skill, state, masked, world_, settings, limits)
        # Stand-ins for readings such as paths and scans, which these worlds do not have.
        readings = Readings(
            way=world_.ee_pos,
            hand=world_.ee_quat,
            scan=world_.ee_pos,
            laser=world_.ee_pos,
            facing=world_.ee_pos[:, 0],
            extent=world_.ee_pos,
            clearance=world_.ee_quat[:, None, :],
            neighbours=world_.ee_quat[:, [[0, 1, 2, 3]] * NEIGHBOUR_ROWS],
            gaps=world_.ee_quat[:, :2],
            motion=world_.ee_quat[:, [0, 1, 2, 1, 2, 3]],
            trail=world_.ee_quat[:, [[0, 1, 2], [1, 2, 3], [2, 3, 0]]],
            explored=world_.ee_pos,
        )
        for choice in CHOICES:
            sensors = PolicyInputs.of(name, choice).sensors
            seen = SensorContext(state, measures, world_, readings)
            found[f"{number}.{choice}"] = observation.observe(skill, sensors, seen)
        found |= {f"{number}.{key}": value for key, value in outcome.reward_terms.items()}
        for key in ("reward", "success", "failure", "terminated", "truncated"):
            found[f"{number}.outcome.{key}"] = getattr(outcome, key)
        found[f"{number}.actions"] = masked
        found |= arrays_of(measures, f"{number}.measures.")
    return found | arrays_of(state)


def some_steps(count: int) -> tuple[list, Goals, list]:
    rng = np.random.default_rng(7)
    worlds = [random_worlds(rng, count) for _ in range(3)]
    actions = [rng.uniform(-1.5, 1.5, (count, act.SIZE)) for _ in range(2)]
    return worlds, random_goals(rng, worlds[1]), actions


@pytest.mark.parametrize("name", planned())
def test_torch_gives_the_same_numbers_as_numpy(name: str):
    worlds, goals, actions = some_steps(300)
    ours = two_steps(name, worlds, goals, actions)
    theirs = two_steps(
        name,
        [to_torch(w) for w in worlds],
        to_torch(goals),
        [torch.asarray(a) for a in actions],
    )
    assert ours.keys() == theirs.keys()
    for key, value in ours.items():
        assert isinstance(theirs[key], torch.Tensor), key
        np.testing.assert_allclose(theirs[key].numpy(), value, atol=1e-6, err_msg=key)
    assert ours["0.full"].dtype == np.float32 and theirs["0.full"].dtype == torch.float32


@pytest.mark.parametrize("name", planned())
def test_a_batch_gives_the_same_numbers_as_its_homes_one_by_one(name: str):
    worlds, goals, actions = some_steps(25)
    whole = two_steps(name, worlds, goals, actions)
    for row in range(25):
        one = slice(row, row + 1)
        alone = two_steps(
            name, [w.row(row) for w in worlds], rows(goals, one), [a[one] for a in actions]
        )
        for key, value in whole.items():
            np.testing.assert_allclose(alone[key], value[one], atol=1e-12, err_msg=key)


@pytest.mark.parametrize("name", planned())
def test_random_worlds_bring_every_skill_to_success_and_to_failure(name: str):
    worlds, goals, actions = some_steps(2000)
    found = two_steps(name, worlds, goals, actions)
    assert found["0.outcome.success"].any() and not found["0.outcome.success"].all()
    assert found["0.outcome.failure"].any() or name.startswith("close")
    assert not (found["0.outcome.success"] & (found["0.outcome.failure"] > 0)).any()


# -- Masks, sensors, state, settings -----------------------------------------------------------


def test_masked_action_parts_are_neutral_and_the_grip_keeps_its_object():
    actions = np.ones((2, act.SIZE))
    held, joint = np.array([-1, 3]), np.array([-1, -1])
    masked = task.masked(actions, get("navigate").definition.mask(), held, joint)
    assert (masked[:, act.ARM] == 0).all() and (masked[:, act.BASE] == 1).all()
    assert masked[:, act.GRIP].tolist() == [-1.0, 1.0]  # keeps the held object
    pick = task.masked(-actions, get("pick").definition.mask(), held, joint)
    assert (pick[:, : act.STOP] == -1).all() and (pick[:, act.STOP] == -1).all()
    assert (actions == 1.0).all()


def grips(name: str, wanted: float) -> list[float]:
    """Returns the masked grip with an empty cup, with a held object and with a held handle."""
    held, joint = np.array([-1, 3, -1]), np.array([-1, -1, 0])
    skill, actions = get(name).definition, np.full((3, act.SIZE), wanted)
    return task.masked(actions, skill.mask(), held, joint, skill.grip)[:, act.GRIP].tolist()


def test_pick_cannot_release_a_held_object_or_handle():
    assert grips("pick", -0.5) == [-0.5, 1.0, 1.0]
    assert grips("pick", 0.5) == [0.5, 1.0, 1.0]


def test_place_cannot_grasp_with_an_empty_cup():
    assert grips("place", 0.5) == [-1.0, 0.5, 0.5]
    assert grips("place", -0.5) == [-1.0, -0.5, -0.5]


def test_opening_may_grasp_and_release():
    assert grips("open_drawer", 0.5) == [0.5] * 3 and grips("open_drawer", -0.5) == [-0.5] * 3


def test_a_skill_without_a_grip_keeps_an_object_and_releases_a_handle():
    assert grips("navigate", 0.5) == grips("navigate", -0.5) == [-1.0, 1.0, -1.0]


def seen_by(
    name: str, goal: SkillGoal, start: WorldState, now: WorldState, sensors: tuple[str, ...]
) -> np.ndarray:
    """Returns what sensors read in world `now` if the skill began in world `start`."""
    spec = get(name)
    skill, limits = spec.definition, spec.thresholds
    state = task.begin(skill, Goals.of([goal]), start, limits)
    measures = skill.measure(MeasureContext(state, now, limits))
    seen = SensorContext(state, measures, now, Readings())
    return observation.observe(skill, sensors, seen)[0]


def test_sensors_give_positions_in_the_frame_of_the_base():
    goal = SkillGoal(0, (0.0, 4.0, 0.7))
    moving = world(base_velocity=np.array([[0.0, 0.5, 0.3]]), held=np.array([0]))
    vector = seen_by("place", goal, moving, moving, observation.FULL)
    places = PolicyInputs.of("place", "full").layout()
    seen = {name: vector[part] for name, part in places.items()}
    assert len(vector) == 24
    assert seen["ee"] == pytest.approx([0.5, 0.0, 1.0])
    assert seen["to_rest"] == pytest.approx([0.0, 0.0, 0.0], abs=1e-6)
    assert seen["holding"] == [1.0]
    assert seen["velocity"] == pytest.approx([0.5, 0.0, 0.3], abs=1e-6)
    assert seen["goal"] == pytest.approx([2.0, 1.0, 0.7])
    assert seen["reach"] == pytest.approx([-0.5, 1.0, -0.2], abs=1e-6)  # to (0, 2, 0.8)


def test_the_margins_sensor_gives_negated_margins_of_place() -> None:
    goal, near = SkillGoal(0, (0.0, 2.0, 0.9)), carrying(0.0, 2.05, 0.85)
    to_goal, rest = seen_by("place", goal, near, near, (observation.MARGINS,))
    conditions = judged("place", goal, near, near).conditions
    assert to_goal == pytest.approx(math.hypot(0.05, 0.05) - 0.15)
    for shown, name in ((to_goal, "at_goal"), (rest, "rest")):
        assert float(conditions[name].margin[0]) == pytest.approx(-shown, abs=1e-6)


def test_habitat_sensors_of_navigate_are_distance_and_angle_with_left_positive():
    goal, sensors = SkillGoal(position=(0.0, 3.0, 0.7)), get("navigate").definition.sensors
    vector = seen_by("navigate", goal, world(), world(), sensors)
    assert vector[:2] == pytest.approx([math.sqrt(2), math.pi / 4])
    assert len(vector) == 9


def test_habitat_sensors_of_pick_give_the_objects_start_in_the_frame_of_the_cup():
    # The cup's x axis points down, its y axis along the world's y.
    down = world(ee_quat=np.array([[math.sqrt(0.5), 0.0, math.sqrt(0.5), 0.0]]))
    moved = world(ee_quat=down.ee_quat, object_pos=down.object_pos + 5.0)
    vector = seen_by("pick", SkillGoal(1), down, moved, get("pick").definition.sensors)
    assert vector[:3] == pytest.approx([0.2, -0.5, 0.0], abs=1e-6)
    assert len(vector) == 14


def test_fetch_sensors_give_object_start_and_goal_along_the_axes_of_the_base():
    # The robot faces the world's y axis, so a point at x = 0 is 1 m to its left.
    for skill, goal, sensor in (
        ("pick", SkillGoal(0), "start_reach"),
        ("place", SkillGoal(0, (0.0, 2.0, 0.8)), "goal_reach"),
    ):
        definition = get(skill).definition
        names = PolicyInputs.of(skill, "fetch").sensors
        assert set(definition.sensors) < set(names) and observation.LASER in names
        moved = world(object_pos=world().object_pos + 5.0)  # only the start position counts
        seen = seen_by(skill, goal, world(), moved, (sensor,))
        assert seen == pytest.approx([-0.5, 1.0, -0.2], abs=1e-6)


def test_carried_is_how_the_hand_holds_its_object():
    # The cup's x axis points down, its y axis along the world's y, as the robot's heading. The
    # object hangs upright 0.1 m below the cup and 0.05 m ahead of it.
    grasp = Grasp((0.1, 0.05, 0.0), (-1.0, 0.0, 0.0))
    goal, turned = SkillGoal(0, (0.0, 2.0, 0.8), grasp=grasp), [math.sqrt(0.5), 0.0, math.sqrt(0.5)]
    for held, goal_of_run, expected in (
        (0, goal, [-0.55, 1.0, -0.1, 0.0, 0.0, 1.0]),
        (-1, goal, [0.0] * 6),
        (1, goal, [0.0] * 6),  # another object
        (0, dataclasses.replace(goal, grasp=None), [0.0] * 6),
    ):
        holding = world(held=np.array([held]), ee_quat=np.array([[*turned, 0.0]]))
        seen = seen_by("place", goal_of_run, holding, holding, ("carried",))
        assert seen == pytest.approx(expected, abs=1e-6)


def test_gaze_is_where_a_point_appears_in_the_heads_picture():
    # 1 m ahead of the camera along its axis, then 0.5 m to the left and behind the robot.
    axis = np.subtract(HEAD_CAMERA_TARGET, HEAD_CAMERA_POS) / math.hypot(0.5, 0.2)
    ahead = np.add(HEAD_CAMERA_POS, axis)
    for point, expected in (
        (ahead, [0.0, 0.0, 1.0]),
        (ahead + np.array([0.0, 0.5, 0.0]), [-0.5, 0.0, 1.0]),
        (ahead + np.array([0.0, 0.0, 2.0]), [0.0, -1.0, 1.0 - 2.0 * 0.2 / math.hypot(0.5, 0.2)]),
        (-ahead, [0.0, 1.0, -float(np.add(ahead, HEAD_CAMERA_POS) @ axis)]),
    ):
        # The robot faces the world's y axis.
        x, y, z = point
        base = world().base[0]
        there = np.array([[base[0] - y, base[1] + x, z]])
        first = world(object_pos=np.stack([there, there], axis=1))
        for found in (
            seen_by("pick", PICK, first, world(), ("start_gaze",)),
            seen_by("place", PICK, world(), world(ee_pos=there), ("ee_gaze",)),
        ):
            assert found == pytest.approx(expected, abs=1e-6)


class HighPick(Pick):
    own_sensors: ClassVar = {"height": observation.Sensor(1, lambda seen: seen.measures.ee[:, 2:])}
    full_sensors = ("height", "arm")


def test_a_skill_may_define_its_own_sensors():
    skill, limits = HighPick(), get("pick").thresholds
    with registered(dataclasses.replace(get("pick"), name="high", definition=skill, actions=())):
        inputs = PolicyInputs.of("high", "full")
        assert inputs.layout() == {"height": slice(0, 1), "arm": slice(1, 8)}
    state = task.begin(skill, Goals.of([PICK]), world(), limits)
    measures = skill.measure(MeasureContext(state, world(), limits))
    context = SensorContext(state, measures, world(), Readings())
    seen = observation.observe(skill, inputs.sensors, context)
    assert seen[0].tolist() == [1.0] + [0.0] * 7
    assert "height" not in observation.known(get("pick").definition)


# -- Structs -----------------------------------------------------------------------------------


def some_tasks(name: str, count: int = 6) -> TaskState:
    """Returns `count` different task states in the middle of an episode."""
    worlds, goals, actions = some_steps(count)
    spec = get(name)
    skill, settings, limits = spec.definition, spec.load_settings(), spec.thresholds
    state = task.begin(skill, goals, worlds[0], limits)
    return task.step(skill, state, actions[0], worlds[1], settings, limits)[0]


def same(one: Any, other: Any) -> bool:
    """Returns whether two structs have the same type and equal arrays of equal dtypes."""
    ours, theirs = arrays_of(one), arrays_of(other)
    return type(one) is type(other) and all(
        ours[name].dtype == theirs[name].dtype and np.array_equal(ours[name], theirs[name])
        for name in ours.keys() | theirs.keys()
    )


def test_task_state_is_restored_from_its_arrays_and_refuses_others():
    state, _ = run("pick", PICK, cup_at(1, 2, 1.3), cup_at(1, 2, 1.2))
    arrays = state.to_arrays()
    blank = some_tasks("pick", 1)
    assert not same(blank, state) and same(blank.like(arrays), state)
    for lacking in ("steps", "memory.picked"):
        with pytest.raises(UserError, match=lacking):
            blank.like({name: values for name, values in arrays.items() if name != lacking})
    with pytest.raises(UserError, match=r"memory\.other missing or unknown"):
        blank.like({**arrays, "memory.other": arrays["steps"]})
    with pytest.raises(UserError, match=r"memory\.at_goal"):
        some_tasks("place", 1).like(arrays)


@pytest.mark.parametrize("name", planned())
def test_rows_of_a_struct_can_be_put_into_any_rows_of_a_room(name: str):
    state = some_tasks(name)
    order, places = np.array([4, 0, 3]), np.array([7, 1, 2])
    taken = state.take(order)
    assert taken.goal(0) == state.goal(4) and same(taken, rows(state, order))
    room = state.room(9)
    assert type(room.memory) is type(state.memory)
    assert all(len(values) == 9 and not values.any() for values in arrays_of(room).values())
    room.put(places, taken)
    assert same(room.take(places), taken)
    others = np.setdiff1d(np.arange(9), places)
    assert not any(values[others].any() for values in arrays_of(room).values())
    taken.steps[:] = 99
    assert state.steps.tolist() == [1] * 6 and room.steps[7] == 1


@pytest.mark.parametrize("name", planned())
def test_a_struct_is_restored_from_its_arrays_which_are_copies(name: str):
    state = some_tasks(name)
    arrays = state.to_arrays()
    again = state.room(1).like(arrays)
    assert same(again, state) and type(again.memory) is type(state.memory)
    for values in arrays.values():
        values[...] = 0
    assert same(again, state) and state.steps.tolist() == [1] * 6


def test_rows_are_taken_from_a_struct_of_tensors():
    state = some_tasks("place")
    taken = to_torch(state).take(torch.tensor([4, 1]))
    assert isinstance(taken.memory.distance, torch.Tensor)
    assert same(mapped(taken, lambda tensor: tensor.numpy()), state.take(np.array([4, 1])))


# -- Goals and settings ------------------------------------------------------------------------


def test_goals_refuse_an_unknown_marker():
    with pytest.raises(UserError, match="did you mean 'cab_push_point_5'"):
        Goals.of([SkillGoal(marker="cab_push_point5")])


@pytest.mark.parametrize("name", planned())
def test_settings_files_state_every_entry_and_load(name: str):
    kind = get(name).definition.settings_type
    text = (config._presets("skill") / f"{name}.yaml").read_text()
    expected = {field.name for field in dataclasses.fields(kind)}
    of_the_protocol = {"wrong_drop", "broken_hold"}
    assert set(yaml.safe_load(text)) == expected - of_the_protocol
    assert isinstance(get(name).load_settings(), kind)


def test_settings_can_be_changed_and_unknown_ones_are_refused():
    pick, place = get("pick").load_settings(), get("place").load_settings()
    assert changed(pick, {"distance": 3.0, "force_total_n": None}).distance == 3.0
    assert changed(place, {"wrong_drop": "rest"}).wrong_drop == "rest"
    with pytest.raises(UserError, match="did you mean 'distance'"):
        changed(pick, {"distanse": 3.0})
    with pytest.raises(UserError, match=r"settings\.distance: 'far' is not a number"):
        changed(pick, {"distance": "far"})
    for entry, value, why in (
        ("horizon", 0, "0 is out of range, must be at least 1"),
        ("horizon", 1.5, "1.5 is not an integer"),
        ("horizon", float("nan"), "nan is not a finite number"),
        ("force_total_n", -1, "-1 is out of range, must be at least 0"),
        ("force", float("inf"), "inf is not a finite number"),
        ("slack", None, "None is not a number"),
    ):
        with pytest.raises(UserError, match=rf"^task\.{entry}: {why}"):
            changed(pick, {entry: value}, "task")
    with pytest.raises(UserError, match=r"settings\.wrong_drop: .*did you mean 'release'"):
        changed(place, {"wrong_drop": "releese"})


@pytest.mark.parametrize("name", names())
def test_limits_of_every_protocol_are_entries_of_the_skills_settings(name: str):
    spec = get(name)
    for values in spec.protocols.values():
        for limits in (values.limits, values.alone):
            judged_by = changed(spec.load_settings(), limits.settings())
            assert judged_by.horizon == limits.steps
            assert judged_by.force_total_n == limits.force_total_n
            assert judged_by.force_instant_n == limits.force_instant_n


@pytest.mark.parametrize("after", [world(), world(held_joint=np.array([FRIDGE]))])
def test_a_handle_held_at_the_start_of_pick_causes_no_failure(after: WorldState):
    handle = world(held_joint=np.array([FRIDGE]))
    assert failure_of(judged("pick", PICK, handle, after)) == ""


def failure_of(verdict: task.Verdict) -> str:
    return FAILURES[int(verdict.evaluation.failure[0])]
