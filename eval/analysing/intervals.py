"""Confidence intervals of success rates."""

import dataclasses
import math

from eval.analysing.bounds import Fraction

Z95 = 1.959963984540054  # the 0.975 quantile of the normal distribution


@dataclasses.dataclass(frozen=True, slots=True)
class Rate:
    """Share of successes with an interval; all fields are None without trials."""

    mean: Fraction | None
    ci_low: Fraction | None
    ci_high: Fraction | None


def wilson(successes: int, trials: int, z: float = Z95) -> Rate:
    """Returns a rate with Wilson's score interval, 95 percent by default.

    With p = k / n the interval is (p + z^2/2n -+ z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n) (Wilson
    1927). It stays inside [0, 1] and keeps its coverage near 0 and 1, where the normal interval
    collapses.

    Raises:
        ValueError: not 0 <= successes <= trials.
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"{successes} successes of {trials} trials")
    if trials == 0:
        return Rate(None, None, None)
    p, share = successes / trials, z * z / trials
    centre = (p + share / 2) / (1 + share)
    half = z / (1 + share) * math.sqrt(p * (1 - p) / trials + share / (4 * trials))
    # At 0 and 1 the bound is exact, which rounding would miss.
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == trials else centre + half
    return Rate(p, low, high)
