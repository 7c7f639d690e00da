"""Checks that a domain uses the predicates of a home, and is small enough to plan with."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pddlpy import pddl

from planner.pddl.domain import PddlDomain, read_domain
from planner.pddl.source import SourceText
from planner.pddl.vocabulary import ROOT
from planner.predicates import PLANNING_ONLY, PREDICATES
from tpsrl.errors import UserError
from tpsrl.runtime import files

_MOST_BYTES = 2**17  # maximum bytes of a file; the shipped ones have 7000
_MOST_ATOMS = 500_000  # in all grounded actions; Tidy House with 30 objects has 46 000
_BITS = _MOST_ATOMS.bit_length()
_OURS = (*PREDICATES, *PLANNING_ONLY)


class DomainFile:
    """A file with a domain: standard PDDL with the predicates of a home.

    `text` is the content of the file.

    Raises:
        OSError: the file cannot be read, or is too large.
        UnicodeDecodeError: the file is not text.
        UserError: the file is not a domain that can be used for planning; names line and column.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.text = files.read_text(path, _MOST_BYTES).removeprefix("\ufeff")
        self._source = SourceText(self.text, f"domain: {path}")
        self.domain: PddlDomain = read_domain(self._source)
        self._check_predicates()
        for name, action in self.domain.model.operators.items():
            self._check_action(name, action)

    def check_problem(self, parsed: Any) -> None:
        """Checks that the domain declares the predicates and types of an episode's problem.

        Raises:
            UserError: a predicate or a type is not declared.
        """
        types = parsed.domain.types
        for name, kind in parsed.problem.objects.items():
            if kind not in (ROOT, *types):
                raise self._lacks(f"type '{kind}' of {name} is not declared in :types")
        atoms = (*parsed.initialstate(), *parsed.goals())
        for name in sorted({atom.predicate[0] for atom in atoms}):
            if name not in self.domain.predicates:
                raise self._lacks(
                    f"predicate '{name}' of the problem is not declared in :predicates"
                )

    def check_size(self, parsed: Any) -> None:
        """Checks that grounding the actions with the objects of a problem stays within the limit.

        Raises:
            UserError: there are too many.
        """
        atoms = 0
        for name, action in parsed.domain.operators.items():
            instances = _product(parsed, action.variable_list)
            condition, changed = action.precondition_tree, action.effect_tree
            atoms += instances * (1 + _literals(condition, parsed) + _changes(changed, parsed))
            if atoms > _MOST_ATOMS:
                most = f"more than {_MOST_ATOMS:,} atoms with the objects of a home"
                raise self._of_action(
                    name, f"its parameters, conditions and effects ground to {most}"
                )

    def _of_action(self, name: str, why: str) -> UserError:
        """Returns an error of a whole action."""
        return self._source.error(self.domain.actions[name], f"action '{name}': {why}")

    def _lacks(self, why: str) -> UserError:
        return UserError(f"domain: {self._path}: {why}")

    def _check_predicates(self) -> None:
        """Checks that the declared predicates are known and have the right number of entities."""
        for name, declared in self.domain.predicates.items():
            if name not in _OURS:
                raise self._source.unknown(declared.at, "predicate", name, PREDICATES)
            if declared.terms != _arity(name):
                why = f"predicate {name}: takes {_arity(name)} entities, {declared.terms} given"
                raise self._source.error(declared.at, why)

    def _check_action(self, name: str, action: Any) -> None:
        """Checks that an action has parameters and makes something true."""
        if not action.variable_list:
            raise self._of_action(name, "must have at least one parameter")
        parts = _parts(action.effect_tree)
        if not any(isinstance(part, pddl.AddDel) and part.add for part in parts):
            raise self._of_action(name, "must have an effect that makes an atom true")


def _arity(predicate: str) -> int:
    return PREDICATES[predicate][1] if predicate in PREDICATES else 1


def _parts(tree: Any) -> Iterator[Any]:
    """Yields a condition or effect and all its parts."""
    yield tree
    below = [getattr(tree, name, None) for name in ("child", "body", "effect")]
    for part in (*getattr(tree, "children", ()), *below):
        if isinstance(part, pddl.Condition | pddl.Effect):
            yield from _parts(part)


def _product(parsed: Any, variables: Any) -> int:
    """Returns the number of ways to bind variables to entities of their types."""
    return math.prod(len(parsed.candidate_objects(kind)) for kind in variables.values())


def _changes(effect: Any, parsed: Any) -> int:
    """Returns an upper bound of the atoms that an effect changes and the literals it checks."""
    if isinstance(effect, pddl.EffAnd):
        return 1 + sum(_changes(child, parsed) for child in effect.children)
    if isinstance(effect, pddl.Universal):
        return _product(parsed, effect.varlist) * _changes(effect.effect, parsed)
    if isinstance(effect, pddl.When):
        return _literals(effect.condition, parsed) + _changes(effect.effect, parsed)
    return 1


def _literals(condition: Any, parsed: Any) -> int:
    """Returns an upper bound of a condition's literals, in its tree or clauses (`clauses`)."""
    count, longest = _clauses(condition, True, parsed)
    return max(count * longest, _nodes(condition, parsed))


def _nodes(condition: Any, parsed: Any) -> int:
    """Returns the number of parts of a condition, with quantifiers expanded over the entities."""
    if isinstance(condition, pddl.Forall | pddl.Exists):
        return _product(parsed, condition.varlist) * _nodes(condition.body, parsed)
    below = [condition.child] if isinstance(condition, pddl.Not) else []
    below += getattr(condition, "children", ())
    return 1 + sum(_nodes(child, parsed) for child in below)


def _clauses(condition: Any, holds: bool, parsed: Any) -> tuple[int, int]:
    """Returns the number of clauses, capped at `_MOST_ATOMS`, and the length of the longest."""
    if isinstance(condition, pddl.Not):
        return _clauses(condition.child, not holds, parsed)
    if isinstance(condition, pddl.Forall | pddl.Exists):
        number = _product(parsed, condition.varlist)
        count, longest = _clauses(condition.body, holds, parsed)
        if isinstance(condition, pddl.Forall) == holds:
            return _capped(number * count), longest
        return (count if count < 2 else _capped(count ** min(number, _BITS))), number * longest
    if not isinstance(condition, pddl.And | pddl.Or):
        return 1, 1
    below = [_clauses(child, holds, parsed) for child in condition.children]
    if isinstance(condition, pddl.And) == holds:
        return _capped(sum(n for n, _ in below)), max((n for _, n in below), default=0)
    return _capped(math.prod(n for n, _ in below)), sum(n for _, n in below)


def _capped(count: int) -> int:
    return min(count, _MOST_ATOMS)
