"""Whether base and arm can move at the same time, and how much later one of them has to start."""

import dataclasses
import itertools
import math

import numpy as np

from skills.scripted.navigation import Leg
from skills.scripted.scene import Scene
from tpsrl.world.action import ARM_DELTA_RAD, STEP_M, STEP_RAD
from tpsrl.world.geometry import wrap_angle

_STARTING = 4.0  # steps to get going and to stop, for each turn and each stretch
_EVERY = 4  # steps between two looks
_SLACK = 8  # by how many steps the base may be early or late
_MARGIN_M = 0.01
# Shares of the duration of drive (arm starts later) and of arm motion (base starts later).
_ARM_WAITS = (0.0, 0.2, 0.35, 0.5, 0.7)
_BASE_WAITS = (0.3, 0.5, 0.7)


def plan_together(scene: Scene, legs: list[Leg], path: np.ndarray) -> int | None:
    """How many steps after the base the arm can start, or None if one has to wait for the other.

    Negative when the base has to start later.

    Args:
        scene: where base and arm are now.
        legs: the base's way.
        path: the arm's way-points (k, 7), the first one being where it is.
    """
    poses = _base_way(scene.base, legs)
    if not len(poses):
        return 0
    arm = _arm_way(path)
    delays = [round(share * len(poses)) for share in _ARM_WAITS]
    delays += [-round(share * len(arm)) for share in _BASE_WAITS]
    delays.sort(key=lambda delay: max(len(poses) + max(-delay, 0), len(arm) + max(delay, 0)))
    return next((delay for delay in delays if _free(scene, poses, arm, delay)), None)


def _base_way(start: np.ndarray, legs: list[Leg]) -> np.ndarray:
    """About where the base is (n, 3) after each control step."""
    poses = []
    x, y, yaw = (float(v) for v in start)
    for leg in legs:
        turn = float(wrap_angle(leg.heading - yaw))
        count = math.ceil(abs(turn) / STEP_RAD + _STARTING) if abs(turn) > 0.03 else 0
        poses += [(x, y, yaw + turn * (i + 1) / count) for i in range(count)]
        yaw = leg.heading
        length = math.hypot(leg.x - x, leg.y - y)
        count = math.ceil(length / STEP_M + _STARTING) if length > 0.03 else 0
        for i in range(count):
            t = (i + 1) / count
            poses.append((x + t * (leg.x - x), y + t * (leg.y - y), yaw))
        x, y = leg.x, leg.y
    return np.array(poses).reshape(-1, 3)


def _arm_way(path: np.ndarray) -> np.ndarray:
    """Where the arm is told to be (n, 7) after each control step."""
    postures = [path[0]]
    for a, b in itertools.pairwise(path):
        count = math.ceil(float(np.abs(b - a).max()) / ARM_DELTA_RAD)
        postures += [a + (b - a) * (i + 1) / count for i in range(count)]
    return np.array(postures)


def _free(scene: Scene, poses: np.ndarray, arm: np.ndarray, delay: int) -> bool:
    """Whether arm and base keep clear at every step, the base a little early or late."""
    waits = max(-delay, 0)
    for step in range(_EVERY, waits + len(poses) + _SLACK, _EVERY):
        posture = arm[min(max(step - max(delay, 0), 0), len(arm) - 1)]
        footprint = scene.footprint(posture)
        for late in (-_SLACK, 0, _SLACK) if step > waits else (0,):
            pose = poses[min(max(step - waits - late, 0), len(poses) - 1)]
            if footprint.margin(*pose) < _MARGIN_M:
                return False
            if not dataclasses.replace(scene, base=pose).checker(pose).free(posture, 0.0):
                return False
    return True
