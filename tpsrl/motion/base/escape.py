"""Escape of a robot that was pushed to a base pose from which no drive may begin."""

import math

import numpy as np

from tpsrl.motion.base.driving import Leg
from tpsrl.runtime.compiled import njit
from tpsrl.world.action import STEP_M, STEP_RAD
from tpsrl.world.footprint import Footprint, pose_margin

_FREE_M = 0.015  # a pose with this margin is free enough
_BETTER_M = 0.03  # least gain of margin of an escape
_WORSE_M = 0.01  # largest loss of margin on the way
_TURNS = np.array([0.0, 0.2, -0.2, 0.4, -0.4, 0.7, -0.7, 1.0, -1.0, 1.4, -1.4, 1.9, -1.9])  # rad
_FARTHEST_M, _SPACING_M, _SPACING_RAD = 0.7, 0.05, 0.1


def way_out(footprint: Footprint, base: np.ndarray) -> list[Leg] | None:
    """Returns a turn and a straight drive to the nearest free pose, without further approach.

    If no pose is free, the drive is to the pose with the largest margin. None if the base (3,) is
    free, or if no pose has a larger margin.
    """
    own = footprint.margin(*base)
    if own >= 0.0:
        return None
    turn, ahead, margin = _nearest_free(base, footprint.arguments(), own)
    if margin < own + _BETTER_M:
        return None
    yaw = float(base[2] + turn)
    x, y = float(base[0] + ahead * math.cos(yaw)), float(base[1] + ahead * math.sin(yaw))
    return [Leg(x, y, yaw, 1 if ahead >= 0.0 else -1), Leg(x, y, yaw, 1)]


@njit(cache=True)
def _nearest_free(base: np.ndarray, scene: tuple, own: float) -> tuple[float, float, float]:
    """Returns turn (rad), distance ahead (m) and margin (m) of the nearest free or freest pose."""
    least = own - _WORSE_M
    best, freest = np.inf, own
    chosen = (0.0, 0.0)
    for turn in _TURNS:
        count = math.ceil(abs(turn) / _SPACING_RAD)
        blocked = False
        for i in range(1, count + 1):
            if pose_margin(base[0], base[1], base[2] + turn * i / count, *scene) < least:
                blocked = True
                break
        if blocked:
            continue
        yaw = base[2] + turn
        for direction in (-1.0, 1.0):
            for i in range(round(_FARTHEST_M / _SPACING_M) + 1):
                ahead = direction * i * _SPACING_M
                x, y = base[0] + ahead * math.cos(yaw), base[1] + ahead * math.sin(yaw)
                margin = pose_margin(x, y, yaw, *scene)
                if margin < least:
                    break
                steps = abs(turn) / STEP_RAD + abs(ahead) / STEP_M
                free = min(margin, _FREE_M)
                if free > freest + 1e-9 or (free >= freest and steps < best):
                    freest, best, chosen = free, steps, (turn, ahead)
    return chosen[0], chosen[1], freest
