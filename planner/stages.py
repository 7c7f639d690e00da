"""Named stage goals: what should be true once a plan has got so far."""

from collections.abc import Iterator

from planner.plan import Plan, PlanStep
from planner.predicates import Atom


def stage_goals(plan: Plan) -> dict[str, tuple[Atom, ...]]:
    """The stage goals of a plan, in order; the last one is the problem's goal.

    They are the benchmark's (habitat-lab 0.3.3, `stage_goals` of its three scenarios): "stage_K"
    after the K-th object is placed, and "stage_K_5" when the next one is in the hand. Where
    habitat-lab leaves something out it is put in: every stage with an empty hand asks for it, and
    the last object has its "_5" too. (habitat-lab's "stage_4_5" of Tidy House asks for all five
    objects in their places, which is "stage_5" here, but for the empty hand.) A plan that closes
    what it has opened has "stage_K_closed" after that.

    A stage asks for every atom of the goal that holds from there to the end of the plan.
    """
    problem = plan.problem
    robot = problem.entities.robot.name
    empty: Atom = ("not_holding", robot)
    lasting = [atom for atom in problem.goal if atom != empty]
    concerned = {atom[1] for atom in lasting if atom[0] == "object_at"}
    placed = sum(atom[0] == "object_at" and atom in problem.init for atom in lasting)
    stages: dict[str, tuple[Atom, ...]] = {}
    for step, facts in _facts_after(plan):
        done = [atom for atom in lasting if atom in facts and not _lost(atom, plan, step.index)]
        kind, thing = step.purpose[:2]
        if kind == "holding" and thing in concerned:
            stages[f"stage_{placed}_5"] = (*done, step.purpose)
        elif kind == "object_at" and step.purpose in done:
            placed += 1
            stages[f"stage_{placed}"] = (*done, empty)
        elif kind.startswith("closed") and step.purpose in done:
            stages[f"stage_{placed}_closed"] = (*done, empty)
    return stages


def _facts_after(plan: Plan) -> Iterator[tuple[PlanStep, set[Atom]]]:
    """Each step with what holds after it."""
    facts = set(plan.problem.init)
    for step in plan:
        facts = (facts - set(step.deletes)) | set(step.adds)
        yield step, facts


def _lost(atom: Atom, plan: Plan, index: int) -> bool:
    """Whether a step after `index` takes an atom away again, if only for a while."""
    return any(atom in step.deletes for step in plan.steps[index + 1 :])
