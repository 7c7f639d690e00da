"""Charts of horizontal bars: a label, a picture and a value a row, which wrap on a phone.

Places in the pictures are percentages of their width, so that text keeps its size on every screen.
"""

import dataclasses
from collections.abc import Sequence
from html import escape

_HEIGHT, _MIDDLE = 22, 11  # pixels of a row's picture


@dataclasses.dataclass(frozen=True, slots=True)
class Axis:
    """What the left and the right edge stand for, and where lines are drawn between."""

    low: float
    high: float
    ticks: tuple[float, ...]

    def at(self, value: float) -> str:
        """Where a value lies."""
        share = (value - self.low) / (self.high - self.low)
        return f"{100 * min(max(share, 0.0), 1.0):.2f}%"

    def span(self, start: float, end: float) -> tuple[str, str]:
        """Where what reaches from one value to another begins, and how wide it is."""
        low, high = sorted((start, end))
        width = (high - low) / (self.high - self.low)
        return self.at(low), f"{100 * min(width, 1.0):.2f}%"


_STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)

SHARES = Axis(0.0, 1.0, (0.0, 0.25, 0.5, 0.75, 1.0))


def chart(axis: Axis, rows: Sequence[str], kind: str = "bars", signed: bool = False) -> str:
    """A list of rows made by `row`, under a scale; `kind` are classes of the page.

    The scale is in percent, or `signed`, in percentage points.
    """
    # The outer ones stay inside, for on a phone there is no room beside.
    anchors = ["start", *["middle"] * (len(axis.ticks) - 2), "end"]
    marks = "".join(
        f'<text class="soft" x="{axis.at(tick)}" y="14" text-anchor="{anchor}">'
        f"{_tick(tick, signed)}</text>"
        for tick, anchor in zip(axis.ticks, anchors, strict=True)
    )
    scale = (
        f'<li class="scale" aria-hidden="true"><span></span><svg>{marks}</svg><span></span></li>'
    )
    return f'<ul class="{kind}">{scale}{"".join(rows)}</ul>'


def _tick(value: float, signed: bool) -> str:
    if signed:
        return "0" if value == 0 else f"{100 * value:+.0f}".replace("-", "\N{MINUS SIGN}")
    return f"{100 * value:.0f}%"


def row(axis: Axis, label: str, picture: str, value: str) -> str:
    """One row; `picture` and `value` are HTML. Readers of the screen get label and value."""
    lines = "".join(
        f'<line class="grid" x1="{axis.at(tick)}" x2="{axis.at(tick)}" y1="0" y2="100%"/>'
        for tick in axis.ticks
    )
    return (
        f'<li><span class="label">{escape(label)}</span>'
        f'<svg aria-hidden="true">{lines}{picture}</svg>'
        f'<span class="value">{value}</span></li>'
    )


def bar(axis: Axis, start: float, end: float, kind: str) -> str:
    """A bar from one value to another, in the style of a class of the page."""
    x, width = axis.span(start, end)
    return f'<rect class="{kind}" x="{x}" width="{width}" y="4" height="{_HEIGHT - 8}" rx="2"/>'


def point(axis: Axis, value: float, low: float | None = None, high: float | None = None) -> str:
    """A point with the line of its interval."""
    whisker = ""
    if low is not None and high is not None:
        whisker = (
            f'<line class="whisker" x1="{axis.at(low)}" x2="{axis.at(high)}"'
            f' y1="{_MIDDLE}" y2="{_MIDDLE}"/>'
        )
    return f'{whisker}<circle class="dot" cx="{axis.at(value)}" cy="{_MIDDLE}" r="4.5"/>'


def around(values: Sequence[float]) -> Axis:
    """An axis that takes in all values, with a few lines at round shares."""
    widest = max(values) - min(values)
    step = next((step for step in _STEPS if widest <= 4 * step), _STEPS[-1])
    low = int(min(values) // step)
    high = int(-(-max(values) // step))
    high = max(high, low + 1)
    return Axis(low * step, high * step, tuple(n * step for n in range(low, high + 1)))
