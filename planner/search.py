"""Search for plans: pddlpy grounds and searches the parsed problem.

pddlpy grounds quantifiers and conditional effects itself (verified by a test), so nothing is
compiled away beforehand. Its breadth-first search does not finish on a whole Tidy House, however.
Goals are therefore achieved one by one in the problem's order, each by pddlpy's search over the few
actions that can contribute. HAB's domains have no dead ends, so an early choice never has to be
undone, and the part of the plan for each goal is a shortest one.

Plans are deterministic: actions are tried in the order of the domain file, then of the problem's
entities, and breadth-first search returns the first shortest plan in that order.

Parsing and grounding take a third of a second, and the episodes of a scenario are very similar, so
results are cached by structure (`planner.structure`).
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pddlpy
from pddlpy.pddl import Operator
from pddlpy.planning import BFSPlanner, GroundedTask, State

from planner.conditions import Literal, clauses, possible, possible_effects, satisfied
from planner.domains import DOMAIN, HABITAT_DOMAIN, SHIPPED
from planner.grounding import arguments, ground, problem_text
from planner.plan import Plan, PlanStep, make_step, renamed_step
from planner.predicates import Atom, text
from planner.problem import Problem
from planner.structure import Structure, abridged, renamed
from skills import registry
from tpsrl.errors import UserError

__all__ = ["DOMAIN", "HABITAT_DOMAIN", "UnsolvableError", "plan"]


_MOST_STATES = 5000  # search limit for one atom of a goal; HAB's scenarios need 35 at most


class UnsolvableError(UserError):
    """No plan that reaches the goal was found within the search limit."""


class _Stuck(Exception):
    """An atom of the goal was not reached; `why` contains "{}" in its place."""

    def __init__(self, atom: Atom, why: str) -> None:
        super().__init__(atom, why)
        self.atom, self.why = atom, why


def plan(
    problem: Problem, domain: Path = DOMAIN, carried_out_by: Mapping[str, str] | None = None
) -> Plan:
    """Finds the plan for a problem; empty if its goal holds already.

    `carried_out_by` names the skill for some actions, where several skills can carry them out.

    Raises:
        UnsolvableError: no plan reaches the goal; names the atom.
        UserError: the domain or the problem is malformed.
    """
    if domain not in SHIPPED:  # not cached, because a user's file may change
        try:
            return Plan(_steps(Structure.of(problem), domain, carried_out_by), problem)
        except _Stuck as stuck:
            raise _unsolvable(stuck.why, stuck.atom) from None
    structure, names = abridged(problem)
    try:
        found = _steps_once(structure, domain)
    except _Stuck as stuck:
        raise _unsolvable(stuck.why, renamed(stuck.atom, names)) from None
    actions = {step.action for step in found}
    skills = {a: registry.carrying_out(a, carried_out_by).name for a in actions}
    return Plan([renamed_step(step, names, skills[step.action]) for step in found], problem)


def _unsolvable(why: str, atom: Atom) -> UnsolvableError:
    return UnsolvableError(f"plan: {why.format(text(atom))}")


@functools.lru_cache(maxsize=256)
def _steps_once(structure: Structure, domain: Path) -> tuple[PlanStep, ...]:
    return _steps(structure, domain, None)


def _steps(
    structure: Structure, domain: Path, carried_out_by: Mapping[str, str] | None
) -> tuple[PlanStep, ...]:
    """Parses, grounds and searches."""
    problem = problem_text(
        "episode", structure.declared, structure.init, structure.goal, "home_assistant"
    )
    task = ground(problem, domain, structure.names)
    reachable = reachable_atoms(task)
    task.actions = [a for a in task.actions if possible(clauses(a.precondition), reachable)]
    for atom in structure.goal:
        if atom not in reachable:
            raise _Stuck(atom, "no action can reach {} from the start")
    state = task.initial
    steps: list[PlanStep] = []
    for count in range(1, len(structure.goal) + 1):
        for action in _achieve(task, state, structure.goal[:count], reachable):
            terms = arguments(task, action)
            facts = (state.atoms, reachable)
            steps.append(make_step(len(steps), action, terms, facts, carried_out_by))
            state = state.apply(action)
    return tuple(steps)


def reachable_atoms(task: GroundedTask) -> set[Atom]:
    """Returns every fact that could become true if facts were never deleted (delete relaxation)."""
    reachable = set(task.initial.atoms)
    while True:
        before = len(reachable)
        for action in task.actions:
            if possible(clauses(action.precondition), reachable):
                effects = possible_effects(action, reachable)
                reachable |= {effect.atom for effect in effects if effect.holds}
        if len(reachable) == before:
            return reachable


def _achieve(
    task: GroundedTask, state: State, goals: Sequence[Atom], reachable: set[Atom]
) -> Sequence[Operator]:
    """Returns a shortest action sequence to all goals from a state with all but the last."""
    helpful = _contributing(task.actions, state.atoms, goals, reachable)
    given_up = False
    for actions in (helpful, task.actions):
        stretch = _Stretch(task, state, goals, actions)
        try:
            found = _Search(stretch).solve(task.domainproblem)
        except _TooFar:
            given_up = True
            continue
        if found is not None:
            return found.actions
    why = "no plan reaches {} while keeping the goals before it"
    raise _Stuck(goals[-1], f"{why}, in {_MOST_STATES:,} states searched" if given_up else why)


def _contributing(
    actions: Sequence[Operator],
    facts: frozenset[Atom],
    goals: Sequence[Atom],
    reachable: set[Atom],
) -> list[Operator]:
    """Returns the actions that achieve missing goals, or unmet preconditions of such actions."""
    wanted = {Literal(goal, True) for goal in goals if goal not in facts}
    effects = [possible_effects(action, reachable) for action in actions]
    chosen: set[int] = set()
    while True:
        helpful = [n for n, effect in enumerate(effects) if n not in chosen and effect & wanted]
        if not helpful:
            return [actions[n] for n in sorted(chosen)]
        chosen.update(helpful)
        for n in helpful:
            for clause in clauses(actions[n].precondition):
                if not any(satisfied(literal, facts) for literal in clause):
                    wanted.update(clause)


class _TooFar(Exception):
    """The search limit is exceeded."""


class _Stretch(GroundedTask):
    """Task from a state to goals with a subset of the actions and a limit on searched states."""

    def __init__(
        self, task: GroundedTask, state: State, goals: Sequence[Atom], actions: Sequence[Operator]
    ) -> None:
        self.domainproblem = task.domainproblem
        self.initial, self.goals, self.actions = state, set(goals), list(actions)
        self._left = _MOST_STATES

    def successors(self, state: State) -> Iterator[tuple[Operator, State]]:
        """Yields successor states in pddlpy's format; raises `_TooFar` beyond the search limit."""
        self._left -= 1
        if self._left < 0:
            raise _TooFar
        return super().successors(state)


class _Search(BFSPlanner):
    """pddlpy's breadth-first search over a task that is already grounded."""

    def __init__(self, task: GroundedTask) -> None:
        self._task = task

    def prepare(self, domainproblem: pddlpy.DomainProblem) -> GroundedTask:
        return self._task
