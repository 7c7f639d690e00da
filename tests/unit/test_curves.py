"""Progress of a running training: curve.png and the lines on the terminal."""

import io
import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from rich.console import Console
from toy_training import trainer

from tpsrl.rl.run import curves, watch
from tpsrl.rl.run.curves import CURVE, Curve
from tpsrl.rl.run.watch import Watch
from tpsrl.sim import datasets

Row = dict[str, Any]


class Clock:
    """Replacement for a module's `time`, whose clock advances only when a test sets `now`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(curves, "time", found)
    monkeypatch.setattr(watch, "time", found)
    return found


def record(update: int, success: float | None = 0.5) -> Row:
    known = {"success": success, "return": None if success is None else 2.0}
    return {"update": update, "steps": 10 * update, "samples_per_s": 3.0, **known}


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of points of the curves drawn so far."""
    counts: list[int] = []
    monkeypatch.setattr(curves, "draw", lambda path, points, title: counts.append(len(points)))
    return counts


def test_the_curve_is_drawn_at_the_first_episode_then_once_a_minute(
    tmp_path: Path, clock: Clock, drawn: list[int]
) -> None:
    curve = Curve(tmp_path, [])
    for update in range(1, 10):
        curve.add(record(update, None if update < 3 else 0.5), now=False)
        clock.now += 25.0
    assert drawn == [3, 6, 9]


def test_a_curve_is_drawn_on_request_unless_it_would_be_empty(
    tmp_path: Path, clock: Clock, drawn: list[int]
) -> None:
    curve = Curve(tmp_path, [record(1, None)])
    curve.add(record(2, None), now=True)
    assert drawn == []
    held = {"validation": {"success": 0.0, "return": -1.0}}
    curve.add(record(3, None) | held, now=True)
    curve.add(record(4), now=True)
    assert drawn == [3, 4]


def test_an_error_in_drawing_is_printed_once_and_does_not_stop_the_training(
    tmp_path: Path,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("no font")

    monkeypatch.setattr(curves, "draw", refuse)
    curve = Curve(tmp_path, [])
    for update in range(1, 4):
        curve.add(record(update), now=True)
    printed = capsys.readouterr().err
    assert printed == f"cannot draw {tmp_path / CURVE}: RuntimeError: no font\n"


@pytest.mark.slow
def test_a_matplotlib_backend_that_is_not_installed_does_not_prevent_drawing(
    tmp_path: Path,
) -> None:
    code = (
        "import os, pathlib, sys; from tpsrl.rl.run import curves; "
        "row = {'steps': 1, 'success': 0.5, 'return': 1.0}; "
        "curves.draw(pathlib.Path(sys.argv[1]), [row]); print(os.environ['MPLBACKEND'])"
    )
    backend = "module://a_notebook.backend"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / CURVE)],
        env=os.environ | {"MPLBACKEND": backend},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout.strip()) == (0, backend), done.stderr
    assert (tmp_path / CURVE).is_file()


def test_the_curve_shows_success_and_return_of_training_and_validation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure

    made: list[Figure] = []
    save = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda self, *a, **k: (made.append(self), save(self, *a, **k))
    )
    rows = [record(1, None), *(record(update, update / 10_000) for update in range(2, 5_000))]
    rows[3] |= {"validation": {"success": 0.9, "return": 7.0}}
    curves.draw(tmp_path / CURVE, rows, "pick")
    with Image.open(tmp_path / CURVE) as image:
        assert image.format == "PNG" and min(image.size) > 500
    for axes, key, value in zip(made[0].axes, ("success", "return"), (0.9, 7.0), strict=True):
        assert axes.get_ylabel() == key
        line, dots = axes.get_lines()
        steps = line.get_xdata()
        assert (steps[0], steps[-1], len(steps)) == (20, 49_990, 2_000)
        assert (dots.get_xdata(), dots.get_ydata()) == ([40], [value])


def test_a_long_curve_is_thinned_and_keeps_the_newest_point_and_all_validations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    shown: list[list[Row]] = []
    monkeypatch.setattr(curves, "draw", lambda path, points, title: shown.append(points[:]))
    held = {"validation": {"success": 0.9, "return": 7.0}}
    monkeypatch.setattr(curves, "_POINTS", 100)
    rows = [record(u) | (held if u % 1000 == 7 else {}) for u in range(1, 1_501)]
    curve = Curve(tmp_path, iter(rows[:1_000]))
    for row in rows[1_000:]:
        curve.add(row, now=row["update"] in (1_499, 1_500))
    for points, last in zip(shown[-2:], (14_990, 15_000), strict=True):
        steps = [point["steps"] for point in points]
        assert steps == sorted(set(steps)) and steps[-1] == last
        assert 100 < len(points) < 204
        kept = [s for s in steps[:-1] if s % 10_000 != 70]
        assert {b - a for a, b in itertools.pairwise(kept)} == {80}
        assert sum(point["validation"] is not None for point in points) == 2


@pytest.mark.slow
def test_a_training_without_validation_has_a_curve(tmp_path: Path) -> None:
    one = trainer(tmp_path)
    one.train()
    one.close()
    assert (tmp_path / CURVE).stat().st_size > 0


def test_preparation_and_training_print_their_progress_at_intervals(clock: Clock) -> None:
    console = Console(file=io.StringIO(), width=200)
    shown = Watch("pick", 100, console)
    for done in range(9):
        shown.prepare("making 8 episodes", done, 8)
        clock.now += 4.0
    for update in (1, 2):
        shown.update(record(update, 0.25))
    clock.now += 61.0
    shown.update(record(3))
    assert console.file.getvalue().splitlines() == [  # type: ignore[attr-defined]
        "making 8 episodes",
        "3 of 8 done",
        "6 of 8 done",
        "8 of 8 done",
        "10 steps: success 25%, return 2.00, 3/s",
        "30 steps: success 50%, return 2.00, 3/s",
    ]


def test_progress_of_episode_generation_is_reported_to_a_callback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPSRL_CACHE", str(tmp_path))
    reported: list[tuple[str, int, int]] = []
    with datasets.telling(lambda *words: reported.append(words)):
        datasets.load("tidy_house", "val", 2, seed=3, num_objects=5, processes=1)
        datasets.load("tidy_house", "val", 2, seed=3, num_objects=5, processes=1)
    datasets.load("tidy_house", "val", 3, seed=3, num_objects=5, processes=1)
    what = "generating 2 episodes of tidy_house, split val"
    assert reported == [(what, done, 2) for done in range(3)]
