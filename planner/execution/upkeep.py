"""Monitoring of facts that a plan still needs, to detect when they are lost."""

import dataclasses

from planner.conditions import Clause, Literal
from planner.execution.facts import Facts
from planner.plan import Plan, clause_text
from planner.predicates import Atom
from skills.core.conditions import Margin


@dataclasses.dataclass(frozen=True, slots=True)
class Lost:
    """A fact that held at the start of a step, was not to be ended by it, and no longer holds."""

    predicate: str
    margin: Margin
    step: int  # control step of the episode at which the fact ceased to hold


class Upkeep:
    """Monitors the facts that later steps of a plan, or its goal, rely on.

    A fact is monitored from the moment at which it holds until the step that needs it, or until the
    end of the episode if it belongs to the goal, unless a step in between brings it about again (a
    causal link of the plan; Tate, "Generating project networks", IJCAI 1977).
    """

    def __init__(self, plan: Plan) -> None:
        after = len(plan) + 1  # the final wait is monitored too
        ends = [(after, (Literal(atom, True),)) for atom in plan.problem.goal]
        needs = [(step.index, clause) for step in plan for clause in step.preconditions]
        self._watched: list[dict[str, Clause]] = []
        for index in range(after):
            found: dict[str, Clause] = {}
            for needed_at, clause in [*needs, *ends]:
                between = plan.steps[index:needed_at]
                made = any(_makes(s.adds, s.deletes, clause) for s in between)
                if needed_at > index and not made and clause[0].atom[0] != "goal_of":
                    found[clause_text(clause)] = clause
            self._watched.append(found)
        self._live: dict[str, Clause] = {}
        self._since: dict[str, int] = {}

    def copy(self) -> "Upkeep":
        """Returns an independent copy."""
        other = object.__new__(Upkeep)
        other._watched = self._watched
        other._live, other._since = dict(self._live), dict(self._since)
        return other

    def begin(self, index: int, facts: Facts) -> None:
        """Starts step `index` of the plan, or the final wait: monitors the facts that hold now."""
        watched = self._watched[index].items()
        self._live = {name: c for name, c in watched if facts.clause(c).holds}
        self._since = {}

    def made(self, index: int, facts: Facts) -> None:
        """Adds the facts that the skill of step `index` has brought about, after its end."""
        following = self._watched[index + 1].items()
        new = {n: c for n, c in following if n not in self._live and facts.clause(c).holds}
        self._live |= new

    def note(self, facts: Facts, step: int) -> None:
        """Checks the monitored facts after control step `step` of the episode."""
        for name, clause in self._live.items():
            if facts.clause(clause).holds:
                self._since.pop(name, None)
            else:
                self._since.setdefault(name, step)

    def lost(self, facts: Facts) -> list[Lost]:
        """Returns the facts lost since the step began, the earliest first."""
        gone = sorted(self._since.items(), key=lambda item: item[1])
        return [Lost(name, facts.clause(self._live[name]), step) for name, step in gone]


def _makes(adds: tuple[Atom, ...], deletes: tuple[Atom, ...], clause: Clause) -> bool:
    """Returns whether a step makes a clause true, whatever held before."""
    return any(lit.atom in (adds if lit.holds else deletes) for lit in clause)
