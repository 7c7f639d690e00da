"""Learning rate over a training: fixed schedules, and one that adapts to the KL divergence."""

import math

FACTOR = 1.5  # of one change of the adaptive rate
_SCALED_UNTIL = 0.5  # share of the training


def rate_factor(schedule: str, progress: float) -> float:
    """Returns the factor of the learning rate: from 1 at progress 0 to 0 at 1, or constantly 1."""
    progress = min(max(progress, 0.0), 1.0)
    if schedule == "cosine":
        return 0.5 * (1.0 + math.cos(math.pi * progress))
    return 1.0 - progress if schedule == "linear" else 1.0


def batch_factor(batch: float, base: int, progress: float) -> float:
    """Returns the factor of the learning rate for mini-batches of `batch` steps over all ranks.

    It begins at the square root of batch / base and reaches 1 at half of the training, along a
    cosine (Shacklett et al. 2021, section 3.4 and appendix B). With a `base` of 0 it is always 1.
    """
    if not base:
        return 1.0
    scaled = math.sqrt(batch / base)
    return 1.0 + (scaled - 1.0) * rate_factor("cosine", progress / _SCALED_UNTIL)


def desired_kl(start: float, final: float | None, progress: float) -> float:
    """Returns the desired KL at a share `progress` of the training.

    It falls geometrically from `start` to `final`: a rollout's gradient is mostly noise, and noise
    in the last updates causes a policy's remaining failures. Without a `final` above 0, the desired
    KL stays at `start`.
    """
    if final is None or final <= 0.0 or start <= 0.0:
        return start
    return start * float(final / start) ** min(max(progress, 0.0), 1.0)


def adapted(
    rate: float, kl: float, desired: float, bounds: tuple[float, float], may_rise: bool
) -> float:
    """Returns the learning rate after an epoch with this KL (Liang et al. 2018, as in rl_games).

    The rate is divided by 1.5 where the KL is above twice the desired one, and multiplied by 1.5
    where the KL is below half of it and `may_rise` is true; it stays within `bounds`. A KL of NaN
    leaves the rate unchanged.
    """
    if kl > 2.0 * desired:
        rate /= FACTOR
    elif kl < 0.5 * desired and may_rise:
        rate *= FACTOR
    return min(max(rate, bounds[0]), bounds[1])
