"""Intervals and tests for differences between paired outcomes, in clusters of episodes."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from eval.analysing.intervals import wilson

_RESAMPLES = 2000
_FLIPS = 4000
_EXACT = 12  # clusters that count, up to which all sign patterns are gone through
_SEED = 40_000


class Interval(NamedTuple):
    """A mean with the ends of its 95 percent interval; all None where there is nothing."""

    mean: float | None
    low: float | None
    high: float | None


def newcombe(both: int, first: int, second: int, neither: int) -> Interval:
    """The difference of two paired proportions, first minus second, with its interval.

    The counts are of pairs in which both succeeded, only the first, only the second, neither.
    Newcombe, "Improved confidence intervals for the difference between binomial proportions based
    on paired data" (Statistics in Medicine 17, 1998), method 10: Wilson's intervals of both,
    joined with the correlation of the pairs.
    """
    count = both + first + second + neither
    if count == 0:
        return Interval(None, None, None)
    one, other = wilson(both + first, count), wilson(both + second, count)
    p1, p2 = (both + first) / count, (both + second) / count
    assert one.ci_low is not None and one.ci_high is not None
    assert other.ci_low is not None and other.ci_high is not None
    margins = (both + first) * (second + neither) * (both + second) * (first + neither)
    product = both * neither - first * second
    if product > 0:  # with his correction for continuity
        product = max(product - count / 2, 0)
    phi = product / math.sqrt(margins) if margins else 0.0
    down1, up1, down2, up2 = (
        p1 - one.ci_low,
        one.ci_high - p1,
        p2 - other.ci_low,
        other.ci_high - p2,
    )
    low = math.sqrt(max(0.0, down1**2 - 2 * phi * down1 * up2 + up2**2))
    high = math.sqrt(max(0.0, up1**2 - 2 * phi * up1 * down2 + down2**2))
    return Interval(p1 - p2, max(-1.0, p1 - p2 - low), min(1.0, p1 - p2 + high))


def clustered(differences: Sequence[Sequence[int]]) -> Interval:
    """The mean of differences (-1, 0, 1) of pairs that come in clusters, with its interval.

    Newcombe's for single pairs, from the counts of +1, -1 and 0 (these taken as half both, half
    neither), widened where pairs of one cluster go together: by the root of the design effect
    (Kish, "Survey Sampling", 1965), the variance of the clusters' sums over that of single pairs.
    """
    flat = [value for cluster in differences for value in cluster]
    if not flat:
        return Interval(None, None, None)
    plus, minus = flat.count(1), flat.count(-1)
    rest = len(flat) - plus - minus
    mean, low, high = newcombe(rest - rest // 2, plus, minus, rest // 2)
    assert mean is not None and low is not None and high is not None
    residuals = np.array([sum(c) - mean * len(c) for c in differences if c])
    single = float(np.sum((np.array(flat) - mean) ** 2))
    effect = math.sqrt(max(1.0, float(np.sum(residuals**2)) / single)) if single > 0.0 else 1.0
    return Interval(
        mean, max(-1.0, mean + effect * (low - mean)), min(1.0, mean + effect * (high - mean))
    )


def sign_flip(differences: Sequence[Sequence[int]]) -> float:
    """Two-sided p-value of "the two members of a pair are as good", pairs in clusters.

    Under it every cluster's sum is as likely with the other sign (Fisher's randomisation test).
    Exact for few clusters that count, else by random signs, the same in every call.
    """
    sums = np.array([total for total in (sum(cluster) for cluster in differences) if total])
    if not len(sums):
        return 1.0
    seen = abs(int(sums.sum()))
    if len(sums) <= _EXACT:
        bits = (np.arange(2 ** len(sums))[:, None] >> np.arange(len(sums))) & 1
        return float(np.mean(np.abs((2 * bits - 1) @ sums) >= seen))
    rng = np.random.default_rng(_SEED)
    signs = rng.choice(np.array([-1, 1]), size=(_FLIPS, len(sums)))
    return float((1 + np.count_nonzero(np.abs(signs @ sums) >= seen)) / (1 + _FLIPS))


def holm(p_values: Sequence[float], level: float = 0.05) -> list[bool]:
    """Which hypotheses are rejected, the chance of any error among all at most `level`.

    Holm, "A simple sequentially rejective multiple test procedure" (Scandinavian Journal of
    Statistics 6, 1979).
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    rejected = [False] * len(p_values)
    for rank, index in enumerate(order):
        if p_values[index] > level / (len(p_values) - rank):
            break
        rejected[index] = True
    return rejected


def bootstrap(values: Sequence[float]) -> Interval:
    """The mean of one value an episode, with its percentile interval over resampled episodes.

    Where no episode differs from another the interval is as wide as a rate allows of which nothing
    was seen (3 / n; Hanley and Lippman-Hand, JAMA 249, 1983).
    """
    if not len(values):
        return Interval(None, None, None)
    array = np.asarray(values, dtype=float)
    mean = float(array.mean())
    if np.all(array == array[0]):
        wide = min(1.0, 3.0 / len(array))
        return Interval(mean, max(-1.0, mean - wide), min(1.0, mean + wide))
    rng = np.random.default_rng(_SEED)
    rows = rng.integers(len(array), size=(_RESAMPLES, len(array)))
    low, high = np.quantile(array[rows].mean(axis=1), [0.025, 0.975])
    return Interval(mean, float(low), float(high))
