"""Runs the episodes of an evaluation and writes what came of them."""

import dataclasses
import operator
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from eval.analysing import report
from eval.analysing.results import EpisodeResult, from_trace
from eval.reporting import page, table
from eval.running import agents, inputs, runs
from eval.running.episodes import digest, obtain
from eval.running.journal import Journal
from eval.running.view import ViewWatch, in_turn
from eval.settings import EvalSettings
from skills.core.interface import SkillPolicy
from tpsrl import files, machine, pool
from tpsrl.errors import UserError
from tpsrl.sim.base import Simulator
from tpsrl.world.episode import Episode
from tpsrl.world.slots import capacity_for


@dataclasses.dataclass(frozen=True, slots=True)
class EpisodeJob:
    """One episode to run; `video` is the file to film it into, if at all."""

    episode: Episode
    video: Path | None


@dataclasses.dataclass(frozen=True, slots=True)
class EpisodeOutcome:
    """What a worker says of an episode, and how long it took it."""

    result: EpisodeResult
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class EpisodeRunner:
    """Builds in each worker one simulator, which its episodes use in turn."""

    settings: EvalSettings

    def __call__(self) -> Callable[[EpisodeJob], EpisodeOutcome]:
        """The function that runs one episode."""
        from tpsrl import sim

        settings = self.settings
        simulator = sim.make(
            settings.engine,
            num_envs=1,
            slots=capacity_for(settings.scenario.num_objects),
            filter_base=settings.protocol.filter_base,
        )
        # Policies are made anew for every episode, so that nothing is left over from the last one.
        return lambda job: run_episode(
            settings,
            simulator,
            agents.Policies(settings.agent, settings.skills.given()),
            agents.reset_arm(),
            job,
        )


def evaluate(
    settings: EvalSettings,
    console: Console | None = None,
    factory: Callable[[EvalSettings], pool.Factory] = EpisodeRunner,
    keep_journal: bool = False,
) -> dict[str, Any]:
    """Runs the episodes, writes the files, prints the table, and returns the report.

    Files appear in the output folder only when all episodes are done; until then what is finished
    is in a journal, from which the same call goes on (`eval.running.journal`). `factory` makes what
    each worker is built by; it and what it makes travel to the workers by pickle. With
    `keep_journal` it is left, for who runs several evaluations and removes it when all are done.

    Raises:
        UserError: the output folder cannot be written or another process writes into it, or an
            episode is not valid.
        RunError: a worker failed or died.
    """
    console = console or Console()
    out = files.check_writable(settings.out or f"out/{settings.scenario.name}")
    with Journal(out, console, keep_journal) as journal:
        agents.Policies(settings.agent, settings.skills.given())
        settings.carried_out_by()
        episodes = obtain(
            settings.scenario,
            settings.split,
            settings.seed,
            settings.num_episodes,
            settings.episodes,
            settings.processes or None,
        )
        settings = dataclasses.replace(
            settings,
            num_episodes=len(episodes),
            processes=min(settings.processes or machine.cores(), len(episodes)),
            out=str(out),
        )
        checkpoints = agents.checkpoints(settings.skills.given())
        journal.resume(inputs.digest(settings, digest(episodes), checkpoints))
        outcomes = runs.run_jobs(
            runs.JobSet(
                "episodes",
                EpisodeOutcome,
                factory(settings),
                [
                    EpisodeJob(episode, runs.film_path(journal.films, number, settings.videos))
                    for number, episode in enumerate(episodes)
                ],
                [f"episode {episode.id}" for episode in episodes],
                wrote=operator.attrgetter("video"),
                good=operator.attrgetter("result.success"),
            ),
            settings.processes or 1,
            journal,
            settings.scenario.title,
            console,
        )
        results = [outcome.result for outcome in outcomes]
        summary = report.summarise(_header(settings, episodes), results)
        timing = runs.timing(settings.processes, outcomes, journal.seconds)
        runs.put_videos(journal.films, out / "videos")
        runs.write(out, settings, results, timing, summary, page.render(summary, results))
        journal.finish()
    table.show(console, summary)
    runs.tell_where(console, out, results)
    return summary


def run_episode(
    settings: EvalSettings,
    simulator: Simulator,
    policies: Mapping[str, SkillPolicy],
    reset_arm: SkillPolicy,
    job: EpisodeJob,
) -> EpisodeOutcome:
    """Runs one episode under the protocol, and films it if the job says so.

    Raises:
        UserError: the episode is not valid; names it.
    """
    from planner.execution.executor import Executor

    started = time.perf_counter()
    protocol, episode = settings.protocol, job.episode
    executor = Executor(
        simulator,
        policies,
        reset_arm=reset_arm,
        limits=protocol.limits_for(settings.scenario.name),
        rules=protocol.rules(settings.replan, settings.carried_out_by(), settings.after_timeout),
        thresholds=protocol.skills,
        predicates=protocol.predicates,
    )
    view = ViewWatch(simulator, settings.view_stride) if settings.measure_view else None
    look = None if view is None else view.on_step
    try:
        if job.video is None:
            trace, video = executor.run(episode, look), None
        else:
            from eval.running.film import Film

            with Film(simulator, episode, job.video, settings.video_stride) as film:
                trace = executor.run(episode, in_turn(look, film.on_step))
            video = f"videos/{job.video.name}"
    except UserError as error:
        prefix = f"episode {episode.id}: "
        message = str(error)
        raise UserError(message if message.startswith(prefix) else prefix + message) from None
    blocked = None if view is None else view.share
    result = from_trace(trace, video, protocol.stage_rule, blocked)
    return EpisodeOutcome(result, time.perf_counter() - started)


def _header(settings: EvalSettings, episodes: Sequence[Episode]) -> dict[str, Any]:
    """What was run: with the results, all that a report depends on."""
    return {
        "scenario": settings.scenario.name,
        "title": settings.scenario.title,
        **runs.what_ran(settings),
        **agents.describe(settings.agent, settings.skills.given()),
        "stage_rule": settings.protocol.stage_rule,
        "replan": settings.replan,
        "dataset": digest(episodes),
    }
