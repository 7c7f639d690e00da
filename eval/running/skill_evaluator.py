"""Evaluates one skill in isolation: from start states to the report."""

import dataclasses
import hashlib
import json
import operator
import re
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import structs
from rich.console import Console

from eval.analysing import extras, report, skill_results
from eval.analysing.intervals import wilson
from eval.analysing.schema import MeanInterval, SkillRan, SkillReport
from eval.analysing.skill_results import SkillResult
from eval.handoffs.statistics import bootstrap
from eval.reporting import pages, table
from eval.running import agents, blinding, inputs, runs
from eval.running.episodes import DEFAULT_COUNT, check_count_of_one
from eval.running.journal import Journal
from eval.running.skill_runs import SkillFactory, SkillJob
from eval.settings import SkillSettings
from skills import registry
from skills.starts.bank import INDEX
from skills.starts.mixture import is_mixture
from skills.starts.recorded import load_starts
from skills.starts.source import StartSource, start_episodes
from skills.starts.start import Start
from tpsrl import config
from tpsrl.errors import UserError, renamed, unknown
from tpsrl.runtime import machine, pool, records


def evaluate_skill(
    settings: SkillSettings,
    console: Console | None = None,
    factory: Callable[[SkillSettings], pool.Factory] = SkillFactory,
    keep_journal: bool = False,
) -> SkillReport:
    """Runs the skill, writes the files, prints the table, and returns the report.

    Files appear in the output folder only when all runs are done. `factory`, `keep_journal` and the
    journal are as in `eval.running.evaluator.evaluate`.

    Raises:
        UserError: the output folder cannot be written or is in use by another process, or a start
            state is invalid.
        RunError: a worker failed or died, all runs or several in a row were lost, or an input file
            was replaced during the run.
    """
    console = console or Console()
    runs.check_videos(settings.videos)
    out = runs.output_folder(settings.out or f"out/{settings.skill}")
    with Journal(out, console, keep_journal) as journal:
        given, name = settings.skills.given(), f"skills.{settings.skill}"
        agent = settings.agent or agents.default(settings.skill)
        settings = dataclasses.replace(settings, agent=given.get(settings.skill, agent))
        with renamed(name, name if settings.skill in given else "agent"):
            policy = agents.make_for_skill(settings.agent, settings.skill)
        blinding.check(policy, blinding.parse(settings.blind))
        starts = obtain(settings)
        if settings.starts is not None:
            most = max([*_slots(settings), *(len(start.episode.objects) for start in starts)])
            settings = dataclasses.replace(settings, num_objects=most)
        elif settings.num_objects is None:
            own = registry.get(settings.skill).start_states().num_objects
            settings = dataclasses.replace(settings, num_objects=own or None)
        settings = dataclasses.replace(
            settings,
            num_episodes=len(starts),
            processes=min(settings.processes or machine.cores(), len(starts)),
            out=str(out),
        )
        runs.check_kept(out, settings)
        settings = dataclasses.replace(settings, replace=False)
        state = inputs.digest(settings, digest(starts), _read_beside(settings))
        journal.resume(state)
        journal.describe(config.to_yaml(settings))
        ended = runs.run_most(
            runs.JobSet(
                "episodes",
                SkillResult,
                factory(settings),
                _jobs(settings, starts, journal),
                [f"episode {start.episode.id}" for start in starts],
                wrote=operator.attrgetter("video"),
                good=operator.attrgetter("success"),
            ),
            settings.processes or 1,
            journal,
            settings.skill,
            console,
        )
        results = ended.results
        inputs.check_unchanged(
            state, inputs.digest(settings, digest(starts), _read_beside(settings))
        )
        summary = summarise(_header(settings, starts), results)
        if ended.lost:
            names = [start.episode.id for start in starts]
            summary = structs.replace(summary, lost=ended.losses(names))
        timing = runs.timing(settings.processes, ended.outcomes.values(), journal.seconds)
        runs.put_files(journal.films, out / "videos", ("*.mp4",))
        runs.write(out, settings, results, timing, summary, pages.skill(summary, results))
        journal.finish()
    table.show_skill(console, summary)
    runs.tell_where(console, out, results)
    return summary


def _jobs(settings: SkillSettings, starts: Sequence[Start], journal: Journal) -> list[SkillJob]:
    """Returns a job for each start state.

    The donor of a blinded policy is the run from the next start state.
    """
    donors: list[Start | None] = [None for _ in starts]
    if settings.blind:
        if len(starts) < 2:
            raise UserError("blind: needs at least two runs; use num_episodes=2 or more")
        donors = [*starts[1:], starts[0]]
    return [
        SkillJob(start, runs.film_path(journal.films, number, settings.videos), donor)
        for number, (start, donor) in enumerate(zip(starts, donors, strict=True))
    ]


def obtain(settings: SkillSettings) -> list[Start]:
    """Returns the first start states of the file or bank `starts`, or of the skill's distribution.

    Raises:
        UserError: file or bank cannot be read or have too few; the skill has no distribution; or
            the single episode does not exist, or is combined with another number of episodes.
    """
    count = settings.num_episodes
    if settings.episode is not None:
        check_count_of_one(settings.episode, count)
        return [_chosen(settings, settings.episode)]
    if is_mixture(settings.starts):
        return _source(settings).first(count, settings.processes or None)
    if settings.starts is None:
        numbers = range(DEFAULT_COUNT if count is None else count)
        where = (settings.split, settings.seed, settings.num_objects)
        return start_episodes(settings.skill, numbers, *where, settings.processes or None)
    found = load_starts(settings.starts)
    if not found or (count is not None and len(found) < count):
        wanted = "at least one was" if count is None else f"{count} were"
        raise UserError(
            f"starts: {settings.starts} contains {len(found)} start states, {wanted} requested"
        )
    return found[:count]


def _chosen(settings: SkillSettings, one: str) -> Start:
    """Returns the start state with an id or number."""
    if settings.starts is not None:
        every = dataclasses.replace(settings, episode=None, num_episodes=None)
        for number, start in enumerate(known := obtain(every)):
            if one in (start.episode.id, str(number)):
                return start
        raise unknown("episode", one, [start.episode.id for start in known])
    numbered = re.fullmatch(rf"(?:{re.escape(settings.skill)}_)?([0-9]{{1,6}})(?:_of_.*)?", one)
    if numbered is None:
        raise UserError(
            f"episode: '{one}' is not an episode of {settings.skill}; give its number, such as 0, "
            "or its id"
        )
    where = (settings.split, settings.seed, settings.num_objects)
    (start,) = start_episodes(settings.skill, [int(numbered[1])], *where, 1)
    if not one.isdigit() and start.episode.id != one:
        raise unknown("episode", one, [start.episode.id])
    return start


def digest(starts: Sequence[Start]) -> str:
    """Returns twelve hex digits that identify the start states of a run.

    They are equal for two runs if the runs started in the same homes with the same goals.
    """
    records = [[start.episode.to_json(), dataclasses.asdict(start.goal)] for start in starts]
    for _, goal in records:
        del goal["grasp"]  # Digests of earlier versions, which have none, stay valid.
    text = json.dumps(records, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _read_beside(settings: SkillSettings) -> list[Path]:
    """Returns the other input files of a run: checkpoints and recorded start states."""
    learned = agents.learned_alone(settings.agent, settings.skill)
    recorded = [] if settings.starts is None else _recorded(settings)
    return [*agents.checkpoints(learned), *recorded]


def _recorded(settings: SkillSettings) -> list[Path]:
    """Returns the file of start states, or the indices of the banks of a mixture."""
    assert settings.starts is not None
    if not is_mixture(settings.starts):
        return [Path(settings.starts)]
    return [bank.folder / INDEX for bank in _source(settings).banks]


def _source(settings: SkillSettings) -> StartSource:
    return StartSource(
        settings.skill,
        settings.starts,
        split=settings.split,
        seed=settings.seed,
        num_objects=settings.num_objects,
    )


def _slots(settings: SkillSettings) -> list[int]:
    """Returns the number of objects in the homes of each bank that start states come from."""
    banks = _source(settings).banks if is_mixture(settings.starts) else []
    return [bank.num_objects for bank in banks]


def summarise(header: SkillRan, results: Sequence[SkillResult]) -> SkillReport:
    """Returns the report of at least one run.

    `ends` counts the runs by how they ended. `path` has the means of the path metrics (None for
    skills that do not drive to a place), and `path_intervals` their 95% bootstrap intervals over
    runs.
    """
    paths = [r.path for r in results if r.path is not None]
    ends = [r.ended_by for r in results]
    return SkillReport(
        **structs.asdict(header),
        num_episodes=len(results),
        success=wilson(sum(r.success for r in results), len(results)),
        ends={name: ends.count(name) for name in sorted(set(ends))},
        parts=skill_results.parts(results),
        first_causes=report.first_causes(results),
        steps=report.spread([r.steps for r in results]),
        force=report.forces(results),
        reward=report.spread([r.reward for r in results]),
        path=path(paths),
        path_intervals=path_intervals(paths),
        view_blocked=extras.view_blocked([r.view_blocked for r in results]),
    )


def path(metrics: Sequence[dict[str, float]]) -> dict[str, float] | None:
    """Returns the means of the path metrics; None for skills that do not drive to a place.

    Runs without a metric, such as SPL where the map has no path to the goal, are left out of it.
    """
    values = _by_name(metrics)
    return {name: statistics.fmean(found) for name, found in values.items()} or None


def path_intervals(metrics: Sequence[dict[str, float]]) -> dict[str, MeanInterval] | None:
    """Returns the bounds of the intervals of the path metrics' means.

    Metrics that are equal in all runs are left out.
    """
    if not metrics:
        return None
    found = {name: bootstrap(v) for name, v in _by_name(metrics).items() if len(set(v)) > 1}
    return {
        name: MeanInterval(i.low, i.high)
        for name, i in found.items()
        if i.low is not None and i.high is not None
    }


def _by_name(metrics: Sequence[dict[str, float]]) -> dict[str, list[float]]:
    """Returns the values of each metric, with the names in the order of the run with most."""
    names = max(metrics, key=len, default={})
    return {name: [run[name] for run in metrics if name in run] for name in names}


def _header(settings: SkillSettings, starts: Sequence[Start]) -> SkillRan:
    """Returns the description of the run; with the results it determines the report."""
    learned = agents.learned_alone(settings.agent, settings.skill)
    ran = {
        "skill": settings.skill,
        "title": settings.skill.replace("_", " ").capitalize(),
        **runs.what_ran(settings),
        **agents.describe(settings.agent, learned),
        "num_objects": settings.num_objects,
        "starts": settings.starts,
        "dataset": digest(starts),
    }
    blind = {"blind": list(blinding.parse(settings.blind))} if settings.blind else {}
    return records.decode(ran | blind, SkillRan, "report")
