"""How well a robot drove: distance left, path driven, SPL. For PointNav, and for Navigate too.

SPL is success weighted by path length (Anderson et al., "On evaluation of embodied navigation
agents", 2018; DD-PPO, section 4): success x shortest / max(shortest, driven).
"""

import dataclasses

from array_api_compat import array_namespace

from skills.core.arrays import Array


def spl(success: Array, shortest: Array, driven: Array) -> Array:
    """SPL (n,) of successes (n,) bool, shortest paths (n,) and paths driven (n,), metres.

    A success without a way to drive counts 1; one over floor that the map says cannot be passed
    (`shortest` inf) is NaN.
    """
    xp = array_namespace(shortest, driven)
    return xp.where(success, _efficiency(shortest, driven), 0.0)


def soft_spl(left: Array, shortest: Array, driven: Array) -> Array:
    """SPL (n,) with the share of the way that was covered in place of success.

    `left` (n,) is the distance left in metres (Datta et al., "Integrating egocentric localization
    for more realistic point-goal navigation agents", CoRL 2020).
    """
    xp = array_namespace(shortest, driven)
    covered = 1.0 - left / xp.where(shortest > 0.0, shortest, 1.0)
    return xp.where(covered > 0.0, covered, 0.0) * _efficiency(shortest, driven)


def _efficiency(shortest: Array, driven: Array) -> Array:
    xp = array_namespace(shortest, driven)
    longest = xp.where(driven > shortest, driven, shortest)
    known = xp.isfinite(longest)
    share = xp.where(known, shortest, 0.0) / xp.where(known & (longest > 0.0), longest, 1.0)
    return xp.where(known, xp.where(longest > 0.0, share, 1.0), xp.nan)


def step_length(before: Array, after: Array) -> Array:
    """Metres (n,) over the floor between base poses (n, 2 or 3)."""
    xp = array_namespace(before, after)
    return xp.linalg.vector_norm(after[:, :2] - before[:, :2], axis=-1)


@dataclasses.dataclass(slots=True)
class PathProgress:
    """Where n homes are on their ways along the floor; metres (n,).

    `farthest` and `squares` are None unless the skill has `surveys_floor`. `hand` is that of the
    cup's way around furniture, None unless that is measured too.
    """

    shortest: Array  # from the start
    left: Array  # from where the base is now
    gained: Array  # by how much less that is than a step before
    driven: Array
    farthest: Array | None = None  # the longest way that there is to the goal
    squares: Array | None = None  # of 1 m, in which there is free floor: how many
    hand: Array | None = None  # as `gained`
