"""Facts of one world state: margins of the atoms, clauses and goals of a plan."""

from collections.abc import Iterable

from planner.conditions import Clause
from planner.plan import Plan
from planner.predicates import (
    Atom,
    PredicateContext,
    PredicateThresholds,
    Resolved,
    resolve,
    text,
)
from skills.core.conditions import Margin
from tpsrl.world.state import WorldState


class Facts:
    """Facts of one moment, in a world of batch one; each atom is evaluated once.

    `resolved` is a cache of the atoms' predicates and entities, shared by all moments of an
    episode.
    """

    def __init__(
        self,
        world: WorldState,
        plan: Plan,
        thresholds: PredicateThresholds,
        resolved: dict[Atom, Resolved] | None = None,
    ) -> None:
        self.world, self.entities = world, plan.problem.entities
        self._goal = plan.problem.goal
        self._scene = PredicateContext(world, self.entities, thresholds)
        self._resolved = {} if resolved is None else resolved
        self._known: dict[Atom, Margin] = {}

    def atom(self, atom: Atom) -> Margin:
        """Returns the margin of an atom."""
        margin = self._known.get(atom)
        if margin is None:
            found = self._resolved.get(atom)
            if found is None:
                found = self._resolved[atom] = resolve(atom, self.entities)
            margin = self._known[atom] = found[0](self._scene, *found[1])
        return margin

    def atoms(self, atoms: Iterable[Atom]) -> dict[str, Margin]:
        """Returns the margins of atoms by their text."""
        return {text(atom): self.atom(atom) for atom in atoms}

    def all_hold(self, atoms: Iterable[Atom]) -> bool:
        """Returns whether every atom holds."""
        return all(self.atom(atom).holds for atom in atoms)

    def clause(self, clause: Clause) -> Margin:
        """Returns the margin of a disjunction: of its first literal that holds, or its last."""
        margin = Margin.flag(False)
        for literal in clause:
            margin = self.atom(literal.atom)
            if not literal.holds:
                margin = Margin(not margin.holds, -margin.margin, margin.unit)
            if margin.holds:
                break
        return margin

    def goals(self) -> dict[str, Margin]:
        """Returns the margins of the goal's atoms."""
        return self.atoms(self._goal)
