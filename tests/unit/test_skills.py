import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from kinematic_home import world_to_base
from small_worlds import (
    DRAWER,
    FRIDGE,
    cup_at,
    failure,
    opened,
    random_goals,
    random_path,
    random_worlds,
    results,
    rows,
    to_torch,
    world,
)

from skills.core import task
from skills.core.conditions import Margin, conjunction, margins
from skills.core.geometry import planar_distance, rest_distance
from skills.core.interface import SkillGoal
from skills.core.settings import changed
from skills.core.state import Goals
from skills.navigate.task import NavigateThresholds
from skills.pick.task import PickThresholds
from skills.pointnav.task import PointNavThresholds
from skills.registry import get, names
from skills.spec import Referent
from tpsrl.errors import UserError
from tpsrl.world import action
from tpsrl.world.fetch import REST_ARM
from tpsrl.world.state import WorldState

# Thresholds so wide that some random worlds succeed.
WIDE = {
    "navigate": NavigateThresholds(angle_rad=1.5),
    "pick": PickThresholds(arm_rad=3.0, still=2.0),
    "pointnav": PointNavThresholds(distance_m=0.3),
}


def random_scenes(count: int = 200) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    base = rng.uniform([-3, -3, -4], [3, 3, 4], (count, 3))
    point = rng.uniform([-3, -3, 0], [3, 3, 1.5], (count, 3))
    return {
        "base": base,
        "point": point,
        "near": point + rng.normal(0, 0.1, (count, 3)),
        "held": rng.integers(-1, 2, count),
        "flag": rng.random(count) < 0.5,
    }


def test_distances_of_a_batch_equal_those_computed_one_by_one():
    scenes = random_scenes()
    for row in range(200):
        base, point = scenes["base"][row], scenes["point"][row]
        local = world_to_base(base, point)
        assert planar_distance(scenes["base"], scenes["point"])[row] == pytest.approx(
            math.dist(base[:2], point[:2])
        )
        assert rest_distance(scenes["base"], scenes["point"])[row] == pytest.approx(
            math.dist(local, (0.5, 0.0, 1.0))
        )


def random_verdict(name: str, change=lambda struct: struct) -> task.Verdict:
    """Returns the verdict on 300 random worlds, with `change` applied to the inputs."""
    rng = np.random.default_rng(1)
    worlds, spec = random_worlds(rng, 300), get(name)
    goals, path = random_goals(rng, worlds), random_path(rng, 300)
    stop = rng.random(300) < 0.8
    thresholds = WIDE.get(name, spec.thresholds)
    worlds, goals, path = change(worlds), change(goals), change(path)
    if not isinstance(worlds.base, np.ndarray):
        stop = torch.asarray(stop)
    state = task.begin(spec.definition, goals, worlds, thresholds)
    return task.evaluate(
        spec.definition, state, worlds, stop, spec.load_settings(), thresholds, path
    )


@pytest.mark.parametrize("change", [lambda struct: struct, to_torch], ids=["numpy", "torch"])
@pytest.mark.parametrize("name", names())
def test_success_is_the_conjunction_of_conditions_whose_margins_agree(name: str, change):
    verdict = random_verdict(name, change)
    assert 0 < int(verdict.success.sum()) < 300
    assert bool((conjunction(verdict.conditions) == verdict.success).all())
    for row in range(300):
        parts = margins(verdict.conditions, row)
        assert list(parts) == ["success", *verdict.conditions]
        success = parts.pop("success")
        assert success.holds == bool(verdict.success[row])
        assert success.holds == all(part.holds for part in parts.values())
        assert success in parts.values()
        for part_name, part in parts.items():
            condition = verdict.conditions[part_name]
            assert part.holds == (part.margin > 0.0) and part.unit == condition.unit
            assert part.margin == pytest.approx(float(condition.margin[row]))


@pytest.mark.parametrize("name", names())
def test_numpy_and_torch_reach_the_same_verdict(name: str):
    ours, theirs = random_verdict(name), random_verdict(name, to_torch)
    assert list(ours.conditions) == list(theirs.conditions)
    for part, condition in ours.conditions.items():
        other = theirs.conditions[part]
        assert isinstance(other.holds, torch.Tensor) and isinstance(other.margin, torch.Tensor)
        np.testing.assert_array_equal(condition.holds, other.holds.numpy())
        np.testing.assert_allclose(condition.margin, other.margin.numpy(), atol=1e-12)
    np.testing.assert_array_equal(ours.success, theirs.success.numpy())
    np.testing.assert_array_equal(ours.evaluation.failure, theirs.evaluation.failure.numpy())


@pytest.mark.parametrize("name", names())
def test_a_single_world_gets_the_same_verdict_as_in_a_batch(name: str):
    rng = np.random.default_rng(2)
    worlds, spec = random_worlds(rng, 100), get(name)
    goals, path = random_goals(rng, worlds), random_path(rng, 100)
    stop, settings = rng.random(100) < 0.8, spec.load_settings()
    begun = rows(worlds, slice(None, None, -1))
    thresholds = WIDE.get(name, spec.thresholds)
    state = task.begin(spec.definition, goals, begun, thresholds)
    whole = task.evaluate(spec.definition, state, worlds, stop, settings, thresholds, path)
    for row in range(100):
        one = slice(row, row + 1)
        alone = task.begin(spec.definition, Goals.of([state.goal(row)]), begun.row(row), thresholds)
        verdict = task.evaluate(
            spec.definition,
            alone,
            worlds.row(row),
            stop[one],
            settings,
            thresholds,
            rows(path, one),
        )
        assert margins(verdict.conditions) == margins(whole.conditions, row)
        assert verdict.success[0] == whole.success[row]
        assert verdict.evaluation.failure[0] == whole.evaluation.failure[row]


def test_navigate_succeeds_near_and_facing_with_stop():
    goal = SkillGoal(position=(1.0, 3.0, 0.8))
    found = results("navigate", goal, world(), stop=True)
    assert found["success"].holds
    assert found["distance"].margin == pytest.approx(0.5)
    assert found["heading"].margin == pytest.approx(math.radians(15), abs=1e-6)
    assert not results("navigate", goal, world(), stop=False)["success"].holds


def test_navigate_fails_16_degrees_off_or_too_far():
    turned = math.pi / 2 + math.radians(16)
    goal = SkillGoal(position=(1.0, 3.0, 0.8))
    off = results("navigate", goal, world(base=np.array([[1.0, 2.0, turned]])), stop=True)
    assert not off["success"].holds and off["success"].unit == "rad"
    assert off["success"].margin == pytest.approx(math.radians(-1), abs=1e-6)
    far = results("navigate", SkillGoal(position=(1.0, 3.6, 0.8)), world(), stop=True)
    assert not far["success"].holds and far["success"].unit == "m"
    assert far["success"].margin == pytest.approx(-0.1)


def test_a_region_of_navigate_is_added_to_its_distance():
    region = NavigateThresholds(distance_m=0.1, angle_rad=0.25, region_m=0.95)
    for away, holds in ((1.04, True), (1.06, False)):
        goal = SkillGoal(position=(1.0, 2.0 + away, 0.8))
        found = results("navigate", goal, world(), stop=True, thresholds=region)
        assert found["success"].holds is holds


def test_pick_succeeds_with_the_target_at_rest_and_not_with_another():
    held = world(held=np.array([1]))
    assert results("pick", SkillGoal(1), held)["success"].holds
    assert not results("pick", SkillGoal(0), held)["success"].holds
    assert failure("pick", SkillGoal(0), world(), held) == "wrong_object"
    assert failure("pick", SkillGoal(1), world(), held) == ""


def test_pick_fails_on_a_broken_hold_and_away_from_rest():
    held = world(held=np.array([1]))
    broken = world(violation=np.array([True]))
    assert failure("pick", SkillGoal(1), held, broken) == "dropped"
    strained = world(held=np.array([1]), violation=np.array([True]))
    assert not results("pick", SkillGoal(1), strained)["intact"].holds
    away = cup_at(1.0, 2.5, 1.16, held=np.array([1]))
    rest = results("pick", SkillGoal(1), away)["success"]
    assert not rest.holds and rest.margin == pytest.approx(-0.01)


def test_place_succeeds_released_at_the_goal_with_the_arm_at_rest():
    goal = SkillGoal(0, (0.1, 2.0, 0.8))
    found = results("place", goal, world())
    assert found["success"].holds
    assert found["at_goal"].margin == pytest.approx(0.05)
    still = results("place", goal, world(held=np.array([0])))
    assert not still["success"].holds and not still["released"].holds


def test_in_a_plan_a_wrong_drop_is_judged_only_with_the_arm_at_rest():
    goal = SkillGoal(0, (0.2, 2.0, 0.8))
    holding = world(held=np.array([0]))

    def found(after: WorldState, goal: SkillGoal = goal) -> str:
        return failure("place", goal, holding, after, wrong_drop="rest")

    assert found(world()) == "wrong_drop"
    assert found(world(ee_pos=np.array([[1.0, 2.9, 0.9]]))) == ""
    assert found(holding) == ""
    assert found(world(), SkillGoal(0, (0.1, 2.0, 0.8))) == ""
    assert found(world(violation=np.array([True]))) == "dropped"


@pytest.mark.parametrize("wrong_drop", ["release", "rest"])
def test_wrong_drop_and_success_exclude_each_other(wrong_drop: str):
    rng = np.random.default_rng(0)
    spec, worlds = get("place"), random_worlds(rng, 2000)
    worlds = dataclasses.replace(worlds, violation=np.zeros(2000, dtype=bool))
    goals = random_goals(rng, worlds)
    settings = changed(spec.load_settings(), {"wrong_drop": wrong_drop})
    begun = dataclasses.replace(worlds, held=goals.object)
    state = task.begin(spec.definition, goals, begun, spec.thresholds)
    stop = np.zeros(2000, dtype=bool)
    verdict = task.evaluate(spec.definition, state, worlds, stop, settings, spec.thresholds)
    good, bad = verdict.success, verdict.evaluation.failure > 0
    assert good.any() and bad.any() and not (good & bad).any()


def test_open_succeeds_at_its_target_at_rest_with_an_empty_cup_and_stop():
    goal = SkillGoal(marker="fridge_push_point")

    def found(after: WorldState, stop: bool = True) -> dict[str, Margin]:
        return results("open_fridge", goal, after, stop)

    assert found(opened(FRIDGE, 1.1709))["success"].holds
    beyond = found(opened(FRIDGE, 1.5))
    assert beyond["success"].holds and beyond["joint"].unit == "rad"
    short = found(opened(FRIDGE, 1.1))["success"]
    assert not short.holds and short.margin == pytest.approx(1.1 - 1.1708)
    assert not found(opened(FRIDGE, 1.2), stop=False)["success"].holds
    assert not found(opened(FRIDGE, 1.2, held_joint=np.array([FRIDGE])))["success"].holds
    away = opened(FRIDGE, 1.2, ee_pos=np.array([[1.0, 2.5, 1.16]]))
    assert not found(away)["success"].holds


def test_drawers_open_and_close_within_5_cm_of_their_targets():
    goal = SkillGoal(marker="cab_push_point_5")
    cases = {"open_drawer": {0.39: False, 0.401: True}, "close_drawer": {0.06: False, 0.04: True}}
    cases["close_drawer"] |= {-0.04: True, -0.06: False}
    for name, expected in cases.items():
        for value, holds in expected.items():
            found = results(name, goal, opened(DRAWER, value), stop=True)
            assert found["success"].holds is holds
            assert found["joint"].unit == "m"


@pytest.mark.parametrize("name", ["open_drawer", "close_drawer"])
def test_opening_and_closing_succeed_only_if_all_conditions_hold(name: str):
    goal = SkillGoal(marker="cab_push_point_5")
    there, short = (0.42, 0.39) if name == "open_drawer" else (0.04, 0.06)
    for far, away, holding, stop in itertools.product((False, True), repeat=4):
        cup = np.array([[1.0, 2.5, 1.16 if away else 1.14]])
        held = np.array([DRAWER if holding else -1])
        now = opened(DRAWER, short if far else there, ee_pos=cup, held_joint=held)
        found = results(name, goal, now, stop)
        assert found["success"].holds == ((far, away, holding, stop) == (False, False, False, True))


def test_navigate_to_a_receptacle_goes_to_its_handle_and_not_to_the_object_in_it():
    marker = Referent("handle", -1, "cab_push_point_5", (1.0, 2.0, 0.6))
    bowl = Referent("object", 1, "", (1.0, 1.5, 0.6))
    goal = get("navigate").goal_of([marker, bowl])
    assert goal == SkillGoal(-1, (1.0, 2.0, 0.6), "cab_push_point_5")


def test_opening_fails_with_an_object_or_another_handle_in_the_cup():
    def found(after: WorldState) -> str:
        return failure("open_drawer", SkillGoal(marker="cab_push_point_5"), world(), after)

    assert found(world()) == ""
    assert found(world(held_joint=np.array([DRAWER]))) == ""
    assert found(world(held_joint=np.array([FRIDGE]))) == "wrong_grasp"
    assert found(world(held=np.array([0]))) == "wrong_grasp"


def test_place_does_not_succeed_while_a_handle_is_held():
    goal = SkillGoal(0, (0.1, 2.0, 0.8))
    holding = world(held_joint=np.array([FRIDGE]))
    assert not results("place", goal, holding)["success"].holds


def test_pick_of_ms_hab_also_requires_posture_and_stillness():
    strict = PickThresholds(arm_rad=0.6, still=0.1)

    def found(**changes: object) -> dict[str, Margin]:
        return results(
            "pick", SkillGoal(1), world(held=np.array([1]), **changes), thresholds=strict
        )

    rest = np.array([REST_ARM])
    assert found(arm=rest)["success"].holds
    assert not found(arm=rest + 0.7)["posture"].holds
    driving = found(arm=rest, base_velocity=np.array([[0.2, 0.0, 0.0]]))
    assert not driving["still"].holds and driving["posture"].holds
    assert list(results("pick", SkillGoal(1), world())) == ["success", "holding", "intact", "rest"]


def test_masks_select_the_action_parts_of_each_skill():
    assert np.flatnonzero(get("navigate").definition.mask()).tolist() == [8, 9, action.STOP]
    for name in ("pick", "place"):
        assert np.flatnonzero(get(name).definition.mask()).tolist() == list(range(10))
    for name in ("open_fridge", "open_drawer"):
        assert get(name).definition.mask().all()
    for name in ("close_fridge", "close_drawer"):
        assert np.flatnonzero(~get(name).definition.mask()).tolist() == [action.GRIP]


def test_an_unknown_skill_is_refused_with_the_nearest_name():
    with pytest.raises(UserError, match="did you mean 'place'"):
        get("plase")
