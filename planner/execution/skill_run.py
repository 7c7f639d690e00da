"""Run of a skill for a step of a plan: its start and its end."""

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.execution.limits import limits_of
from planner.execution.trace import Stage
from planner.plan import PlanStep
from skills.core import settings, task
from skills.core.conditions import margins
from skills.core.geometry import planar_distance
from skills.core.interface import SkillGoal, SkillPolicy
from skills.core.limits import SkillLimits
from skills.core.skill import STOPPED, Skill
from skills.core.state import Goals, TaskState
from skills.envs.map_sensors import MapSensors
from tpsrl.world import action as action_layout
from tpsrl.world.episode import Episode
from tpsrl.world.state import WorldState

if TYPE_CHECKING:
    from planner.execution.executor import Executor


@dataclasses.dataclass(slots=True)
class SkillRun:
    """One run of a skill: its definition, its policy, and the memory between steps."""

    skill: Skill
    policy: SkillPolicy
    goal: SkillGoal
    state: TaskState
    limits: SkillLimits
    settings: settings.TaskSettings
    thresholds: Any
    mask: np.ndarray
    maps: MapSensors  # path along the floor, for skills with conditions on it
    carried: int  # object that a skill without grip action must keep in the hand, -1 for none

    @staticmethod
    def begin(
        executor: "Executor", step: PlanStep, goal: SkillGoal, episode: Episode, world: WorldState
    ) -> "SkillRun":
        """Starts a step's skill and its policy from the current world state."""
        spec = executor.spec(step.skill)
        thresholds = executor.thresholds.of(step.skill)
        skill, policy = spec.definition, executor.policy(step.skill)
        state = task.begin(skill, Goals.of([goal]), world, thresholds)
        limits = limits_of(step, executor.limits)
        judged_by = settings.changed(spec.load_settings(), limits.settings())
        mask = skill.mask()
        if step.skill in executor.rules.base_masked:
            mask[action_layout.BASE] = False
        carried = int(world.held[0]) if not mask[action_layout.GRIP] else -1
        maps = MapSensors(skill, (), 1, thresholds)
        maps.begin([0], [episode], state, world)
        policy.begin(episode, goal, world)
        return SkillRun(
            skill, policy, goal, state, limits, judged_by, thresholds, mask, maps, carried
        )

    def too_far_to_stop(self, world: WorldState, within_m: float) -> bool:
        """Returns whether to ignore a stop: the skill navigates, and is over `within_m` away."""
        if self.skill.reach_m(self.thresholds) is None or self.goal.position is None:
            return False
        away = planar_distance(world.base, np.asarray([self.goal.position]))[0]
        return bool(away > within_m)

    def judge(self, stage: Stage, world: WorldState, stop: bool) -> str:
        """Judges the world after a control step; `stop` tells whether the policy called stop.

        Writes the conditions of success into `stage.results`.

        Returns:
            Why the skill ends now, or "" if it continues.
        """
        path = self.maps.drive([0], world) if self.skill.follows_path else None
        verdict = task.evaluate(
            self.skill, self.state, world, np.array([stop]), self.settings, self.thresholds, path
        )
        self.state.memory = verdict.evaluation.memory
        stage.results = margins(verdict.conditions)
        if self.carried >= 0 and world.held[0] != self.carried:
            return "dropped"
        if self.limits.exceeded(float(world.force[0]), stage.force_sum_n):
            return "skill_force"
        if verdict.success[0]:
            return "success"
        failure = int(verdict.evaluation.failure[0])
        if failure not in (0, STOPPED):
            return self.skill.failures[failure]
        # A stop without success ends the skill, even if stop is not part of its action.
        return "skill_stop" if stop else ""
