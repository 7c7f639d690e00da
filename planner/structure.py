"""The part of a problem that search depends on, and the same with neutral names."""

import dataclasses

from planner.predicates import Atom
from planner.problem import Problem


@dataclasses.dataclass(frozen=True, slots=True)
class Structure:
    """All of a problem that search depends on.

    `names` are the names of all entities in the order of preference; `declared` are (name, type) of
    those that are not constants of the domain.
    """

    names: tuple[str, ...]
    declared: tuple[tuple[str, str], ...]
    init: tuple[Atom, ...]
    goal: tuple[Atom, ...]

    @staticmethod
    def of(problem: Problem) -> "Structure":
        """Returns the structure of a problem, with the problem's names."""
        return Structure(
            tuple(entity.name for entity in problem.entities),
            tuple((entity.name, entity.type) for entity in problem.declared if entity.joint < 0),
            problem.init,
            problem.goal,
        )


def abridged(problem: Problem) -> tuple[Structure, dict[str, str]]:
    """Returns a structure shared with similar problems, and the problem's name for each new name.

    Objects and goals are named by their order only. Clutter without facts is left out: no goal
    requires an action on it.
    """
    whole = Structure.of(problem)
    mentioned = {term for atom in (*whole.init, *whole.goal) for term in atom[1:]}
    names: dict[str, str] = {}
    for entity in problem.entities:
        constant = entity.joint >= 0 or entity.object < 0
        if constant or entity.name in mentioned:
            names[entity.name] = entity.name if constant else f"thing_{len(names)}"
    shared = Structure(
        tuple(names.values()),
        tuple((names[name], kind) for name, kind in whole.declared if name in names),
        tuple(renamed(atom, names) for atom in whole.init),
        tuple(renamed(atom, names) for atom in whole.goal),
    )
    return shared, {new: own for own, new in names.items()}


def renamed(atom: Atom, names: dict[str, str]) -> Atom:
    """Returns an atom with its terms renamed."""
    return (atom[0], *(names[term] for term in atom[1:]))
