"""Keeps the base's target on the free floor, as HAB's navmesh does for its kinematic base."""

import math

import numpy as np

from tpsrl.runtime.compiled import njit
from tpsrl.world.action import CONTROL_HZ
from tpsrl.world.floor import clearance_gradient

# The base brakes at 2 kN over its 110 kg less the arm's reaction (measured: 12 m/s2 holds).
BRAKE = 12.0
SHARE = 0.7  # of the speed from which that stops the base in time
TOLERANCE_M = 0.01  # of a map with cells of 0.025 m
LEAST_STEP_M = 0.0125  # along the way ahead
CREEP_M = 1e-4  # nearer in a step, where it is too near already
ATTEMPTS = 4  # to slide along what stands ahead, and to stop in a corner


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

    The part towards the nearest obstacle, and towards the first one within the braking distance
    ahead, is limited to the speed from which the base can still stop; the rest slides along it
    (HAB: allow_dyn_slide).
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
    # In a corner there is nothing to slide along.
    least = min(value - CREEP_M, radius - TOLERANCE_M)
    for _ in range(ATTEMPTS):
        following = (x + vx / CONTROL_HZ, y + vy / CONTROL_HZ)
        if clearance_gradient(distance, x0, y0, *following)[0] >= least:
            return vx, vy
        vx, vy = 0.5 * vx, 0.5 * vy
    return 0.0, 0.0


@njit(cache=True)
def _speed_limit(free: float) -> float:
    """The speed (m/s) from which the base stops within `free` (m)."""
    return SHARE * math.sqrt(2.0 * BRAKE * free) if free > 0.0 else 0.0


@njit(cache=True)
def _slid(vx: float, vy: float, gx: float, gy: float, free: float) -> tuple[float, float]:
    """A velocity whose part against (gx, gy) stops within `free` (m)."""
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
    """How far ahead (m) something is nearer than `least`, and the gradient of the distance there.

    -1 where nothing is within the braking distance.
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
