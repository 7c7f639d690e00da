"""Camera poses for pictures, and markers that only pictures show."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

THIRD_PERSON_FOV_DEG = 62.0
_DISTANCE_M = 2.3  # horizontally from the base
_HEIGHT_M = 2.25
_HIGHEST_M = 3.3
# To the right and to the left, slightly behind, so that the trunk does not hide the arm.
_AZIMUTHS = (math.radians(-115), math.radians(115))
_OUTSIDE_M = 0.3  # how far the camera may leave the rooms


@dataclasses.dataclass(frozen=True, slots=True)
class Sphere:
    """A marker that only pictures show: centre (m, world), radius (m), colour (0 to 1)."""

    pos: tuple[float, float, float]
    radius: float
    rgb: tuple[float, float, float]


@dataclasses.dataclass(frozen=True, slots=True)
class CameraPose:
    """Position (3,) of a camera in metres, the point it looks at (3,), and its orientation (3, 3).

    The columns of `mat` are the world directions right, up and backward, as MuJoCo's `cam_xmat`.
    """

    pos: np.ndarray
    target: np.ndarray
    mat: np.ndarray


def look_at(pos: Sequence[float] | np.ndarray, target: Sequence[float] | np.ndarray) -> CameraPose:
    """Returns the upright camera at `pos` whose optical axis passes through `target`."""
    pos = np.array(pos, dtype=np.float64)
    target = np.array(target, dtype=np.float64)
    back = pos - target
    back /= np.linalg.norm(back)
    right = np.array([-back[1], back[0], 0.0])
    length = float(np.linalg.norm(right))
    right = right / length if length > 1e-6 else np.array([1.0, 0.0, 0.0])
    return CameraPose(pos, target, np.stack([right, np.cross(back, right), back], axis=1))


def third_person_camera(
    base: Sequence[float] | np.ndarray,
    focus: Sequence[float] | np.ndarray,
    bounds: tuple[float, float, float, float],
    previous: CameraPose | None = None,
    follow: float = 0.08,
) -> CameraPose:
    """Returns a camera beside and above the robot, with robot and focus in view.

    Args:
        base: x, y (m) and yaw (rad) of the robot.
        focus: (3,) point where the robot works: the cup, the target or a goal. Beyond 1 m only its
            direction counts.
        bounds: x_min, y_min, x_max, y_max of the rooms; the camera stays within 0.3 m of them and
            rises where that brings it close to the robot.
        previous: pose of the previous frame, for smooth motion.
        follow: fraction of the distance from `previous` to the pose without smoothing that the
            camera moves; the point it looks at moves three times this fraction.
    """
    x, y, yaw = (float(v) for v in base)
    ahead = np.array([math.cos(yaw), math.sin(yaw)])
    offset = np.asarray(focus, dtype=np.float64)[:2] - (x, y)
    offset *= min(1.0, 1.0 / max(float(np.linalg.norm(offset)), 1e-9))
    target = np.array([x, y, 0.72])
    target[:2] += 0.25 * ahead + 0.35 * offset

    low = np.array(bounds[:2]) - _OUTSIDE_M
    high = np.array(bounds[2:]) + _OUTSIDE_M
    best, best_cost = np.zeros(2), math.inf
    for preference, azimuth in enumerate(_AZIMUTHS):
        angle = yaw + azimuth
        free = np.array([x, y]) + _DISTANCE_M * np.array([math.cos(angle), math.sin(angle)])
        spot = np.clip(free, low, high)
        cost = float(np.linalg.norm(spot - free)) + 0.3 * preference
        if previous is not None:
            cost += 0.2 * float(np.linalg.norm(spot - previous.pos[:2]))
        if cost < best_cost:
            best, best_cost = spot, cost
    missing = max(0.0, _DISTANCE_M - float(np.linalg.norm(best - (x, y))))
    pos = np.array([best[0], best[1], min(_HEIGHT_M + missing, _HIGHEST_M)])
    if previous is not None:
        pos = previous.pos + follow * (pos - previous.pos)
        target = previous.target + min(1.0, 3 * follow) * (target - previous.target)
    return look_at(pos, target)
