"""Plans as an agent carries them out that has no skill for some steps, or one skill for all.

Search finds the benchmark's plan either way. What an agent leaves out of it, or does in one go, is
taken from that, so that agents differ in who acts and not in what is asked of them.
"""

import dataclasses
from collections.abc import Collection, Iterator

from planner.plan import Plan, PlanStep
from planner.predicates import Atom


def rewritten(plan: Plan, without: Collection[str] = (), one_skill: str = "") -> Plan:
    """The plan without some actions, or with one skill for each object; see below."""
    if one_skill:
        return by_one_skill(plan, one_skill)
    return without_actions(plan, without) if without else plan


def without_actions(plan: Plan, actions: Collection[str]) -> Plan:
    """The plan without the steps of some actions of the domain.

    What these would have brought about is no precondition of the steps that stay. The next one that
    stays takes over from them (`PlanStep.takes_over`).
    """
    steps: list[PlanStep] = []
    skipped: list[str] = []
    unasked: set[Atom] = set()
    for step in plan:
        if step.action in actions:
            skipped.append(step.skill)
            unasked.update(step.adds)
            continue
        asked = [c for c in step.preconditions if not any(lit.atom in unasked for lit in c)]
        kept = dataclasses.replace(
            step, index=len(steps), preconditions=tuple(asked), takes_over=tuple(skipped)
        )
        steps.append(kept)
        skipped = []
    return Plan(steps, plan.problem, plan.found)


def by_one_skill(plan: Plan, skill: str) -> Plan:
    """The plan with one step for each object that it places: all that is done in its turn.

    Such a step asks for nothing beforehand, because what is in the way of it is its to change. It
    is to bring about what its turn does for the problem's goal. What the plan does in no object's
    turn is left out.
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
    """The steps of each object's turn."""
    for name in dict.fromkeys(filter(None, plan.turns)):
        yield [step for step in plan if plan.turns[step.index] == name]
