"""Linter: compares the success thresholds of skills with those of the predicates."""

import dataclasses
from collections.abc import Iterator

from planner.lint.finding import Finding
from planner.lint.replay import Replay
from planner.predicates import PredicateThresholds
from skills import registry
from skills.core.skill import Line
from tpsrl.errors import UserError

_SAME = 1e-9


def check_tolerances(played: Replay) -> Iterator[Finding]:
    """Yields a finding for each predicate of the plan whose threshold differs from its skill's."""
    lines = _lines(played)
    for predicate, limit in _limits(played.definition.predicates).items():
        if predicate in lines:
            yield from _compare(predicate, limit, *lines[predicate])


def _compare(predicate: str, limit: float, skill: str, line: Line) -> Iterator[Finding]:
    difference = line.limit - limit
    if abs(difference) < _SAME:
        return
    stricter = (difference > 0) == line.beyond
    word = "beyond" if line.beyond else "within"
    result = "fail while its stage passes" if stricter else "succeed while its stage fails"
    yield Finding(
        "tolerance",
        "warning" if stricter else "error",
        f"{skill} against {predicate}",
        f"the skill succeeds {word} {line.limit:g} {line.unit}, the predicate holds {word} "
        f"{limit:g} {line.unit}: the skill can {result}",
        "use the same limit for both, or report both",
    )


def _lines(played: Replay) -> dict[str, tuple[str, Line]]:
    """Returns, for each predicate that a step adds, the skill of the step and its threshold."""
    found: dict[str, tuple[str, Line]] = {}
    for step in played.steps:
        try:
            skill = registry.carrying_out(step.atom[0])
        except UserError:
            continue  # `make_step` reports an action without a skill when the plan is made
        line = skill.definition.line(played.definition.skills.of(skill.name))
        if line is not None:
            found |= {atom[0]: (skill.name, line) for atom in step.adds if atom[0] not in found}
    return found


def _limits(thresholds: PredicateThresholds) -> dict[str, float]:
    """Returns the thresholds by predicate; the field names end in the unit."""
    fields = (field.name for field in dataclasses.fields(thresholds))
    return {name.rpartition("_")[0]: getattr(thresholds, name) for name in fields}
