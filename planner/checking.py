"""Whether a domain file of somebody's own is one that can be planned with, mistake by mistake."""

import contextlib
import io
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pddlpy
from pddlpy import pddl
from pddlpy.diagnostics import diagnose

from planner.predicates import PLANNING_ONLY, PREDICATES
from tpsrl.errors import UserError, unknown
from tpsrl.runtime import files

_MOST_BYTES = 2**17  # of a file; the shipped ones have 7000
_DEEPEST = 40  # brackets in each other
_MOST_ATOMS = 500_000  # of all grounded actions; Tidy House with 30 objects has 46 000
_BITS = _MOST_ATOMS.bit_length()
_ACTION = re.compile(r"\(\s*:action\s+([\w-]+)", re.IGNORECASE)


class DomainFile:
    """The text of a domain without its comments, and what is known of it by line.

    Raises:
        OSError: the file cannot be read, or is too large.
        UnicodeDecodeError: it is no text.
        UserError: it is nested too deeply, or defines an action twice.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text = re.sub(";.*", "", files.read_text(path, _MOST_BYTES))
        depth = 0
        for found in re.finditer(r"[()]", self._text):
            depth += 1 if found[0] == "(" else -1
            if depth > _DEEPEST:
                raise self._error(found.start(), f"more than {_DEEPEST} brackets in each other")
        self._actions: dict[str, int] = {}  # the place of each
        for found in _ACTION.finditer(self._text):
            name, place = found[1], found.start()
            if name in self._actions:
                first = self._line(self._actions[name])
                why = f"action '{name}' is defined twice, first in line {first}"
                raise self._error(place, why)
            self._actions[name] = place

    def check(self, problem_file: Path) -> pddlpy.DomainProblem:
        """Has pddlpy look for mistakes, and looks for those that it passes over.

        Returns:
            pddlpy's reading of both files.

        Raises:
            UserError: there is one.
        """
        parsed = _parsed(self._path, problem_file)
        if parsed is not None:
            self.check_size(parsed)
        try:
            issues = diagnose(str(self._path), str(problem_file))["issues"]
        except Exception:  # of whatever kind comes of walking over a damaged file
            raise UserError(f"domain: {self._path}: it cannot be read as a domain") from None
        errors = [issue["message"] for issue in issues if issue["severity"] == "error"]
        if errors or parsed is None:
            why = " ".join(str(errors[0]).split()) if errors else "it cannot be read as a domain"
            raise UserError(f"domain: {self._path}: {why}")
        self._check_types()
        self._check_predicates()
        for name, action in parsed.domain.operators.items():
            self._check_action(name, action)
        return parsed

    def check_size(self, parsed: Any) -> None:
        """Whether the actions, with the objects of a problem, are few enough to be listed.

        Raises:
            UserError: they are not, or one asks for what has no truth here, such as a number.
        """
        atoms = 0
        for name, action in parsed.domain.operators.items():
            for condition in _conditions(action):
                for part in _parts(condition):
                    if isinstance(part, pddl.NumericCond):
                        raise self.of_action(name, "compares numbers, of which a home has none")
            instances = _product(parsed, action.variable_list)
            asked, effect = action.precondition_tree, action.effect_tree
            of_one = 0 if asked is None else _literals(asked, parsed)
            of_one += 0 if effect is None else _changes(effect, parsed)
            atoms += instances * (1 + of_one)
            if atoms > _MOST_ATOMS:
                most = f"more than {_MOST_ATOMS:,} atoms with the objects of a home"
                raise self.of_action(name, f"its parameters, conditions and effects make {most}")

    def of_action(self, name: str, why: str, term: str = "") -> UserError:
        """What is wrong with an action, at the line of a term of it, or of its beginning."""
        place = self._actions.get(name, 0)
        if term:
            place = max(self._text.find(term, place), place)
        return self._error(place, f"action '{name}': {why}")

    def _error(self, place: int, why: str) -> UserError:
        return UserError(f"{self._where(place)}: {why}")

    def _where(self, place: int) -> str:
        return f"domain: {self._path}, line {self._line(place)}"

    def _line(self, place: int) -> int:
        return self._text.count("\n", 0, place) + 1

    def _check_types(self) -> None:
        """Whether what is typed has types of the domain, which pddlpy's diagnosis does not ask."""
        declared = re.search(r"\(\s*:types([^()]*)\)", self._text)
        types = {"object", *(declared[1].split() if declared else ())}
        for found in re.finditer(r"\s-\s+([A-Za-z][\w-]*)", self._text):
            if found[1] not in types:
                raise unknown(f"{self._where(found.start(1))}: type", found[1], types - {"-"})

    def _check_predicates(self) -> None:
        """Whether the declared predicates are ours, of as many entities."""
        section = re.search(r"\(\s*:predicates((?:\s*\([^()]*\))*)", self._text)
        if section is None:
            return
        for found in re.finditer(r"\(\s*([^\s()]+)([^()]*)\)", section[1]):
            name, place = found[1], section.start(1) + found.start(1)
            if name not in {*PREDICATES, *PLANNING_ONLY}:
                raise unknown(f"{self._where(place)}: predicate", name, PREDICATES)
            given = len(re.findall(r"\?", found[2]))
            if given != _arity(name):
                why = f"predicate {name}: takes {_arity(name)} entities, {given} given"
                raise self._error(place, why)

    def _check_action(self, name: str, action: Any) -> None:
        """Whether an action is about something and brings something about."""
        if not action.variable_list:
            raise self.of_action(name, "it has no parameters, so there is nothing to do it with")
        effect = action.effect_tree
        made = [] if effect is None else [p for p in _parts(effect) if isinstance(p, pddl.AddDel)]
        if effect is None or not any(part.add for part in made):
            raise self.of_action(name, "it makes nothing true, so no plan needs it")
        trees = [*_conditions(action), effect]
        for atom in (atom for tree in trees for atom in tree.atoms()):
            predicate, *terms = atom.predicate
            if predicate not in {*PREDICATES, *PLANNING_ONLY}:
                raise unknown(
                    f"{self._where(self._actions.get(name, 0))}: predicate", predicate, PREDICATES
                )
            if len(terms) != _arity(predicate):
                why = f"{predicate} takes {_arity(predicate)} entities, {len(terms)} given"
                raise self.of_action(name, why, f"({predicate}")


def _parsed(domain: Path, problem_file: Path) -> Any:
    """pddlpy's reading of both; None where there are mistakes, which its parser passes over."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            parsed = pddlpy.DomainProblem(str(domain), str(problem_file))
        except Exception:
            return None  # what comes of walking over a damaged file; the diagnosis says more
    return None if said.getvalue() else parsed


def _arity(predicate: str) -> int:
    return PREDICATES[predicate][1] if predicate in PREDICATES else 1


def _conditions(action: Any) -> Iterator[Any]:
    """The conditions of an action: when it may be taken, and when parts of its effect happen."""
    if action.precondition_tree is not None:
        yield action.precondition_tree
    effects = () if action.effect_tree is None else _parts(action.effect_tree)
    yield from (part.condition for part in effects if isinstance(part, pddl.When))


def _parts(tree: Any) -> Iterator[Any]:
    """A condition or effect with all that it is made of."""
    yield tree
    below = [getattr(tree, name, None) for name in ("child", "body", "effect")]
    for part in (*getattr(tree, "children", ()), *below):
        if isinstance(part, pddl.Condition | pddl.Effect):
            yield from _parts(part)


def _product(parsed: Any, variables: Any) -> int:
    """How many ways there are to fill variables with entities of their types."""
    return math.prod(len(parsed.candidate_objects(kind)) for kind in variables.values())


def _changes(effect: Any, parsed: Any) -> int:
    """How many atoms an effect adds or deletes at most, and literals it asks for while it does."""
    if isinstance(effect, pddl.EffAnd):
        return 1 + sum(_changes(child, parsed) for child in effect.children)
    if isinstance(effect, pddl.Universal):
        return _product(parsed, effect.varlist) * _changes(effect.effect, parsed)
    if isinstance(effect, pddl.When):
        return _literals(effect.condition, parsed) + _changes(effect.effect, parsed)
    return 1


def _literals(condition: Any, parsed: Any) -> int:
    """How many literals a condition has at most, or its clauses (`planner.conditions.clauses`)."""
    count, longest = _clauses(condition, True, parsed)
    return max(count * longest, _nodes(condition, parsed))


def _nodes(condition: Any, parsed: Any) -> int:
    """How many parts a condition has, those under quantifiers once for each entity."""
    if isinstance(condition, pddl.Forall | pddl.Exists):
        return _product(parsed, condition.varlist) * _nodes(condition.body, parsed)
    below = [condition.child] if isinstance(condition, pddl.Not) else []
    below += getattr(condition, "children", ())
    return 1 + sum(_nodes(child, parsed) for child in below)


def _clauses(condition: Any, holds: bool, parsed: Any) -> tuple[int, int]:
    """How many clauses, but no more than matters, and how long the longest."""
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
