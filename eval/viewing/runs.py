"""Runs and records the viewed episode, once for each agent."""

import dataclasses
import threading
from collections.abc import Sequence
from typing import Protocol

from eval import protocols
from eval.analysing.causes import cause_text, objects_text
from eval.analysing.results import from_trace
from eval.presets import AgentPreset
from eval.reporting import words
from eval.running import agents, chains, episodes
from eval.running.film import margin_text
from eval.running.skill_evaluator import obtain
from eval.running.skill_runs import SkillJob, environment, run_start
from eval.viewing.recording import EpisodeRecorder, EpisodeRecording
from eval.viewing.settings import ScenarioView, SkillView
from planner.execution.execution import Execution
from skills.core.conditions import Margin
from tpsrl import config, sim
from tpsrl.errors import renamed
from tpsrl.sim.base import Simulator
from tpsrl.world.slots import capacity_for


class _Job(Protocol):
    """An episode that is ready to run, with its recording."""

    @property
    def recording(self) -> EpisodeRecording:
        """Recording of the episode."""
        ...

    def run(self) -> None:
        """Runs the episode to its end."""
        ...


def recordings(settings: ScenarioView | SkillView) -> list[EpisodeRecording]:
    """Returns one recording for each agent, which a background thread fills one after another.

    Raises:
        UserError: the episode or an agent does not exist, or a policy cannot be loaded.
    """
    jobs = _of_scenario(settings) if isinstance(settings, ScenarioView) else _of_skill(settings)
    threading.Thread(target=_run, args=(jobs,), daemon=True).start()
    return [job.recording for job in jobs]


def _run(jobs: Sequence[_Job]) -> None:
    for job in jobs:
        try:
            job.run()
        except Exception as error:
            job.recording.end(f"failed: {error}")  # the page shows it


def _names(compare: str) -> list[str]:
    return [name.strip() for name in compare.split(",") if name.strip()]


@dataclasses.dataclass(frozen=True, slots=True)
class _ScenarioJob:
    execution: Execution
    protocol: protocols.Protocol
    recording: EpisodeRecording

    def run(self) -> None:
        trace = self.execution.run()
        result = from_trace(trace, None, self.protocol.stage_rule, None)
        cause = result.first_cause
        if cause is not None:
            text = cause_text(cause, self.protocol.predicates) + objects_text(cause, trace)
            self.recording.mark(cause.step, f"first cause: {text}")
        reason = trace.ended_by if cause is None else cause.reason
        self.recording.end(_outcome(trace.success, reason))


def _of_scenario(settings: ScenarioView) -> list[_ScenarioJob]:
    (episode,) = episodes.obtain(
        settings.scenario,
        settings.split,
        settings.seed,
        None,
        settings.episodes,
        settings.processes or None,
        settings.episode,
    )
    with renamed("agent", "compare"):
        others = [
            config.load_preset("agent", name, AgentPreset) for name in _names(settings.compare)
        ]
    jobs = []
    for agent in [settings.agent, *others]:
        own = dataclasses.replace(settings, agent=agent)
        simulator, policies = chains.make_simulator(own), agents.Policies.of(own)
        executor = chains.make_executor(own, simulator, policies, agents.reset_arm())
        execution = executor.begin(episode)
        plan = [step.text for step in execution.plan]
        recording = EpisodeRecording(agent.name, episode, simulator.shapes(0), plan)
        execution.on_step = EpisodeRecorder(simulator, recording).on_step
        jobs.append(_ScenarioJob(execution, settings.protocol, recording))
    return jobs


@dataclasses.dataclass(frozen=True, slots=True)
class _SkillJob:
    settings: SkillView
    simulator: Simulator
    job: SkillJob
    recorder: EpisodeRecorder

    @property
    def recording(self) -> EpisodeRecording:
        return self.recorder.recording

    def run(self) -> None:
        policy = agents.make_for_skill(self.settings.agent, self.settings.skill)
        on_step = self.recorder.on_step
        result = run_start(self.settings, self.simulator, policy, self.job, on_step)
        cause = result.first_cause
        if cause is not None:
            lacking = margin_text(cause.predicate, Margin(False, cause.margin, cause.unit))
            self.recording.mark(cause.step, f"first cause: {lacking}")
        self.recording.end(_outcome(result.success, result.ended_by))


def _of_skill(settings: SkillView) -> list[_SkillJob]:
    (start,) = obtain(dataclasses.replace(settings, num_episodes=None))
    job = SkillJob(start, None)
    jobs = []
    for agent in [settings.agent or agents.default(settings.skill), *_names(settings.compare)]:
        own = dataclasses.replace(settings, agent=agent)
        agents.make_for_skill(agent, settings.skill)  # raises for an agent that cannot act
        slots = capacity_for(len(job.episode.objects))
        filtered = settings.protocol.filter_base
        simulator = sim.make(
            settings.engine, 1, slots, filter_base=filtered, habitat=settings.habitat
        )
        environment(own, simulator, start).reset(options={"start": 0})
        plan = [settings.skill.replace("_", " ")]
        recording = EpisodeRecording(agent, job.episode, simulator.shapes(0), plan)
        jobs.append(_SkillJob(own, simulator, job, EpisodeRecorder(simulator, recording)))
    return jobs


def _outcome(success: bool, ended_by: str) -> str:
    return "success" if success else f"failure ({words.reason(ended_by)})"
