"""Reports made anew from the files of an evaluation, and comparisons of several."""

import contextlib
import io
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from eval.analysing import comparison
from eval.analysing.comparison import Evaluated
from eval.reporting import comparison_page, comparison_table, index, page, skill_page, table
from eval.running import runs
from tpsrl import files
from tpsrl.errors import UserError

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]|\\u00(?:[01][0-9a-f]|7f|[89][0-9a-f])", re.I)


def rebuild(folder: str, console: Console | None = None) -> None:
    """Writes report.html again from the other files of its folder, and prints the table.

    The folder is that of a scenario, a skill, a comparison, or of several evaluations, whose own
    reports are then rebuilt as well.

    Raises:
        UserError: it is no such folder, or a file in it cannot be read or written.
    """
    console, path = console or Console(), files.user_path(folder, "report")
    report = read_report(path)
    if "runs" in report:
        for inner in _folders(path, report["runs"]):
            rebuild(str(inner), console)
    with _as_written(path):
        if "runs" in report:
            html = index.render(report)
        elif "differences" in report:
            html = comparison_page.render(report)
        else:
            render = skill_page.render if "skill" in report else page.render
            html = render(report, _read_records(path))
        _show(Console(file=io.StringIO()), report)
    files.write_text(path / "report.html", html, "report")
    _show(console, report)
    runs.tell_where(console, path)


def compare(folders: Sequence[str], out: str, console: Console | None = None) -> dict[str, Any]:
    """Compares evaluations of one scenario, writes and prints the comparison, and returns it.

    Each of its `agents` has also a `link`, the way from the output folder to its own.

    Raises:
        UserError: a folder is none of a scenario's evaluation, they are not of the same episodes,
            or the output folder cannot be written.
    """
    console, target = console or Console(), files.check_writable(out)
    own = Path(os.path.realpath(target))  # of a loop of links too, which `resolve` raises for
    places = [Path(os.path.realpath(files.user_path(f, "report"))) for f in folders]
    for place, folder in zip(places, folders, strict=True):
        if places.count(place) > 1:
            raise UserError(f"report: {folder} is named twice")
        if place == own:
            raise UserError(f"out: {out} is one of the evaluations; take another folder")
    evaluated = [_read(folder) for folder in folders]
    with _as_written(*folders):
        report = comparison.compare(evaluated)
        for agent, place in zip(report["agents"], places, strict=True):
            agent["link"] = Path(os.path.relpath(place, own)).as_posix()
        html = comparison_page.render(report)
        _show(Console(file=io.StringIO()), report)
    files.write_text(target / "report.html", html)
    files.write_json(target / "report.json", report)
    _show(console, report)
    runs.tell_where(console, target)
    return report


@contextlib.contextmanager
def _as_written(*folders: str | Path) -> Iterator[None]:
    """Refuses files that are JSON, but not what an evaluation writes; they may be a stranger's."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        names = " or ".join(str(folder) for folder in folders)
        what = f"{type(error).__name__}: {error}"
        raise UserError(f"report: {names}: not as an evaluation writes it ({what})") from None


def _folders(path: Path, named: Any) -> Iterator[Path]:
    """The folders of several evaluations, each of which is one in `path`."""
    for run in named if isinstance(named, list) else [named]:
        name = run.get("folder") if isinstance(run, dict) else None
        # What lies elsewhere is not of this report, and must not be written to.
        if not isinstance(name, str) or Path(name).name != name or name in ("", ".."):
            raise UserError(f"report: {path / 'report.json'}: runs: no folder in it: {name!r}")
        if "runs" in read_report(path / name):
            raise UserError(f"report: {path / name} is itself of several evaluations")
        yield path / name


def _show(console: Console, report: dict[str, Any]) -> None:
    if "runs" in report:
        index.show(console, report)
    elif "differences" in report:
        comparison_table.show(console, report)
    elif "skill" in report:
        table.show_skill(console, report)
    else:
        table.show(console, report)


def _read(folder: str) -> Evaluated:
    path = files.user_path(folder, "report")
    report = read_report(path)
    if "stages" not in report:
        raise UserError(f"report: {folder} is not of one scenario; only agents on one compare")
    return Evaluated(os.path.normpath(folder), report, _read_records(path))


def read_report(folder: Path) -> dict[str, Any]:
    """The report.json in the folder of an evaluation.

    Raises:
        UserError: there is none, or it is no report.
    """
    text = _text(folder / "report.json")
    try:
        report = files.parse_json(text)
    except ValueError as error:
        raise UserError(f"report: {folder / 'report.json'}: {error}") from None
    known = isinstance(report, dict) and report.keys() & {"runs", "differences", "success"}
    if not known:
        raise UserError(f"report: {folder / 'report.json'} is not the report of an evaluation")
    found: dict[str, Any] = report
    return found


def _read_records(folder: Path) -> list[dict[str, Any]]:
    path = folder / "episodes.jsonl"
    records = []
    for number, line in enumerate(_text(path).splitlines(), start=1):
        try:
            records.append(files.parse_json(line))
        except ValueError as error:
            raise UserError(f"report: {path}, line {number}: {error}") from None
    if not records:
        raise UserError(f"report: {path} holds no episode")
    return records


def _text(path: Path) -> str:
    try:
        if path.exists() and not path.is_file():
            raise UserError(f"report: {path} is no file")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        message = f"report: {path}: cannot be read ({error.strerror})"
        raise UserError(f"{message}; name the folder of an evaluation") from None
    except UnicodeDecodeError:
        raise UserError(f"report: {path}: cannot be read (it is no text)") from None
    if _CONTROL.search(text):  # it would reach the terminal
        raise UserError(f"report: {path} has control characters in it")
    return text
