"""Keeps the base's target on the free floor, as HAB's navmesh does for its kinematic base."""

import math

import numpy as np

from tpsrl.compiled import njit
from tpsrl.world.floor import clearance_gradient

# The base brakes at 2 kN over its 110 kg less the arm's reaction (measured: 12 m/s2 holds).
_BRAKE = 12.0


@njit(cache=True)
def filter_velocity(
    distance: np.ndarray,
    x0: float,
    y0: float,
    x: float,
    y: float,
    vx: float,
    vy: float,
    radius: float,
) -> tuple[float, float]:
    """The velocity (m/s) without what would bring the disc of `radius` into an obstacle.

    The part towards the nearest obstacle is limited to the speed from which the base can still
    stop; the rest slides along it (HAB: allow_dyn_slide).
    """
    value, gx, gy = clearance_gradient(distance, x0, y0, x, y)
    norm = math.sqrt(gx * gx + gy * gy)
    if norm < 1e-6:
        return vx, vy
    gx, gy = gx / norm, gy / norm
    towards = -(vx * gx + vy * gy)
    free = value - radius
    limit = math.sqrt(2.0 * _BRAKE * free) * 0.7 if free > 0.0 else 0.0
    if towards > limit:
        vx += (towards - limit) * gx
        vy += (towards - limit) * gy
    return vx, vy
