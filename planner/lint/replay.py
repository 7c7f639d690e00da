"""Linter: symbolic execution of a definition's plan by the definition's own domain."""

import dataclasses
import functools
from pathlib import Path

from pddlpy.pddl import Operator
from pddlpy.planning import GroundedTask

from planner.conditions import Clause, clauses, fired_effects, satisfied
from planner.definition import Definition
from planner.grounding import arguments, ground, problem_text
from planner.predicates import PLANNING_ONLY, Atom, check, text
from tpsrl.errors import unknown


@dataclasses.dataclass(frozen=True, slots=True)
class Taken:
    """A step of the plan: facts before it, unmet preconditions, and added atoms."""

    index: int
    atom: Atom
    before: frozenset[Atom]
    unmet: tuple[Clause, ...]
    adds: frozenset[Atom]

    @property
    def where(self) -> str:
        """Text of the step: "step 3, pick(bowl, robot_0)"."""
        return f"step {self.index + 1}, {text(self.atom)}"

    def added(self, predicate: str) -> Atom | None:
        """Returns the first atom of a predicate that the step adds, or None."""
        return next((atom for atom in sorted(self.adds) if atom[0] == predicate), None)


@dataclasses.dataclass(frozen=True, slots=True)
class Replay:
    """A definition with its grounded domain; `facts` are those at the start and after each step.

    The effects of a step are applied even if its preconditions do not hold.
    """

    definition: Definition
    task: GroundedTask
    steps: tuple[Taken, ...]
    facts: tuple[frozenset[Atom], ...]


def grounded(problem: str, domain: Path) -> GroundedTask:
    """Returns the task of `planner.grounding.ground`, cached by problem and domain.

    Parsing the domain takes nearly all of the linter's time.
    """
    return _grounded(problem, domain, domain.stat().st_mtime_ns if domain.exists() else 0)


@functools.lru_cache(maxsize=16)
def _grounded(problem: str, domain: Path, stamp: int) -> GroundedTask:
    return ground(problem, domain)


def ground_actions(task: GroundedTask) -> dict[Atom, Operator]:
    """Returns every grounded action by its atom."""
    return {(str(a.operator_name), *arguments(task, a)): a for a in task.actions}


def replay(definition: Definition) -> Replay:
    """Grounds the domain of a definition and applies its plan.

    Raises:
        UserError: the domain is malformed, or the definition names an unknown predicate, entity or
            action.
    """
    objects, init, goal = definition.entities.items(), definition.init, definition.goal
    task = grounded(problem_text("lint", objects, init, goal, "lint"), definition.domain)
    _check_names(definition, task)
    actions = ground_actions(task)
    facts, steps = [frozenset(definition.init)], []
    for index, atom in enumerate(definition.steps):
        if atom not in actions:
            raise unknown(f"plan: step {index + 1}", text(atom), [text(known) for known in actions])
        before, action = facts[-1], actions[atom]
        needs = clauses(action.precondition)
        unmet = [c for c in needs if not any(satisfied(literal, before) for literal in c)]
        adds, deletes = fired_effects(action, before)
        steps.append(Taken(index, atom, before, tuple(unmet), frozenset(adds)))
        facts.append((before - deletes) | adds)
    return Replay(definition, task, tuple(steps), tuple(facts))


def _check_names(definition: Definition, task: GroundedTask) -> None:
    """Checks that init, goal and stages use known predicates and entities."""
    entities = {*task.domainproblem.worldobjects(), *definition.entities}
    parts = {"init": definition.init, "goal": definition.goal, **definition.stages}
    for part, atoms in parts.items():
        for atom in atoms:
            if atom[0] not in PLANNING_ONLY:
                check(atom, f"{part}: ")
            for term in atom[1:]:
                if term not in entities:
                    raise unknown(f"{part}: entity", term, entities)
