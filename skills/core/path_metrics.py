"""Metrics of driving for PointNav and Navigate: distance left, path length, SPL.

SPL is success weighted by path length (Anderson et al., "On evaluation of embodied navigation
agents", 2018; DD-PPO, section 4): success x shortest / max(shortest, driven).
"""

import dataclasses

from array_api_compat import array_namespace

from skills.core.arrays import Array


def spl(success: Array, shortest: Array, driven: Array) -> Array:
    """Computes SPL (n,).

    Args:
        success: (n,) bool
        shortest: (n,) length of the shortest path in metres
        driven: (n,) length of the path driven in metres

    Returns:
        SPL, 0 for failures. A success with both lengths 0 counts 1; a success where the map has no
        path to the goal (`shortest` is inf) is NaN.
    """
    xp = array_namespace(shortest, driven)
    return xp.where(success, _efficiency(shortest, driven), 0.0)


def soft_spl(left: Array, shortest: Array, driven: Array) -> Array:
    """Computes SoftSPL (n,): SPL with the fraction of the path covered instead of success.

    Datta et al., "Integrating egocentric localization for more realistic point-goal navigation
    agents", CoRL 2020.

    Args:
        left: (n,) distance left in metres
        shortest: (n,) length of the shortest path in metres
        driven: (n,) length of the path driven in metres
    """
    xp = array_namespace(shortest, driven)
    divisible = xp.isfinite(shortest) & (shortest > 0.0)
    covered = 1.0 - left / xp.where(divisible, shortest, 1.0)
    return xp.where(covered > 0.0, covered, 0.0) * _efficiency(shortest, driven)


def _efficiency(shortest: Array, driven: Array) -> Array:
    xp = array_namespace(shortest, driven)
    longest = xp.where(driven > shortest, driven, shortest)
    known = xp.isfinite(longest)
    share = xp.where(known, shortest, 0.0) / xp.where(known & (longest > 0.0), longest, 1.0)
    return xp.where(known, xp.where(longest > 0.0, share, 1.0), xp.nan)


def step_length(before: Array, after: Array) -> Array:
    """Returns horizontal distances (n,) in metres between base poses (n, 2 or 3)."""
    xp = array_namespace(before, after)
    return xp.linalg.vector_norm(after[:, :2] - before[:, :2], axis=-1)


@dataclasses.dataclass(slots=True)
class PathProgress:
    """Progress of n homes along their paths on the floor; lengths (n,) in metres.

    `farthest` and `squares` are None unless the skill has `surveys_floor`. `hand` is the progress
    of the cup along its path around furniture, None if not measured.
    """

    shortest: Array  # length of the shortest path from the start
    left: Array  # length of the shortest path from the base's current position
    gained: Array  # decrease of `left` since the previous step
    driven: Array
    farthest: Array | None = None  # length of the longest shortest path to the goal
    squares: Array | None = None  # number of 1 m squares with free floor
    hand: Array | None = None  # as `gained`, for the cup
