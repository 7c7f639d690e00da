"""From PDDL to pddlpy's grounded task, with every mistake as an error of one line."""

import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pddlpy
from pddlpy.pddl import Operator
from pddlpy.planning import GroundedTask, PlannerError, validate_requirements

from planner.checking import DomainFile
from planner.conditions import clauses
from planner.predicates import Atom
from tpsrl.errors import UserError

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
            # The shipped domains are checked by the tests: a diagnosis costs as much as a plan.
            own = None if domain in (DOMAIN, HABITAT_DOMAIN) else DomainFile(domain)
            parsed = _parse(domain, problem_file, own)
            validate_requirements(parsed)
            if own is not None:
                own.check_size(parsed)
            task = GroundedTask(parsed)
            if own is not None:
                _check_variables(own, task)
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


_domains: dict[tuple[Path, int], Any] = {}  # as pddlpy read them, by file and time of its change


def _parse(domain: Path, problem_file: Path, own: DomainFile | None) -> pddlpy.DomainProblem:
    """pddlpy's reading of both; a domain, which takes much longer, is read and checked once."""
    key = (domain, domain.stat().st_mtime_ns)
    if key in _domains:
        empty = problem_file.with_name("domain.pddl")
        empty.write_text("(define (domain empty))", encoding="utf-8")
        parsed = pddlpy.DomainProblem(str(empty), str(problem_file))
        parsed.domain = _domains[key]
        return parsed
    parsed = (
        own.check(problem_file) if own else pddlpy.DomainProblem(str(domain), str(problem_file))
    )
    _domains[key] = parsed.domain
    return parsed


def _check_variables(own: DomainFile, task: GroundedTask) -> None:
    """Whether actions use their own variables only, which pddlpy's diagnosis does not ask."""
    for action in task.actions:
        needed = [literal.atom for clause in clauses(action.precondition) for literal in clause]
        for atom in (*needed, *action.effect_pos, *action.effect_neg):
            for term in atom[1:]:
                if term.startswith("?"):
                    why = f"it uses {term}, which is none of its parameters"
                    raise own.of_action(str(action.operator_name), why, term)


def _one_line(message: object) -> str:
    return re.sub(r"\s+", " ", str(message)).strip()
