"""Whether base and arm can move at the same time, and how much later one of them has to start."""

import dataclasses
import itertools
import math

import numpy as np

from tpsrl.motion.base.driving import Leg, drive_poses
from tpsrl.motion.scene import Scene
from tpsrl.world.action import ARM_DELTA_RAD

_EVERY = 4  # steps between two looks
_SLACK = 5  # by how many steps the base may be early or late
MARGIN_M = 0.01
_START_M = 0.15  # up to here from the start, nothing need be freer than it is there
# Shares of the duration of drive (arm starts later) and of arm motion (base starts later).
_ARM_WAITS = (0.0, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)
_BASE_WAITS = (0.15, 0.3, 0.5, 0.7)


@dataclasses.dataclass(frozen=True, slots=True)
class Together:
    """How many steps the arm starts after the base (negative: before it), its way (k, 7) after the
    present posture, and the steps that both take."""

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
    """The quickest way to move base and arm at once, or None if one has to wait for the other.

    Beside the arm's own way the straight one is tried, which may be free on the way to a place
    where it is not.

    Args:
        scene: where base and arm are now.
        legs: the base's way.
        path: the arm's way-points (k, 7), the first one being where it is.
        anywhere: the path has not been checked from where the base ends.
        margin: that is kept, m.
    """
    poses = drive_poses(scene.base, legs)
    ways = [_with_arm(scene, poses, path, anywhere, margin)]
    if len(path) > 2:
        ways.append(_with_arm(scene, poses, path[[0, -1]], True, margin))
    return min((way for way in ways if way), key=lambda way: way.steps, default=None)


def slowest(base: np.ndarray, legs: list[Leg], path: np.ndarray) -> int:
    """Control steps of driving along legs, and then moving the arm along way-points (k, 7)."""
    return len(drive_poses(base, legs)) + len(_arm_way(path))


def _with_arm(
    scene: Scene, poses: np.ndarray, path: np.ndarray, check: bool, margin: float
) -> Together | None:
    """The quickest for one way of the arm; `check`s it also after the base has arrived."""
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
    """Where the arm is told to be (n, 7) after each control step."""
    postures = [path[0]]
    for a, b in itertools.pairwise(path):
        count = math.ceil(float(np.abs(b - a).max()) / ARM_DELTA_RAD)
        postures += [a + (b - a) * (i + 1) / count for i in range(count)]
    return np.array(postures)


def _free(
    scene: Scene, poses: np.ndarray, arm: np.ndarray, delay: int, until: int, margin: float
) -> bool:
    """Whether arm and base keep clear, the base a little early or late, at least `until` a step."""
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
