"""Plot of a training's progress."""

import math
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tpsrl.errors import one_line
from tpsrl.rl.envs.vec_env import Json
from tpsrl.runtime import figures, files

CURVE = "curve.png"
_EVERY_S = 60.0
_KEYS = ("steps", "success", "return", "validation")
_POINTS = 2_000  # maximum of a line; more cannot be distinguished


class Curve:
    """curve.png of a training, drawn as soon as it has data, then once a minute.

    Args:
        folder: folder of the training, whose name is the title
        rows: its records so far
    """

    def __init__(self, folder: Path, rows: Iterable[Json]) -> None:
        self._folder, self._drawn = folder, -math.inf
        self._points: list[Json] = []  # every `_every`-th record, and all with a validation
        self._every, self._rows = 1, 0
        self._failed = False
        for row in rows:
            self._keep(row)

    def add(self, row: Json, now: bool) -> None:
        """Adds a record; draws the curve with `now`, or a minute after the last drawing."""
        self._keep(row)
        is_time = time.monotonic() - self._drawn > _EVERY_S
        if (now or is_time) and any(_shows(point) for point in self._points):
            self._draw()
            self._drawn = time.monotonic()

    def _draw(self) -> None:
        """Draws all points; an error is reported once, and does not stop the training."""
        try:
            draw(self._folder / CURVE, self._points, self._folder.name)
        except Exception as error:
            if not self._failed:
                reason = one_line(f"{type(error).__name__}: {error}")
                print(f"cannot draw {self._folder / CURVE}: {reason}", file=sys.stderr, flush=True)
            self._failed = True

    def _keep(self, row: Json) -> None:
        """Adds the point of a record; if there are too many, drops every second one."""
        if self._points and self._points[-1]["row"] % self._every and not _held(self._points[-1]):
            self._points.pop()  # it was kept only as the newest point
        self._points.append({key: row.get(key) for key in _KEYS} | {"row": self._rows})
        self._rows += 1
        while len(self._points) - sum(map(_held, self._points)) > 2 * _POINTS:
            self._every *= 2
            self._points = [p for p in self._points if p["row"] % self._every == 0 or _held(p)]


def draw(path: Path, points: Sequence[Json], title: str = "") -> None:
    """Plots success and return over steps, in training (line) and validation (dots), as PNG.

    Args:
        path: path of the PNG file
        points: points of the training's records
        title: title of the figure
    """
    figure = figures.figure(figsize=(7.0, 6.0), layout="constrained", dpi=120)
    from matplotlib.ticker import EngFormatter, PercentFormatter

    success, returns = figure.subplots(2, 1, sharex=True)
    _plot(success, points, "success")
    _plot(returns, points, "return")
    success.set_ylim(-0.02, 1.02)
    success.yaxis.set_major_formatter(PercentFormatter(1.0))
    success.legend(loc="best", frameon=False)
    success.set_title(title)
    returns.set_xlim(0, 1.02 * max(row["steps"] for row in points))
    returns.set_xlabel("steps of experience")
    returns.xaxis.set_major_formatter(EngFormatter(sep=""))
    with files.atomic(path) as temporary:
        figure.savefig(temporary, format="png")


def _held(point: Json) -> bool:
    """Returns whether the record has a validation."""
    return point.get("validation") is not None


def _shows(point: Json) -> bool:
    """Returns whether the record has a value to plot."""
    return point["success"] is not None or _held(point)


def _plot(axes: Any, points: Sequence[Json], key: str) -> None:
    """Plots one quantity, in training and validation."""
    known = [(row["steps"], row[key]) for row in points if row[key] is not None]
    chosen = np.unique(np.linspace(0, len(known) - 1, min(len(known), _POINTS)).astype(int))
    line = np.array(known, float).reshape(-1, 2)[chosen]
    held = [(row["steps"], row["validation"][key]) for row in points if _held(row)]
    dots = np.array(held, float).reshape(-1, 2)
    label = "training, mean of the last episodes"
    # A line through a single point would be invisible.
    marker = "." if len(line) == 1 else ""
    axes.plot(*line.T, color="C0", linewidth=1.2, marker=marker, label=label)
    if len(dots):
        axes.plot(*dots.T, color="C1", marker="o", markersize=4, label="validation")
    axes.set_ylabel(key)
    axes.grid(alpha=0.3)
