"""Two agents on the same episodes: difference of their success rates, with interval and test."""

import dataclasses
import math
from collections.abc import Sequence

from eval.analysing.intervals import Z95, wilson


@dataclasses.dataclass(frozen=True, slots=True)
class Pairs:
    """Number of episodes by which of two agents succeeded."""

    both: int
    only_first: int
    only_second: int
    neither: int

    @property
    def count(self) -> int:
        """Number of all episodes."""
        return self.both + self.only_first + self.only_second + self.neither


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """Difference of two rates with an interval; all fields are None without episodes."""

    value: float | None
    ci_low: float | None
    ci_high: float | None


def pairs(first: Sequence[bool], second: Sequence[bool]) -> Pairs:
    """Counts the outcomes of two agents, given in the same order of episodes.

    Raises:
        ValueError: the sequences differ in length.
    """
    outcomes = list(zip(first, second, strict=True))
    return Pairs(
        both=outcomes.count((True, True)),
        only_first=outcomes.count((True, False)),
        only_second=outcomes.count((False, True)),
        neither=outcomes.count((False, False)),
    )


def paired_difference(counts: Pairs, z: float = Z95) -> Difference:
    """Returns the second agent's rate minus the first one's, as rates on the same episodes.

    Method 10 of Newcombe, "Improved confidence intervals for the difference between binomial
    proportions based on paired data", Statistics in Medicine 17 (1998), 2635-2650: the distances
    from each rate to its Wilson bounds are combined as the sides of a triangle, whose angle is the
    correlation phi of the two outcomes. The interval stays inside [-1, 1], and does not collapse if
    the agents never differ.
    """
    return _squared_and_added(counts, _correlation(counts), z)


def unpaired_difference(counts: Pairs, z: float = Z95) -> Difference:
    """Returns the same difference for rates on different episodes, equally many for each agent.

    Method 10 of Newcombe, "Interval estimation for the difference between independent proportions:
    comparison of eleven methods", Statistics in Medicine 17 (1998), 873-890, which is that of
    `paired_difference` with phi = 0.
    """
    return _squared_and_added(counts, 0.0, z)


def mcnemar(counts: Pairs) -> float:
    """Returns the exact two-sided p-value of McNemar's test for equal success rates.

    Under the null hypothesis, each of the episodes in which exactly one agent succeeded is a
    success of either agent with probability 1/2 (McNemar, Psychometrika 12 (1947), 153-157). 1 if
    the agents never differ.
    """
    differ = counts.only_first + counts.only_second
    fewer = min(counts.only_first, counts.only_second)
    tail = sum(math.comb(differ, k) for k in range(fewer + 1))
    return min(1.0, 2 * tail / 2**differ)


def _correlation(counts: Pairs) -> float:
    """Returns phi of the two outcomes, with Newcombe's continuity correction if positive."""
    a, b, c, d = counts.both, counts.only_first, counts.only_second, counts.neither
    spread = (a + b) * (c + d) * (a + c) * (b + d)
    if spread == 0:
        return 0.0
    excess = float(a * d - b * c)
    if excess > 0:
        excess = max(excess - counts.count / 2, 0.0)
    return excess / math.sqrt(spread)


def _squared_and_added(counts: Pairs, phi: float, z: float) -> Difference:
    total = counts.count
    first = wilson(counts.both + counts.only_first, total, z)
    second = wilson(counts.both + counts.only_second, total, z)
    if first.mean is None or second.mean is None:
        return Difference(None, None, None)
    assert first.ci_low is not None and first.ci_high is not None
    assert second.ci_low is not None and second.ci_high is not None
    value = second.mean - first.mean
    below = _third_side(second.mean - second.ci_low, first.ci_high - first.mean, phi)
    above = _third_side(second.ci_high - second.mean, first.mean - first.ci_low, phi)
    return Difference(value, value - below, value + above)


def _third_side(one: float, other: float, cosine: float) -> float:
    # Rounding can make a square of zero slightly negative.
    return math.sqrt(max(one * one - 2 * cosine * one * other + other * other, 0.0))
