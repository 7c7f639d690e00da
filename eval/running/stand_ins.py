"""Scripted skills that stand in for policies without a checkpoint.

If an agent leaves steps out of the plan, or has one policy for all steps of an object, the stand-in
of that policy carries out the plan's own steps.
"""

import dataclasses
import functools
from collections.abc import Sequence

from eval.presets import drives
from planner.execution.limits import ExecutionRules
from planner.plan import PlanStep, skill_goal
from planner.predicates import Atom, PredicateContext, PredicateThresholds, evaluate
from planner.problem import Problem, problem_from_episode
from planner.search import UnsolvableError, plan
from skills import registry
from skills.core.interface import SkillGoal, SkillPolicy
from skills.policies.in_turn import GoThere, InTurn, Part
from skills.spec import SkillSpec
from tpsrl.errors import UserError
from tpsrl.world.episode import Episode
from tpsrl.world.state import WorldState


def stand_in(name: str, rules: ExecutionRules, predicates: PredicateThresholds) -> SkillPolicy:
    """Returns the scripted policy of a skill for which the agent has no checkpoint.

    Raises:
        UserError: a skill that is needed has no scripted version.
    """
    if name == rules.one_skill:
        return PlanForOne(rules, predicates)
    spec, left_out = registry.get(name), skills_left_out(rules)
    policy = spec.make_scripted()
    if not left_out:
        return policy
    return GoThere([(way, way.make_scripted()) for way in left_out], spec, policy)


def skills_left_out(rules: ExecutionRules) -> list[SkillSpec]:
    """Returns the skills of the steps left out of plans, in the order of their actions."""
    chosen = [registry.carrying_out(action, rules.carried_out_by) for action in rules.without]
    return list({spec.name: spec for spec in chosen}.values())


def check_left_out(rules: ExecutionRules) -> None:
    """Checks that scripted skills can replace all actions that are left out of plans.

    They can drive to the place where a skill acts. Other actions require a learned policy, unless
    one policy does everything for an object (`ExecutionRules.one_skill`).

    Raises:
        UserError: another action is left out.
    """
    for action in rules.without:
        spec = registry.carrying_out(action, rules.carried_out_by)
        if not (drives(spec) or rules.one_skill):
            raise UserError(
                f"agent.without: '{action}' cannot be left out with scripted skills, which replace "
                "only actions that drive to a place, such as nav"
            )


def description(name: str, rules: ExecutionRules) -> str:
    """Returns the description of a stand-in for a report."""
    if name == rules.one_skill:
        return "scripted skills of the plan"
    left_out = [spec.name for spec in skills_left_out(rules)]
    return " ".join(["scripted", *(f"after scripted {way}" for way in left_out)])


class PlanForOne(InTurn):
    """Carries out the plan's steps for one object with scripted skills.

    It plans from the world in which it begins, so that what is already open stays open.
    """

    def __init__(self, rules: ExecutionRules, predicates: PredicateThresholds) -> None:
        self._rules, self._predicates = rules, predicates

    def parts(self, episode: Episode, goal: SkillGoal, world: WorldState) -> Sequence[Part]:
        """See `skills.policies.in_turn.InTurn.parts`; empty if no plan reaches the goal."""
        problem = problem_from_episode(episode, world, self._predicates, self._rules.plan)
        name = problem.entities.objects[goal.object].name
        problem = dataclasses.replace(problem, goal=_goal_of_turn(problem, name))
        try:
            found = plan(problem, self._rules.domain, self._rules.carried_out_by)
        except UnsolvableError:
            return []
        return [self._part(step, problem) for step in found]

    def _part(self, step: PlanStep, problem: Problem) -> Part:
        spec = registry.get(step.skill)
        return Part(
            spec,
            spec.make_scripted(),
            functools.partial(skill_goal, step, problem.entities),
            functools.partial(self._holds, step.purpose, problem),
        )

    def _holds(self, atom: Atom, problem: Problem, world: WorldState) -> bool:
        return evaluate(atom, PredicateContext(world, problem.entities, self._predicates)).holds


def _goal_of_turn(problem: Problem, name: str) -> tuple[Atom, ...]:
    """Returns the atoms of a goal that concern one object.

    These are the object's placement, the closing of doors and drawers after it, and an empty hand.
    """
    chosen: list[Atom] = []
    mine = False
    for atom in problem.goal:
        if atom[0] == "object_at":
            mine = atom[1] == name
        if mine or atom[0] == "not_holding":
            chosen.append(atom)
    return tuple(chosen)
