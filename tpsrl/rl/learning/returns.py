"""Advantages and returns of interleaved environments, and importance weights of rows."""

import numpy as np


def gae(
    reward: np.ndarray,
    value: np.ndarray,
    bootstrap: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    env: np.ndarray,
    gamma: float,
    lam: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Computes generalised advantage estimation (Schulman et al. 2016, equations 11 and 16).

    Environments may be interleaved in any way; the rows of one environment are in order of time.
    The return continues past a truncated row with its bootstrap value, and ends at a terminated
    row.

    Args:
        reward: (k,)
        value: (k,) estimated return before each row
        bootstrap: (k,) estimated return after each row; used where an episode was truncated and at
            each environment's last row
        terminated, truncated: (k,) bool; a row with both counts as terminated
        env: (k,) int
        gamma: discount per step
        lam: lambda, weight of each further step

    Returns:
        Advantages (k,) and returns (k,), their sum with the value, float32.
    """
    order = np.argsort(env, kind="stable")
    env, over = env[order], (terminated | truncated)[order]
    value_before = value[order].astype(np.float64)
    continues = np.zeros(len(env), bool)
    continues[:-1] = (env[1:] == env[:-1]) & ~over[:-1]

    following = bootstrap[order].astype(np.float64)
    following[:-1] = np.where(continues[:-1], value_before[1:], following[:-1])
    # Not a product: unused bootstrap values may be infinite or NaN.
    following = np.where(terminated[order], 0.0, following)
    delta = reward[order] + gamma * following - value_before

    total = _discounted_sums(delta, gamma * lam * continues)
    advantage = np.empty(len(env), np.float32)
    advantage[order] = total
    returns = np.empty(len(env), np.float32)
    returns[order] = total + value_before
    return advantage, returns


def importance_weights(
    env: np.ndarray, even: float, maximum: float = 1.0, renormalise: bool = False
) -> np.ndarray:
    """Returns the weight (k,) float32 of each row against the sampling bias of variable rollouts.

    An environment with n_i of the n fresh rows, where n / N would be an equal share, gets
    min(maximum, (n / N) / n_i): VER's truncated importance sampling, section 4.

    Args:
        env: (k,) int, environments of the fresh rows
        even: n / N, over all ranks that learn together
        maximum: largest weight; 0: all weights are 1
        renormalise: whether to divide by the mean weight. Without it, as in the paper, the mean is
            below 1 wherever the shares are unequal, which acts like a lower learning rate.
    """
    if maximum == 0.0 or len(env) == 0:
        return np.ones(len(env), np.float32)
    weights = np.minimum(maximum, even / np.bincount(env)[env])
    return (weights / weights.mean() if renormalise else weights).astype(np.float32)


def explained_variance(value: np.ndarray, returns: np.ndarray) -> float:
    """Returns the share of the variance of returns (k,) that values (k,) explain.

    1 is perfect, 0 is no better than a constant; also 0 if the returns do not vary.
    """
    variance = np.var(returns, dtype=np.float64)
    if variance == 0.0:
        return 0.0
    return float(1.0 - np.var(returns - value, dtype=np.float64) / variance)


def _discounted_sums(terms: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Returns sums s (k,) with s_i = terms_i + factors_i s_{i+1}; the last factor is 0.

    Uses doubling: after p passes every sum covers 2^p terms, so that log2(k) passes over whole
    arrays replace a loop over rows.
    """
    total, factor, reach = terms.copy(), factors.astype(np.float64), 1
    with np.errstate(invalid="ignore"):  # the learner reports values that are not finite
        while reach < len(total) and factor.any():
            total[:-reach] += factor[:-reach] * total[reach:]
            factor[:-reach] *= factor[reach:]
            factor[-reach:] = 0.0
            reach *= 2
    return total
