"""Grounding: from PDDL to pddlpy's grounded task, with one-line errors."""

import functools
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import pddlpy
from pddlpy.pddl import Operator
from pddlpy.planning import GroundedTask

from planner.checking import DomainFile
from planner.domains import SHIPPED
from planner.entities import HANDLES
from planner.pddl.domain import PddlDomain
from planner.pddl.vocabulary import ROOT
from planner.predicates import Atom
from tpsrl.errors import UserError


def problem_text(
    name: str,
    objects: Iterable[tuple[str, str]],
    init: Iterable[Atom],
    goal: Iterable[Atom],
    domain: str,
) -> str:
    """Returns a problem in PDDL; `objects` are (name, type), with type "" for an untyped domain."""
    lines = [
        f"(define (problem {name})",
        f"  (:domain {domain})",
        "  (:objects",
        *(f"    {name} - {kind}" if kind else f"    {name}" for name, kind in objects),
        "  )",
        "  (:init",
        *(f"    ({' '.join(atom)})" for atom in init),
        "  )",
        "  (:goal (and",
        *(f"    ({' '.join(atom)})" for atom in goal),
        "  )))",
    ]
    return "\n".join(lines) + "\n"


class EpisodeProblem(pddlpy.DomainProblem):
    """pddlpy's problem with a domain of `planner.pddl.domain`.

    Entities have the same order in every process, and types may stand for several. A handle that is
    not a constant of the domain is an object of the problem.
    """

    def __init__(self, domain: PddlDomain, problem: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / name for name in ("domain.pddl", "problem.pddl")]
            for path, text in zip(paths, ("(define (domain empty))", problem), strict=True):
                path.write_text(text, encoding="utf-8")
            super().__init__(*map(str, paths))
        self.domain = domain.model
        self._unions = domain.unions
        objects = {**HANDLES, **self.domain.objects, **self.problem.objects}
        if not domain.model.types:  # an untyped domain has only the type `object`
            objects = dict.fromkeys(objects, ROOT)
        self.problem.objects = dict(sorted(objects.items()))

    def worldobjects(self) -> dict[str, str | None]:
        """Returns all entities with their types, by name."""
        return dict(self.problem.objects)

    def _is_subtype(self, ot: str | None, t: str | None) -> bool:  # called by pddlpy to bind
        kinds = self._unions.get(t or ROOT, ())
        return any(self._is_subtype(ot, kind) for kind in kinds) or super()._is_subtype(ot, t)


def ground(problem: str, domain: Path, names: Sequence[str] = ()) -> GroundedTask:
    """Returns pddlpy's task for a problem in PDDL, its actions in the order of preference.

    Actions are ordered as in the domain file, then by the positions of their arguments in `names`.

    Raises:
        UserError: the domain cannot be read or is malformed, or the problem does not fit it.
    """
    parsed = read_problem(problem, domain)
    task = GroundedTask(parsed)
    action_rank = {name: rank for rank, name in enumerate(parsed.operators())}
    name_rank = {name: rank for rank, name in enumerate(names)}

    def preference(action: Operator) -> tuple[object, ...]:
        terms = arguments(task, action)
        ranks = [name_rank.get(term, len(name_rank)) for term in terms]
        return (action_rank[action.operator_name], ranks, terms)

    task.actions.sort(key=preference)
    return task


def arguments(task: GroundedTask, action: Operator) -> tuple[str, ...]:
    """Returns the entities of a grounded action in the order of its parameters."""
    lifted = task.domainproblem.domain.operators[action.operator_name]
    return tuple(str(action.variable_list[name]) for name in lifted.variable_list)


def read_problem(problem: str, domain: Path) -> EpisodeProblem:
    """Parses a problem in PDDL together with its domain.

    Raises:
        UserError: the domain cannot be read or is malformed, or the problem does not fit it.
    """
    file = domain_file(domain)
    parsed = EpisodeProblem(file.domain, problem)
    if domain not in SHIPPED:  # the shipped domains are checked by tests
        file.check_problem(parsed)
        file.check_size(parsed)
    return parsed


def domain_file(path: Path) -> DomainFile:
    """Reads a domain, cached until its file changes.

    Raises:
        UserError: the file cannot be read or is malformed.
    """
    try:
        return _read(path, path.stat().st_mtime_ns)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise UserError(f"domain: cannot read {path}: {reason}") from None


@functools.lru_cache(maxsize=16)
def _read(path: Path, stamp: int) -> DomainFile:
    return DomainFile(path)
