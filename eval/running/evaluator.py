"""Runs the episodes of a scenario's evaluation and writes its report."""

import dataclasses
import operator
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import structs
from rich.console import Console

from eval.analysing import report
from eval.analysing.causes import cause_text, objects_text
from eval.analysing.results import EpisodeResult, from_trace
from eval.analysing.schema import Report, ScenarioRan
from eval.handoffs import summary as handoffs
from eval.handoffs.flow import flow, write_graphml
from eval.handoffs.study import Players
from eval.reporting import pages, table
from eval.running import agents, analysis, chains, inputs, runs
from eval.running.checking import checked
from eval.running.command import settings_command
from eval.running.episodes import Selection, digest, select
from eval.running.journal import REEL, Journal
from eval.running.view import ViewWatch, in_turn
from eval.settings import EvalSettings
from planner import domains, given
from planner.execution.progress import OnStep
from skills.core.interface import SkillPolicy
from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.runtime import machine, pool, records
from tpsrl.sim.base import Simulator
from tpsrl.world.episode import Episode
from tpsrl.world.scenarios import Scenario


@dataclasses.dataclass(frozen=True, slots=True)
class EpisodeJob:
    """One episode to run; `video` is the file of its video, None for no video."""

    episode: Episode
    video: Path | None


def episode_runner(settings: EvalSettings) -> pool.Factory:
    """Returns the factory of the function that runs one episode."""
    return chains.ChainRunner(settings, run_episode)


def evaluate(
    settings: EvalSettings,
    console: Console | None = None,
    factory: Callable[[EvalSettings], pool.Factory] = episode_runner,
    keep_journal: bool = False,
    studies: Callable[[EvalSettings, Players], pool.Factory] = analysis.study_runner,
) -> Report:
    """Runs the episodes, writes the files, prints the table, and returns the report.

    Files appear in the output folder only when all episodes are done. Until then finished episodes
    are in a journal, from which the same call resumes (`eval.running.journal`).

    Args:
        settings: of the evaluation
        console: for output; None: a new one
        factory: makes the pool factory of the episodes from the settings
        keep_journal: leave the journal in place for the caller, who runs several evaluations and
            removes it when all are done
        studies: makes the pool factory of the handoff analysis; like `factory` and the factories of
            both, it is pickled and sent to the workers

    Raises:
        UserError: the output folder cannot be written or is in use by another process, or an
            episode is invalid.
        RunError: a worker failed or died, all episodes or several in a row were lost, or an input
            file was replaced during the run.
    """
    console = console or Console()
    runs.check_videos(settings.videos)
    out = runs.output_folder(settings.out or f"out/{settings.scenario.name}")
    with Journal(out, console, keep_journal) as journal:
        agents.Policies.of(settings)
        rules = settings.rules()
        if rules.plan_file is not None:
            given.read(rules.plan_file)
        selection = select(
            settings.scenario,
            settings.split,
            settings.seed,
            settings.num_episodes,
            settings.episodes,
            settings.processes or None,
            settings.episode,
        )
        selection = checked(selection, settings, console)
        episodes = selection.episodes
        settings = dataclasses.replace(
            settings,
            num_episodes=len(episodes),
            processes=min(settings.processes or machine.cores(), len(episodes)),
            out=str(out),
        )
        runs.check_kept(out, settings)
        settings = dataclasses.replace(settings, replace=False)
        read = [*agents.checkpoints(settings.learned()), rules.domain]
        if rules.plan_file is not None:
            read.append(rules.plan_file)
        state = inputs.digest(settings, digest(episodes), read)
        journal.resume(state)
        journal.describe(config.to_yaml(settings))
        ended = runs.run_most(
            runs.JobSet(
                "episodes",
                EpisodeResult,
                factory(settings),
                [
                    EpisodeJob(episode, runs.film_path(journal.films, number, settings.videos))
                    for number, episode in enumerate(episodes)
                ],
                [f"episode {episode.id}" for episode in episodes],
                wrote=operator.attrgetter("video"),
                good=operator.attrgetter("success"),
            ),
            settings.processes or 1,
            journal,
            settings.scenario.title,
            console,
        )
        results, acted = ended.results, ended.of(episodes)
        timing = runs.timing(settings.processes, ended.outcomes.values(), journal.seconds)
        found = analysis.analyse(settings, acted, results, journal, console, studies)
        if found is not None:
            results = handoffs.with_blame(results, found)
        reel = analysis.film_reel(settings, acted, results, journal, console)
        inputs.check_unchanged(state, inputs.digest(settings, digest(episodes), read))
        graph = flow(results)
        summary = report.summarise(_header(settings, selection, results), results)
        summary = handoffs.with_handoffs(summary, results, found, graph)
        summary = structs.replace(summary, reel=reel)
        if ended.lost:
            names = [episode.id for episode in episodes]
            summary = structs.replace(summary, lost=ended.losses(names))
        if reason := analysis.left_out(settings):
            summary = structs.replace(summary, analysis_left_out=reason)
        timing["analysed_seconds"] = round(journal.seconds, 2)
        runs.put_files(journal.films, out / "videos", ("*.mp4",))
        runs.put_files(journal.films / REEL, out / REEL, ("*.mp4", "*.png"))
        runs.write_studies(out, None if found is None else found.studies)
        write_graphml(graph, out / "flow.graphml")
        runs.write(out, settings, results, timing, summary, pages.scenario(summary, results))
        journal.finish()
    table.show(console, summary, results)
    runs.tell_where(console, out, results)
    return summary


def run_episode(
    settings: EvalSettings,
    simulator: Simulator,
    policies: Mapping[str, SkillPolicy],
    reset_arm: SkillPolicy,
    job: EpisodeJob,
) -> EpisodeResult:
    """Runs one episode under the protocol, and films it if the job has a video file.

    Raises:
        UserError: the episode is invalid; names it.
    """
    protocol, episode = settings.protocol, job.episode
    executor = chains.make_executor(settings, simulator, policies, reset_arm)
    view = ViewWatch(simulator, settings.view_stride) if settings.measure_view else None
    look = None if view is None else view.on_step

    def ran(on_step: OnStep | None) -> EpisodeResult:
        trace = executor.run(episode, in_turn(look, on_step))
        blocked = None if view is None else view.share
        result = from_trace(trace, None, protocol.stage_rule, blocked)
        if result.first_cause is None:
            return result
        text = cause_text(result.first_cause, protocol.predicates)
        text += objects_text(result.first_cause, trace)
        return dataclasses.replace(result, cause_text=text)

    try:
        if job.video is None:
            return ran(None)
        from eval.running.film import Film

        with Film(simulator, episode, job.video, settings.video_stride) as film:
            result = ran(film.on_step)
            missing = None if result.success else result.cause_text or ""
            film.end(result.steps, result.ended_by, missing)
    except UserError as error:
        raise chains.about_episode(episode.id, error) from None
    return dataclasses.replace(result, video=f"videos/{job.video.name}")


def _header(
    settings: EvalSettings, selection: Selection, results: Sequence[EpisodeResult]
) -> ScenarioRan:
    """Returns the description of the run; with the results it determines the report."""
    episodes = selection.episodes
    acted = {stage.skill for result in results for stage in result.stages if stage.reached}
    ran = {
        "scenario": settings.scenario.name,
        "title": _title(settings.scenario, episodes),
        **runs.what_ran(settings),
        **agents.describe_preset(settings.agent, settings.learned(), acted),
        "stage_rule": settings.protocol.stage_rule,
        "replan": settings.replan,
        "dataset": digest(episodes),
        "settings_command": settings_command(settings),
    }
    incomplete = {"left_out": dict(selection.left_out), "invalid": dict(selection.invalid)}
    ran |= {key: found for key, found in incomplete.items() if found}
    if settings.domain != domains.DEFAULT:
        ran["domain"] = settings.domain
    if settings.plan is not None:
        ran["plan"] = settings.plan
    return records.decode(ran, ScenarioRan, "report")


def _title(scenario: Scenario, episodes: Sequence[Episode]) -> str:
    """Returns the scenario's title, with the number of targets if the episodes have another one."""
    counts = sorted({len(episode.targets) for episode in episodes})
    if counts == [scenario.num_targets]:
        return scenario.title
    least, most = counts[0], counts[-1]
    count = f"{least} to {most}" if most > least else f"{most}"
    return f"{scenario.title}, {count} target{'s' if most > 1 else ''}"
