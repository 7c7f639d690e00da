"""Simultaneous motion of base and arm: feasibility, and the delay of one of them."""

import dataclasses
import itertools
import math

import numpy as np

from tpsrl.motion.base.driving import Leg, drive_poses
from tpsrl.motion.scene import Scene
from tpsrl.world.action import ARM_DELTA_RAD

_EVERY = 4  # control steps between checks
_SLACK = 5  # control steps by which the base may be early or late
MARGIN_M = 0.01
_START_M = 0.15  # within this distance of the start, the clearance at the start is enough
# Delays as shares of the duration of the drive (arm starts later) or of the arm's motion (base
# starts later).
_ARM_WAITS = (0.0, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)
_BASE_WAITS = (0.15, 0.3, 0.5, 0.7)


@dataclasses.dataclass(frozen=True, slots=True)
class Together:
    """Simultaneous motion of base and arm.

    `delay` is the number of control steps by which the arm starts after the base, negative if
    before. `path` (k, 7) has the arm's waypoints after the present posture. `steps` is the duration
    of the whole motion.
    """

    delay: int
    path: np.ndarray
    steps: int


def plan_together(
    scene: Scene,
    legs: list[Leg],
    path: np.ndarray,
    anywhere: bool = False,
    margin: float = MARGIN_M,
) -> Together | None:
    """Plans the quickest simultaneous motion, or None if base or arm has to wait for the other.

    Beside the given path of the arm the straight one is tried, which may be free during the drive
    even if it is blocked at one of its ends.

    Args:
        scene: present state of base and arm.
        legs: legs of the base.
        path: waypoints (k, 7) of the arm, the first one the present posture.
        anywhere: whether the path still has to be checked at the end of the drive.
        margin: required clearance, metres.
    """
    poses = drive_poses(scene.base, legs)
    ways = [_with_arm(scene, poses, path, anywhere, margin)]
    if len(path) > 2:
        ways.append(_with_arm(scene, poses, path[[0, -1]], True, margin))
    return min((way for way in ways if way), key=lambda way: way.steps, default=None)


def slowest(base: np.ndarray, legs: list[Leg], path: np.ndarray) -> int:
    """Returns the control steps of a drive followed by an arm motion along waypoints (k, 7)."""
    return len(drive_poses(base, legs)) + len(_arm_way(path))


def _with_arm(
    scene: Scene, poses: np.ndarray, path: np.ndarray, check: bool, margin: float
) -> Together | None:
    """Returns the quickest motion for one arm path; with `check` also checks it after the drive."""
    arm = _arm_way(path)
    if not len(poses):
        return None if check else Together(0, path[1:], len(arm))
    delays = [round(share * len(poses)) for share in _ARM_WAITS]
    delays += [-round(share * len(arm)) for share in _BASE_WAITS]
    steps = {d: max(len(poses) + max(-d, 0), len(arm) + max(d, 0)) for d in delays}
    for delay in sorted(delays, key=lambda delay: steps[delay]):
        if _free(scene, poses, arm, delay, steps[delay] if check else 0, margin):
            return Together(delay, path[1:], steps[delay])
    return None


def _arm_way(path: np.ndarray) -> np.ndarray:
    """Returns the target posture (n, 7) of the arm after each control step."""
    postures = [path[0]]
    for a, b in itertools.pairwise(path):
        count = math.ceil(float(np.abs(b - a).max()) / ARM_DELTA_RAD)
        postures += [a + (b - a) * (i + 1) / count for i in range(count)]
    return np.array(postures)


def _free(
    scene: Scene, poses: np.ndarray, arm: np.ndarray, delay: int, until: int, margin: float
) -> bool:
    """Returns whether arm and base stay clear, also if the base is a little early or late.

    Checks at least the first `until` control steps.
    """
    floor, air = scene.footprint(arm[0]).margin(*scene.base), _clearance(scene, scene.base, arm[0])
    waits = max(-delay, 0)
    for step in range(_EVERY, max(until, waits + len(poses)) + _SLACK, _EVERY):
        posture = arm[min(max(step - max(delay, 0), 0), len(arm) - 1)]
        footprint = scene.footprint(posture)
        for late in (-_SLACK, 0, _SLACK) if step > waits else (0,):
            pose = poses[min(max(step - waits - late, 0), len(poses) - 1)]
            near = math.dist(pose[:2], scene.base[:2]) < _START_M
            if footprint.margin(*pose) < (min(margin, floor - 0.003) if near else margin):
                return False
            if _clearance(scene, pose, posture) < (
                min(0.0, air - 0.004) if near else margin - MARGIN_M
            ):
                return False
    return True


def _clearance(scene: Scene, pose: np.ndarray, posture: np.ndarray) -> float:
    return dataclasses.replace(scene, base=pose).checker(pose).clearance(posture)
