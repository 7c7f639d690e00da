"""Advantages and returns of interleaved environments, and weights against biased sampling."""

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
    """Generalised advantage estimation (Schulman et al. 2016, equations 11 and 16).

    Rows may be of any interleaving of environments; within one they are in order of time. A time
    limit is no end: the return goes on behind a truncated row with its bootstrap value, behind a
    terminated one there is nothing.

    Args:
        reward: (k,)
        value: (k,) estimated return before each row
        bootstrap: (k,) estimated return of what follows a row; read where an episode was truncated
            and at each environment's last row
        terminated, truncated: (k,) bool; a row under both counts as terminated
        env: (k,) int
        gamma: discount of a step
        lam: weight of each further step

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
    # Not a product: a bootstrap value that nobody asked for may be anything.
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
    """Weight (k,) float32 of each row against the sampling bias of variable rollouts.

    An environment that gave n_i of the n fresh rows, where an equal share were n / N, gets
    min(maximum, (n / N) / n_i): VER's truncated importance sampling, section 4.

    Args:
        env: (k,) int, environments of the fresh rows, and of no others
        even: n / N, over all ranks that learn together
        maximum: 0 turns the weights off, all are 1
        renormalise: divides by the mean weight. As in the paper it is less than 1 wherever the
            shares are unequal, which acts like a lower learning rate.
    """
    if maximum == 0.0 or len(env) == 0:
        return np.ones(len(env), np.float32)
    weights = np.minimum(maximum, even / np.bincount(env)[env])
    return (weights / weights.mean() if renormalise else weights).astype(np.float32)


def explained_variance(value: np.ndarray, returns: np.ndarray) -> float:
    """The share of the variance of returns (k,) that values (k,) account for.

    1 is perfect, 0 no better than a constant; 0 too where the returns do not vary.
    """
    variance = np.var(returns, dtype=np.float64)
    if variance == 0.0:
        return 0.0
    return float(1.0 - np.var(returns - value, dtype=np.float64) / variance)


def _discounted_sums(terms: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """s (k,) with s_i = terms_i + factors_i s_{i+1}; the last factor is 0.

    By doubling: after p passes every sum reaches 2^p terms far, so that log2(k) passes over whole
    arrays replace a loop over rows.
    """
    total, factor, reach = terms.copy(), factors.astype(np.float64), 1
    with np.errstate(invalid="ignore"):  # of what is not finite the learner speaks
        while reach < len(total) and factor.any():
            total[:-reach] += factor[:-reach] * total[reach:]
            factor[:-reach] *= factor[reach:]
            factor[-reach:] = 0.0
            reach *= 2
    return total
