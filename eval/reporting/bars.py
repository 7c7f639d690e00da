"""Axes of charts of horizontal bars.

Places are percentages of the width, so that text keeps its size on every screen.
"""

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class Axis:
    """What the left and the right edge stand for, and where lines are drawn between."""

    low: float
    high: float
    ticks: tuple[float, ...]
    signed: bool = False  # the scale is in percentage points, else in percent

    def at(self, value: float) -> str:
        """Where a value lies."""
        share = (value - self.low) / (self.high - self.low)
        return f"{100 * min(max(share, 0.0), 1.0):.2f}%"

    def span(self, start: float, end: float) -> tuple[str, str]:
        """Where what reaches from one value to another begins, and how wide it is."""
        low, high = sorted((start, end))
        width = (high - low) / (self.high - self.low)
        return self.at(low), f"{100 * min(width, 1.0):.2f}%"

    def labels(self) -> list[tuple[str, str, str]]:
        """Where each line is, how its label is anchored there, and the label.

        The outer ones stay inside, for on a phone there is no room beside.
        """
        anchors = ["start", *["middle"] * (len(self.ticks) - 2), "end"]
        pairs = zip(self.ticks, anchors, strict=True)
        return [(self.at(tick), anchor, self._label(tick)) for tick, anchor in pairs]

    def _label(self, value: float) -> str:
        if self.signed:
            return "0" if value == 0 else f"{100 * value:+.0f}".replace("-", "\N{MINUS SIGN}")
        return f"{100 * value:.0f}%"


_STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)

SHARES = Axis(0.0, 1.0, (0.0, 0.25, 0.5, 0.75, 1.0))


def around(values: Sequence[float], signed: bool = False) -> Axis:
    """An axis that takes in all values, with a few lines at round shares."""
    widest = max(values) - min(values)
    # Shares and what is lost of them lie closer together; whatever else has few lines too.
    step = next((step for step in _STEPS if widest <= 4 * step), max(_STEPS[-1], widest / 10))
    low = int(min(values) // step)
    high = int(-(-max(values) // step))
    high = max(high, low + 1)
    return Axis(low * step, high * step, tuple(n * step for n in range(low, high + 1)), signed)
