import pytest
from scipy.optimize import brentq
from scipy.stats import binomtest, norm

from eval.analysing.intervals import Z95, Rate, wilson


def test_z95_is_the_97_5_percent_quantile_of_the_normal_distribution() -> None:
    assert pytest.approx(norm.ppf(0.975), abs=1e-15) == Z95


def test_wilson_of_81_in_263_is_the_published_example() -> None:
    # Newcombe, Statistics in Medicine 17 (1998), Table I: 0.2553 to 0.3662.
    rate = wilson(81, 263)
    assert rate.mean == pytest.approx(81 / 263)
    assert rate.ci_low == pytest.approx(0.2553, abs=5e-5)
    assert rate.ci_high == pytest.approx(0.3662, abs=5e-5)


@pytest.mark.parametrize("trials", [1, 2, 7, 20, 200])
def test_wilson_agrees_with_scipy_for_every_count(trials: int) -> None:
    for successes in range(trials + 1):
        rate = wilson(successes, trials)
        reference = binomtest(successes, trials).proportion_ci(method="wilson")
        assert rate.ci_low == pytest.approx(reference.low, abs=1e-12)
        assert rate.ci_high == pytest.approx(reference.high, abs=1e-12)


def test_wilson_bound_is_where_the_score_test_just_rejects() -> None:
    successes, trials = 13, 40
    mean = successes / trials

    def score(p: float) -> float:
        return abs(mean - p) / (p * (1 - p) / trials) ** 0.5 - Z95

    rate = wilson(successes, trials)
    assert rate.ci_low == pytest.approx(brentq(score, 1e-9, mean - 1e-9), abs=1e-9)
    assert rate.ci_high == pytest.approx(brentq(score, mean + 1e-9, 1 - 1e-9), abs=1e-9)


def test_wilson_interval_ends_exactly_at_zero_and_one() -> None:
    assert wilson(0, 9).ci_low == 0.0
    assert wilson(9, 9).ci_high == 1.0


def test_rate_of_no_trials_is_unknown_rather_than_zero() -> None:
    assert wilson(0, 0) == Rate(None, None, None)


@pytest.mark.parametrize(("successes", "trials"), [(3, 2), (-1, 2)])
def test_wilson_refuses_impossible_counts(successes: int, trials: int) -> None:
    with pytest.raises(ValueError, match="successes"):
        wilson(successes, trials)
