"""Additional runs of a handoff analysis: studies of episodes, and clips of failures."""

import dataclasses
import functools
import operator
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from eval.analysing.causes import cause_text
from eval.analysing.results import EpisodeResult, generic
from eval.analysing.schema import Clip, ReelGroup
from eval.handoffs import design
from eval.handoffs.study import Players, Study
from eval.handoffs.summary import Analysis
from eval.handoffs.worlds import opened_by_plan
from eval.running import chains, runs
from eval.running.journal import REEL, Journal
from eval.settings import EvalSettings
from planner.execution.progress import StepInfo
from skills.core.interface import SkillPolicy
from tpsrl.errors import UserError
from tpsrl.runtime import pool
from tpsrl.sim import engines
from tpsrl.sim.base import Simulator
from tpsrl.world.episode import Episode
from tpsrl.world.state import WorldState

_CAUSES, _CLIPS = 5, 2  # number of causes, and of clips for each
_BEFORE, _AFTER = 180, 30  # control steps around a first cause
_STRIDE = 3
NO_SNAPSHOTS = (
    "left out, because engine '{engine}' cannot restore a home exactly: skills in isolation, "
    "handoff taxes, repairs and blame"
)
_BUDGET = 4  # default, in multiples of the control steps of the evaluation itself


@dataclasses.dataclass(frozen=True, slots=True)
class StudyJob:
    """An episode to study; `coalitions` to run, by kind of repair."""

    episode: Episode
    coalitions: dict[str, list[int]]


def study_runner(settings: EvalSettings, players: Players) -> pool.Factory:
    """Returns the factory of the function that studies one episode."""
    return chains.ChainRunner(settings, functools.partial(study_episode, players))


def study_episode(
    players: Players,
    settings: EvalSettings,
    simulator: Simulator,
    policies: Mapping[str, SkillPolicy],
    reset_arm: SkillPolicy,
    job: StudyJob,
) -> dict[str, Any]:
    """Returns the record of `eval.handoffs.study.Study.run` for one episode.

    Raises:
        UserError: the episode is invalid; names it.
    """
    executor = chains.make_executor(settings, simulator, policies, reset_arm, after_timeout=False)
    study = Study(executor, players, opened_by_plan(settings.scenario))
    try:
        return study.run(job.episode, job.coalitions)
    except UserError as error:
        raise chains.about_episode(job.episode.id, error) from None


def analyse(
    settings: EvalSettings,
    episodes: Sequence[Episode],
    results: Sequence[EpisodeResult],
    journal: Journal,
    console: Console,
    runner: Callable[[EvalSettings, Players], pool.Factory] = study_runner,
) -> Analysis | None:
    """Studies the first episodes of an evaluation.

    Returns:
        The analysis; None if none is requested, the engine does not allow it (see `left_out`), or
        the robot replans: without a fixed sequence of steps there are no handoffs to compare.

    Raises:
        RunError: a worker failed or died.
    """
    count = min(settings.analysis_episodes, len(episodes))
    if not _wanted(settings) or left_out(settings):
        return None
    budget = settings.analysis_steps
    if budget is None:
        budget = _BUDGET * sum(result.steps for result in results)
    players = design.choose_players(results, settings.analysis_players)
    coalitions = design.choose_coalitions(results[:count], players, budget)
    jobs = [StudyJob(*pair) for pair in zip(episodes, coalitions, strict=False)]
    work = runs.JobSet(
        "studies",
        dict,
        runner(settings, players),
        jobs,
        [f"episode {job.episode.id}" for job in jobs],
    )
    title = f"{settings.scenario.title}: handoffs"
    outcomes = runs.run_jobs(work, min(settings.processes or 1, count), journal, title, console)
    return Analysis([outcome.result for outcome in outcomes], players, budget)


def left_out(settings: EvalSettings) -> str:
    """Returns why the engine does not allow a requested analysis; "" if it does."""
    able = engines.info(settings.engine).capabilities.exact_snapshots
    return "" if able or not _wanted(settings) else NO_SNAPSHOTS.format(engine=settings.engine)


def _wanted(settings: EvalSettings) -> bool:
    return bool(settings.analysis_episodes) and not settings.replan and settings.episode is None


@dataclasses.dataclass(frozen=True, slots=True)
class ClipJob:
    """A clip to film around the control step `at` of an episode, and a picture of that step.

    Attributes:
        episode: to run
        at: control step of the first cause
        path: file of the clip
        poster: file of the picture
    """

    episode: Episode
    at: int
    path: Path
    poster: Path


def film_clip(
    settings: EvalSettings,
    simulator: Simulator,
    policies: Mapping[str, SkillPolicy],
    reset_arm: SkillPolicy,
    job: ClipJob,
) -> dict[str, Any]:
    """Films one clip; "poster" is whether its picture was written."""
    import imageio.v3 as imageio

    from eval.running.film import Film

    executor = chains.make_executor(settings, simulator, policies, reset_arm, after_timeout=False)
    with Film(simulator, job.episode, job.path, _STRIDE) as film:
        seen: list[int] = []

        def on_step(world: WorldState, info: StepInfo) -> None:
            step = info.episode_step
            if job.at - _BEFORE <= step <= job.at + _AFTER:
                film.on_step(world, info)
            if job.at - _STRIDE <= step <= job.at:
                imageio.imwrite(job.poster, film.frame(world, info))
                seen.append(step)

        executor.run(job.episode, on_step)
    return {"poster": bool(seen)}


def film_reel(
    settings: EvalSettings,
    episodes: Sequence[Episode],
    results: Sequence[EpisodeResult],
    journal: Journal,
    console: Console,
) -> list[ReelGroup]:
    """Films the steps around the most frequent first causes; returns the report's "reel".

    Raises:
        RunError: a worker failed or died.
    """
    if not settings.videos or not settings.analysis_episodes or settings.episode is not None:
        return []
    groups: dict[str, list[int]] = defaultdict(list)
    for number, result in enumerate(results):
        cause = result.first_cause
        if cause is not None:
            where = cause.name or "end"
            groups[f"{where}: {generic(cause.predicate)}, {cause.reason}"].append(number)
    most = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))[:_CAUSES]
    chosen = [number for _, numbers in most for number in numbers[:_CLIPS]]
    folder = journal.films / REEL
    if chosen:
        folder.mkdir(parents=True, exist_ok=True)
    jobs = []
    for number in chosen:
        cause = results[number].first_cause
        assert cause is not None
        at = min(cause.step, results[number].steps)
        name = f"{number:04d}"
        jobs.append(ClipJob(episodes[number], at, folder / f"{name}.mp4", folder / f"{name}.png"))
    work = runs.JobSet(
        "clips",
        dict,
        chains.ChainRunner(settings, film_clip),
        jobs,
        [f"episode {job.episode.id}" for job in jobs],
        wrote=operator.attrgetter("path"),
    )
    title = f"{settings.scenario.title}: clips"
    made = runs.run_jobs(
        work, min(settings.processes or 1, max(1, len(jobs))), journal, title, console
    )
    posters = {
        number: outcome.result["poster"] for number, outcome in zip(chosen, made, strict=True)
    }
    predicates = settings.protocol.predicates
    reel = []
    for what, numbers in most:
        clips = []
        for number in numbers[:_CLIPS]:
            cause = results[number].first_cause
            assert cause is not None
            name = f"{REEL}/{number:04d}"
            poster = f"{name}.png" if posters[number] else None
            text = results[number].cause_text or cause_text(cause, predicates)
            clips.append(Clip(results[number].id, f"{name}.mp4", poster, text))
        reel.append(ReelGroup(what, len(numbers), clips))
    return reel
