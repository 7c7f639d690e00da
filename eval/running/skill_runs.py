"""Runs of one skill in isolation, from one start state each."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

from eval.analysing.skill_results import SkillResult, cause_of, lacking
from eval.running import agents, blinding
from eval.running.view import ViewWatch, in_turn
from eval.settings import SkillSettings
from planner.execution.progress import SKILL, OnStep, StepInfo
from skills.core.interface import SkillGoal, SkillPolicy
from skills.envs import episodes
from skills.envs.environment import SkillEnv
from skills.starts.start import Start
from tpsrl.errors import UserError
from tpsrl.sim.base import Simulator
from tpsrl.world.episode import Episode
from tpsrl.world.slots import capacity_for


@dataclasses.dataclass(frozen=True, slots=True)
class SkillJob:
    """One start state to run the skill from.

    Attributes:
        start: the start state
        video: file of the video; None: no video
        donor: start state of the run whose readings a blinded policy receives; None: not blinded
    """

    start: Start
    video: Path | None
    donor: Start | None = None

    @property
    def episode(self) -> Episode:
        """Episode record of the home that the run starts in."""
        snapshot = self.start.snapshot
        return self.start.episode if snapshot is None else snapshot.episode


@dataclasses.dataclass(frozen=True, slots=True)
class SkillFactory:
    """Builds one simulator in each worker, which all runs of the worker use."""

    settings: SkillSettings

    def __call__(self) -> Callable[[SkillJob], SkillResult]:
        """Returns the function that runs one job."""
        from tpsrl import sim

        settings = self.settings
        simulator = sim.make(
            settings.engine,
            num_envs=1,
            slots=capacity_for(settings.num_objects or 0),
            filter_base=settings.protocol.filter_base,
            habitat=settings.habitat,
        )

        def work(job: SkillJob) -> SkillResult:
            # A new policy for every run, so that no state is carried over from the previous one.
            policy = agents.make_for_skill(settings.agent, settings.skill)
            return run_job(settings, simulator, policy, job)

        return work


def run_job(
    settings: SkillSettings, simulator: Simulator, policy: SkillPolicy, job: SkillJob
) -> SkillResult:
    """Runs the skill from one start state, and films it if the job has a video file.

    Raises:
        UserError: the start state is invalid, or the policy returns no action; names the episode.
    """
    try:
        if job.donor is not None:
            policy = _blinded(settings, simulator, policy, job.donor)
        if job.video is None:
            result = run_start(settings, simulator, policy, job, None)
        else:
            from eval.running.film import Film, margin_text

            with Film(simulator, job.episode, job.video, settings.video_stride) as film:
                result = run_start(settings, simulator, policy, job, film.on_step)
                missing = None if result.success else margin_text(*lacking(result.parts))
                film.end(result.steps, result.ended_by, missing)
            result = dataclasses.replace(result, video=f"videos/{job.video.name}")
    except UserError as error:
        prefix, message = f"episode {job.episode.id}: ", str(error)
        raise UserError(message if message.startswith(prefix) else prefix + message) from None
    return result


def run_start(
    settings: SkillSettings,
    simulator: Simulator,
    policy: SkillPolicy,
    job: SkillJob,
    on_step: OnStep | None,
) -> SkillResult:
    """Runs the skill from one start state.

    Raises:
        UserError: the start state is invalid, or the policy returns no action.
    """
    env = environment(settings, simulator, job.start)
    view = ViewWatch(simulator, settings.view_stride) if settings.measure_view else None
    look = None if view is None else view.on_step
    watch = _Watch(settings, job.start.goal, in_turn(look, on_step))
    (done,) = episodes.run(env, policy, [0], watch)
    parts = {name: margin for name, margin in done.results.items() if name != "success"}
    cause = None if done.success else cause_of(settings.skill, parts, done.ended_by, done.steps)
    return SkillResult(
        id=job.episode.id,
        layout=job.episode.layout,
        success=done.success,
        ended_by=done.ended_by,
        steps=done.steps,
        reward=done.reward,
        parts=parts,
        first_cause=cause,
        force_peak_n=done.force_peak_n,
        force_total_n=float(env.world.force_total[0]) - watch.force_before_n,
        path=done.path,
        view_blocked=None if view is None else view.share,
    )


def _blinded(
    settings: SkillSettings, simulator: Simulator, policy: SkillPolicy, donor: Start
) -> SkillPolicy:
    """Returns a policy that receives the readings it had in a run from the start `donor`."""
    names = blinding.parse(settings.blind)
    blinding.check(policy, names)
    sees = blinding.Blinded(policy)
    episodes.run(environment(settings, simulator, donor), sees, [0])
    return blinding.Blinded(policy, sees.seen, names)


def environment(settings: SkillSettings, simulator: Simulator, start: Start) -> SkillEnv:
    """Returns the skill's environment under the protocol, with a single start state."""
    limits = settings.protocol.alone.of(settings.skill)
    return SkillEnv(
        settings.skill,
        simulator=simulator,
        starts=[start],
        thresholds=settings.protocol.skills.of(settings.skill),
        settings=limits.settings(),
    )


class _Watch:
    """Observer of a run: notes the accumulated force before it, and calls `on_step`."""

    def __init__(self, settings: SkillSettings, goal: SkillGoal, on_step: OnStep | None) -> None:
        self.skill, self.goal, self.on_step = settings.skill, goal, on_step
        self.begun, self.force_before_n = False, 0.0

    def __call__(self, env: SkillEnv) -> None:
        """Callback of `episodes.run` after the reset and after every step."""
        if not self.begun:
            self.begun, self.force_before_n = True, float(env.world.force_total[0])
        elif self.on_step is not None:
            self.on_step(env.world, self._info(env))

    def _info(self, env: SkillEnv) -> StepInfo:
        results = env.batch.results(0, stop=False)
        conditions = {name: margin for name, margin in results.items() if name != "success"}
        name, margin = lacking(conditions)
        steps = env.batch.steps(0)
        return StepInfo(
            index=0,
            total=1,
            name=self.skill,
            action=self.skill.replace("_", " "),
            skill=self.skill,
            phase=SKILL,
            phase_step=steps,
            phase_limit=env.batch.settings.horizon,
            episode_step=steps,
            predicate=name,
            margin=margin,
            object=self.goal.object,
            conditions=conditions,
            rewards=env.reward_terms,
        )
