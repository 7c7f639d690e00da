"""Executor of plans in one home: one skill per step, with a record of every handoff.

Two modes are in use in the field. The fixed plan is HAB's: after a failed step, the next step is
run. A step whose preconditions do not hold is not run (habitat-baselines would run it until its
timeout, with the same outcome except for the steps spent). With `replan`, a failed step is followed
by a new plan from the observed state.

After every skill the arm is brought back to rest, as by HAB's fixed policy. After the last one the
robot waits, calls stop, and the goal is judged.
"""

from collections.abc import Callable, Mapping
from typing import Any

from planner.execution.execution import Execution
from planner.execution.intervention import Intervention
from planner.execution.limits import ExecutionRules, execution_limits
from planner.execution.progress import OnStep
from planner.execution.trace import Trace
from planner.plan import Plan
from planner.predicates import PredicateThresholds
from skills.core.interface import SkillPolicy
from skills.registry import get as get_skill
from skills.spec import SkillSpec
from skills.tables import thresholds as default_thresholds
from tpsrl.errors import UserError, unknown
from tpsrl.sim.base import Simulator
from tpsrl.world.episode import Episode


class Executor:
    """Runs episodes in one home of a simulator.

    Args:
        simulator: simulator with the home
        policies: policies of the skills, by name
        reset_arm: policy that brings the arm back to rest after a skill, needed with `add_arm_rest`
        reset_before: policies used instead of `reset_arm`, by the name of the following skill
        env_id: index of the home in the simulator
        limits: see `planner.execution.limits.execution_limits`; None: habitat-lab's
        rules: rules of execution
        thresholds: success thresholds of skills, see `skills.tables.thresholds`; None:
            habitat-lab's
        predicates: thresholds of the predicates
        skills: returns a skill by its name

    Raises:
        UserError: a policy is missing, or the engine does not support the requested snapshots.
    """

    def __init__(
        self,
        simulator: Simulator,
        policies: Mapping[str, SkillPolicy],
        *,
        reset_arm: SkillPolicy | None = None,
        reset_before: Mapping[str, SkillPolicy] | None = None,
        env_id: int = 0,
        limits: Any = None,
        rules: ExecutionRules | None = None,
        thresholds: Any = None,
        predicates: PredicateThresholds | None = None,
        skills: Callable[[str], SkillSpec] = get_skill,
    ) -> None:
        self.simulator = simulator
        self.policies, self.reset_arm = policies, reset_arm
        self.reset_before = reset_before or {}
        self.env_id = env_id
        self.limits = execution_limits() if limits is None else limits
        self.rules = rules or ExecutionRules()
        self.thresholds = default_thresholds() if thresholds is None else thresholds
        self.predicates = predicates or PredicateThresholds()
        self.spec = skills
        if self.rules.snapshots and not simulator.capabilities.exact_snapshots:
            raise UserError("snapshots: this engine cannot take exact snapshots")
        if self.rules.add_arm_rest and reset_arm is None:
            raise UserError("reset_arm: add_arm_rest needs a policy that brings the arm to rest")

    def policy(self, name: str) -> SkillPolicy:
        """Returns the policy of a skill.

        Raises:
            UserError: there is no such policy.
        """
        if name not in self.policies:
            raise unknown("policy", name, self.policies)
        return self.policies[name]

    def run(self, episode: Episode, on_step: OnStep | None = None) -> Trace:
        """Resets the home to an episode, plans, executes, and judges the goal.

        Raises:
            UserError: no plan reaches the goal from the start, a policy for a step is missing, or a
                policy returns an invalid action.
        """
        return self.begin(episode, on_step).run()

    def begin(
        self,
        episode: Episode,
        on_step: OnStep | None = None,
        intervention: Intervention | None = None,
        plan: Plan | None = None,
        to_the_end: bool = False,
    ) -> Execution:
        """Resets the home to an episode and plans; `Execution.run` then executes the plan.

        Args:
            episode: episode to run
            on_step: called after every control step
            intervention: called at every handoff
            plan: plan of the same episode, if known
            to_the_end: also call `on_step` after the protocol has judged the episode, if it
                continues

        Raises:
            UserError: see `run`.
        """
        self.simulator.reset([self.env_id], [episode])
        return Execution(self, episode, on_step, intervention, plan, to_the_end)
