"""Filter that keeps the base on the free floor, as HAB's navmesh does for its kinematic base."""

import math

import numpy as np

from tpsrl.runtime.compiled import njit
from tpsrl.world.action import CONTROL_HZ
from tpsrl.world.floor import clearance_gradient

# Deceleration of the base in m/s2: 2 kN on 110 kg, less the arm's reaction (measured: 12 holds).
BRAKE = 12.0
SHARE = 0.7  # allowed share of the highest speed from which the base stops in time
TOLERANCE_M = 0.01  # of the distance map, whose cells are 0.025 m
LEAST_STEP_M = 0.0125  # smallest step of the search for obstacles ahead
CREEP_M = 1e-4  # allowed approach per step where the base is already too near
ATTEMPTS = 4  # iterations of sliding along obstacles ahead, and of slowing down in a corner


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
    """Limits a velocity so that the disc of `radius` does not enter an obstacle.

    The component towards the nearest obstacle, and towards the first obstacle within the braking
    distance ahead, is limited to the speed from which the base can still stop. The remaining
    velocity slides along the obstacle (HAB: allow_dyn_slide).

    Args:
        distance, x0, y0: map of the distance to the nearest obstacle (m), and its corner.
        x, y: position of the base (m).
        vx, vy: commanded velocity (m/s), world frame.
        radius: of the base (m).

    Returns:
        The limited velocity (m/s), world frame.
    """
    value, gx, gy = clearance_gradient(distance, x0, y0, x, y)
    vx, vy = _slid(vx, vy, gx, gy, value - radius)
    least = min(value, radius) - TOLERANCE_M
    for _ in range(ATTEMPTS):
        ahead, gx, gy = _contact_ahead(distance, x0, y0, x, y, vx, vy, least)
        if ahead < 0.0:
            break
        towards = -(vx * gx + vy * gy) / math.hypot(gx, gy)
        sx, sy = _slid(vx, vy, gx, gy, ahead * max(towards, 0.0) / math.hypot(vx, vy))
        if sx == vx and sy == vy:
            break
        vx, vy = sx, sy
    # In a corner sliding is not enough: the velocity is halved until the next step is free.
    least = min(value - CREEP_M, radius - TOLERANCE_M)
    for _ in range(ATTEMPTS):
        following = (x + vx / CONTROL_HZ, y + vy / CONTROL_HZ)
        if clearance_gradient(distance, x0, y0, *following)[0] >= least:
            return vx, vy
        vx, vy = 0.5 * vx, 0.5 * vy
    return 0.0, 0.0


@njit(cache=True)
def _speed_limit(free: float) -> float:
    """Returns the speed (m/s) from which the base stops within `free` (m)."""
    return SHARE * math.sqrt(2.0 * BRAKE * free) if free > 0.0 else 0.0


@njit(cache=True)
def _slid(vx: float, vy: float, gx: float, gy: float, free: float) -> tuple[float, float]:
    """Limits the velocity's component against (gx, gy) so that it stops within `free` (m)."""
    norm = math.hypot(gx, gy)
    if norm < 1e-6:
        return vx, vy
    gx, gy = gx / norm, gy / norm
    over = -(vx * gx + vy * gy) - _speed_limit(free)
    if over <= 1e-9:
        return vx, vy
    return vx + over * gx, vy + over * gy


@njit(cache=True)
def _contact_ahead(
    distance: np.ndarray,
    x0: float,
    y0: float,
    x: float,
    y: float,
    vx: float,
    vy: float,
    least: float,
) -> tuple[float, float, float]:
    """Finds the first point ahead with an obstacle nearer than `least` (m).

    Returns:
        The distance to that point (m), -1 if there is none within the braking distance, and the
        gradient of the distance map there.
    """
    speed = math.hypot(vx, vy)
    if speed < 1e-6:
        return -1.0, 0.0, 0.0
    stop = speed * speed / (2.0 * BRAKE * SHARE * SHARE)
    ux, uy, ahead = vx / speed, vy / speed, 0.0
    while True:
        value, gx, gy = clearance_gradient(distance, x0, y0, x + ahead * ux, y + ahead * uy)
        if value < least and math.hypot(gx, gy) > 1e-6:
            return ahead, gx, gy
        if ahead >= stop:
            return -1.0, 0.0, 0.0
        ahead = min(ahead + max(value - least, LEAST_STEP_M), stop)
