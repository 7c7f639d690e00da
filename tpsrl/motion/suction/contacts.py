"""Where the cup can touch an object, and how it points there, seen from many stances at once."""

import math

import numpy as np

from tpsrl.runtime.compiled import njit

SPHERE = 2  # beside BOX and CYLINDER of `tpsrl.world.collision`
STEEP = math.radians(50)  # a cup that points down so much touches the top
_PITCHES = np.radians(np.array([90.0, 80.0, 70.0, 60.0, 50.0, 41.0, 32.0, 24.0, 16.0, 8.0]))
_TURNS = np.array([0.0, 0.45, -0.45])
_DOWN = math.radians(80)  # turning a cup that points down makes no difference
_SIDE_HEIGHT_M = 0.09  # the side of lower objects is too near to what they stand on
_LEAST_FACING = 0.6  # cosine between the cup's heading and the side that it meets
_BESIDE = 0.5  # of a side's half width, from its middle
_BESIDE_STEPS = 3.0  # what is not touched in its middle is held less well
_NEARER = 0.55  # of the half width, from the middle of the top towards the robot
_FROM_ABOVE = math.radians(30)  # low things can be touched from above so far aslant
_MOST = 110  # rows of a stance


@njit(cache=True)
def touches(
    primitive: int,
    half: np.ndarray,
    rotation: np.ndarray,
    centre: np.ndarray,
    stances: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Ways to touch an upright or fallen object from base poses.

    From above on the middle of what is its top; from the side, low things by their upper edge,
    where the hand is clear of the shelf: squarely first, failing that aslant and beside the middle,
    where neighbours are in the way.

    Args:
        primitive: BOX, CYLINDER or SPHERE.
        half: (3,) of the object's box, m.
        rotation: (3, 3) its axes in the world.
        centre: (3,) world, m.
        stances: (n, 3) base poses.

    Returns:
        For each of m touches: the row of its stance (m,), the point (m, 3) and the direction of
        the cup (m, 3), both world, the number of the pitch (m,), and steps that it costs (m,).
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
    """Half the least width of an object's sides that are not its top, m."""
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
    """Writes the direction of touch `m`; the number of touches then."""
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
    """Writes the touches of the side of a box that is met with a heading."""
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
