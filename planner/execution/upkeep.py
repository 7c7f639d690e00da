"""Facts that a plan still needs: when one of them is lost on the way, and that it was."""

import dataclasses

from planner.conditions import Clause, Literal
from planner.execution.facts import Facts
from planner.plan import Plan, clause_text
from planner.predicates import Atom
from skills.core.conditions import Margin


@dataclasses.dataclass(frozen=True, slots=True)
class Lost:
    """A fact that held at the start of a step, was not the step's to end, and no longer holds."""

    predicate: str
    margin: Margin
    step: int  # control step of the episode at which it ceased to hold


class Upkeep:
    """Watches the facts that later steps of a plan, or its goal, rely on.

    A fact is watched from the moment at which it holds to the step that needs it, those of the goal
    to the end of the episode, unless a step in between brings it about again (a causal link of the
    plan; Tate, "Generating project networks", IJCAI 1977).
    """

    def __init__(self, plan: Plan) -> None:
        after = len(plan) + 1  # the final wait is watched, too
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
        """One that goes on from here by itself."""
        other = object.__new__(Upkeep)
        other._watched = self._watched
        other._live, other._since = dict(self._live), dict(self._since)
        return other

    def begin(self, index: int, facts: Facts) -> None:
        """Step `index` of the plan, or the final wait, begins: what holds now is to hold on."""
        watched = self._watched[index].items()
        self._live = {name: c for name, c in watched if facts.clause(c).holds}
        self._since = {}

    def made(self, index: int, facts: Facts) -> None:
        """The skill of step `index` has ended: what it has brought about is to hold on, too."""
        following = self._watched[index + 1].items()
        new = {n: c for n, c in following if n not in self._live and facts.clause(c).holds}
        self._live |= new

    def note(self, facts: Facts, step: int) -> None:
        """After control step `step` of the episode."""
        for name, clause in self._live.items():
            if facts.clause(clause).holds:
                self._since.pop(name, None)
            else:
                self._since.setdefault(name, step)

    def lost(self, facts: Facts) -> list[Lost]:
        """What was lost since the step began, the earliest first."""
        gone = sorted(self._since.items(), key=lambda item: item[1])
        return [Lost(name, facts.clause(self._live[name]), step) for name, step in gone]


def _makes(adds: tuple[Atom, ...], deletes: tuple[Atom, ...], clause: Clause) -> bool:
    """Whether a step makes a clause true, whatever it was before."""
    return any(lit.atom in (adds if lit.holds else deletes) for lit in clause)
