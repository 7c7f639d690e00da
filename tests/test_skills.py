import math

import numpy as np
import pytest
from kinematic_home import make_episode

from planner.problem import start_world
from skills.base import SkillGoal, SkillThresholds
from skills.geometry import heading_error, planar_distance, rest_distance
from skills.navigate import arrived
from skills.pick import picked
from skills.place import dropped_wrong, placed
from skills.registry import get, names
from tpsrl.errors import UserError
from tpsrl.world import action
from tpsrl.world.state import WorldState, world_to_base

LIMITS = SkillThresholds()


def world(**changes: object) -> WorldState:
    """Robot at (1, 2) facing +y, cup at its resting point, two objects."""
    state = start_world(make_episode(2, 1, robot_start=(1.0, 2.0, math.pi / 2)))
    fields = {name: getattr(state, name) for name in WorldState.__slots__}
    fields["ee_pos"] = np.array([[1.0, 2.5, 1.0]])
    return WorldState(**{**fields, **changes})


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
        assert heading_error(scenes["base"], scenes["point"])[row] == pytest.approx(
            abs(math.atan2(local[1], local[0]))
        )
        assert rest_distance(scenes["base"], scenes["point"])[row] == pytest.approx(
            math.dist(local, (0.5, 0.0, 1.0))
        )


def test_success_of_a_batch_equals_the_results_of_batch_one():
    scenes = random_scenes()
    base, near, held = scenes["base"], scenes["near"], scenes["held"]
    wide = SkillThresholds(
        navigate_angle_rad=1.5, pick_rest_m=2.5, place_goal_m=0.2, place_rest_m=2.5
    )
    target = np.ones(200, dtype=int)
    batch = {
        "navigate": arrived(base, near, scenes["flag"], wide),
        "pick": picked(base, near, held, target, scenes["flag"], wide),
        "place": placed(base, near, held, scenes["point"], near, wide),
    }
    for row in range(200):
        state = world(
            base=base[row : row + 1],
            ee_pos=near[row : row + 1],
            held=held[row : row + 1],
            violation=scenes["flag"][row : row + 1],
            object_pos=np.repeat(scenes["point"][row][None, None], 2, axis=1),
        )
        goal = SkillGoal(1, tuple(near[row]))
        for name in ("navigate", "pick", "place"):
            result = get(name).results(goal, state, bool(scenes["flag"][row]), wide)["success"]
            assert result.holds == batch[name][row]
    assert all(0 < values.sum() < 200 for values in batch.values())


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
    away = world(held=np.array([1]), ee_pos=np.array([[1.0, 2.5, 1.16]]))
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
    scenes = random_scenes()
    wide = SkillThresholds(place_rest_m=2.5)
    arguments = (scenes["base"], scenes["near"], scenes["held"], scenes["point"], scenes["near"])
    good, bad = placed(*arguments, wide), dropped_wrong(*arguments, wide)
    assert good.any() and bad.any() and not (good & bad).any()


def test_masks_name_the_parts_that_each_skill_may_use():
    assert np.flatnonzero(get("navigate").mask()).tolist() == [8, 9, action.STOP]
    for name in ("pick", "place"):
        assert np.flatnonzero(get(name).mask()).tolist() == list(range(10))


def test_unknown_skill_names_the_nearest():
    assert set(names()) >= {"navigate", "pick", "place"}
    with pytest.raises(UserError, match="did you mean 'place'"):
        get("plase")
