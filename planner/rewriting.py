"""Rewrites plans for agents that have no skill for some steps, or one skill for all.

Search always finds the benchmark's plan. Steps that an agent omits or merges are removed from that
plan afterwards, so that agents differ in their policies and not in their task.
"""

import dataclasses
from collections.abc import Collection, Iterator

from planner.plan import Plan, PlanStep
from planner.predicates import Atom


def rewritten(plan: Plan, without: Collection[str] = (), one_skill: str = "") -> Plan:
    """Returns the plan without some actions, or with one skill for each object; see below."""
    if one_skill:
        return by_one_skill(plan, one_skill)
    return without_actions(plan, without) if without else plan


def without_actions(plan: Plan, actions: Collection[str]) -> Plan:
    """Returns the plan without the steps of some actions of the domain.

    Effects of the removed steps are removed from the preconditions of the remaining ones. The next
    remaining step takes over their work (`PlanStep.takes_over`).
    """
    steps: list[PlanStep] = []
    skipped: list[str] = []
    unasked: set[Atom] = set()
    for step in plan:
        if step.action in actions:
            skipped.append(step.skill)
            unasked.update(step.adds)
            continue
        conditions = [c for c in step.preconditions if not any(lit.atom in unasked for lit in c)]
        kept = dataclasses.replace(
            step, index=len(steps), preconditions=tuple(conditions), takes_over=tuple(skipped)
        )
        steps.append(kept)
        skipped = []
    return Plan(steps, plan.problem, plan.found)


def by_one_skill(plan: Plan, skill: str) -> Plan:
    """Returns the plan with one step for each object that it places: all that is done in its turn.

    The step has no preconditions, because its skill has to remove any obstacle. Its effects are
    those of the turn that belong to the problem's goal. Steps outside the turn of an object are
    left out.
    """
    steps: list[PlanStep] = []
    for turn in _turns(plan):
        places = next((step for step in turn if step.purpose[0] == "object_at"), None)
        if places is None:
            continue
        after: dict[Atom, bool] = {}
        for step in turn:
            after |= dict.fromkeys(step.deletes, False) | dict.fromkeys(step.adds, True)
        wanted = (places.purpose, *(a for a in plan.problem.goal if a != places.purpose))
        steps.append(
            PlanStep(
                index=len(steps),
                action="move",
                args=places.args,
                skill=skill,
                preconditions=(),
                adds=tuple(atom for atom in wanted if after.get(atom)),
                deletes=tuple(sorted(atom for atom, holds in after.items() if not holds)),
            )
        )
    return Plan(steps, plan.problem, plan.found)


def _turns(plan: Plan) -> Iterator[list[PlanStep]]:
    """Yields the steps of each object's turn."""
    for name in dict.fromkeys(filter(None, plan.turns)):
        yield [step for step in plan if plan.turns[step.index] == name]
