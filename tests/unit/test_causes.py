"""Text of first causes."""

import dataclasses

import kinematic_home as fake
import pytest

from eval.analysing.causes import cause_text, objects_text
from planner.execution.trace import Cause, HandoffState, Stage, Trace
from planner.predicates import PredicateThresholds
from tpsrl.world.scenarios import FRIDGE


@pytest.mark.parametrize(
    ("predicate", "margin", "unit", "text"),
    [
        ("robot_at(obj_0_apple, robot_0)", -0.31, "m", "2.31 m > 2 m"),
        ("opened_cab(cab_push_point_5)", -0.05, "m", "0.30 m < 0.35 m"),
        ("in(obj_0_apple, cab_push_point_5)", -0.02, "m", "-0.02 m < 0 m"),
        ("object_at(obj_0_apple, goal_0)", -0.2, "m", "0.50 m > 0.3 m"),
        (f"object_at(obj_0_apple, {FRIDGE})", -0.2, "m", "-0.20 m < 0 m"),
        ("undisturbed(obj_3_apple)", -0.4, "m", "0.50 m > 0.1 m"),
        ("not closed_cab(cab_push_point_5)", -0.15, "m", "0.15 m beyond its limit"),
        ("force", -2000.0, "N", "2000.00 N beyond its limit"),
        ("holding(obj_0_apple, robot_0)", -1.0, "bool", "not so"),
    ],
)
def test_the_text_of_a_cause_has_its_value_threshold_and_step(
    predicate: str, margin: float, unit: str, text: str
) -> None:
    cause = Cause(0, "step", "skill", predicate, margin, unit, "lost", 412)
    found = cause_text(cause, PredicateThresholds())
    assert found.endswith(f": {text} at step 412")


@pytest.mark.parametrize(
    ("name", "predicate", "held", "text"),
    [
        ("pick obj_0", "pick.rest", -1, "; obj_0 is the apple"),
        ("pick obj_0", "holding(obj_0_013_apple, robot_0)", 0, "; obj_0 is the apple"),
        ("pick obj_0", "holding(obj_0_013_apple, robot_0)", 1, "ple; picked the bowl instead"),
        ("pick obj_0", "holding(obj_0_013_apple, robot_0)", 2, "picked another apple instead"),
        ("nav goal_0", "undisturbed(clutter_2_013_apple)", 2, "; clutter is the apple"),
        ("nav goal_0", "navigate.stop", -1, ""),
    ],
)
def test_a_cause_names_its_objects_and_what_was_picked_instead(
    name: str, predicate: str, held: int, text: str
) -> None:
    episode = fake.make_episode(3, 1)
    names = ("013_apple", "024_bowl", "013_apple")
    objects = (dataclasses.replace(o, name=n) for o, n in zip(episode.objects, names, strict=True))
    episode = dataclasses.replace(episode, objects=tuple(objects))
    at = HandoffState(0, (0.0,) * 3, (0.0,) * 7, (0.0,) * 3, held, -1, (), (), {})
    stage = Stage(1, 0, name, "pick", (), at, {}, ended_by="wrong_object", after=at)
    trace = Trace(episode, [], [], stages=[stage])
    cause = Cause(1, name, "pick", predicate, -1.0, "bool", "wrong_object", 9)
    assert objects_text(cause, trace).endswith(text)
    assert bool(objects_text(cause, trace)) == bool(text)
