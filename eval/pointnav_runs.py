"""PointNav, run from one start: an episode of `skills.pointnav_rollout` as a result like others."""

from typing import TYPE_CHECKING, Any

import numpy as np

from eval.settings import SkillSettings
from eval.skill_results import OnStep, SkillResult, cause_of
from planner.executor import StepInfo
from skills import pointnav_rollout
from skills.base import Margin, SkillGoal, SkillPolicy
from skills.pointnav import PointNavSettings
from tpsrl.sim.base import Simulator
from tpsrl.world.episode import Episode
from tpsrl.world.state import WorldState

if TYPE_CHECKING:
    from eval.skill_runs import SkillJob


def run_pointnav(
    settings: SkillSettings,
    simulator: Simulator,
    policy: SkillPolicy,
    job: "SkillJob",
    on_step: OnStep | None,
) -> SkillResult:
    """Runs a policy from one start; the protocol gives the horizon.

    Raises:
        UserError: the engine refuses the episode.
    """
    limits = settings.protocol.alone.pointnav
    task = PointNavSettings(horizon=limits.steps)
    watched = _Watched(policy, task, on_step)
    done = pointnav_rollout.run(simulator, watched, job.start, task)
    parts = {
        "distance": Margin.below(done.distance_left_m, task.success_m, "m"),
        "stop": Margin.flag(done.ended_by != "timeout"),
    }
    cause = None if done.success else cause_of("pointnav", parts, done.ended_by, done.steps)
    keys = ("distance_left_m", "driven_m", "shortest_m", "spl", "soft_spl")
    return SkillResult(
        id=job.episode.id,
        layout=job.episode.layout,
        success=done.success,
        ended_by=done.ended_by,
        steps=done.steps,
        reward=done.reward,
        parts=parts,
        first_cause=cause,
        force_peak_n=max(watched.force_peak_n, float(simulator.state([0]).force[0])),
        force_total_n=done.force_total_n,
        path={key: getattr(done, key) for key in keys},
    )


class _Watched:
    """A policy that is watched: the force is noted, and a film is told of every step."""

    def __init__(self, policy: SkillPolicy, task: PointNavSettings, on_step: OnStep | None) -> None:
        self.policy, self.task, self.on_step = policy, task, on_step
        self.goal, self.force_peak_n, self.steps = SkillGoal(), 0.0, 0

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """See `skills.base.SkillPolicy.begin`."""
        self.goal = goal
        self.policy.begin(episode, goal, world)

    def act(self, world: WorldState, depth: np.ndarray | None = None) -> np.ndarray:
        """See `skills.base.SkillPolicy.act`."""
        self.force_peak_n = max(self.force_peak_n, float(world.force[0]))
        if self.on_step is not None and self.steps:
            self.on_step(world, self._info(world))
        self.steps += 1
        return self.policy.act(world, depth)

    def diagnosis(self) -> dict[str, Any]:
        """See `skills.base.SkillPolicy.diagnosis`."""
        return self.policy.diagnosis()

    def _info(self, world: WorldState) -> StepInfo:
        away = float(np.linalg.norm(np.asarray(self.goal.position)[:2] - world.base[0, :2]))
        return StepInfo(
            index=0,
            total=1,
            name="pointnav",
            action="pointnav",
            skill="pointnav",
            phase="skill",
            phase_step=self.steps,
            phase_limit=self.task.horizon,
            episode_step=self.steps,
            predicate="distance",
            margin=Margin.below(away, self.task.success_m, "m"),
        )
