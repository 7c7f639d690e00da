"""Progress output of commands."""

import io
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from tpsrl import cli
from tpsrl.runtime import progress
from tpsrl.sim import datasets
from tpsrl.world.scenarios import load_scenario


def piped() -> Console:
    return Console(file=io.StringIO(), width=40)


def lines(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def ticks(step_s: float) -> Iterator[float]:
    now = 0.0
    while True:
        yield now
        now += step_s


def test_without_a_terminal_a_bar_prints_a_line_at_first_and_then_at_intervals() -> None:
    console = piped()
    clock = ticks(progress.EVERY_S / 4).__next__
    with progress.Bar(console, "Tidy House [0]", 100, clock) as bar:
        for done in range(9):
            bar.update(done, f"{done} succeeded" if done else "")
    assert lines(console) == [
        "Tidy House [0]: 0 of 100",
        "Tidy House [0]: 4 of 100, 4 succeeded",
        "Tidy House [0]: 8 of 100, 8 succeeded",
    ]


def test_a_terminal_shows_a_bar_and_no_lines() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    with progress.Bar(console, "Tidy House", 2) as bar:
        bar.update(1, "1 succeeded")
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "1/2" in shown and "1 succeeded" in shown and "1 of 2" not in shown


def test_lines_are_limited_to_one_per_interval() -> None:
    printed: list[str] = []
    lines = progress.Lines(printed.append, ticks(progress.EVERY_S / 2).__next__)
    for gone in (64, 128, 192, 256):
        lines.add(f"learning: {gone} of 256 frames")
    assert printed == ["learning: 64 of 256 frames", "learning: 192 of 256 frames"]


def test_phases_are_limited_to_one_line_per_interval() -> None:
    console = piped()
    with progress.phases(console, "measuring", ticks(progress.EVERY_S / 2).__next__) as tell:
        for part in ("a", "b", "c", "d"):
            tell(part)
    assert lines(console) == ["measuring", "measuring: b", "measuring: d"]


def test_generated_episodes_are_announced_and_cached_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPSRL_CACHE", str(tmp_path))
    for expected in (["generating 1 episodes of tidy_house, split val: 0 of 1"], []):
        console = piped()
        with datasets.shown(console):
            datasets.load(load_scenario("tidy_house"), "val", 1, num_objects=12, processes=1)
        assert lines(console)[:1] == expected


def test_a_command_in_a_pipe_prints_plain_lines_of_progress(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "episodes.jsonl.gz"
    assert cli.main(["episodes", "tidy_house", "num=1", "num_objects=12", f"out={out}"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[:2] == ["generating 1 episodes of Tidy House", "episodes: 0 of 1"]
    assert "\r" not in printed and "\x1b" not in printed


def test_long_work_is_announced_and_short_work_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    announced = threading.Event()

    def listen(text: str) -> None:
        print(text)
        announced.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "say", listen)
        with progress.if_long("searching", after_s=0.01):
            assert announced.wait(30)
        with progress.if_long("hardly anything", after_s=3600):
            pass
    assert capsys.readouterr().out == "searching\n"
