"""The learning rate over a training: schedules that are fixed, and one that follows the KL."""

import math

FACTOR = 1.5  # by which the adaptive rate moves at once
_SCALED_UNTIL = 0.5  # share of the training


def rate_factor(schedule: str, progress: float) -> float:
    """The share of the learning rate that is left, from 1 at progress 0 to 0 at 1."""
    progress = min(max(progress, 0.0), 1.0)
    if schedule == "cosine":
        return 0.5 * (1.0 + math.cos(math.pi * progress))
    return 1.0 - progress if schedule == "linear" else 1.0


def batch_factor(batch: float, base: int, progress: float) -> float:
    """What the rate is multiplied by for mini-batches of `batch` steps on all ranks.

    The root of batch / base at first, and 1 from half of the training on, along a cosine
    (Shacklett et al. 2021, section 3.4 and appendix B). Always 1 with a `base` of 0.
    """
    if not base:
        return 1.0
    scaled = math.sqrt(batch / base)
    return 1.0 + (scaled - 1.0) * rate_factor("cosine", progress / _SCALED_UNTIL)


def desired_kl(start: float, final: float | None, progress: float) -> float:
    """The KL that is desired at a share `progress` of the training: falls by equal factors.

    The gradient of a rollout is mostly noise; what is left of a policy's failures in the end is
    what the noise of its last updates makes of it.
    """
    if final is None or final <= 0.0 or start <= 0.0:
        return start
    return start * float(final / start) ** min(max(progress, 0.0), 1.0)


def adapted(
    rate: float, kl: float, desired: float, bounds: tuple[float, float], may_rise: bool
) -> float:
    """The rate after an epoch that moved the policy by a KL (Liang et al. 2018, as in rl_games).

    Divided by 1.5 where the KL is above twice the desired one, and multiplied by it where it is
    below half of it and the rate may rise; within bounds. A KL that is not finite changes nothing.
    """
    if kl > 2.0 * desired:
        rate /= FACTOR
    elif kl < 0.5 * desired and may_rise:
        rate *= FACTOR
    return min(max(rate, bounds[0]), bounds[1])
