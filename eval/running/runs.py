"""Shared parts of all evaluations: running jobs with a progress bar, writing output files."""

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

_NUMBER = "[0-9]" * 4  # name of a video file
_SHOWN = 3  # settings that a refusal names
_WITHOUT_EFFECT = ("out", "processes", "replace", "video_stride")  # on results
_UNRESOLVED = ("num_episodes", "num_objects")  # None until the start states are known
_LOST_IN_A_ROW = 3  # lost jobs after which the run ends: the cause is probably systematic


def _nothing(job: Any) -> Path | None:
    return None


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """Result of a job, and the time (s) that it took in its worker."""

    result: T
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class WithoutHome:
    """Outcome of a job that lost its home: the cause of the loss."""

    cause: str


@dataclasses.dataclass(frozen=True, slots=True)
class Ended(Generic[T]):
    """Outcomes of finished jobs, and causes of lost jobs, by job number."""

    outcomes: Mapping[int, Outcome[T]]
    lost: Mapping[int, str]

    @property
    def results(self) -> list[T]:
        """Results of the jobs that were not lost."""
        return [outcome.result for outcome in self.outcomes.values()]

    def of(self, things: Sequence[S]) -> list[S]:
        """Returns the elements that belong to jobs that were not lost.

        Args:
            things: one element for each job, in the order of the jobs
        """
        return [things[number] for number in self.outcomes]

    def losses(self, names: Sequence[str]) -> list[LostEpisode]:
        """Returns the lost jobs, with the cause of each.

        Args:
            names: of all jobs, in their order
        """
        return [LostEpisode(names[number], cause) for number, cause in self.lost.items()]


@dataclasses.dataclass(frozen=True, slots=True)
class JobSet(Generic[T]):
    """Jobs of one kind.

    Attributes:
        kind: plural noun ("episodes"); identifies the jobs of this kind in a journal
        result: type of a job's result: a dataclass, or `dict` for JSON
        factory: builds in each worker the function that runs a job
        jobs: arguments of that function
        names: of the jobs, for messages
        wrote: returns the file that a job leaves in the journal's folder, or None
        good: returns whether a result is a success; None: successes are not counted
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
    """Returns the outcomes in the order of the jobs; shows a progress bar.

    Jobs in the journal are not run again. Every outcome is read back from the journal, so that
    results do not depend on which jobs were run before a restart.

    Raises:
        UserError: a job raised one, or the journal cannot be written.
        RunError: a worker failed or died, or lost its home.
    """
    timed = dataclasses.replace(work, factory=_Timed(work.factory))
    return list(_run(timed, processes, journal, title, console).outcomes.values())


def run_most(
    work: JobSet[T], processes: int, journal: Journal, title: str, console: Console
) -> Ended[T]:
    """Runs jobs like `run_jobs`, but continues with the next job after a lost home.

    Lost jobs are not in the journal, so that a resumed run repeats them.

    Raises:
        UserError: a job raised one, or the journal cannot be written.
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
    """Runs jobs whose factory gives `Outcome` or `WithoutHome`."""
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
        message = f"resuming: {len(done)} of {total} {work.kind} are done"
        console.print(message, highlight=False, markup=False, soft_wrap=True)
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
    """Wraps a factory: measures the duration of each job."""

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
    """Wraps a factory: a job that loses its home gives `WithoutHome`."""

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
    """Yields nothing, without the simulator that a pool would build."""
    yield from ()


def _good(work: JobSet[T], done: Mapping[int, Outcome[T]]) -> str:
    """Returns the number of successes as text, "" if successes are not counted."""
    if work.good is None:
        return ""
    return f"{sum(work.good(outcome.result) for outcome in done.values())} succeeded"


def check_videos(videos: int) -> None:
    """Checks that the video encoder is available if episodes are to be filmed.

    Raises:
        UserError: it is not available.
    """
    if videos:
        from tpsrl.render.video import encoder

        encoder()


def output_folder(out: str) -> Path:
    """Returns the output folder after checking that the files of an evaluation can be written.

    Raises:
        UserError: they cannot be written.
    """
    folder = files.check_writable(out)
    files.check_replaceable(folder, OUTPUTS)
    for films in (folder / "videos", folder / REEL):
        if films.exists() and not films.is_dir():
            raise UserError(f"out: {films} is not a folder")
        files.check_replaceable(films, (path.name for path in films.glob(f"{_NUMBER}.*")))
    return folder


def check_kept(out: Path, settings: AllSettings | SkillsSettings) -> None:
    """Checks that an evaluation replaces one with other settings only with `replace=true`.

    It may replace one of fewer episodes or videos.

    Raises:
        UserError: the folder holds an evaluation with other settings; names them.
    """
    path, replaced = out / "config.yaml", out / "report.json"
    if settings.replace or not replaced.is_file():
        return
    if not path.is_file():
        raise UserError(
            f"out: {out} holds the report of several evaluations; choose another folder, or "
            "replace=true"
        )
    found = config.differences(path, settings)
    shown = [
        f"{key}: {old}, now {new}" for key, (old, new) in found.items() if _matters(key, old, new)
    ]
    one_skill = bool(config.entry_of(path, "skill"))
    if one_skill != hasattr(settings, "skill"):
        shown = ["of a skill, now of a scenario" if one_skill else "of a scenario, now of a skill"]
    if shown:
        more = f"; and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
        raise UserError(
            f"out: {out} holds an evaluation with other settings ({'; '.join(shown[:_SHOWN])}"
            f"{more}); choose another folder, or replace=true"
        )


def _matters(key: str, old: Any, new: Any) -> bool:
    """Returns whether an evaluation with a setting's new value loses results of the old one."""
    if key in _UNRESOLVED and new is None:
        return False
    if key in ("num_episodes", "videos") and isinstance(old, int) and isinstance(new, int):
        return new < old
    return key not in _WITHOUT_EFFECT


def film_path(films: Path, number: int, videos: int) -> Path | None:
    """Returns the video file of episode `number`; None unless it is one of the first `videos`."""
    if number >= videos:
        return None
    films.mkdir(parents=True, exist_ok=True)
    return films / f"{number:04d}.mp4"


def put_files(made: Path, folder: Path, kinds: Sequence[str]) -> None:
    """Links or copies new files into `folder`, and removes the files of an earlier run.

    Args:
        made: folder of the new files, whose names are numbers
        folder: target
        kinds: patterns of the files, such as "*.mp4"

    Raises:
        UserError: the files cannot be written.
    """
    try:
        for file in sorted(path for kind in kinds for path in made.glob(kind)):
            with files.atomic(folder / file.name) as temporary:
                try:
                    os.link(file, temporary)
                except OSError:  # a file system without hard links
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
    """Returns the durations of a run.

    They are kept apart from the report, which is the same on every machine.
    """
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
    """Writes the studies of a handoff analysis, one record per episode.

    Args:
        out: output folder
        studies: the records; None: the file of an earlier run is removed

    Raises:
        UserError: the file cannot be written.
    """
    path = out / "studies.jsonl"
    if studies is not None:
        files.write_jsonl(path, studies)
    else:
        path.unlink(missing_ok=True)


def tell_where(console: Console, out: Path, results: Sequence[Any] = ()) -> None:
    """Prints the paths of the files that were written."""
    paths = [out / "report.html", out / "report.json"]
    paths += [out / result.video for result in results if result.video]
    for path in paths:
        console.print(f"wrote {path}", highlight=False, markup=False, soft_wrap=True)


def what_ran(settings: AllSettings | SkillsSettings) -> dict[str, Any]:
    """Returns the part of a report's header that all evaluations share."""
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
