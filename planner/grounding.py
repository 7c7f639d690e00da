"""From PDDL to pddlpy's grounded task, with every mistake as an error of one line."""

import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import pddlpy
from pddlpy.diagnostics import diagnose
from pddlpy.pddl import Operator
from pddlpy.planning import GroundedTask, PlannerError, validate_requirements

from planner.conditions import clauses
from planner.predicates import PLANNING_ONLY, PREDICATES, Atom
from tpsrl.errors import UserError, unknown

_ACTION = re.compile(r"\(\s*:action\s+([\w-]+)")
DOMAIN = Path(__file__).with_name("domain.pddl")
HABITAT_DOMAIN = Path(__file__).with_name("domain_habitat.pddl")


def problem_text(
    name: str,
    objects: Iterable[tuple[str, str]],
    init: Iterable[Atom],
    goal: Iterable[Atom],
    domain: str,
) -> str:
    """A problem in PDDL; `objects` are (name, type)."""
    lines = [
        f"(define (problem {name})",
        f"  (:domain {domain})",
        "  (:objects",
        *(f"    {name} - {kind}" for name, kind in objects),
        "  )",
        "  (:init",
        *(f"    ({' '.join(atom)})" for atom in init),
        "  )",
        "  (:goal (and",
        *(f"    ({' '.join(atom)})" for atom in goal),
        "  )))",
    ]
    return "\n".join(lines) + "\n"


def ground(problem: str, domain: Path, names: Sequence[str] = ()) -> GroundedTask:
    """pddlpy's task for a problem in PDDL, its actions in the order of preference.

    Actions are ordered as in the domain file, then by their arguments' places in `names`.

    Raises:
        UserError: the domain cannot be read or is malformed, or the problem does not fit it.
    """
    with tempfile.TemporaryDirectory() as folder:
        problem_file = Path(folder) / "problem.pddl"
        problem_file.write_text(problem, encoding="utf-8")
        try:
            _check(domain, problem_file)
            parsed = pddlpy.DomainProblem(str(domain), str(problem_file))
            validate_requirements(parsed)
            task = GroundedTask(parsed)
            _check_variables(domain, task)
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise UserError(f"domain: cannot read {domain}: {reason}") from None
        except PlannerError as error:
            raise UserError(f"domain: {domain.name}: {_one_line(error)}") from None
    action_rank = {name: rank for rank, name in enumerate(parsed.operators())}
    name_rank = {name: rank for rank, name in enumerate(names)}

    def preference(action: Operator) -> tuple[object, ...]:
        terms = arguments(task, action)
        ranks = [name_rank.get(term, len(name_rank)) for term in terms]
        return (action_rank[action.operator_name], ranks, terms)

    task.actions.sort(key=preference)
    return task


def arguments(task: GroundedTask, action: Operator) -> tuple[str, ...]:
    """The entities of a grounded action in the order of its parameters."""
    lifted = task.domainproblem.domain.operators[action.operator_name]
    return tuple(str(action.variable_list[name]) for name in lifted.variable_list)


_checked: set[tuple[Path, int]] = set()


def _check(domain: Path, problem_file: Path) -> None:
    """Has pddlpy look for mistakes, which its parser alone passes over; once for each domain.

    The shipped domains are checked by the tests instead: a diagnosis costs as much as a plan.
    """
    key = (domain, domain.stat().st_mtime_ns)
    if domain in (DOMAIN, HABITAT_DOMAIN) or key in _checked:
        return
    issues = diagnose(str(domain), str(problem_file))["issues"]
    errors = [issue["message"] for issue in issues if issue["severity"] == "error"]
    if errors:
        raise UserError(f"domain: {domain}: {_one_line(errors[0])}")
    text = re.sub(";.*", "", domain.read_text())
    first: dict[str, int] = {}
    for found in _ACTION.finditer(text):
        name, line = found[1], _line(text, found.start())
        if name in first:
            raise UserError(
                f"domain: {domain}: line {line}: action '{name}' is defined twice, "
                f"first in line {first[name]}"
            )
        first[name] = line
    _check_types(domain, text)
    for predicate in sorted(pddlpy.DomainProblem(str(domain), str(problem_file)).predicates()):
        if predicate not in {*PREDICATES, *PLANNING_ONLY}:
            raise unknown(f"domain: {domain}: predicate", predicate, PREDICATES)
    _checked.add(key)


def _check_types(domain: Path, text: str) -> None:
    """Whether what is typed has types of the domain, which pddlpy's diagnosis does not ask."""
    declared = re.search(r"\(\s*:types([^()]*)\)", text)
    types = {"object", *(declared[1].split() if declared else ())}
    for found in re.finditer(r"\s-\s+([A-Za-z][\w-]*)", text):
        if found[1] not in types:
            where = f"domain: {domain}: line {_line(text, found.start(1))}: type"
            raise unknown(where, found[1], sorted(types - {"-"}))


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def _check_variables(domain: Path, task: GroundedTask) -> None:
    """Whether actions use their own variables only, which pddlpy's diagnosis does not ask."""
    if domain in (DOMAIN, HABITAT_DOMAIN):
        return
    text = re.sub(";.*", "", domain.read_text())
    places = {found[1]: found.start() for found in _ACTION.finditer(text)}
    for action in task.actions:
        needed = [literal.atom for clause in clauses(action.precondition) for literal in clause]
        for atom in (*needed, *action.effect_pos, *action.effect_neg):
            for term in atom[1:]:
                if term.startswith("?"):
                    name = action.operator_name
                    line = _line(text, max(text.find(term, places.get(name, 0)), 0))
                    raise UserError(
                        f"domain: {domain}: line {line}: action '{name}' uses {term}, "
                        "which is none of its parameters"
                    )


def _one_line(message: object) -> str:
    return re.sub(r"\s+", " ", str(message)).strip()
