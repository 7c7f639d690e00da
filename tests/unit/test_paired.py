import math
import random

import pytest
from scipy.optimize import brentq
from scipy.stats import binomtest

from eval.analysing.intervals import Z95
from eval.analysing.paired import (
    Difference,
    Pairs,
    mcnemar,
    paired_difference,
    pairs,
    unpaired_difference,
)


def ends(difference: Difference) -> tuple[float, float]:
    assert difference.ci_low is not None and difference.ci_high is not None
    return difference.ci_low, difference.ci_high


def score_bound(counts: Pairs, low: float, high: float) -> float:
    """Returns the bound between `low` and `high` at which Tango's score is 1.96.

    Source: Statistics in Medicine 17 (1998), 891-908.
    """
    b, c, n = counts.only_second, counts.only_first, counts.count

    def excess(delta: float) -> float:
        linear = -b - c + (2 * n - b + c) * delta
        root = math.sqrt(linear**2 + 8 * n * c * delta * (1 - delta))
        q = (root - linear) / (4 * n)
        variance = n * (2 * q + delta * (1 - delta))
        return abs(b - c - n * delta) / math.sqrt(variance) - Z95

    return float(brentq(excess, low, high))


def test_outcomes_are_counted_by_which_agent_succeeded() -> None:
    first = [True, True, False, False, True]
    second = [True, False, True, False, True]
    assert pairs(first, second) == Pairs(both=2, only_first=1, only_second=1, neither=1)
    with pytest.raises(ValueError, match=r"longer|shorter"):
        pairs([True], [])


def test_the_interval_equals_one_computed_by_hand() -> None:
    # a = 36 episodes with success of both agents, b = 2 of the first only, c = 12 of the second
    # only, d = 0 of neither. 38 and 48 of 50 have the Wilson intervals 0.6259 to 0.8570 and 0.8654
    # to 0.9890; a d - b c = -24, so phi = -24 / sqrt(38 * 12 * 48 * 2) = -0.1147.
    # below^2 = 0.0946^2 + 2 * 0.1147 * 0.0946 * 0.0970 + 0.0970^2, and above^2 has the same form
    # with 0.0290 and 0.1341.
    difference = paired_difference(Pairs(36, 2, 12, 0))
    assert difference.value == pytest.approx(0.20)
    assert ends(difference) == pytest.approx((0.0569, 0.3404), abs=5e-5)


def test_a_positive_correlation_is_corrected_for_continuity() -> None:
    # phi = (40 * 40 - 10 * 10 - 50) / 50^2 = 0.58; both rates are 1/2 and their bounds 0.0962 away.
    low, high = ends(paired_difference(Pairs(40, 10, 10, 40)))
    assert high == pytest.approx(0.0962 * math.sqrt(2 - 2 * 0.58), abs=2e-4)
    assert low == pytest.approx(-high)


@pytest.mark.parametrize("counts", [Pairs(60, 5, 20, 15), Pairs(150, 10, 22, 18)])
def test_the_interval_is_close_to_tangos_score_interval(counts: Pairs) -> None:
    difference = paired_difference(counts)
    assert difference.value is not None
    low, high = ends(difference)
    assert low == pytest.approx(score_bound(counts, -0.5, difference.value - 1e-9), abs=0.012)
    assert high == pytest.approx(score_bound(counts, difference.value + 1e-9, 0.5), abs=0.012)


def test_the_paired_interval_is_narrower_when_outcomes_are_correlated() -> None:
    draw = random.Random(0)
    for _ in range(100):
        hard = [draw.random() for _ in range(200)]
        first = [draw.random() * 0.3 + 0.7 * 0.5 > h * 0.9 for h in hard]
        second = [draw.random() * 0.3 + 0.7 * 0.6 > h * 0.9 for h in hard]
        counts = pairs(first, second)
        (low, high), (wide_low, wide_high) = map(
            ends, (paired_difference(counts), unpaired_difference(counts))
        )
        assert wide_low < low < high < wide_high


def test_without_correlation_paired_and_unpaired_intervals_are_equal() -> None:
    counts = Pairs(25, 25, 25, 25)
    assert paired_difference(counts) == unpaired_difference(counts)


def test_the_unpaired_interval_adds_the_squares_of_both_distances() -> None:
    # 6 and 7 of 10 have the Wilson intervals 0.3127 to 0.8318 and 0.3968 to 0.8922.
    low, high = ends(unpaired_difference(Pairs(5, 1, 2, 2)))
    assert low == pytest.approx(0.1 - math.hypot(0.7 - 0.3968, 0.8318 - 0.6), abs=1e-4)
    assert high == pytest.approx(0.1 + math.hypot(0.8922 - 0.7, 0.6 - 0.3127), abs=1e-4)


def test_swapping_the_agents_mirrors_the_interval() -> None:
    low, high = ends(paired_difference(Pairs(60, 5, 20, 15)))
    assert ends(paired_difference(Pairs(60, 20, 5, 15))) == pytest.approx((-high, -low))


def test_without_episodes_there_is_no_difference() -> None:
    nothing = Pairs(0, 0, 0, 0)
    assert paired_difference(nothing) == Difference(None, None, None)
    assert mcnemar(nothing) == 1.0


@pytest.mark.parametrize("counts", [Pairs(20, 0, 0, 0), Pairs(0, 0, 0, 20), Pairs(10, 0, 0, 10)])
def test_agents_with_equal_outcomes_differ_by_zero_with_an_interval_around_it(
    counts: Pairs,
) -> None:
    difference = paired_difference(counts)
    low, high = ends(difference)
    assert difference.value == 0.0 and -1.0 <= low < 0.0 < high <= 1.0
    assert mcnemar(counts) == 1.0


@pytest.mark.parametrize("counts", [Pairs(0, 9, 0, 0), Pairs(0, 0, 9, 0), Pairs(0, 1, 0, 0)])
def test_the_interval_stays_between_minus_one_and_one(counts: Pairs) -> None:
    low, high = ends(paired_difference(counts))
    assert -1.0 <= low <= high <= 1.0


@pytest.mark.parametrize(("first", "second"), [(0, 0), (5, 0), (2, 12), (7, 7), (30, 41)])
def test_mcnemar_is_the_binomial_test_of_the_episodes_that_differ(first: int, second: int) -> None:
    counts = Pairs(3, first, second, 4)
    differ = first + second
    expected = binomtest(first, differ, 0.5).pvalue if differ else 1.0
    assert mcnemar(counts) == pytest.approx(expected, rel=1e-9)


def test_mcnemar_of_one_against_six_equals_the_value_by_hand() -> None:
    # 2 * (1 + 7) / 2^7
    assert mcnemar(Pairs(10, 1, 6, 10)) == 0.125


@pytest.mark.slow
def test_mcnemar_accepts_thousands_of_differing_episodes() -> None:
    assert mcnemar(Pairs(0, 2000, 2000, 0)) == 1.0
    assert 0.0 <= mcnemar(Pairs(0, 100, 2000, 0)) < 1e-100
