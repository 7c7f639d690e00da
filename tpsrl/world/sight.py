"""Visibility of a body for the head camera: rays from the camera to points on the body's boxes.

Points are spread over the surfaces of the body in proportion to area. A point is seen if it is in
the camera's field of view and no box of another body blocks the ray. A body does not occlude its
own points. A body is in sight if at least `SHARE` of its points are seen. The robot's own arm is
ignored.
"""

import math

import numpy as np

from tpsrl.runtime.compiled import njit
from tpsrl.world.own_body import EYE, FORWARD, TAN_HALF, UP

NUM_POINTS = 40
SHARE = 0.1  # share of a body's points that must be seen
_NEEDED = math.ceil(SHARE * NUM_POINTS)
_TOUCH = 1e-3  # unchecked share at the end of a ray, so that touching boxes do not occlude
_GOLDEN = (0.7548776662466927, 0.5698402909980532)  # steps of the plastic number's sequence


def surface_points(centre: np.ndarray, rotation: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Returns points (`NUM_POINTS`, 3) spread evenly over the surfaces of boxes, world frame.

    Args:
        centre: (b, 3) metres
        rotation: (b, 3, 3)
        half: (b, 3) half extents, metres
    """
    areas = np.stack([half[:, (k + 1) % 3] * half[:, (k + 2) % 3] for k in range(3)], axis=1)
    ends = np.cumsum(np.repeat(areas.ravel(), 2))
    number = np.arange(NUM_POINTS)
    face = np.searchsorted(ends, (number + 0.5) / NUM_POINTS * ends[-1])
    box, axis, side = face // 6, face // 2 % 3, 2.0 * (face % 2) - 1.0
    local = np.empty((NUM_POINTS, 3))
    local[number, axis] = side
    for k, step in enumerate(_GOLDEN, start=1):
        local[number, (axis + k) % 3] = 2.0 * ((0.5 + step * number) % 1.0) - 1.0
    return centre[box] + np.einsum("nij,nj->ni", rotation[box], local * half[box])


def in_sight(
    base: np.ndarray,
    points: np.ndarray,
    others: tuple[np.ndarray, np.ndarray, np.ndarray],
    turning: bool = False,
    range_m: float = math.inf,
) -> np.ndarray:
    """Returns whether a body is in sight (n,) bool from base poses (n, 3).

    Args:
        base: (n, 3) poses; with `turning` their headings are ignored
        points: (p, 3) points on the body, see `surface_points`
        others: boxes that can occlude the body: centres (b, 3), rotations (b, 3, 3), half extents
            (b, 3)
        turning: whether the base may turn on the spot, towards each point
        range_m: greatest distance from the camera at which a point is seen
    """
    base = np.ascontiguousarray(base, np.float64)
    return _in_sight(base, points, *others, turning, range_m)


@njit(cache=True)
def _in_sight(
    base: np.ndarray,
    points: np.ndarray,
    centre: np.ndarray,
    rotation: np.ndarray,
    half: np.ndarray,
    turning: bool,
    range_m: float,
) -> np.ndarray:
    out = np.zeros(len(base), np.bool_)
    eye = np.empty(3)
    for i in range(len(base)):
        seen = 0
        for k in range(len(points)):
            if seen + len(points) - k < _NEEDED:
                break
            point = points[k]
            dx, dy = point[0] - base[i, 0], point[1] - base[i, 1]
            yaw = math.atan2(dy, dx) if turning else base[i, 2]
            c, s = math.cos(yaw), math.sin(yaw)
            eye[0], eye[1] = base[i, 0] + EYE[0] * c, base[i, 1] + EYE[0] * s
            eye[2] = EYE[2]
            forward = c * dx + s * dy - EYE[0]
            left, height = c * dy - s * dx, point[2] - EYE[2]
            if forward**2 + left**2 + height**2 > range_m**2:
                continue
            depth = FORWARD[0] * forward + FORWARD[2] * height
            up = UP[0] * forward + UP[2] * height
            if depth <= 0.0 or max(abs(left), abs(up)) > TAN_HALF * depth:
                continue
            if not _is_hidden(eye, point, centre, rotation, half):
                seen += 1
                if seen >= _NEEDED:
                    out[i] = True
                    break
    return out


@njit(cache=True)
def _is_hidden(
    eye: np.ndarray,
    point: np.ndarray,
    centre: np.ndarray,
    rotation: np.ndarray,
    half: np.ndarray,
) -> bool:
    """Returns whether a box is between two points, by the slab test in the frame of each box."""
    for b in range(len(half)):
        first, last = 0.0, 1.0 - _TOUCH
        for axis in range(3):
            start, along = 0.0, 0.0
            for k in range(3):
                start += rotation[b, k, axis] * (eye[k] - centre[b, k])
                along += rotation[b, k, axis] * (point[k] - eye[k])
            if abs(along) < 1e-12:
                if abs(start) > half[b, axis]:
                    last = -1.0
                continue
            one, other = (-half[b, axis] - start) / along, (half[b, axis] - start) / along
            first, last = max(first, min(one, other)), min(last, max(one, other))
            if first > last:
                break
        if first <= last:
            return True
    return False
