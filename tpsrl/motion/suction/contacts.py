"""Points and directions in which the cup can touch an object, for many stances at once."""

import math

import numpy as np

from tpsrl.runtime.compiled import njit

SPHERE = 2  # beside BOX and CYLINDER of `tpsrl.world.collision`
STEEP = math.radians(50)  # at steeper pitches the cup touches the top
_PITCHES = np.radians(np.array([90.0, 80.0, 70.0, 60.0, 50.0, 41.0, 32.0, 24.0, 16.0, 8.0]))
_TURNS = np.array([0.0, 0.45, -0.45])
_DOWN = math.radians(80)  # at steeper pitches the heading of the cup is irrelevant
_SIDE_HEIGHT_M = 0.09  # the sides of lower objects are too near to the surface below
_LEAST_FACING = 0.6  # least cosine between the cup's heading and the inward normal of a side
_BESIDE = 0.5  # share of a side's half width between its middle and a touch beside it
_BESIDE_STEPS = 3.0  # cost of a touch beside the middle, which holds less well
_NEARER = 0.55  # share of the half width from the middle of the top towards the robot
_FROM_ABOVE = math.radians(30)  # least pitch of a touch on top of a low object
_MOST = 110  # most touches of a stance


@njit(cache=True)
def touches(
    primitive: int,
    half: np.ndarray,
    rotation: np.ndarray,
    centre: np.ndarray,
    stances: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns the touches of an upright or fallen object from base poses.

    Touches from above are at the middle of the present top, or nearer to the robot. Touches from
    the side are square to the side, oblique, and beside the middle, for objects with neighbours. On
    low objects they are at the upper edge, where the hand is clear of the surface below.

    Args:
        primitive: BOX, CYLINDER or SPHERE.
        half: (3,) half extents of the object's box, m.
        rotation: (3, 3) axes of the object, world frame.
        centre: (3,) centre of the object, world frame, m.
        stances: (n, 3) base poses.

    Returns:
        For each of m touches: index of the stance (m,), point (m, 3) and direction of the cup
        (m, 3) in the world frame, index of the pitch (m,), and cost in control steps (m,).
    """
    n = stances.shape[0]
    row, pitches = np.empty(n * _MOST, dtype=np.int64), np.empty(n * _MOST, dtype=np.int64)
    point, axis = np.empty((n * _MOST, 3)), np.empty((n * _MOST, 3))
    extra = np.zeros(n * _MOST)
    top = 0.0
    for k in range(3):
        top += abs(rotation[2, k]) * half[k]
    low = 2 * top < _SIDE_HEIGHT_M
    height = top if low else 0.25 * top
    slim = _slim(half, rotation)
    lying = primitive == 1 and abs(rotation[2, 2]) < 0.5
    m = 0
    for i in range(n):
        toward = math.atan2(centre[1] - stances[i, 1], centre[0] - stances[i, 0])
        for p in range(_PITCHES.shape[0]):
            pitch = _PITCHES[p]
            for t in range(1 if pitch >= _DOWN else 3):
                heading = toward + _TURNS[t]
                first = m
                if primitive == SPHERE:
                    m = _add(m, heading, pitch, axis)
                    point[first] = -half[0] * axis[first]
                elif pitch >= STEEP or (low and pitch >= _FROM_ABOVE):
                    if pitch >= STEEP:
                        m = _add(m, heading, pitch, axis)
                        point[m - 1, :2] = 0.0
                        point[m - 1, 2] = top
                    if pitch < _DOWN:
                        m = _add(m, heading, pitch, axis)
                        point[m - 1, 0] = -_NEARER * slim * math.cos(heading)
                        point[m - 1, 1] = -_NEARER * slim * math.sin(heading)
                        point[m - 1, 2] = top
                        extra[m - 1] = _BESIDE_STEPS
                if primitive != SPHERE and pitch < STEEP:
                    if primitive == 0 or lying:
                        side = m
                        m = _sides(m, heading, pitch, half, rotation, point, axis, extra)
                        for j in range(side, m):
                            point[j, 2] += height
                    elif abs(rotation[2, 2]) > 0.9:
                        m = _add(m, heading, pitch, axis)
                        point[m - 1, 0] = -half[0] * math.cos(heading)
                        point[m - 1, 1] = -half[0] * math.sin(heading)
                        point[m - 1, 2] = height
                for j in range(first, m):
                    row[j], pitches[j] = i, p
                    for k in range(3):
                        point[j, k] += centre[k]
    return row[:m], point[:m], axis[:m], pitches[:m], extra[:m]


@njit(cache=True)
def _slim(half: np.ndarray, rotation: np.ndarray) -> float:
    """Returns half the least horizontal width of an object, m."""
    up = 0
    for k in range(3):
        if abs(rotation[2, k]) > abs(rotation[2, up]):
            up = k
    slim = 1.0
    for k in range(3):
        if k != up:
            slim = min(slim, half[k])
    return slim


@njit(cache=True)
def _add(m: int, heading: float, pitch: float, axis: np.ndarray) -> int:
    """Writes the direction of touch `m`; returns the new number of touches."""
    level = math.cos(pitch)
    axis[m, 0], axis[m, 1] = level * math.cos(heading), level * math.sin(heading)
    axis[m, 2] = -math.sin(pitch)
    return m + 1


@njit(cache=True)
def _sides(
    m: int,
    heading: float,
    pitch: float,
    half: np.ndarray,
    rotation: np.ndarray,
    point: np.ndarray,
    axis: np.ndarray,
    extra: np.ndarray,
) -> int:
    """Writes the touches of the side of a box that faces a heading; returns the new number."""
    best, side = -1.0, 0
    for k in range(3):
        score = -(rotation[0, k] * math.cos(heading) + rotation[1, k] * math.sin(heading))
        if abs(score) > abs(best) or k == 0:
            best, side = score, k
    if abs(best) < _LEAST_FACING or abs(rotation[2, side]) > 0.2:
        return m
    sign = 1.0 if best > 0 else -1.0
    nx, ny, nz = sign * rotation[0, side], sign * rotation[1, side], sign * rotation[2, side]
    width = 0.0
    for k in range(3):
        width += abs(-rotation[0, k] * ny + rotation[1, k] * nx) * half[k]
    square = math.atan2(-ny, -nx)
    for variant in range(4):
        aside = _BESIDE * width * (variant - 2.5) * 2.0 if variant >= 2 else 0.0
        m = _add(m, square if variant == 0 else heading, pitch, axis)
        point[m - 1, 0] = nx * half[side] - ny * aside
        point[m - 1, 1] = ny * half[side] + nx * aside
        point[m - 1, 2] = nz * half[side]
        extra[m - 1] = _BESIDE_STEPS if variant >= 2 else 0.0
    return m
