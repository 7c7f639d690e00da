"""What every evaluation shares: doing its jobs with a progress bar, and putting files in place."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import tpsrl
from eval.settings import AllSettings, SkillsSettings
from tpsrl import config, files, pool


def run_jobs(
    factory: pool.Factory,
    jobs: Sequence[Any],
    processes: int,
    names: Sequence[str],
    title: str,
    console: Console,
) -> list[Any]:
    """The outcomes in the order of the jobs, with a progress bar on a terminal.

    An outcome has a `result` with a `success`; `names` of the jobs are for messages.

    Raises:
        UserError: one that a job raised.
        RunError: a worker failed or died.
    """
    done: dict[int, Any] = {}
    work = pool.run(factory, jobs, processes, names)
    with contextlib.closing(work), _progress(console) as progress:
        bar = progress.add_task(title, total=len(jobs), good=0)
        for index, outcome in work:
            done[index] = outcome
            good = sum(o.result.success for o in done.values())
            progress.update(bar, completed=len(done), good=good)
    return [done[index] for index in range(len(jobs))]


def film_path(films: Path, number: int, videos: int) -> Path | None:
    """The file to film episode `number` into, when the first `videos` ones are filmed."""
    if number >= videos:
        return None
    films.mkdir(parents=True, exist_ok=True)
    return films / f"{number:04d}.mp4"


def move_videos(films: Path, videos: Path) -> None:
    """Puts the new videos in the place of those of an earlier run."""
    for old in videos.glob("[0-9][0-9][0-9][0-9].mp4"):
        old.unlink()
    if films.is_dir():
        videos.mkdir(parents=True, exist_ok=True)
        for film in sorted(films.iterdir()):
            film.replace(videos / film.name)
    elif videos.is_dir() and not any(videos.iterdir()):
        videos.rmdir()


def timing(processes: int | None, outcomes: Sequence[Any], seconds: float) -> dict[str, Any]:
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
    summary: dict[str, Any],
    page: str,
) -> None:
    """Writes the files of an evaluation, report.json last."""
    files.write_text(out / "config.yaml", config.to_yaml(settings))
    files.write_jsonl(out / "episodes.jsonl", (result.to_json() for result in results))
    files.write_json(out / "timing.json", timing)
    files.write_text(out / "report.html", page)
    files.write_json(out / "report.json", summary)


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
    }


def _progress(console: Console) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[good]} succeeded"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
