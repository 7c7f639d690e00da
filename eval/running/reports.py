"""Reports rebuilt from the files of an evaluation, and comparisons of several evaluations."""

import contextlib
import dataclasses
import io
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from msgspec import structs
from rich.console import Console

from eval.analysing import comparison
from eval.analysing.bounds import decode, encode
from eval.analysing.comparison import Evaluated
from eval.analysing.results import EpisodeResult
from eval.analysing.schema import Comparison, Index, Report, SkillReport
from eval.analysing.skill_results import SkillResult
from eval.reporting import comparison_table, index, pages, table
from eval.running import runs
from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.runtime import files, locks

AnyReport = Report | SkillReport | Index | Comparison
Result = TypeVar("Result", EpisodeResult, SkillResult)

_KINDS: dict[str, type[AnyReport]] = {
    "runs": Index,
    "differences": Comparison,
    "skill": SkillReport,
    "success": Report,
}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]|\\u00(?:[01][0-9a-f]|7f|[89][0-9a-f])", re.I)


@dataclasses.dataclass(frozen=True, slots=True)
class _Rebuilt:
    """A report as read from its folder, and its rendered page."""

    folder: Path
    report: AnyReport
    html: str


def rebuild(folder: str, console: Console | None = None) -> None:
    """Writes report.html again from the other files of its folder, and prints the table.

    The folder is that of a scenario, a skill, a comparison, or of several evaluations, whose own
    reports are then rebuilt as well. All files are read before any is written.

    Raises:
        UserError: the folder is not one of these, or a file in it cannot be read or written.
    """
    console, path = console or Console(), files.user_path(folder, "report")
    report = read_report(path)
    inner = [_rebuilt(*run) for run in _runs(path, report)]
    for one in (*inner, _rebuilt(path, report)):
        files.write_text(one.folder / "report.html", one.html, "report")
        _show(console, one.report)
        runs.tell_where(console, one.folder)


def _rebuilt(path: Path, report: AnyReport) -> _Rebuilt:
    """Renders the page of a report, and checks that it can be printed and written."""
    files.check_replaceable(path, ["report.html"], "report")
    with _as_written(path):
        if isinstance(report, Index):
            html = pages.index(report)
        elif isinstance(report, Comparison):
            html = pages.comparison(report)
        elif isinstance(report, SkillReport):
            html = pages.skill(report, _read_results(path, SkillResult))
        else:
            html = pages.scenario(report, _read_results(path, EpisodeResult))
        _show(Console(file=io.StringIO()), report)
    return _Rebuilt(path, report, html)


def compare(folders: Sequence[str], out: str, console: Console | None = None) -> Comparison:
    """Compares evaluations of one scenario or skill: writes, prints and returns the comparison.

    Each of its `agents` also has a `link`, the path from the output folder to its own folder.

    Raises:
        UserError: a folder is not of a scenario's or skill's evaluation, the episodes differ, or
            the output folder cannot be written.
    """
    console, target = console or Console(), files.check_writable(out)
    files.check_replaceable(target, ["report.html", "report.json"])
    own = Path(os.path.realpath(target))  # `Path.resolve` would raise for a loop of links
    places = [Path(os.path.realpath(files.user_path(f, "report"))) for f in folders]
    for place, folder in zip(places, folders, strict=True):
        if places.count(place) > 1:
            raise UserError(f"report: {folder} is repeated")
        if place == own:
            raise UserError(f"out: {out} is one of the evaluations; choose another folder")
    evaluated = [_read(folder) for folder in folders]
    with _as_written(*folders):
        report = comparison.compare(evaluated)
        agents = [
            structs.replace(agent, link=Path(os.path.relpath(place, own)).as_posix())
            for agent, place in zip(report.agents, places, strict=True)
        ]
        report = structs.replace(report, agents=agents)
        html = pages.comparison(report)
        _show(Console(file=io.StringIO()), report)
        text = json.dumps(encode(report), indent=2, allow_nan=False) + "\n"
    files.write_text(target / "report.html", html)
    files.write_text(target / "report.json", text)
    _show(console, report)
    runs.tell_where(console, target)
    return report


@contextlib.contextmanager
def _as_written(*folders: str | Path) -> Iterator[None]:
    """Turns errors inside the block into a `UserError` that names the folders.

    The files may come from an untrusted source: valid JSON, but not as an evaluation writes it.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        names = " or ".join(str(folder) for folder in folders)
        what = f"{type(error).__name__}: {error}"
        raise UserError(f"report: {names}: not in the format of an evaluation ({what})") from None


def _runs(path: Path, report: AnyReport) -> Iterator[tuple[Path, AnyReport]]:
    """Yields folder and report of each evaluation of an index; all folders must be in `path`."""
    known: dict[str, None] = {}
    for run in report.runs if isinstance(report, Index) else ():
        name = run.folder
        # Folders outside of `path` are not part of this report and must not be written to.
        if not name or Path(name).name != name or name == "..":
            raise UserError(f"report: {path / 'report.json'}: runs: {name!r} is not a subfolder")
        if name in known:
            raise UserError(f"report: {path / 'report.json'}: runs: {name} is repeated")
        known[name] = None
    for name in known:
        inner = read_report(path / name)
        if isinstance(inner, Index):
            raise UserError(
                f"report: {path / name} has several evaluations, must have the one of a scenario "
                "or skill"
            )
        yield path / name, inner


def _show(console: Console, report: AnyReport) -> None:
    if isinstance(report, Index):
        index.show(console, report)
    elif isinstance(report, Comparison):
        comparison_table.show(console, report)
    elif isinstance(report, SkillReport):
        table.show_skill(console, report)
    else:
        table.show(console, report)


def _read(folder: str) -> Evaluated:
    path = files.user_path(folder, "report")
    report = read_report(path)
    where = os.path.normpath(folder)
    if isinstance(report, Report):
        return Evaluated(where, report, _read_results(path, EpisodeResult))
    if isinstance(report, SkillReport):
        return Evaluated(where, report, _read_results(path, SkillResult))
    raise UserError(
        f"report: {folder} has several evaluations; compare folders of one scenario or skill"
    )


def read_report(folder: Path) -> AnyReport:
    """Reads the report.json of an evaluation's folder.

    Raises:
        UserError: the file does not exist, or is not a report.
    """
    path = folder / "report.json"
    with _naming(str(path)):
        found = files.parse_json(_text(path))
        kind = _kind_of(found)
    return decode(found, kind, f"report: {path}")


def _kind_of(found: Any) -> type[AnyReport]:
    """Returns the type of a report by a key that only this type has."""
    keys = found.keys() if isinstance(found, dict) else ()
    for key, kind in _KINDS.items():
        if key in keys:
            return kind
    raise ValueError("it is not the report of an evaluation")


def _read_results(folder: Path, kind: type[Result]) -> list[Result]:
    path = folder / "episodes.jsonl"
    results = []
    for number, line in enumerate(_text(path, files.MOST_DATA).splitlines(), start=1):
        where = f"{path}, line {number}"
        with _naming(where):
            found = files.parse_json(line)
        results.append(decode(found, kind, f"report: {where}"))
    if not results:
        raise UserError(f"report: {path} contains no episode")
    return results


def episode_ids(folder: Path) -> list[str]:
    """Returns the ids of a finished evaluation's episodes; none if the folder has no report.

    Raises:
        UserError: the file of the results is damaged.
    """
    if not (folder / "report.json").is_file():
        return []
    if config.entry_of(folder / "config.yaml", "skill"):
        return [result.id for result in _read_results(folder, SkillResult)]
    return [result.id for result in _read_results(folder, EpisodeResult)]


@contextlib.contextmanager
def _naming(where: str) -> Iterator[None]:
    """Turns a `ValueError` inside the block into a `UserError` that names the place."""
    try:
        yield
    except ValueError as error:
        raise UserError(f"report: {where}: {error}") from None


def _text(path: Path, most: int = files.MOST_TEXT) -> str:
    try:
        if path.exists() and not path.is_file():
            raise UserError(f"report: {path} is not a file")
        text = files.read_text(path, most)
    except OSError as error:
        if (path.parent / locks.RUNNING).is_dir():
            raise UserError(
                f"report: {path.parent} is not finished; run its command to the end"
            ) from None
        message = f"report: {path}: cannot be read ({error.strerror})"
        raise UserError(f"{message}; name the folder of an evaluation") from None
    except UnicodeDecodeError:
        raise UserError(f"report: {path}: cannot be read (not a text file)") from None
    if _CONTROL.search(text):  # they would be printed in the terminal
        raise UserError(f"report: {path} contains control characters")
    return text
