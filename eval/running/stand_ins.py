"""Scripted skills in the stead of policies that have not been trained yet.

Where an agent leaves steps out of the plan, or has one policy for all of an object's, what stands
in for that policy does what the plan has there.
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
    """Who acts for a skill of an agent, where there is no checkpoint.

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
    """The skills of the steps that are left out of plans, in the order of their actions."""
    chosen = [registry.carrying_out(action, rules.carried_out_by) for action in rules.without]
    return list({spec.name: spec for spec in chosen}.values())


def check_left_out(rules: ExecutionRules) -> None:
    """Proves that scripted skills can do what is left out of plans: get to where they act.

    Raises:
        UserError: something else is left out, which only a learned policy could do as well.
    """
    for action in rules.without:
        spec = registry.carrying_out(action, rules.carried_out_by)
        if not (drives(spec) or rules.one_skill):
            raise UserError(
                f"agent.without: '{action}' cannot be left out where scripted skills act, which "
                "can only go somewhere by themselves (nav, for example)"
            )


def told(name: str, rules: ExecutionRules) -> str:
    """What a report says of that one."""
    if name == rules.one_skill:
        return "scripted skills of the plan"
    left_out = [spec.name for spec in skills_left_out(rules)]
    return " ".join(["scripted", *(f"after scripted {way}" for way in left_out)])


class PlanForOne(InTurn):
    """Does with scripted skills what the plan has for one object.

    It plans from the world that it begins in, so that what has been opened before stays open.
    """

    def __init__(self, rules: ExecutionRules, predicates: PredicateThresholds) -> None:
        self._rules, self._predicates = rules, predicates

    def parts(self, episode: Episode, goal: SkillGoal, world: WorldState) -> Sequence[Part]:
        """See `skills.policies.in_turn.InTurn.parts`; none where no plan reaches the goal."""
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
    """Of a goal what is an object's: where it is to be, what is closed after it, an empty hand."""
    chosen: list[Atom] = []
    mine = False
    for atom in problem.goal:
        if atom[0] == "object_at":
            mine = atom[1] == name
        if mine or atom[0] == "not_holding":
            chosen.append(atom)
    return tuple(chosen)
