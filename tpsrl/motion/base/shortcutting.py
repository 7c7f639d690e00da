"""Straight legs: collision check, and conversion of a path of many short moves to few legs.

A leg is a row (5,): x, y, heading, direction, radius; see `tpsrl.motion.base.driving.Leg`.
"""

import math

import numpy as np

from tpsrl.motion.base.path_following import SHORTEST_M, wrap
from tpsrl.runtime.compiled import njit
from tpsrl.world.action import STEP_M, STEP_RAD
from tpsrl.world.footprint import pose_margin

BACKWARD = 1.5  # cost factor of driving backwards, since the camera faces forward
_LEAVE_M = 0.4
_TOUCH_M = -0.02  # tolerance, since spheres are larger than the links that they represent
_LOOK_RAD, _LOOK_M = 0.12, 0.04


@njit(cache=True)
def required(
    x: float, y: float, start: np.ndarray, own: float, goal: np.ndarray, last: float, margin: float
) -> float:
    """Returns the required margin at (x, y); near start and goal at most their own margins."""
    need = margin
    if own < margin and (x - start[0]) ** 2 + (y - start[1]) ** 2 < _LEAVE_M**2:
        need = min(need, max(own, _TOUCH_M) - 0.004)
    if last < margin and (x - goal[0]) ** 2 + (y - goal[1]) ** 2 < _LEAVE_M**2:
        need = min(need, max(last, _TOUCH_M) - 0.004)
    return need


@njit(cache=True)
def _turn_free(x: float, y: float, a: float, b: float, scene: tuple, margin: float) -> bool:
    """Returns whether the shorter turn on the spot from heading a to b keeps the margin."""
    turn = wrap(b - a)
    count = math.ceil(abs(turn) / _LOOK_RAD)
    for i in range(1, count + 1):
        if pose_margin(x, y, a + turn * i / count, *scene) < margin:
            return False
    return True


@njit(cache=True)
def leg_free(
    x: float, y: float, yaw: float, x1: float, y1: float, heading: float, final: float, query: tuple
) -> bool:
    """Returns whether a turn to `heading`, a drive to (x1, y1) and a turn to `final` are free.

    `query` has the scene (`Footprint.arguments`), then the arguments of `required` after the point.
    """
    scene, start, own, goal, end, margin = query
    if not _turn_free(x, y, yaw, heading, scene, required(x, y, start, own, goal, end, margin)):
        return False
    length = math.hypot(x1 - x, y1 - y)
    count = math.ceil(length / _LOOK_M)
    for i in range(1, count + 1):
        px, py = x + i / count * (x1 - x), y + i / count * (y1 - y)
        need = required(px, py, start, own, goal, end, margin)
        if pose_margin(px, py, heading, *scene) < need:
            return False
    need = required(x1, y1, start, own, goal, end, margin)
    return _turn_free(x1, y1, heading, final, scene, need)


@njit(cache=True)
def free_leg(
    x: float, y: float, yaw: float, x1: float, y1: float, final: float, query: tuple
) -> tuple[float, float]:
    """Returns heading and direction of the quicker free leg between two poses; 0, 0 for none."""
    dx, dy = x1 - x, y1 - y
    length = math.hypot(dx, dy)
    if length < SHORTEST_M:
        return 0.0, 0.0
    ahead = math.atan2(dy, dx)
    back = wrap(ahead + math.pi)
    turns = abs(wrap(ahead - yaw)) + abs(wrap(final - ahead))
    turns_back = abs(wrap(back - yaw)) + abs(wrap(final - back))
    more = (BACKWARD - 1.0) * length / STEP_M
    forward_first = turns / STEP_RAD <= turns_back / STEP_RAD + more
    for forward in (forward_first, not forward_first):
        heading = ahead if forward else back
        if leg_free(x, y, yaw, x1, y1, heading, final, query):
            return heading, 1.0 if forward else -1.0
    return 0.0, 0.0


@njit(cache=True)
def straightened(poses: np.ndarray, scene: tuple, margin: float) -> np.ndarray:
    """Converts a free path of poses (n, 3) to legs (k, 5), of which the last only turns.

    Each leg leads to the farthest pose of the path that a single free leg reaches. At its end, the
    turn to the heading of the path must also be free, so that the rest of the path stays usable.
    """
    last = poses.shape[0] - 1
    own = pose_margin(poses[0, 0], poses[0, 1], poses[0, 2], *scene)
    end = pose_margin(poses[last, 0], poses[last, 1], poses[last, 2], *scene)
    query = (scene, poses[0], own, poses[last], end, margin)
    legs = np.zeros((2 * poses.shape[0] + 1, 5))
    n, at, yaw = 0, 0, poses[0, 2]
    while at < last:
        x, y = poses[at, 0], poses[at, 1]
        to, direction, heading = last, 0.0, 0.0
        while to > at:
            heading, direction = free_leg(
                x, y, yaw, poses[to, 0], poses[to, 1], poses[to, 2], query
            )
            if direction != 0.0:
                break
            to -= 1
        if direction == 0.0 and abs(wrap(yaw - poses[at, 2])) > 1e-6:
            # The base turns back to the path's own heading, which is known to be free.
            heading, direction, to = poses[at, 2], 1.0, at
        elif direction == 0.0:
            to = at + 1
            heading, direction = _move(poses[at], poses[to])
        legs[n, 0], legs[n, 1] = poses[to, 0], poses[to, 1]
        legs[n, 2], legs[n, 3] = heading, direction
        n += 1
        yaw, at = heading, to
    legs[n, :3], legs[n, 3] = poses[last], 1.0
    return legs[: n + 1]


@njit(cache=True)
def _move(start: np.ndarray, end: np.ndarray) -> tuple[float, float]:
    """Returns heading and direction of one move of a path; the direction of a turn is 1."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    if math.hypot(dx, dy) < 0.01:
        return end[2], 1.0
    if dx * math.cos(end[2]) + dy * math.sin(end[2]) >= 0.0:
        return math.atan2(dy, dx), 1.0
    return math.atan2(-dy, -dx), -1.0
