"""What every evaluation shares: doing its jobs with a progress bar, and putting files in place."""

import contextlib
import dataclasses
import os
import shutil
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from rich.console import Console

import tpsrl
from eval.analysing.bounds import encode
from eval.analysing.schema import LostEpisode, Report, SkillReport
from eval.running import inputs
from eval.running.journal import OUTPUTS, REEL, Journal
from eval.settings import AllSettings, SkillsSettings
from tpsrl import config
from tpsrl.errors import RunError, UserError, one_line
from tpsrl.runtime import files, pool, progress, records
from tpsrl.sim.base import HomeLost

S = TypeVar("S")
T = TypeVar("T")

_NUMBER = "[0-9]" * 4  # the name of a film
_LOST_IN_A_ROW = 3  # jobs, after which their homes are not lost by accident


def _nothing(job: Any) -> Path | None:
    return None


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """What a job gave, and how long it took its worker, in seconds."""

    result: T
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class WithoutHome:
    """A job whose home was lost, and of what."""

    cause: str


@dataclasses.dataclass(frozen=True, slots=True)
class Ended(Generic[T]):
    """What came of jobs, by their numbers: the outcomes, and why the others were lost."""

    outcomes: Mapping[int, Outcome[T]]
    lost: Mapping[int, str]

    @property
    def results(self) -> list[T]:
        """What the jobs gave that were not lost."""
        return [outcome.result for outcome in self.outcomes.values()]

    def of(self, things: Sequence[S]) -> list[S]:
        """Of one thing a job, those whose jobs were not lost."""
        return [things[number] for number in self.outcomes]

    def losses(self, names: Sequence[str]) -> list[LostEpisode]:
        """The jobs that were lost, by the names of all."""
        return [LostEpisode(names[number], cause) for number, cause in self.lost.items()]


@dataclasses.dataclass(frozen=True, slots=True)
class JobSet(Generic[T]):
    """Jobs of one kind.

    `kind` is their plural ("episodes"), by which a journal tells them from others, and `result`
    what one gives: a dataclass, or JSON (`dict`). `factory` builds in each worker the function that
    does a job. `names` of the jobs are for messages, `wrote` is the file that a job leaves in the
    journal's folder, if any, and `good` whether it succeeded.
    """

    kind: str
    result: type[T]
    factory: pool.Factory
    jobs: Sequence[Any]
    names: Sequence[str]
    wrote: Callable[[Any], Path | None] = _nothing
    good: Callable[[T], bool] | None = None


def run_jobs(
    work: JobSet[T], processes: int, journal: Journal, title: str, console: Console
) -> list[Outcome[T]]:
    """The outcomes in the order of the jobs; shows how many are done.

    Jobs that the journal has are not done again. Every outcome comes as the journal gives it, so
    that nothing depends on which were done before.

    Raises:
        UserError: one that a job raised, or the journal cannot be written.
        RunError: a worker failed or died, or lost its home.
    """
    timed = dataclasses.replace(work, factory=_Timed(work.factory))
    return list(_run(timed, processes, journal, title, console).outcomes.values())


def run_most(
    work: JobSet[T], processes: int, journal: Journal, title: str, console: Console
) -> Ended[T]:
    """As `run_jobs`, but a job whose home is lost is left out, and the next one is done.

    The journal has none of those that were lost, so that they are done again where it is gone on
    with.

    Raises:
        UserError: one that a job raised, or the journal cannot be written.
        RunError: a worker failed or died; all jobs were lost, or several in a row.
    """
    timed = dataclasses.replace(work, factory=_Losing(_Timed(work.factory)))
    ended = _run(timed, processes, journal, title, console)
    if ended.lost and not ended.outcomes:
        raise RunError(f"all {work.kind} were lost; the last: {list(ended.lost.values())[-1]}")
    return ended


def _run(
    work: JobSet[T], processes: int, journal: Journal, title: str, console: Console
) -> Ended[T]:
    """Does jobs by a factory of `Outcome` or `WithoutHome`."""
    total = len(work.jobs)
    keys = [f"{number} {name}" for number, name in enumerate(work.names)]
    found = journal.done(work.kind)
    done: dict[int, Outcome[T]] = {}
    lost: dict[int, str] = {}
    in_a_row = 0
    for index, (key, job) in enumerate(zip(keys, work.jobs, strict=True)):
        file = work.wrote(job)
        if key in found and (file is None or file.is_file()):
            done[index] = _decoded(work, key, found[key])
    if done:
        told = f"going on: {len(done)} of {total} {work.kind} are done"
        console.print(told, highlight=False, markup=False, soft_wrap=True)
    todo = [index for index in range(total) if index not in done]
    jobs, names = [work.jobs[i] for i in todo], [work.names[i] for i in todo]
    running = pool.run(work.factory, jobs, processes, names) if todo else _no_work()
    try:
        with contextlib.closing(running), progress.Bar(console, title, total) as bar:
            bar.update(len(done), _good(work, done))
            for place, outcome in running:
                index = todo[place]
                if isinstance(outcome, WithoutHome):
                    lost[index] = outcome.cause.removeprefix(f"{names[place]}: ")
                    _tell_lost(console, names[place], lost[index])
                    in_a_row += 1
                    if in_a_row == _LOST_IN_A_ROW:
                        raise RunError(
                            f"{in_a_row} {work.kind} in a row were lost; the last: {lost[index]}"
                        )
                else:
                    in_a_row = 0
                    kept = journal.add(work.kind, keys[index], outcome)
                    done[index] = _decoded(work, keys[index], kept)
                bar.update(len(done) + len(lost), _good(work, done))
    finally:
        for file in (work.wrote(job) for index, job in enumerate(work.jobs) if index not in done):
            if file is not None:
                file.unlink(missing_ok=True)
    return Ended({index: done[index] for index in sorted(done)}, dict(sorted(lost.items())))


def _tell_lost(console: Console, name: str, cause: str) -> None:
    text = one_line(f"lost: {name}: {cause}")
    console.print(text, highlight=False, markup=False, soft_wrap=True)


@dataclasses.dataclass(frozen=True, slots=True)
class _Timed:
    """Builds what a factory builds, which also says how long each job took."""

    factory: pool.Factory

    def __call__(self) -> Callable[[Any], Outcome[Any]]:
        work = self.factory()

        def timed(job: Any) -> Outcome[Any]:
            started = time.perf_counter()
            result = work(job)
            return Outcome(result, time.perf_counter() - started)

        return timed


@dataclasses.dataclass(frozen=True, slots=True)
class _Losing:
    """Builds what a factory builds, of which a job that loses its home gives `WithoutHome`."""

    factory: pool.Factory

    def __call__(self) -> Callable[[Any], Any]:
        work = self.factory()

        def losing(job: Any) -> Any:
            try:
                return work(job)
            except HomeLost as error:
                return WithoutHome(str(error))

        return losing


def _decoded(work: JobSet[T], key: str, outcome: Mapping[str, Any]) -> Outcome[T]:
    result = records.decode(outcome["result"], work.result, f"journal: {key}")
    return Outcome(result, outcome["seconds"])


def _no_work() -> Generator[tuple[int, Any], None, None]:
    """Nothing; a pool would build a simulator for it."""
    yield from ()


def _good(work: JobSet[T], done: Mapping[int, Outcome[T]]) -> str:
    """How many were good, where that is asked."""
    if work.good is None:
        return ""
    return f"{sum(work.good(outcome.result) for outcome in done.values())} succeeded"


def check_videos(videos: int) -> None:
    """Looks for the video encoder before anything runs, where episodes are to be filmed.

    Raises:
        UserError: there is none.
    """
    if videos:
        from tpsrl.render.video import encoder

        encoder()


def output_folder(out: str) -> Path:
    """The folder of an evaluation's files, which can be written into it when all is done.

    Raises:
        UserError: they cannot.
    """
    folder = files.check_writable(out)
    files.check_replaceable(folder, OUTPUTS)
    for films in (folder / "videos", folder / REEL):
        if films.exists() and not films.is_dir():
            raise UserError(f"out: {films} is not a folder")
        files.check_replaceable(films, (path.name for path in films.glob(f"{_NUMBER}.*")))
    return folder


def film_path(films: Path, number: int, videos: int) -> Path | None:
    """The file to film episode `number` into, when the first `videos` ones are filmed."""
    if number >= videos:
        return None
    films.mkdir(parents=True, exist_ok=True)
    return films / f"{number:04d}.mp4"


def put_files(made: Path, folder: Path, kinds: Sequence[str]) -> None:
    """Puts new files in the place of an earlier run's; where they were made they stay, too.

    They have numbers for names, and are of `kinds` such as "*.mp4".

    Raises:
        UserError: they cannot be written.
    """
    try:
        for file in sorted(path for kind in kinds for path in made.glob(kind)):
            with files.atomic(folder / file.name) as temporary:
                try:
                    os.link(file, temporary)
                except OSError:  # a file system without links
                    shutil.copyfile(file, temporary)
        for old in [path for kind in kinds for path in folder.glob(f"{_NUMBER}{kind[1:]}")]:
            if not (made / old.name).is_file():
                old.unlink()
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    except OSError as error:
        raise UserError(f"out: cannot write '{folder}' ({error.strerror})") from None


def timing(
    processes: int | None, outcomes: Collection[Outcome[Any]], seconds: float
) -> dict[str, Any]:
    """How long a run took; kept apart from the report, which is the same on every machine."""
    steps = sum(outcome.result.steps_run for outcome in outcomes)
    return {
        "processes": processes,
        "seconds": round(seconds, 2),
        "control_steps_per_second": round(steps / seconds, 1),
        "episode_seconds": [round(outcome.seconds, 2) for outcome in outcomes],
    }


def write(
    out: Path,
    settings: Any,
    results: Sequence[Any],
    timing: dict[str, Any],
    summary: Report | SkillReport,
    page: str,
) -> None:
    """Writes the files of an evaluation, report.json last."""
    files.write_text(out / "config.yaml", config.to_yaml(settings))
    files.write_jsonl(out / "episodes.jsonl", (result.to_json() for result in results))
    files.write_json(out / "timing.json", timing)
    files.write_text(out / "report.html", page)
    files.write_json(out / "report.json", encode(summary))


def write_studies(out: Path, studies: Sequence[Any] | None) -> None:
    """Writes what was run for an analysis, one record an episode; without any an earlier file goes.

    Raises:
        UserError: it cannot be written.
    """
    path = out / "studies.jsonl"
    if studies is not None:
        files.write_jsonl(path, studies)
    else:
        path.unlink(missing_ok=True)


def tell_where(console: Console, out: Path, results: Sequence[Any] = ()) -> None:
    """Names the files that were written."""
    paths = [out / "report.html", out / "report.json"]
    paths += [out / result.video for result in results if result.video]
    for path in paths:
        console.print(f"wrote {path}", highlight=False, markup=False, soft_wrap=True)


def what_ran(settings: AllSettings | SkillsSettings) -> dict[str, Any]:
    """The part of a report's header that all evaluations share."""
    return {
        "protocol": settings.protocol.name,
        "protocol_changes": settings.protocol.changes(),
        "protocol_values": settings.protocol.values(),
        "engine": settings.engine,
        "split": settings.split,
        "seed": settings.seed,
        "version": tpsrl.__version__,
        "versions": inputs.versions(settings),
    }
