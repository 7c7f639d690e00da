import dataclasses
import math

import numpy as np
import pddlpy
import pytest
from kinematic_home import LAYOUT, make_episode

from planner.containers import containers
from planner.entities import Entities, short_name
from planner.predicates import (
    PLANNING_ONLY,
    PREDICATES,
    PredicateContext,
    PredicateThresholds,
    evaluate,
)
from planner.problem import problem_from_episode, start_world
from planner.search import DOMAIN, HABITAT_DOMAIN
from tpsrl.errors import UserError
from tpsrl.world.layouts import placed_receptacles, resolve
from tpsrl.world.state import JOINTS

EPISODE = make_episode(4, 2)
BOX = "003_cracker_box"


def scene(**changes: object) -> PredicateContext:
    return PredicateContext(dataclasses.replace(start_world(EPISODE), **changes), Entities(EPISODE))


def joints(**values: float) -> np.ndarray:
    return np.array([[values.get(name, 0.0) for name in JOINTS]])


def receptacle_centre(name: str) -> np.ndarray:
    layout_set, layout = resolve(LAYOUT)
    return next(r.pos for r in placed_receptacles(layout_set, layout) if r.name == name)


def with_first_object_at(position: np.ndarray, **changes: object) -> PredicateContext:
    objects = start_world(EPISODE).object_pos.copy()
    objects[0, 0] = position
    return scene(object_pos=objects, **changes)


def test_targets_are_named_by_target_number_and_clutter_by_object_number():
    episode = dataclasses.replace(EPISODE, targets=EPISODE.targets[::-1])
    assert [e.name for e in Entities(episode)][:10] == [
        f"obj_0_{BOX}",
        f"obj_1_{BOX}",
        "goal_0",
        "goal_1",
        f"clutter_2_{BOX}",
        f"clutter_3_{BOX}",
        "home_2",
        "home_3",
        "fridge_push_point",
        "cab_push_point_4",
    ]
    assert Entities(episode)[f"obj_0_{BOX}"].object == 1
    assert [short_name(n) for n in (f"obj_0_{BOX}", "goal_1", f"clutter_12_{BOX}")] == [
        "obj_0",
        "goal_1",
        "clutter_12",
    ]


def test_an_unknown_entity_is_refused_with_the_nearest_name():
    with pytest.raises(UserError, match="did you mean 'goal_1'"):
        evaluate(("robot_at", "goal_11", "robot_0"), scene())


def test_an_unknown_predicate_is_refused_with_the_nearest_name():
    with pytest.raises(UserError, match="did you mean 'holding'"):
        evaluate(("holdin", f"obj_0_{BOX}", "robot_0"), scene())


def test_wrong_number_of_entities_is_a_user_error():
    with pytest.raises(UserError, match="robot_at: takes 2 entities, 1 given"):
        evaluate(("robot_at", "goal_0"), scene())


def test_holding_depends_on_which_object_is_held():
    held = scene(held=np.array([1]))
    assert evaluate(("holding", f"obj_1_{BOX}", "robot_0"), held).holds
    assert not evaluate(("holding", f"obj_0_{BOX}", "robot_0"), held).holds
    assert not evaluate(("not_holding", "robot_0"), held).holds
    assert evaluate(("not_holding", "robot_0"), scene()).holds


def test_not_holding_ignores_held_handles_as_in_habitat_lab():
    handle = scene(held_joint=np.array([JOINTS.index("fridge_push_point")]))
    assert evaluate(("not_holding", "robot_0"), handle).holds


def test_in_the_fridge_means_its_compartment_and_not_its_whole_body():
    inside = containers(LAYOUT, "fridge_push_point")
    centre, top = inside[0].pos, max(float(box.pos[2] + box.half[2]) for box in inside)
    here = ("in", f"obj_0_{BOX}", "fridge_push_point")
    assert evaluate(here, with_first_object_at(centre)).holds
    on_top = np.array([*centre[:2], top + 0.05])  # still within the bounds of the body
    assert not evaluate(here, with_first_object_at(on_top)).holds


def test_robot_at_holds_within_two_metres_on_the_floor_plane():
    near = evaluate(("robot_at", "goal_1", "robot_0"), scene(base=np.array([[1.0, -0.5, 3.0]])))
    assert near.holds and near.margin == pytest.approx(0.5) and near.unit == "m"
    far = evaluate(("robot_at", "goal_1", "robot_0"), scene(base=np.array([[1.0, 0.5, 3.0]])))
    assert not far.holds and far.margin == pytest.approx(-0.5)


def test_robot_at_follows_objects_and_handles():
    markers = np.full((1, 5, 3), 9.0)
    markers[0, 2] = [0.5, 0.0, 0.6]
    at = ("robot_at", "cab_push_point_5", "robot_0")
    assert evaluate(at, scene(marker_pos=markers)).margin == pytest.approx(1.5)
    moved = with_first_object_at(np.array([0.0, 0.3, 0.0]))
    assert evaluate(("robot_at", f"obj_0_{BOX}", "robot_0"), moved).margin == pytest.approx(1.7)


def test_object_at_holds_within_30_cm_in_3d():
    at = ("object_at", f"obj_0_{BOX}", "goal_0")
    close = evaluate(at, with_first_object_at(np.array([0.1, -2.0, 1.0])))
    assert close.holds
    assert close.margin == pytest.approx(0.3 - math.hypot(0.1, 0.2))
    assert not evaluate(at, with_first_object_at(np.array([0.0, -2.0, 1.1]))).holds


def test_drawer_is_closed_opened_or_neither():
    def state(position: float) -> tuple[bool, bool]:
        at = scene(joints=joints(cab_push_point_6=position))
        return (
            evaluate(("closed_cab", "cab_push_point_6"), at).holds,
            evaluate(("opened_cab", "cab_push_point_6"), at).holds,
        )

    assert [state(p) for p in (0.0, 0.14, 0.2, 0.34, 0.36)] == [
        (True, False),
        (True, False),
        (False, False),
        (False, False),
        (False, True),
    ]
    only = scene(joints=joints(cab_push_point_6=0.45))
    assert evaluate(("closed_cab", "cab_push_point_5"), only).holds


def test_fridge_is_judged_in_radians():
    ajar = scene(joints=joints(fridge_push_point=1.0))
    opened = evaluate(("opened_fridge", "fridge_push_point"), ajar)
    assert not opened.holds and opened.margin == pytest.approx(-0.07) and opened.unit == "rad"
    assert not evaluate(("closed_fridge", "fridge_push_point"), ajar).holds


def test_thresholds_can_be_changed():
    tight = PredicateThresholds(robot_at_m=1.0)
    base = scene(base=np.array([[1.0, -0.5, 0.0]]))
    assert not evaluate(
        ("robot_at", "goal_1", "robot_0"), dataclasses.replace(base, thresholds=tight)
    ).holds


def test_object_in_the_middle_of_a_drawer_is_in_that_drawer_only():
    inside = with_first_object_at(receptacle_centre("drawer_right_top"))
    holds = {name for name in JOINTS if evaluate(("in", f"obj_0_{BOX}", name), inside).holds}
    assert holds == {"cab_push_point_5"}


def test_fridge_contains_its_compartment_with_the_door_open_or_shut():
    centre = receptacle_centre("fridge")
    for door in (0.0, 1.3):
        at = with_first_object_at(centre, joints=joints(fridge_push_point=door))
        margin = evaluate(("in", f"obj_0_{BOX}", "fridge_push_point"), at)
        assert margin.holds and margin.margin == pytest.approx(0.16, abs=0.02)


def test_the_inside_of_a_drawer_moves_with_the_drawer():
    (drawer,) = containers(LAYOUT, "cab_push_point_5")
    centre = receptacle_centre("drawer_right_top")
    in_drawer = ("in", f"obj_0_{BOX}", "cab_push_point_5")
    out = joints(cab_push_point_5=0.45)
    assert not evaluate(in_drawer, with_first_object_at(centre, joints=out)).holds
    carried = centre + 0.45 * drawer.slide
    assert evaluate(in_drawer, with_first_object_at(carried, joints=out)).holds
    assert np.linalg.norm(drawer.slide) == pytest.approx(1.0)


def test_object_on_the_counter_is_in_no_drawer():
    above = with_first_object_at(receptacle_centre("counter_right"))
    assert not any(evaluate(("in", f"obj_0_{BOX}", name), above).holds for name in JOINTS)


def test_depth_inside_is_the_distance_to_the_nearest_side():
    (drawer,) = containers(LAYOUT, "cab_push_point_6")
    rng = np.random.default_rng(1)
    for local in rng.uniform(-0.4, 0.4, (50, 3)):
        point = drawer.pos + drawer.rotation @ local
        expected = min(drawer.half[axis] - abs(local[axis]) for axis in range(3))
        assert drawer.depth_inside(point, 0.0) == pytest.approx(expected)


def test_every_predicate_of_the_domains_has_a_function(tmp_path):
    for domain in (DOMAIN, HABITAT_DOMAIN):
        problem = tmp_path / "problem.pddl"
        problem.write_text(problem_from_episode(EPISODE).text())
        parsed = pddlpy.DomainProblem(str(domain), str(problem))
        assert parsed.predicates() == {*PREDICATES, *PLANNING_ONLY}
