"""Rounding of the corners of a drive, so that the base keeps moving while it turns.

A control step turns at most 4.8 degrees and drives at most 0.083 m, so that both speeds are fully
used on an arc of 1 m radius. Alternatives are compared by a forecast (`.path_following`) and used
only if all forecast poses are free.
"""

import math

import numpy as np

from tpsrl.motion.base.path_following import ALONG, DIRECTION, SHORTEST_M, curve, forecast, wrap
from tpsrl.motion.base.shortcutting import BACKWARD, required
from tpsrl.runtime.compiled import njit
from tpsrl.world.action import STEP_M
from tpsrl.world.footprint import pose_margin

_RADII_M = np.array([1.2, 0.8, 0.5, 0.3, 0.15])
_TANGENTS_M = np.array([1.2, 0.8, 0.5, 0.3, 0.15])  # of the arcs at the start and at the end
_WIDEST_RAD = 2.7  # at sharper corners the base turns on the spot
_MOST_RADIUS_M = 1.2
# Kinds of changes and the number of variants of each: a corner removed or a leg reversed; an arc
# into the last heading; an arc out of the first heading; an arc that cuts or passes a corner.
_KINDS, _CHANGES = 4, np.array([2, len(_TANGENTS_M), len(_TANGENTS_M), 2 * len(_RADII_M)])
_ROUNDS = 2
_WORTH_STEPS = 0.5
_MOST_STEPS, _DOUBTFUL = 1000, 1e6


@njit(cache=True)
def rounded(
    start: np.ndarray, legs: np.ndarray, goal: np.ndarray, scene: tuple, margin: float
) -> np.ndarray:
    """Returns quicker legs (k, 5) by local search over roundings of legs (j, 5).

    Changes are tried one at a time and kept if they save control steps, for up to `_ROUNDS` rounds.

    Args:
        start: base pose (3,).
        legs: x, y, heading, direction and radius; free, and the last leg only turns.
        goal: base pose (3,).
        scene: `Footprint.arguments`.
        margin: required clearance, metres.
    """
    own = pose_margin(start[0], start[1], start[2], *scene)
    end = pose_margin(goal[0], goal[1], goal[2], *scene)
    query = (scene, start, own, goal, end, margin)
    # The tracker deviates from straight legs, so that their forecast may not be free everywhere.
    best = min(_cost(legs, query, np.inf), _DOUBTFUL)
    kept = legs
    for _ in range(_ROUNDS):
        before = best
        for kind in range(_KINDS):
            i = kept.shape[0] - 2
            while i >= 0:
                for change in range(_CHANGES[kind]):
                    tried = _changed(start, kept, kind, i, change)
                    if not tried.shape[0]:
                        continue
                    cost = _cost(tried, query, best - _WORTH_STEPS)
                    if cost < best:
                        best, kept = cost, tried
                i = min(i, kept.shape[0] - 1) - 1
        if best >= before - _WORTH_STEPS:
            break
    return kept


@njit(cache=True)
def _changed(start: np.ndarray, legs: np.ndarray, kind: int, i: int, change: int) -> np.ndarray:
    """Returns the legs with one change of a kind at leg `i`, (0, 5) if it does not apply."""
    if kind == 0:
        return _without(start, legs, i) if change == 0 else _flipped(legs, i)
    if kind == 1:
        none = np.empty((0, 5))
        return _at_end(start, legs, _TANGENTS_M[change]) if i == legs.shape[0] - 2 else none
    if kind == 2:
        return _at_start(start, legs, _TANGENTS_M[change]) if i == 0 else np.empty((0, 5))
    radius, outward = _RADII_M[change // 2], change % 2 == 1
    return _at_corner(start, legs, i, radius, outward)


@njit(cache=True)
def _without(start: np.ndarray, legs: np.ndarray, i: int) -> np.ndarray:
    """Returns the legs without the corner at the end of leg `i`, or (0, 5)."""
    if i + 2 >= legs.shape[0]:
        return np.empty((0, 5))
    new = np.vstack((legs[:i], legs[i + 1 :]))
    px, py = start[0], start[1]
    if i > 0:
        px, py = legs[i - 1, 0], legs[i - 1, 1]
    dx, dy = new[i, 3] * (new[i, 0] - px), new[i, 3] * (new[i, 1] - py)
    if math.hypot(dx, dy) > SHORTEST_M:
        new[i, 2] = math.atan2(dy, dx)
    return new


@njit(cache=True)
def _flipped(legs: np.ndarray, i: int) -> np.ndarray:
    """Returns the legs with leg `i` driven in the other direction, or (0, 5)."""
    if legs[i, 4] > 0.0 or i + 1 >= legs.shape[0]:
        return np.empty((0, 5))
    new = legs.copy()
    new[i, 2] = wrap(legs[i, 2] + math.pi)
    new[i, 3] = -legs[i, 3]
    if i > 0:
        new[i - 1, 4] = 0.0
    return new


@njit(cache=True)
def _cost(legs: np.ndarray, query: tuple, most: float) -> float:
    """Returns the cost of driving along legs in control steps, inf if not free or above `most`.

    Driving backwards costs more. `query` is as in `shortcutting.leg_free`.
    """
    scene, start, own, goal, end, margin = query
    rows = curve(start, legs)
    limit = int(min(max(most, 0.0), _MOST_STEPS))
    poses = forecast(rows, 0, start, np.zeros(3), limit + 1)
    blind = 0.0
    for i in range(1, rows.shape[0]):
        if rows[i, DIRECTION] < 0.0:
            blind += rows[i, ALONG] - rows[i - 1, ALONG]
    cost = poses.shape[0] + (BACKWARD - 1.0) * blind / STEP_M
    if poses.shape[0] > limit or cost > most:
        return np.inf
    for i in range(poses.shape[0]):
        x, y, yaw = poses[i]
        need = required(x, y, start, own, goal, end, margin)
        if pose_margin(x, y, yaw, *scene) < need:
            return np.inf
    return cost


@njit(cache=True)
def _at_end(start: np.ndarray, legs: np.ndarray, tangent: float) -> np.ndarray:
    """Returns the legs with an arc of tangent length (m) into the last heading, or (0, 5)."""
    k = legs.shape[0]
    none = np.empty((0, 5))
    if k < 2:
        return none
    final = legs[k - 1]
    drive = k - 2
    if legs[drive, 4] > 0.0:
        return none
    if drive > 0 and legs[drive - 1, 4] > 0.0 and legs[drive, 2] == final[2]:
        drive -= 1  # replaces an arc with another tangent
    px, py = start[0], start[1]
    if drive > 0:
        px, py = legs[drive - 1, 0], legs[drive - 1, 1]
    direction = legs[drive, 3]
    x = final[0] - direction * tangent * math.cos(final[2])
    y = final[1] - direction * tangent * math.sin(final[2])
    return _bent(legs, drive, px, py, x, y, final, tangent)


@njit(cache=True)
def _bent(
    legs: np.ndarray,
    drive: int,
    px: float,
    py: float,
    x: float,
    y: float,
    final: np.ndarray,
    tangent: float,
) -> np.ndarray:
    """Returns the legs before `drive`, one from (px, py) to (x, y), an arc and the `final` turn."""
    none = np.empty((0, 5))
    direction = legs[drive, 3]
    dx, dy = direction * (x - px), direction * (y - py)
    if math.hypot(dx, dy) < 2 * SHORTEST_M:
        return none
    heading = math.atan2(dy, dx)
    turn = abs(wrap(final[2] - heading))
    if turn > _WIDEST_RAD or turn < SHORTEST_M:
        return none
    new = np.empty((drive + 3, 5))
    new[:drive] = legs[:drive]
    radius = min(tangent / math.tan(0.5 * turn), _MOST_RADIUS_M)
    new[drive] = np.array([x, y, heading, direction, radius])
    new[drive + 1] = np.array([final[0], final[1], final[2], direction, 0.0])
    new[drive + 2] = np.array([final[0], final[1], final[2], direction, 0.0])
    return new


@njit(cache=True)
def _at_start(start: np.ndarray, legs: np.ndarray, tangent: float) -> np.ndarray:
    """Returns the legs with an arc of at most `tangent` (m) out of the first heading, or (0, 5)."""
    none = np.empty((0, 5))
    first = 0
    while first < legs.shape[0] and (
        math.hypot(legs[first, 0] - start[0], legs[first, 1] - start[1]) < SHORTEST_M
    ):
        first += 1
    if first == legs.shape[0]:
        return none
    if legs[first, 4] > 0.0 and abs(wrap(legs[first, 2] - start[2])) < SHORTEST_M:
        first += 1  # replaces an arc with another tangent
    direction = legs[first, 3]
    x = start[0] + direction * tangent * math.cos(start[2])
    y = start[1] + direction * tangent * math.sin(start[2])
    dx, dy = direction * (legs[first, 0] - x), direction * (legs[first, 1] - y)
    if math.hypot(dx, dy) < 2 * SHORTEST_M:
        return none
    heading = math.atan2(dy, dx)
    turn = abs(wrap(heading - start[2]))
    if turn > _WIDEST_RAD or turn < SHORTEST_M:
        return none
    new = np.empty((legs.shape[0] - first + 1, 5))
    new[1:] = legs[first:]
    new[1, 2] = heading
    radius = min(tangent / math.tan(0.5 * turn), _MOST_RADIUS_M)
    new[0] = np.array([x, y, start[2], direction, radius])
    return new


@njit(cache=True)
def _at_corner(
    start: np.ndarray, legs: np.ndarray, i: int, radius: float, outward: bool
) -> np.ndarray:
    """Returns the legs with an arc at the end of leg `i`, (0, 5) if it does not apply.

    With `outward` the corner is moved so that the arc passes through its old position.
    """
    none = np.empty((0, 5))
    if legs[i, 4] > 0.0 or i + 2 >= legs.shape[0] or legs[i, 3] != legs[i + 1, 3]:
        return none
    px, py = start[0], start[1]
    if i > 0:
        px, py = legs[i - 1, 0], legs[i - 1, 1]
    ax, ay = legs[i, 0] - px, legs[i, 1] - py
    bx, by = legs[i + 1, 0] - legs[i, 0], legs[i + 1, 1] - legs[i, 1]
    a, b = math.hypot(ax, ay), math.hypot(bx, by)
    if min(a, b) < SHORTEST_M:
        return none
    turn = abs(wrap(math.atan2(by, bx) - math.atan2(ay, ax)))
    if turn > _WIDEST_RAD or turn < 1e-3:
        return none
    new = legs.copy()
    new[i, 4] = radius
    if outward:
        ox, oy = ax / a - bx / b, ay / a - by / b
        size = math.hypot(ox, oy)
        reach = min(radius, min(a, b) / math.tan(0.5 * turn))
        shift = min(reach * (1.0 / math.cos(0.5 * turn) - 1.0), 0.5)
        new[i, 0] += shift * ox / size
        new[i, 1] += shift * oy / size
        direction = legs[i, 3]
        ax, ay = direction * (new[i, 0] - px), direction * (new[i, 1] - py)
        new[i, 2] = math.atan2(ay, ax)
        bx, by = direction * (legs[i + 1, 0] - new[i, 0]), direction * (legs[i + 1, 1] - new[i, 1])
        new[i + 1, 2] = math.atan2(by, bx)
    return new
