"""Intervals and tests for differences between paired outcomes, in clusters of episodes."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from eval.analysing.paired import paired_difference, pairs

_RESAMPLES = 2000
_FLIPS = 4000
_EXACT = 12  # clusters that count, up to which all sign patterns are gone through
_SEED = 40_000


class Interval(NamedTuple):
    """A mean with the ends of its 95 percent interval; all None where there is nothing."""

    mean: float | None
    low: float | None
    high: float | None


def clustered(clusters: Sequence[Sequence[tuple[bool, bool]]]) -> Interval:
    """The second rate minus the first one of pairs that come in clusters, with its interval.

    That of single pairs (`eval.analysing.paired`), widened where pairs of one cluster go together:
    by the root of the design effect (Kish, "Survey Sampling", 1965), the variance of the clusters'
    sums over that of single pairs.
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
