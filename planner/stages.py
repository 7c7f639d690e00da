"""Named stage goals: the conditions that should hold after each part of a plan."""

from collections.abc import Iterator

from planner.plan import Plan, PlanStep
from planner.predicates import Atom


def stage_goals(plan: Plan) -> dict[str, tuple[Atom, ...]]:
    """Returns the stage goals of a plan, in order; the last one is the problem's goal.

    The stages are those of the benchmark (habitat-lab 0.3.3, `stage_goals` of its three scenarios):
    "stage_K" after the K-th object is placed, and "stage_K_5" when the next object is in the hand.
    Conditions that habitat-lab omits are added: every stage with an empty hand requires
    `not_holding`, and the last object has its "_5" too. (habitat-lab's "stage_4_5" of Tidy House
    requires all five objects at their goals, which is "stage_5" here, except for the empty hand.)
    If a plan closes what it has opened, "stage_K_closed" follows.

    A stage requires every atom of the goal that holds from the stage to the end of the plan.
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
    """Yields each step with the facts that hold after it."""
    facts = set(plan.problem.init)
    for step in plan:
        facts = (facts - set(step.deletes)) | set(step.adds)
        yield step, facts


def _lost(atom: Atom, plan: Plan, index: int) -> bool:
    """Returns whether a step after `index` deletes an atom, even temporarily."""
    return any(atom in step.deletes for step in plan.steps[index + 1 :])
