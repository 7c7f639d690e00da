import itertools
import math

import numpy as np
import pytest
from kinematic_home import world_to_base
from small_worlds import DRAWER, FRIDGE, LIMITS, cup_at, opened, random_goals, random_worlds, world

from skills.articulated.task import moved
from skills.core.geometry import planar_distance, rest_distance
from skills.core.interface import SkillGoal, SkillThresholds
from skills.core.task import begin, step
from skills.envs.batch import load_settings
from skills.place.task import dropped_wrong, placed
from skills.registry import get, names
from tpsrl.errors import UserError
from tpsrl.world import action
from tpsrl.world.fetch import REST_ARM


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


@pytest.mark.parametrize("name", names())
def test_success_of_a_batch_equals_the_results_of_batch_one(name: str):
    rng = np.random.default_rng(1)
    worlds, wide = random_worlds(rng, 300), SkillThresholds(navigate_angle_rad=1.5)
    goals, skill, settings = random_goals(rng, worlds), get(name), load_settings(name, {})
    state = begin(skill, goals, worlds, wide)
    actions = np.where(rng.random((300, action.SIZE)) < 0.8, 1.0, -1.0)
    _, _, outcome = step(skill, state, actions, worlds, settings, wide)
    for row in range(300):
        stop = bool(actions[row, action.STOP] > 0)
        result = skill.results(state.goal(row), worlds.row(row), stop, wide)["success"]
        assert result.holds == outcome.success[row]
    assert 0 < outcome.success.sum() < 300


def test_navigate_succeeds_near_and_facing_with_stop():
    goal = SkillGoal(position=(1.0, 3.0, 0.8))
    results = get("navigate").results(goal, world(), True, LIMITS)
    assert results["success"].holds
    assert results["distance"].margin == pytest.approx(0.5)
    assert results["heading"].margin == pytest.approx(math.radians(15), abs=1e-6)
    assert not get("navigate").results(goal, world(), False, LIMITS)["success"].holds


def test_navigate_fails_16_degrees_off_or_too_far():
    turned = math.pi / 2 + math.radians(16)
    goal = SkillGoal(position=(1.0, 3.0, 0.8))
    off = get("navigate").results(goal, world(base=np.array([[1.0, 2.0, turned]])), True, LIMITS)
    assert not off["success"].holds and off["success"].unit == "rad"
    assert off["success"].margin == pytest.approx(math.radians(-1), abs=1e-6)
    far = get("navigate").results(SkillGoal(position=(1.0, 3.6, 0.8)), world(), True, LIMITS)
    assert not far["success"].holds and far["success"].unit == "m"
    assert far["success"].margin == pytest.approx(-0.1)


def test_pick_succeeds_with_the_target_at_rest_and_not_with_another():
    held = world(held=np.array([1]))
    assert get("pick").results(SkillGoal(1), held, False, LIMITS)["success"].holds
    assert not get("pick").results(SkillGoal(0), held, False, LIMITS)["success"].holds
    assert get("pick").failure(SkillGoal(0), held, LIMITS) == "wrong_object"
    assert get("pick").failure(SkillGoal(1), held, LIMITS) == ""


def test_pick_fails_on_a_broken_hold_and_away_from_rest():
    broken = world(violation=np.array([True]))
    assert get("pick").failure(SkillGoal(1), broken, LIMITS) == "dropped"
    away = cup_at(1.0, 2.5, 1.16, held=np.array([1]))
    rest = get("pick").results(SkillGoal(1), away, False, LIMITS)["success"]
    assert not rest.holds and rest.margin == pytest.approx(-0.01)


def test_place_succeeds_released_at_the_goal_with_the_arm_at_rest():
    goal = SkillGoal(0, (0.1, 2.0, 0.8))
    results = get("place").results(goal, world(), False, LIMITS)
    assert results["success"].holds
    assert results["at_goal"].margin == pytest.approx(0.05)
    still = get("place").results(goal, world(held=np.array([0])), False, LIMITS)
    assert not still["success"].holds and not still["released"].holds


def test_object_off_its_goal_is_a_wrong_drop_only_once_the_arm_is_back():
    goal = SkillGoal(0, (0.2, 2.0, 0.8))
    assert get("place").failure(goal, world(), LIMITS) == "wrong_drop"
    arm_out = world(ee_pos=np.array([[1.0, 2.9, 0.9]]))
    assert get("place").failure(goal, arm_out, LIMITS) == ""
    assert get("place").failure(goal, world(held=np.array([0])), LIMITS) == ""
    assert get("place").failure(SkillGoal(0, (0.1, 2.0, 0.8)), world(), LIMITS) == ""
    assert get("place").failure(goal, world(violation=np.array([True])), LIMITS) == "dropped"


def test_wrong_drop_and_success_exclude_each_other():
    rng = np.random.default_rng(0)
    arguments = (rng.uniform(0, 0.3, 200), rng.uniform(0, 0.3, 200), rng.random(200) < 0.5)
    good, bad = placed(*arguments, LIMITS), dropped_wrong(*arguments, LIMITS)
    assert good.any() and bad.any() and not (good & bad).any()


def test_open_succeeds_at_its_target_at_rest_with_an_empty_cup_and_stop():
    goal = SkillGoal(marker="fridge_push_point")
    skill = get("open_fridge")
    assert skill.results(goal, opened(FRIDGE, 1.1709), True, LIMITS)["success"].holds
    beyond = skill.results(goal, opened(FRIDGE, 1.5), True, LIMITS)
    assert beyond["success"].holds and beyond["joint"].unit == "rad"
    short = skill.results(goal, opened(FRIDGE, 1.1), True, LIMITS)["success"]
    assert not short.holds and short.margin == pytest.approx(1.1 - 1.1708)
    assert not skill.results(goal, opened(FRIDGE, 1.2), False, LIMITS)["success"].holds
    held = opened(FRIDGE, 1.2, held_joint=np.array([FRIDGE]))
    assert not skill.results(goal, held, True, LIMITS)["success"].holds
    away = opened(FRIDGE, 1.2, ee_pos=np.array([[1.0, 2.5, 1.16]]))
    assert not skill.results(goal, away, True, LIMITS)["success"].holds


def test_drawers_open_to_45_cm_and_close_within_5_cm_to_either_side():
    goal = SkillGoal(marker="cab_push_point_5")
    cases = {"open_drawer": {0.39: False, 0.401: True}, "close_drawer": {0.06: False, 0.04: True}}
    cases["close_drawer"] |= {-0.04: True, -0.06: False}
    for name, expected in cases.items():
        for value, holds in expected.items():
            results = get(name).results(goal, opened(DRAWER, value), True, LIMITS)
            assert results["success"].holds is holds
            assert results["joint"].unit == "m"


def test_success_of_moving_a_joint_has_the_truth_table_of_its_parts():
    gap, rest = np.array([0.05, 0.06]), np.array([0.14, 0.16])
    for i, j, holding, stop in itertools.product((0, 1), (0, 1), (0, 1), (0, 1)):
        found = moved(gap[i], rest[j], np.bool_(holding), np.bool_(stop), 0.05, 0.15)
        assert found == ((i, j, holding, stop) == (0, 0, 0, 1))


def test_opening_fails_with_another_thing_in_the_cup():
    goal, skill = SkillGoal(marker="cab_push_point_5"), get("open_drawer")
    assert skill.failure(goal, world(), LIMITS) == ""
    assert skill.failure(goal, world(held_joint=np.array([DRAWER])), LIMITS) == ""
    assert skill.failure(goal, world(held_joint=np.array([FRIDGE])), LIMITS) == "wrong_grasp"
    assert skill.failure(goal, world(held=np.array([0])), LIMITS) == "wrong_grasp"


def test_place_is_not_done_while_a_handle_is_held():
    goal = SkillGoal(0, (0.1, 2.0, 0.8))
    holding = world(held_joint=np.array([FRIDGE]))
    assert not get("place").results(goal, holding, False, LIMITS)["success"].holds


def test_pick_of_ms_hab_also_asks_for_posture_and_stillness():
    strict = SkillThresholds(pick_arm_rad=0.6, pick_still=0.1)
    held = world(held=np.array([1]), arm=np.array([REST_ARM]))
    assert get("pick").results(SkillGoal(1), held, False, strict)["success"].holds
    bent = world(held=np.array([1]), arm=np.array([REST_ARM]) + 0.7)
    assert not get("pick").results(SkillGoal(1), bent, False, strict)["posture"].holds
    driving = world(held=np.array([1]), base_velocity=np.array([[0.2, 0.0, 0.0]]))
    assert not get("pick").results(SkillGoal(1), driving, False, strict)["still"].holds


def test_masks_name_the_parts_that_each_skill_may_use():
    assert np.flatnonzero(get("navigate").mask()).tolist() == [8, 9, action.STOP]
    for name in ("pick", "place"):
        assert np.flatnonzero(get(name).mask()).tolist() == list(range(10))
    for name in ("open_fridge", "open_drawer"):
        assert get(name).mask().all()
    for name in ("close_fridge", "close_drawer"):
        assert np.flatnonzero(~get(name).mask()).tolist() == [action.GRIP]


def test_unknown_skill_names_the_nearest():
    with pytest.raises(UserError, match="did you mean 'place'"):
        get("plase")
