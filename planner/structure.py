"""What search sees of a problem: names, types, atoms; and the same under names that say nothing."""

import dataclasses

from planner.predicates import Atom
from planner.problem import Problem


@dataclasses.dataclass(frozen=True, slots=True)
class Structure:
    """All of a problem that search depends on.

    `names` are those of all entities in the order of preference, `declared` (name, type) of those
    that are no constants of the domain.
    """

    names: tuple[str, ...]
    declared: tuple[tuple[str, str], ...]
    init: tuple[Atom, ...]
    goal: tuple[Atom, ...]

    @staticmethod
    def of(problem: Problem) -> "Structure":
        """The structure of a problem, under its own names."""
        return Structure(
            tuple(entity.name for entity in problem.entities),
            tuple((entity.name, entity.type) for entity in problem.declared if entity.joint < 0),
            problem.init,
            problem.goal,
        )


def abridged(problem: Problem) -> tuple[Structure, dict[str, str]]:
    """The structure that a problem shares with others, and the problem's own names by the new ones.

    Objects and goals are called by their place alone. Clutter that no fact is about is left out:
    the robot can do nothing with it that any goal would need.
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
    """An atom with its terms by other names."""
    return (atom[0], *(names[term] for term in atom[1:]))
