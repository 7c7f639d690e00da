"""From a problem to a plan: pddlpy parses, grounds and searches.

pddlpy grounds quantifiers and conditional effects itself (a test holds it to that), so nothing is
compiled away beforehand. Its breadth-first search over a whole Tidy House does not end, though;
so goals are achieved one by one in the problem's order, each by pddlpy's search over the few
actions that can contribute. HAB's domains have no dead ends, so an early choice never has to be
taken back, and each stretch of the plan is a shortest one.

Plans are deterministic: actions are tried in the order of the domain file, then of the problem's
entities, and breadth-first search returns the first shortest plan in that order.

Parsing and grounding take a third of a second, and the episodes of a scenario are much alike: what
was found for one serves all that have the same structure (`planner.structure`).
"""

import copy
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

import pddlpy
from pddlpy.pddl import Operator
from pddlpy.planning import BFSPlanner, GroundedTask, State

from planner.conditions import Literal, clauses, possible, possible_effects, satisfied
from planner.grounding import DOMAIN, HABITAT_DOMAIN, arguments, ground, problem_text
from planner.plan import Plan, PlanStep, make_step, renamed_step
from planner.predicates import Atom, text
from planner.problem import Problem
from planner.structure import Structure, abridged
from skills import registry
from tpsrl.errors import UserError

__all__ = ["DOMAIN", "HABITAT_DOMAIN", "UnsolvableError", "plan"]


class UnsolvableError(UserError):
    """No plan reaches the goal."""


def plan(
    problem: Problem, domain: Path = DOMAIN, carried_out_by: Mapping[str, str] | None = None
) -> Plan:
    """The plan for a problem; empty when its goal holds already.

    `carried_out_by` names the skill for some actions, where several can carry them out.

    Raises:
        UnsolvableError: no plan reaches the goal; names the atom.
        UserError: the domain or the problem is malformed.
    """
    if domain not in (DOMAIN, HABITAT_DOMAIN):  # a file of one's own may change
        return Plan(_steps(Structure.of(problem), domain, carried_out_by), problem)
    structure, names = abridged(problem)
    try:
        found = _steps_once(structure, domain)
    except UnsolvableError:  # once more, to name the atom as the problem does
        return Plan(_steps(Structure.of(problem), domain, carried_out_by), problem)
    actions = {step.action for step in found}
    skills = {a: registry.carrying_out(a, carried_out_by).name for a in actions}
    return Plan([renamed_step(step, names, skills[step.action]) for step in found], problem)


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
    reachable = _reachable(task)
    task.actions = [a for a in task.actions if possible(clauses(a.precondition), reachable)]
    for atom in structure.goal:
        if atom not in reachable:
            raise UnsolvableError(f"plan: no action can reach {text(atom)} from the start")
    state = task.initial
    steps: list[PlanStep] = []
    for count in range(1, len(structure.goal) + 1):
        for action in _achieve(task, state, structure.goal[:count], reachable):
            terms = arguments(task, action)
            facts = (state.atoms, reachable)
            steps.append(make_step(len(steps), action, terms, facts, carried_out_by))
            state = state.apply(action)
    return tuple(steps)


def _reachable(task: GroundedTask) -> set[Atom]:
    """Every fact that could ever become true if nothing were ever deleted."""
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
    """A shortest way from a state, where all but the last of the goals hold, to all of them."""
    helpful = _contributing(task.actions, state.atoms, goals, reachable)
    for actions in (helpful, task.actions):
        stretch = copy.copy(task)
        stretch.initial, stretch.goals, stretch.actions = state, set(goals), actions
        found = _Search(stretch).solve(task.domainproblem)
        if found is not None:
            return found.actions
    last = text(goals[-1])
    raise UnsolvableError(f"plan: no plan reaches {last} while keeping the goals before it")


def _contributing(
    actions: Sequence[Operator],
    facts: frozenset[Atom],
    goals: Sequence[Atom],
    reachable: set[Atom],
) -> list[Operator]:
    """The actions that bring about what the goals lack, or what such actions lack in turn."""
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


class _Search(BFSPlanner):
    """pddlpy's breadth-first search over a task that is grounded already."""

    def __init__(self, task: GroundedTask) -> None:
        self._task = task

    def prepare(self, domainproblem: pddlpy.DomainProblem) -> GroundedTask:
        return self._task
