"""Preconditions and effects of pddlpy's grounded actions, as plain ground atoms."""

from collections.abc import Collection, Iterable
from itertools import product
from typing import NamedTuple

from pddlpy.pddl import And, Condition, Equality, Lit, Not, Operator, Or

from planner.predicates import Atom


class Literal(NamedTuple):
    """An atom that must hold (`holds`), or must not."""

    atom: Atom
    holds: bool


# A disjunction. A precondition is a conjunction of clauses.
Clause = tuple[Literal, ...]


def clauses(condition: Condition, holds: bool = True) -> list[Clause]:
    """Converts a grounded condition (or its negation, `holds` False) to conjunctive normal form."""
    if isinstance(condition, Lit):
        return [(Literal(tuple(condition.atom.predicate), holds),)]
    if isinstance(condition, Not):
        return clauses(condition.child, not holds)
    if isinstance(condition, Equality):  # no clause if true, an unsatisfiable clause if false
        return [] if (condition.left == condition.right) == holds else [()]
    if not isinstance(condition, And | Or):
        raise NotImplementedError(f"preconditions of kind {type(condition).__name__}")
    parts = [clauses(child, holds) for child in condition.children]
    if isinstance(condition, And) == holds:
        return [clause for part in parts for clause in part]
    joined = ([lit for clause in choice for lit in clause] for choice in product(*parts))
    return [tuple(dict.fromkeys(literals)) for literals in joined]


def satisfied(literal: Literal, facts: Collection[Atom]) -> bool:
    """Returns whether a literal holds among facts."""
    return (literal.atom in facts) == literal.holds


def possible_effects(action: Operator, reachable: Collection[Atom]) -> set[Literal]:
    """Returns the atoms that an action may add or delete, given all reachable facts."""
    effects = {Literal(atom, True) for atom in action.effect_pos}
    effects |= {Literal(atom, False) for atom in action.effect_neg}
    for conditional in action.conditional_effects:
        if possible(clauses(conditional.condition), reachable):
            effects |= {Literal(atom, True) for atom in conditional.add}
            effects |= {Literal(atom, False) for atom in conditional.dele}
    return effects


def possible(conjunction: Iterable[Clause], reachable: Collection[Atom]) -> bool:
    """Returns whether clauses could hold if facts were never deleted.

    Negative literals count as satisfiable.
    """
    return all(
        any(not literal.holds or literal.atom in reachable for literal in clause)
        for clause in conjunction
    )


def fired_effects(action: Operator, facts: frozenset[Atom]) -> tuple[set[Atom], set[Atom]]:
    """Returns the atoms that an action adds and deletes where `facts` hold; adding wins."""
    added, deleted = set(action.effect_pos), set(action.effect_neg)
    for conditional in action.conditional_effects:
        if conditional.condition.holds(facts, {}):
            added |= conditional.add
            deleted |= conditional.dele
    return added, (deleted & facts) - added
