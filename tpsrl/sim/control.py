"""Conversion of actions to actuator commands, compiled."""

import math

import numpy as np

from tpsrl.runtime.compiled import njit
from tpsrl.sim.base_filter import filter_velocity
from tpsrl.world.action import (
    ARM_DELTA_RAD,
    ARM_LEASH_RAD,
    BASE_ANGULAR_RPS,
    BASE_LINEAR_MPS,
    CONTROL_HZ,
)
from tpsrl.world.fetch import BASE_RADIUS
from tpsrl.world.kinematics import LOWER, UPPER


@njit(cache=True)
def _unit(value: float) -> float:
    return min(max(value, -1.0), 1.0)


@njit(cache=True)
def all_finite(actions: np.ndarray) -> bool:
    """Returns whether no entry of `actions` (n, k) is NaN or infinite."""
    for row in actions:
        for value in row:
            if not math.isfinite(value):
                return False
    return True


@njit(cache=True)
def command(
    action: np.ndarray,
    base: np.ndarray,
    arm: np.ndarray,
    target: np.ndarray,
    ramp: np.ndarray,
    velocity: np.ndarray,
    filtered: bool,
    distance: np.ndarray,
    x0: float,
    y0: float,
) -> None:
    """Computes the actuator commands of one control step.

    Args:
        action: (11,), clipped here.
        base: (3,) x, y, yaw.
        arm: (7,) joint positions.
        target: (7,) joint targets of the arm, updated by the action.
        ramp: (substeps, 7) receives arm commands interpolated to the new targets; a jump once per
            control step would shake a held object at 30 Hz.
        velocity: (3,) receives the velocity command of the base, world frame.
        filtered: whether to keep the base on the free floor.
        distance, x0, y0: map of the distance to the nearest obstacle (m), and its corner.
    """
    substeps = ramp.shape[0]
    for j in range(7):
        start = target[j]
        goal = start + _unit(action[j]) * ARM_DELTA_RAD
        goal = min(max(goal, arm[j] - ARM_LEASH_RAD), arm[j] + ARM_LEASH_RAD)
        goal = min(max(goal, LOWER[j]), UPPER[j])
        for s in range(substeps):
            ramp[s, j] = start + (s + 1) * ((goal - start) / substeps)
        target[j] = goal
    speed = _unit(action[8]) * BASE_LINEAR_MPS
    turn = _unit(action[9]) * BASE_ANGULAR_RPS
    heading = base[2] + 0.5 * turn / CONTROL_HZ
    vx, vy = speed * math.cos(heading), speed * math.sin(heading)
    if filtered and speed != 0.0:
        vx, vy = filter_velocity(distance, x0, y0, base[0], base[1], vx, vy, BASE_RADIUS)
    velocity[0], velocity[1], velocity[2] = vx, vy, turn
