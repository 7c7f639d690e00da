"""Axes of horizontal bar charts.

Positions are percentages of the width, so that text keeps its size on every screen.
"""

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class Axis:
    """Values at the left and right edge, and the grid lines between them."""

    low: float
    high: float
    ticks: tuple[float, ...]
    signed: bool = False  # labels in percentage points instead of percent

    def at(self, value: float) -> str:
        """Returns the position of a value."""
        share = (value - self.low) / (self.high - self.low)
        return f"{100 * min(max(share, 0.0), 1.0):.2f}%"

    def span(self, start: float, end: float) -> tuple[str, str]:
        """Returns position and width of a bar between two values."""
        low, high = sorted((start, end))
        width = (high - low) / (self.high - self.low)
        return self.at(low), f"{100 * min(width, 1.0):.2f}%"

    def labels(self) -> list[tuple[str, str, str]]:
        """Returns position, text anchor and text of each grid line's label.

        The outer labels are anchored inside the chart, because phones have no space beside it.
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
    """Returns an axis that contains all values, with a few grid lines at round shares."""
    widest = max(values) - min(values)
    # The steps suit shares and their differences; wider ranges get about ten steps.
    step = next((step for step in _STEPS if widest <= 4 * step), max(_STEPS[-1], widest / 10))
    low = int(min(values) // step)
    high = int(-(-max(values) // step))
    high = max(high, low + 1)
    return Axis(low * step, high * step, tuple(n * step for n in range(low, high + 1)), signed)
