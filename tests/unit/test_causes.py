"""Text of first causes."""

import pytest

from eval.analysing.causes import cause_text
from planner.execution.trace import Cause
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
