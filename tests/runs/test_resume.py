"""Evaluations that are stopped at any moment and resumed by the same command."""

import functools
import json
import multiprocessing
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kinematic_home as fake
import pytest
from fake_evaluation import Fake, Refusing, quiet, settings
from rich.console import Console
from test_pool import gone

from eval import targets
from eval.analysing.results import EpisodeResult
from eval.running import evaluator, several
from eval.running.evaluator import EpisodeJob, evaluate
from eval.settings import AllSettings
from tpsrl import api, cli, config
from tpsrl.errors import RunError, UserError
from tpsrl.runtime import locks, processes
from tpsrl.sim import datasets
from tpsrl.world.episode import Episode, save_episodes

SAME = ("report.json", "report.html", "episodes.jsonl")
EPISODES = [f"test/{i}" for i in range(3)]
# Audit events of file operations; Python raises each before the operation.
TOUCHING = {"open", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate"}


class Logged(Fake):
    """Records beside the output folder which episodes were run."""

    def work(self, job: EpisodeJob) -> EpisodeResult:
        assert self.settings.out is not None
        with (Path(self.settings.out).parent / "ran").open("a") as file:
            file.write(f"{job.episode.id}\n")
        return super().work(job)


class Signalling(Logged):
    """Stops the evaluation in its second episode; a worker then waits to be ended."""

    number = signal.SIGTERM

    def work(self, job: EpisodeJob) -> EpisodeResult:
        if job.episode.id == "test/1":
            parent = multiprocessing.parent_process()
            if parent is None:
                os.kill(os.getpid(), self.number)
            else:
                assert self.settings.out is not None and parent.pid is not None
                (Path(self.settings.out).parent / "worker").write_text(str(os.getpid()))
                os.kill(parent.pid, self.number)
                time.sleep(60)
        return super().work(job)


class Interrupting(Signalling):
    number = signal.SIGINT


class Failing(Logged):
    def work(self, job: EpisodeJob) -> EpisodeResult:
        if job.episode.id == "test/2":
            raise RunError("none of 9 drafts was good")
        return super().work(job)


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    path = tmp_path / "data.jsonl.gz"
    save_episodes(path, [fake.make_episode(2, 1, id=name) for name in EPISODES])
    return path


def ran(out: Path) -> list[str]:
    """Returns the episodes that were run since the last call."""
    log = out.parent / "ran"
    names = log.read_text().split() if log.exists() else []
    log.unlink(missing_ok=True)
    return names


def outputs(out: Path) -> list[bytes]:
    return [(out / name).read_bytes() for name in SAME]


def names_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def in_a_child(work: Callable[[], Any]) -> int:
    """Runs work in a forked process; returns 0, or minus the number of the signal that ended it."""
    child = os.fork()
    if not child:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_at(moment: int, folder: Path, work: Callable[[], Any]) -> None:
    """Runs work in a process killed just before its `moment`-th file operation in a folder."""
    count = 0

    def tick() -> None:
        nonlocal count
        count += 1
        if count == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        # An operation on a file descriptor counts as well.
        mine = isinstance(arguments[0], int) or str(arguments[0]).startswith(str(folder))
        if event in TOUCHING and mine:
            tick()

    synced = os.fsync

    def fsync(descriptor: int) -> None:
        tick()
        synced(descriptor)

    def run() -> None:
        os.fsync = fsync
        sys.addaudithook(watch)
        work()

    assert in_a_child(run) in (0, -signal.SIGKILL)


def whole_lines(out: Path) -> Iterator[str]:
    """Yields the episodes in a journal, parsed independently of the evaluation."""
    path = out / ".running" / "journal.jsonl"
    for line in path.read_text().split("\n")[1:-1] if path.exists() else []:
        yield json.loads(line)["outcome"]["result"]["id"]


def test_a_killed_evaluation_resumes_exactly_and_repeats_no_episode(
    dataset: Path, tmp_path: Path
) -> None:
    """Kills at every eleventh file operation."""
    short = "processes=1", "protocol.limits.episode_steps=150", "video_stride=40"
    expected, earlier, out = (tmp_path / name / "out" for name in ("expected", "earlier", "x"))
    evaluate(settings(dataset, earlier, *short, "num_episodes=2", "videos=2"), quiet(), Logged)
    evaluate(settings(dataset, expected, *short, "videos=1"), quiet(), Logged)
    run = functools.partial(
        evaluate,
        settings(dataset, out, *short, "videos=1", "replace=true"),
        Console(quiet=True),
        Logged,
    )
    moment, kills, seen = 1, 0, set()
    while True:
        shutil.rmtree(out.parent, ignore_errors=True)
        shutil.copytree(earlier, out)
        killed_at(moment, out, run)
        done, before = set(whole_lines(out)), outputs(out)
        assert set(ran(out)) >= done
        if not (out / ".running").exists() and before == outputs(expected):
            break
        if len(done) < len(EPISODES) and before != outputs(expected):
            assert before == outputs(earlier)
        assert in_a_child(run) == 0
        again = ran(out)
        assert sorted([*done, *again]) == EPISODES
        assert outputs(out) == outputs(expected)
        assert names_in(out) == names_in(expected)
        seen.add(len(done))
        kills += 1
        moment += 11
    assert kills > 6 and seen >= {0, 3}


def test_a_failed_evaluation_with_two_processes_repeats_no_finished_episode(
    dataset: Path, tmp_path: Path
) -> None:
    out, whole = tmp_path / "two" / "out", tmp_path / "whole" / "out"
    with pytest.raises(RunError):
        evaluate(settings(dataset, out, "processes=2"), quiet(), Failing)
    done = set(whole_lines(out))
    ran(out)
    evaluate(settings(dataset, out, "processes=2"), quiet(), Logged)
    assert sorted([*done, *ran(out)]) == EPISODES
    evaluate(settings(dataset, whole, "processes=1"), quiet(), Fake)
    assert outputs(out) == outputs(whole)


def test_a_failed_evaluation_keeps_finished_episodes_and_reports_the_rest(
    dataset: Path, tmp_path: Path
) -> None:
    out, console = tmp_path / "out", Console(record=True, width=200)
    with pytest.raises(UserError, match="overlaps the sofa"):
        evaluate(settings(dataset, out, "processes=1", "videos=2"), quiet(), Refusing)
    assert names_in(out) == [
        ".running",
        ".running/config.yaml",
        ".running/journal.jsonl",
        ".running/videos",
        ".running/videos/0000.mp4",
    ]
    evaluate(settings(dataset, out, "processes=1", "videos=2"), console, Logged)
    assert console.export_text().startswith("resuming: 1 of 3 episodes are done\n")
    assert ran(out) == ["test/1", "test/2"]
    seconds = json.loads((out / "timing.json").read_text())["episode_seconds"]
    assert len(seconds) == 3 and min(seconds) > 0.0
    assert not (out / ".running").exists()


def test_other_settings_start_from_the_beginning(dataset: Path, tmp_path: Path) -> None:
    out, console = tmp_path / "out", Console(record=True, width=400)
    with pytest.raises(RunError):
        evaluate(settings(dataset, out, "processes=1"), quiet(), Failing)
    ran(out)
    evaluate(settings(dataset, out, "processes=1", "replan=true"), console, Logged)
    assert ran(out) == EPISODES
    assert console.export_text().startswith(
        f"starting from the beginning: 2 finished jobs in {out}"
    )


def test_a_second_evaluation_into_a_folder_is_refused_in_one_line(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"

    class Meanwhile(Logged):
        def work(self, job: EpisodeJob) -> EpisodeResult:
            with pytest.raises(UserError, match=f"{out} is in use by process {os.getpid()};"):
                evaluate(settings(dataset, out, "processes=1"), quiet(), Logged)
            return super().work(job)

    evaluate(settings(dataset, out, "processes=1"), quiet(), Meanwhile)
    assert ran(out) == EPISODES
    before = names_in(out)
    for word in ("tidy_house", "all", "skills", "pick"):
        with locks.hold(out):
            assert cli.main(["eval", word, f"out={out}", "num_episodes=1"]) == 2
        err = capsys.readouterr().err
        assert err.startswith(f"tpsrl: error: out: {out} is in use by process {os.getpid()}; ")
        assert err.count("\n") == 1
    assert names_in(out) == before


@pytest.mark.parametrize("count", [1, 2])
def test_sigterm_ends_workers_with_a_message_and_keeps_the_journal(
    dataset: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    count: int,
) -> None:
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)  # restored afterwards
    filmed = "videos=3", "video_stride=40"
    run = functools.partial(evaluate, console=quiet())
    monkeypatch.setattr(evaluator, "evaluate", functools.partial(run, factory=Signalling))
    with pytest.raises(processes.Terminated), processes.ending_in_order():
        targets.a_scenario().run(settings(dataset, out, f"processes={count}", *filmed))
    assert capsys.readouterr().out == "stopped; run the same command again to resume\n"
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if count > 1:
        assert gone(int((tmp_path / "worker").read_text()))
    done = sorted(whole_lines(out))
    kept = [".running", ".running/config.yaml", ".running/journal.jsonl", ".running/videos"]
    kept += [f".running/videos/000{name[-1]}.mp4" for name in done]
    assert names_in(out) == (kept if done else [])
    ran(out)
    monkeypatch.setattr(evaluator, "evaluate", functools.partial(run, factory=Logged))
    # The number of processes may differ.
    targets.a_scenario().run(settings(dataset, out, "processes=1", *filmed))
    assert sorted([*done, *ran(out)]) == EPISODES


def test_ctrl_c_reports_that_the_same_command_resumes(
    dataset: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = functools.partial(evaluate, console=quiet(), factory=Interrupting)
    monkeypatch.setattr(evaluator, "evaluate", run)
    with pytest.raises(KeyboardInterrupt):
        targets.a_scenario().run(settings(dataset, tmp_path / "out", "processes=1"))
    assert capsys.readouterr().out == "stopped; run the same command again to resume\n"
    assert list(whole_lines(tmp_path / "out")) == ["test/0"]


def test_sigterm_is_a_run_error_of_the_python_function(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = functools.partial(evaluate, console=quiet(), factory=Signalling)
    monkeypatch.setattr(evaluator, "evaluate", run)
    with pytest.raises(RunError, match=r"^evaluate: stopped early; repeat the call to resume$"):
        api.evaluate(
            "tidy_house",
            episodes=dataset,
            out=tmp_path / "out",
            processes=1,
            analysis_episodes=0,
        )


def test_a_sigterm_handler_of_the_program_stays_in_effect(tmp_path: Path) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        with processes.ending_in_order():
            os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM]


def test_an_evaluation_of_several_scenarios_resumes_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["tidy_house", "tidy_house_reachable"]
    monkeypatch.setattr(several, "benchmark_names", lambda: names)

    def load(*arguments: Any) -> list[Episode]:
        return [fake.make_episode(2, 1, id=name) for name in EPISODES]

    monkeypatch.setattr(datasets, "load", load)

    class FailingLater(Failing):
        def work(self, job: EpisodeJob) -> EpisodeResult:
            later = self.settings.scenario.name == names[1]
            return super().work(job) if later else Logged.work(self, job)

    def run(out: Path, factory: Any) -> None:
        chosen = config.load(
            AllSettings,
            config.parse([f"out={out}", "num_episodes=3", "processes=1", "analysis_episodes=0"]),
        )
        each = functools.partial(evaluate, factory=factory, keep_journal=True)
        several.evaluate_scenarios(chosen, quiet(), each)

    out, expected = tmp_path / "out", tmp_path / "expected"
    run(expected, Logged)
    assert ran(expected / names[0]) == [*EPISODES, *EPISODES]
    with pytest.raises(RunError):
        run(out, FailingLater)
    assert ran(out / names[0]) == [*EPISODES, *EPISODES[:2]]
    run(out, Logged)
    assert ran(out / names[0]) == ["test/2"]
    for part in names:
        assert outputs(out / part) == outputs(expected / part)
    for name in ("report.json", "report.html"):
        assert (out / name).read_bytes() == (expected / name).read_bytes()
    assert names_in(out) == names_in(expected)
    assert not [name for name in names_in(out) if ".running" in name]
    run(out, Logged)
    assert ran(out / names[0]) == [*EPISODES, *EPISODES]
