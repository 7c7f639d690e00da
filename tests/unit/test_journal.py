import dataclasses
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from eval.running import inputs, runs
from eval.running.journal import OUTPUTS, Journal, remove
from eval.settings import EvalSettings
from tpsrl import config
from tpsrl.errors import RunError, UserError
from tpsrl.sim.base import HomeLost

QUIET = Console(quiet=True)


@dataclasses.dataclass
class Done:
    value: float
    note: Any = None


def journal(out: Path, **named: Any) -> Journal:
    return Journal(out, QUIET, **named)


def leave(out: Path, digest: str = "d", count: int = 2) -> Path:
    """Writes a journal with `count` finished jobs, as a stopped run leaves it; returns its path."""
    with journal(out) as stopped:
        stopped.resume(digest)
        for number in range(count):
            stopped.add("jobs", str(number), Done(number))
    return out / ".running" / "journal.jsonl"


def finished(out: Path, digest: str = "d") -> list[str]:
    with journal(out) as found:
        found.resume(digest)
        return list(found.done("jobs"))


def test_finished_results_are_restored_by_kind_and_key(tmp_path: Path) -> None:
    value = Done(0.1 + 0.2, {"a": [1, None]})
    with journal(tmp_path) as stopped:
        stopped.resume("d")
        given = stopped.add("jobs", "0 first", value)
        stopped.add("checks", "0 first", {"plain": True})
    with journal(tmp_path) as resumed:
        resumed.resume("d")
        assert resumed.done("jobs") == {"0 first": given} == {"0 first": dataclasses.asdict(value)}
        assert resumed.done("checks") == {"0 first": {"plain": True}}
        assert resumed.done("others") == {}


def test_numbers_are_read_as_they_were_written(tmp_path: Path) -> None:
    with journal(tmp_path) as notes:
        notes.resume("d")
        assert notes.add("jobs", "inf", Done(-math.inf))["value"] == -math.inf
        assert math.isnan(notes.add("jobs", "nan", Done(math.nan))["value"])
        given = notes.add("jobs", "numpy", {"a": np.bool_(True), "b": np.int64(3), "c": 1 / 3})
    assert given == {"a": True, "b": 3, "c": 1 / 3}
    with journal(tmp_path) as notes:
        notes.resume("d")
        assert notes.done("jobs")["numpy"] == given
        assert notes.done("jobs")["inf"]["value"] == -math.inf


@pytest.mark.parametrize("cut", [1, 2, 20])
def test_a_truncated_line_is_dropped_and_overwritten(tmp_path: Path, cut: int) -> None:
    file = leave(tmp_path)
    os.truncate(file, file.stat().st_size - cut)
    with journal(tmp_path) as resumed:
        resumed.resume("d")
        assert list(resumed.done("jobs")) == ["0"]
        resumed.add("jobs", "2", Done(2))
    assert finished(tmp_path) == ["0", "2"]


def test_lines_after_a_broken_line_are_ignored(tmp_path: Path) -> None:
    file = leave(tmp_path, count=3)
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:2], b"\0" * 40, *lines[3:]]))
    assert finished(tmp_path) == ["0"]


@pytest.mark.parametrize("left", [b"", b"{", b"{}\n", b"[1]\n", b'{"journal": 0, "digest": "d"}\n'])
def test_a_journal_without_a_valid_header_is_ignored_and_removed(
    tmp_path: Path, left: bytes
) -> None:
    file = tmp_path / ".running" / "journal.jsonl"
    file.parent.mkdir()
    file.write_bytes(left)
    assert finished(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_journal_of_other_settings_is_discarded_with_a_message_of_one_line(
    tmp_path: Path,
) -> None:
    leave(tmp_path)
    films = tmp_path / ".running" / "videos"
    films.mkdir()
    (films / "0000.mp4").touch()
    console = Console(record=True, width=300)
    with Journal(tmp_path, console) as other:
        other.resume("e")
        assert other.done("jobs") == {} and not films.exists()
        other.add("jobs", "5", Done(5))
    message = f"starting from the beginning: 2 finished jobs in {tmp_path} have other settings or"
    (line,) = console.export_text().splitlines()
    assert line.startswith(message)
    assert finished(tmp_path, "e") == ["5"]


def test_a_journal_without_finished_jobs_leaves_no_files(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), journal(tmp_path / "out") as empty:
        empty.resume("d")
        empty.films.mkdir()
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_fails_before_it_resumes_leaves_the_journal_unchanged(tmp_path: Path) -> None:
    before = leave(tmp_path).read_bytes()
    with pytest.raises(UserError), journal(tmp_path):
        raise UserError("episodes: no such file")
    assert (tmp_path / ".running" / "journal.jsonl").read_bytes() == before


def test_a_finished_journal_is_removed_unless_keep_is_set(tmp_path: Path) -> None:
    for keep in (True, False):
        leave(tmp_path)
        with journal(tmp_path, keep=keep) as done:
            done.resume("d")
            done.finish()
        assert (tmp_path / ".running").exists() == keep
    leave(tmp_path)
    with journal(tmp_path):
        remove(tmp_path)  # has no effect while the journal is in use
    assert finished(tmp_path) == ["0", "1"]
    remove(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_only_temporary_files_of_killed_writers_are_removed(tmp_path: Path) -> None:
    films, videos = leave(tmp_path).parent / "videos", tmp_path / "videos"
    strays = [tmp_path / ".report.77.tmp.json", videos / ".0003.77.tmp.mp4"]
    strays += [films / ".0001.77.tmp.mp4"]
    others = [tmp_path / ".mine.77.tmp.json", films / "0000.mp4", videos / "0000.mp4"]
    for path in (*strays, *others):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    with journal(tmp_path) as resumed:
        resumed.resume("d")
        assert not any(path.exists() for path in strays)
        assert all(path.exists() for path in others)


def test_the_time_before_a_kill_is_counted(tmp_path: Path) -> None:
    with journal(tmp_path) as stopped:
        stopped.resume("d")
        stopped._began -= 1000.0
        stopped.add("jobs", "0", Done(0))
    with journal(tmp_path) as resumed:
        resumed.resume("d")
        assert resumed.seconds >= 1000.0


@dataclasses.dataclass
class Halves:
    """Worker that halves numbers and fails at the number `bad`."""

    bad: int = -1
    called: list[int] = dataclasses.field(default_factory=list)

    def __call__(self) -> Callable[[int], Done]:
        return self.work

    def work(self, number: int) -> Done:
        self.called.append(number)
        if number == self.bad:
            raise RunError("none of 9 drafts was good")
        return Done(number / 2)


def run(out: Path, factory: Any, console: Console = QUIET, **named: Any) -> list[Done]:
    work = runs.JobSet("jobs", Done, factory, [1, 2, 3], ["a", "b", "a"], **named)
    with Journal(out, console) as notes:
        notes.resume("d")
        found = runs.run_jobs(work, 1, notes, "Jobs", console)
        notes.finish()
    return [outcome.result for outcome in found]


def test_finished_jobs_are_not_repeated(tmp_path: Path) -> None:
    first, second = Halves(bad=3), Halves()
    with pytest.raises(RunError):
        run(tmp_path, first)
    console = Console(record=True, width=100)
    assert run(tmp_path, second, console) == [Done(0.5), Done(1.0), Done(1.5)]
    assert (first.called, second.called) == ([1, 2, 3], [3])
    # On a busy machine, lines about the progress may follow.
    assert console.export_text().splitlines()[0] == "resuming: 2 of 3 jobs are done"
    assert list(tmp_path.iterdir()) == []


@dataclasses.dataclass
class Losing(Halves):
    """Worker that halves numbers and loses its home at the numbers in `at`."""

    at: tuple[int, ...] = ()

    def work(self, number: int) -> Done:
        if number in self.at:
            self.called.append(number)
            raise HomeLost(f"{'abaabb'[number - 1]}: ended by signal 11")
        return super().work(number)


def run_most(out: Path, factory: Any, console: Console = QUIET, count: int = 3) -> Any:
    jobs = list(range(1, count + 1))
    work = runs.JobSet("jobs", Done, factory, jobs, list("abaabb"[:count]))
    with Journal(out, console, keep=True) as notes:
        notes.resume("d")
        return runs.run_most(work, 1, notes, "Jobs", console)


def test_a_job_with_a_lost_home_is_left_out_with_its_cause_and_repeated_later(
    tmp_path: Path,
) -> None:
    console = Console(record=True, width=100)
    ended = run_most(tmp_path, Losing(at=(2,)), console)
    assert ended.results == [Done(0.5), Done(1.5)] and ended.of("xyz") == ["x", "z"]
    (lost,) = ended.losses(["first", "second", "third"])
    assert (lost.episode, lost.cause) == ("second", "ended by signal 11")
    assert "lost: b: ended by signal 11" in console.export_text()
    again = Losing()
    assert run_most(tmp_path, again).results == [Done(0.5), Done(1.0), Done(1.5)]
    assert again.called == [2]


def test_consecutive_lost_jobs_end_the_run_with_the_cause(tmp_path: Path) -> None:
    apart = Losing(at=(1, 2, 4, 5))
    assert run_most(tmp_path / "apart", apart, count=6).results == [Done(1.5), Done(3.0)]
    row = Losing(at=(2, 3, 4))
    with pytest.raises(RunError, match=r"^3 jobs in a row were lost; the last: .*signal 11"):
        run_most(tmp_path / "row", row, count=6)
    assert row.called == [1, 2, 3, 4]
    with pytest.raises(RunError, match=r"^all jobs were lost; the last: "):
        run_most(tmp_path / "all", Losing(at=(1, 2)), count=2)


def test_no_worker_is_built_if_all_jobs_are_done(tmp_path: Path) -> None:
    def unbuildable() -> Any:
        raise AssertionError

    for factory in (Halves(), unbuildable):
        with journal(tmp_path, keep=True) as notes:
            notes.resume("d")
            work = runs.JobSet("jobs", Done, factory, [1], ["a"])
            (outcome,) = runs.run_jobs(work, 1, notes, "Jobs", QUIET)
            assert outcome.result == Done(0.5)
            notes.finish()


def test_a_job_with_a_missing_file_is_repeated_and_a_failed_job_leaves_no_file(
    tmp_path: Path,
) -> None:
    def wrote(number: int) -> Path:
        return tmp_path / ".running" / "videos" / f"{number:04d}.mp4"

    class Filming(Halves):
        def work(self, number: int) -> Done:
            wrote(number).parent.mkdir(exist_ok=True)
            wrote(number).touch()
            return super().work(number)

    with pytest.raises(RunError):
        run(tmp_path, Filming(bad=3), wrote=wrote)
    assert [wrote(number).exists() for number in (1, 2, 3)] == [True, True, False]
    wrote(1).unlink()
    again = Filming()
    run(tmp_path, again, wrote=wrote)
    assert again.called == [1, 3]


def settings(*overrides: str) -> EvalSettings:
    return config.load(EvalSettings, config.parse(["scenario=tidy_house", *overrides]))


@pytest.mark.slow
def test_the_digest_depends_on_everything_that_affects_the_results(tmp_path: Path) -> None:
    first = inputs.digest(settings(), "d")
    assert inputs.digest(settings("out=elsewhere", "processes=3"), "d") == first
    file = tmp_path / "mine.py"
    found = [first, inputs.digest(settings(), "e"), inputs.digest(settings("videos=1"), "d")]
    for text in ("a = 1", "a = 2"):
        file.write_text(text)
        found.append(inputs.digest(settings(), "d", [file]))
        found.append(inputs.digest(settings(f"skill_modules={file}"), "d"))
    assert len(set(found)) == len(found)
    dotted = inputs.digest(settings("encoder_modules=kinematic_home, json"), "d")
    assert dotted not in found


@pytest.mark.parametrize(
    "change",
    [
        {"kind": []},
        {"key": {}},
        {"seconds": "x"},
        {"seconds": math.nan},
        {"outcome": None},
        {"outcome": {"value": math.inf, "note": None}},
        {"outcome": {"value": 8.0, "note": None}},
    ],
)
def test_lines_from_the_first_altered_line_on_are_ignored(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    file = leave(tmp_path, count=3)
    lines = file.read_text().splitlines()
    lines[2] = json.dumps({**json.loads(lines[2]), **change})
    file.write_text("".join(f"{line}\n" for line in lines))
    assert finished(tmp_path) == ["0"]


@pytest.mark.parametrize("name", [*OUTPUTS, "videos/0000.mp4", "reel/0001.png"])
def test_a_folder_in_place_of_an_output_file_is_refused_before_anything_runs(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name).mkdir(parents=True)
    with pytest.raises(UserError, match=f"out: .*{name} is not a regular file"):
        runs.output_folder(str(tmp_path))


@pytest.mark.parametrize("name", ["videos", "reel"])
def test_a_file_in_place_of_a_video_folder_is_refused_before_anything_runs(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name).touch()
    with pytest.raises(UserError, match=f"out: .*{name} is not a folder"):
        runs.output_folder(str(tmp_path))


def test_a_device_in_place_of_the_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".running").mkdir()
    (tmp_path / ".running" / "journal.jsonl").symlink_to("/dev/zero")
    with pytest.raises(UserError, match="not a regular file"), journal(tmp_path) as notes:
        notes.resume("d")
