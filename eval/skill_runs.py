"""One skill, run by itself from one start state."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eval import agents, runs
from eval.settings import SkillSettings
from planner.executor import StepInfo, apply_mask
from planner.trace import Cause
from skills.base import Margin, SkillPolicy
from skills.registry import get as get_skill
from skills.task import FAILURES, Goals, SkillTask, TaskSettings, begin, step
from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.sim.base import Simulator
from tpsrl.world import action as layout
from tpsrl.world.state import WorldState

if TYPE_CHECKING:
    from skills.starts import Start


@dataclasses.dataclass(frozen=True, slots=True)
class SkillResult:
    """One evaluated run of a skill.

    `ended_by` is "success", "timeout", "skill_stop" where a policy gave up that has no stop to
    call, or one of `skills.task.FAILURES`. `parts` are the parts of success at the end, by name,
    `reward` is the sum over the run. Forces in newton: the largest of a control step, and the sum
    over the run.
    """

    id: str
    layout: str
    success: bool
    ended_by: str
    steps: int
    reward: float
    parts: dict[str, Margin]
    first_cause: Cause | None
    force_peak_n: float
    force_total_n: float
    video: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The record as JSON types."""
        record = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        parts = {name: dataclasses.asdict(margin) for name, margin in self.parts.items()}
        cause = self.first_cause
        return record | {"parts": parts, "first_cause": cause and cause.to_json()}


@dataclasses.dataclass(frozen=True, slots=True)
class SkillJob:
    """One start state to run from; `video` is the file to film it into, if at all."""

    start: "Start"
    video: Path | None


@dataclasses.dataclass(frozen=True, slots=True)
class SkillOutcome:
    """What a worker says of a run, and how long it took it."""

    result: SkillResult
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class SkillFactory:
    """Builds in each worker one simulator, which its runs use in turn."""

    settings: SkillSettings

    def __call__(self) -> Callable[[SkillJob], SkillOutcome]:
        """The function that does one job."""
        from tpsrl import sim

        settings = self.settings
        simulator = sim.make(
            settings.engine,
            num_envs=1,
            slots=runs.slots_for(settings.num_objects),
            filter_base=settings.protocol.filter_base,
        )

        def work(job: SkillJob) -> SkillOutcome:
            # A policy is made anew for every run, so that nothing is left over from the last one.
            policy = agents.make_for_skill(settings.agent, settings.skill, settings.seed)
            return run_job(settings, simulator, policy, job)

        return work


def task_settings(settings: SkillSettings, skill: SkillTask) -> TaskSettings:
    """The skill's reward and limits, with the protocol's limits in the place of its own."""
    preset = config.load_preset("skill", settings.skill, skill.settings_type)
    limits = settings.protocol.alone.of(settings.skill)
    return dataclasses.replace(
        preset,
        horizon=limits.steps,
        force_instant_n=limits.force_instant_n,
        force_total_n=limits.force_total_n,
    )


def run_job(
    settings: SkillSettings, simulator: Simulator, policy: SkillPolicy, job: SkillJob
) -> SkillOutcome:
    """Runs the skill from one start state, and films it if the job says so.

    Raises:
        UserError: the start state is not valid, or the policy returns no action; names the episode.
    """
    started = time.perf_counter()
    run = _Run(settings, simulator, policy, job.start)
    try:
        if job.video is None:
            run.run()
        else:
            from eval.film import Film

            with Film(simulator, run.episode, job.video, settings.video_stride) as film:
                run.run(film.on_step)
    except UserError as error:
        raise UserError(f"episode {run.episode.id}: {error}") from None
    video = f"videos/{job.video.name}" if job.video else None
    return SkillOutcome(run.result(video), time.perf_counter() - started)


class _Run:
    """One run in progress."""

    def __init__(
        self, settings: SkillSettings, simulator: Simulator, policy: SkillPolicy, start: "Start"
    ) -> None:
        self.simulator, self.policy, self.goal = simulator, policy, start.goal
        self.snapshot = start.snapshot
        self.episode = start.snapshot.episode if start.snapshot else start.episode
        self.name = settings.skill
        self.skill = get_skill(settings.skill)
        self.settings = task_settings(settings, self.skill)
        self.thresholds = settings.protocol.skills
        self.ended_by, self.reward, self.force_peak_n = "", 0.0, 0.0
        self.steps, self.parts = 0, dict[str, Margin]()

    def run(self, on_step: Callable[[WorldState, StepInfo], None] | None = None) -> None:
        self._reset()
        self.world = self.simulator.state([0])
        self.force_before_n = float(self.world.force_total[0])
        self.policy.begin(self.episode, self.goal, self.world)
        self.task = begin(self.skill, Goals.of([self.goal]), self.world, self.thresholds)
        while not self.ended_by:
            self._step()
            if on_step is not None:
                on_step(self.world, self._info())

    def _reset(self) -> None:
        if self.snapshot is None:
            self.simulator.reset([0], [self.episode])
        else:
            self.simulator.restore(0, self.snapshot)

    def _step(self) -> None:
        """One control step, judged."""
        wanted = np.asarray(self.policy.act(self.world), dtype=float)
        if wanted.shape != (layout.SIZE,) or not np.all(np.isfinite(wanted)):
            raise UserError(f"policy: {type(self.policy).__name__} returned {wanted}, no action")
        mask = self.skill.mask()
        action = apply_mask(wanted, mask, bool(self.world.held[0] >= 0))
        self.simulator.step([0], action[None])
        self.world = self.simulator.state([0])
        self.task, _, outcome = step(
            self.skill, self.task, action[None], self.world, self.settings, self.thresholds
        )
        self.steps += 1
        self.reward += float(outcome.reward[0])
        self.force_peak_n = max(self.force_peak_n, float(self.world.force[0]))
        stop = bool(action[layout.STOP] > 0)
        self.parts = self.skill.results(self.goal, self.world, stop, self.thresholds)
        if outcome.terminated[0]:
            self.ended_by = "success" if outcome.success[0] else FAILURES[int(outcome.failure[0])]
        elif wanted[layout.STOP] > 0 and not mask[layout.STOP]:
            self.ended_by = "skill_stop"
        elif outcome.truncated[0]:
            self.ended_by = "timeout"

    def result(self, video: str | None) -> SkillResult:
        parts = {name: margin for name, margin in self.parts.items() if name != "success"}
        return SkillResult(
            id=self.episode.id,
            layout=self.episode.layout,
            success=self.ended_by == "success",
            ended_by=self.ended_by,
            steps=self.steps,
            reward=self.reward,
            parts=parts,
            first_cause=self._cause(parts),
            force_peak_n=self.force_peak_n,
            force_total_n=float(self.world.force_total[0]) - self.force_before_n,
            video=video,
        )

    def _cause(self, parts: dict[str, Margin]) -> Cause | None:
        """The first part that does not hold, with why the run ended; None on success."""
        if self.ended_by == "success":
            return None
        name, margin = _lacking(parts)
        where = (0, self.name, self.name)
        return Cause(*where, name, margin.margin, margin.unit, self.ended_by, self.steps)

    def _info(self) -> StepInfo:
        name, margin = _lacking({n: m for n, m in self.parts.items() if n != "success"})
        limit = self.settings.horizon
        return StepInfo(
            index=0,
            total=1,
            name=self.name,
            action=self.name,
            skill=self.name,
            phase="skill",
            phase_step=self.steps,
            phase_limit=limit,
            episode_step=self.steps,
            predicate=name,
            margin=margin,
            object=self.goal.object,
        )


def _lacking(parts: dict[str, Margin]) -> tuple[str, Margin]:
    """The first part that does not hold, else the first one."""
    missing = [(name, margin) for name, margin in parts.items() if not margin.holds]
    return (missing or list(parts.items()))[0]
