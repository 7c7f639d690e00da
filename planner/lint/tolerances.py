"""Whether skills and predicates draw the line between success and failure at the same place."""

import dataclasses
from collections.abc import Iterator

from planner.lint.finding import Finding
from planner.lint.replay import Replay
from planner.predicates import PredicateThresholds
from skills.core.interface import SkillThresholds

_SAME = 1e-9


@dataclasses.dataclass(frozen=True, slots=True)
class _Pair:
    """A predicate's limit and that of the skill which brings it about, in m or rad.

    `upward`: success is beyond the limit, else within it.
    """

    predicate: str
    predicate_limit: float
    skill: str
    skill_limit: float
    unit: str
    upward: bool = False


def check_tolerances(played: Replay) -> Iterator[Finding]:
    """A finding for each predicate of the plan that its skill judges otherwise."""
    definition = played.definition
    used = {atom[0] for step in played.steps for atom in step.adds}
    for pair in _pairs(definition.predicates, definition.skills):
        if pair.predicate in used:
            yield from _compare(pair)


def _compare(pair: _Pair) -> Iterator[Finding]:
    difference = pair.skill_limit - pair.predicate_limit
    if abs(difference) < _SAME:
        return
    stricter = (difference > 0) == pair.upward
    word = "beyond" if pair.upward else "within"
    result = "fail while its stage passes" if stricter else "succeed while its stage fails"
    yield Finding(
        "tolerance",
        "warning" if stricter else "error",
        f"{pair.skill} against {pair.predicate}",
        f"the skill succeeds {word} {pair.skill_limit:g} {pair.unit}, the predicate holds {word} "
        f"{pair.predicate_limit:g} {pair.unit}: the skill can {result}",
        "give both one limit, or report both",
    )


def _pairs(predicates: PredicateThresholds, skills: SkillThresholds) -> list[_Pair]:
    drive = skills.navigate_region_m + skills.navigate_distance_m
    drawer = skills.open_drawer_target_m - skills.open_tolerance
    fridge = skills.open_fridge_target_rad - skills.open_tolerance
    shut = skills.close_tolerance
    return [
        _Pair("robot_at", predicates.robot_at_m, "navigate", drive, "m"),
        _Pair("object_at", predicates.object_at_m, "place", skills.place_goal_m, "m"),
        _Pair("opened_cab", predicates.opened_cab_m, "open_drawer", drawer, "m", True),
        _Pair("closed_cab", predicates.closed_cab_m, "close_drawer", shut, "m"),
        _Pair("opened_fridge", predicates.opened_fridge_rad, "open_fridge", fridge, "rad", True),
        _Pair("closed_fridge", predicates.closed_fridge_rad, "close_fridge", shut, "rad"),
    ]
