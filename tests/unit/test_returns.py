import numpy as np
import pytest

from tpsrl.rl.learning.returns import explained_variance, gae, importance_weights


def textbook(reward, value, bootstrap, terminated, truncated, env, gamma, lam):
    """Computes GAE backwards through each environment separately, in plain Python."""
    advantage = [0.0] * len(env)
    for chosen in set(env):
        rows = [i for i in range(len(env)) if env[i] == chosen]
        for place in reversed(range(len(rows))):
            i = rows[place]
            last = place == len(rows) - 1
            if terminated[i]:
                following, later = 0.0, 0.0
            elif truncated[i] or last:
                following, later = float(bootstrap[i]), 0.0
            else:
                following, later = float(value[rows[place + 1]]), advantage[rows[place + 1]]
            delta = float(reward[i]) + gamma * following - float(value[i])
            advantage[i] = delta + gamma * lam * later
    return np.array(advantage), np.array(advantage) + value


def random_rows(seed: int, count: int, num_envs: int, end: float):
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.ones(num_envs))
    env = rng.choice(num_envs, size=count, p=shares)
    reward, value, bootstrap = rng.normal(size=(3, count)).astype(np.float32)
    terminated, truncated = rng.random((2, count)) < end
    return reward, value, bootstrap, terminated, truncated, env


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("gamma", "lam"), [(0.99, 0.95), (1.0, 1.0), (0.9, 0.0), (0.0, 0.7)])
def test_advantages_of_any_interleaving_equal_the_textbook_recursion(seed, gamma, lam):
    count, num_envs = [(1, 1), (2, 3), (7, 1), (64, 5), (300, 8)][seed % 5]
    rows = random_rows(seed, count, num_envs, end=[0.0, 0.05, 0.5, 1.0][seed % 4])
    for ours, theirs in zip(gae(*rows, gamma, lam), textbook(*rows, gamma, lam), strict=True):
        assert ours.dtype == np.float32
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=2e-5)


def test_a_long_episode_without_end_is_summed_exactly():
    rows = random_rows(0, 8192, 1, end=0.0)
    for ours, theirs in zip(gae(*rows, 1.0, 1.0), textbook(*rows, 1.0, 1.0), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-4)


def test_truncation_bootstraps_and_termination_does_not():
    def advantage(terminated: bool, truncated: bool) -> float:
        ends = np.array([terminated]), np.array([truncated])
        one = np.array([1.0], np.float32)
        return float(gae(one, 2 * one, 10 * one, *ends, np.array([0]), 0.5, 0.9)[0][0])

    assert advantage(terminated=False, truncated=True) == 1 + 0.5 * 10 - 2
    assert advantage(terminated=True, truncated=False) == 1 - 2
    assert advantage(terminated=True, truncated=True) == 1 - 2


def test_advantages_do_not_depend_on_the_episodes_after():
    reward, value, bootstrap, terminated, truncated, env = random_rows(1, 40, 1, end=0.0)
    truncated[19] = True
    before = gae(reward, value, bootstrap, terminated, truncated, env, 0.99, 0.95)[0]
    reward[20:] += 100.0
    value[20:] -= 7.0
    after = gae(reward, value, bootstrap, terminated, truncated, env, 0.99, 0.95)[0]
    np.testing.assert_array_equal(before[:20], after[:20])
    assert not np.isclose(before[20:], after[20:]).any()


def test_bootstrap_values_are_used_only_at_truncations_and_last_rows():
    rows = random_rows(2, 200, 4, end=0.1)
    bootstrap, terminated, truncated, env = rows[2:]
    last = [np.flatnonzero(env == e)[-1] for e in range(4)]
    cut = truncated.copy()
    cut[last] = True
    bootstrap[~cut | terminated] = np.nan
    assert np.isfinite(gae(*rows, 0.99, 0.95)[0]).all()


def test_importance_weights_equal_the_formula():
    env = np.random.default_rng(0).choice(5, size=300, p=[0.4, 0.3, 0.2, 0.1, 0.0])
    counts = [int((env == e).sum()) for e in range(5)]
    for maximum in (0.5, 1.0, 3.0):
        expected = [min(maximum, (300 / 5) / counts[e]) for e in env]
        weights = importance_weights(env, 300 / 5, maximum)
        assert weights.dtype == np.float32
        np.testing.assert_allclose(weights, expected, rtol=1e-6)
    # Of five environments, one reaches the maximum and one has no rows.
    assert len({*importance_weights(env, 300 / 5)}) == 4


def test_importance_weights_of_equal_shares_are_one():
    assert (importance_weights(np.tile(np.arange(4), 10), 10) == 1.0).all()


def test_importance_weights_can_be_off_or_renormalised():
    env = np.array([0] * 90 + [1] * 10)
    assert (importance_weights(env, 50, maximum=0.0) == 1.0).all()
    plain, scaled = importance_weights(env, 50), importance_weights(env, 50, renormalise=True)
    assert plain.mean() == pytest.approx(0.6)  # 90 rows of 5 / 9 and 10 of 1
    assert scaled.mean() == pytest.approx(1.0)
    np.testing.assert_allclose(scaled / plain, 1 / 0.6, rtol=1e-6)


def test_weights_of_no_rows_are_empty():
    assert importance_weights(np.array([], int), 0.0).shape == (0,)


def test_explained_variance_is_one_for_the_returns_and_zero_for_a_constant():
    returns = np.random.default_rng(0).normal(size=100).astype(np.float32)
    assert explained_variance(returns, returns) == 1.0
    assert explained_variance(np.full(100, 3.0), returns) == pytest.approx(0.0, abs=1e-6)
    assert explained_variance(-returns, returns) == pytest.approx(-3.0, abs=1e-6)
    assert explained_variance(returns, np.ones(100)) == 0.0
