"""Intervals and tests for differences between paired outcomes that are clustered by episode."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from eval.analysing.paired import paired_difference, pairs

_RESAMPLES = 2000
_FLIPS = 4000
_EXACT = 12  # up to this number of clusters with a nonzero sum all sign patterns are tried
_SEED = 40_000


class Interval(NamedTuple):
    """A mean with the bounds of its 95 percent interval; all None without values."""

    mean: float | None
    low: float | None
    high: float | None


def clustered(clusters: Sequence[Sequence[tuple[bool, bool]]]) -> Interval:
    """Returns the second rate minus the first one of clustered pairs, with its interval.

    The interval of independent pairs (`eval.analysing.paired`) is widened if pairs in a cluster are
    correlated: by the root of the design effect (Kish, "Survey Sampling", 1965), the variance of
    the clusters' sums over that of independent pairs.
    """
    flat = [pair for cluster in clusters for pair in cluster]
    found = paired_difference(pairs([a for a, _ in flat], [b for _, b in flat]))
    if found.value is None or found.ci_low is None or found.ci_high is None:
        return Interval(None, None, None)
    mean = found.value
    sums = np.array([sum(int(b) - int(a) for a, b in c) - mean * len(c) for c in clusters])
    single = sum((int(b) - int(a) - mean) ** 2 for a, b in flat)
    effect = math.sqrt(max(1.0, float(np.sum(sums**2)) / single)) if single > 0.0 else 1.0
    low, high = (mean + effect * (end - mean) for end in (found.ci_low, found.ci_high))
    return Interval(mean, max(-1.0, low), min(1.0, high))


def sign_flip(differences: Sequence[Sequence[int]]) -> float:
    """Returns the two-sided p-value of the hypothesis that both members of a pair are equally good.

    Under the hypothesis every cluster's sum has either sign with the same probability (Fisher's
    randomisation test). The value is exact for few clusters with a nonzero sum, otherwise estimated
    with random signs from a fixed seed.
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
    """Returns which hypotheses are rejected, with a family-wise error rate of at most `level`.

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
    """Returns the mean of one value per episode, with a bootstrap interval over the episodes.

    The interval is the percentile interval of resampled episodes. If all values are equal, its
    half-width is 3 / n, the bound for an event that was never observed (Hanley and Lippman-Hand,
    JAMA 249, 1983).
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
