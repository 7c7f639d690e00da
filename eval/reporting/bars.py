"""Charts of horizontal bars: a label, a picture and a value a row, which wrap on a phone.

Places in the pictures are percentages of their width, so that text keeps its size on every screen.
"""

import dataclasses
from collections.abc import Sequence

from eval.reporting.markup import Markup, fill, join

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


def chart(axis: Axis, rows: Sequence[Markup], kind: str = "bars", signed: bool = False) -> Markup:
    """A list of rows made by `row`, under a scale; `kind` are classes of the page.

    The scale is in percent, or `signed`, in percentage points.
    """
    # The outer ones stay inside, for on a phone there is no room beside.
    anchors = ["start", *["middle"] * (len(axis.ticks) - 2), "end"]
    marks = join(
        fill(
            '<text class="soft" x="{}" y="14" text-anchor="{}">{}</text>',
            axis.at(tick),
            anchor,
            _tick(tick, signed),
        )
        for tick, anchor in zip(axis.ticks, anchors, strict=True)
    )
    scale = fill(
        '<li class="scale" aria-hidden="true"><span></span><svg>{}</svg><span></span></li>', marks
    )
    return fill('<ul class="{}">{}{}</ul>', kind, scale, join(rows))


def _tick(value: float, signed: bool) -> str:
    if signed:
        return "0" if value == 0 else f"{100 * value:+.0f}".replace("-", "\N{MINUS SIGN}")
    return f"{100 * value:.0f}%"


def row(axis: Axis, label: str, picture: Markup, value: Markup) -> Markup:
    """One row. Readers of the screen get label and value."""
    lines = join(
        fill('<line class="grid" x1="{0}" x2="{0}" y1="0" y2="100%"/>', axis.at(tick))
        for tick in axis.ticks
    )
    return fill(
        '<li><span class="label">{}</span><svg aria-hidden="true">{}{}</svg>'
        '<span class="value">{}</span></li>',
        label,
        lines,
        picture,
        value,
    )


def bar(axis: Axis, start: float, end: float, kind: str) -> Markup:
    """A bar from one value to another, in the style of a class of the page."""
    x, width = axis.span(start, end)
    shape = '<rect class="{}" x="{}" width="{}" y="4" height="{}" rx="2"/>'
    return fill(shape, kind, x, width, _HEIGHT - 8)


def point(axis: Axis, value: float, low: float | None = None, high: float | None = None) -> Markup:
    """A point with the line of its interval."""
    dot = fill('<circle class="dot" cx="{}" cy="{}" r="4.5"/>', axis.at(value), _MIDDLE)
    if low is None or high is None:
        return dot
    line = '<line class="whisker" x1="{0}" x2="{1}" y1="{2}" y2="{2}"/>'
    return join((fill(line, axis.at(low), axis.at(high), _MIDDLE), dot))


def around(values: Sequence[float]) -> Axis:
    """An axis that takes in all values, with a few lines at round shares."""
    widest = max(values) - min(values)
    # Shares and what is lost of them lie closer together; whatever else has few lines too.
    step = next((step for step in _STEPS if widest <= 4 * step), max(_STEPS[-1], widest / 10))
    low = int(min(values) // step)
    high = int(-(-max(values) // step))
    high = max(high, low + 1)
    return Axis(low * step, high * step, tuple(n * step for n in range(low, high + 1)))
