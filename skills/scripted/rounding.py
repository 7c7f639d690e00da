"""Rounds the corners of a drive: the base goes on while it turns, where there is room for that.

Turning takes 4.8 degrees a step at most and driving 0.083 m, so that on an arc of 1 m radius neither
waits for the other. Ways are compared by driving them in a forecast (`skills.scripted.following`),
and taken only if all of that is free.
"""

import math

import numpy as np

from skills.scripted.following import DIRECTION, SHORTEST_M, curve, forecast, wrap
from skills.scripted.straightening import required
from tpsrl.compiled import njit
from tpsrl.world.footprint import pose_margin

_RADII_M = np.array([1.2, 0.8, 0.5, 0.3, 0.15])
_OUTWARD = np.array([0.0, 1.0])  # the arc cuts the corner, or goes through it
_TANGENTS_M = np.array([1.2, 0.8, 0.5, 0.3, 0.15])  # of the arcs at the start and at the end
_WIDEST_RAD = 2.7  # corners that are sharper are turned on the spot
_MOST_RADIUS_M = 1.2
_SURPLUS_M = 0.003  # arcs are driven less exactly than straight lines
_MOST_STEPS = 1000
_WORTH_STEPS = 0.5
_BLIND_STEPS = 0.5  # of a step backwards, what it counts more


@njit(cache=True)
def rounded(
    start: np.ndarray, legs: np.ndarray, goal: np.ndarray, scene: tuple, margin: float
) -> np.ndarray:
    """The legs (k, 5) that are quickest among roundings of some legs (j, 5), whose last one turns.

    Args:
        start: base pose (3,).
        legs: x, y, heading, direction and radius, free as they are.
        goal: base pose (3,).
        scene: `Footprint.arguments`.
        margin: metres to keep.
    """
    own = pose_margin(start[0], start[1], start[2], *scene)
    end = pose_margin(goal[0], goal[1], goal[2], *scene)
    best = _cost(start, legs, goal, scene, margin, own, end, np.inf)
    if not np.isfinite(best):  # the tracker does not keep to the lines exactly
        best = 1e6
    kept = legs
    for _ in range(2):
        before = best
        i = kept.shape[0] - 2
        while i >= 0:
            for tried in (_without(start, kept, i), _flipped(start, kept, i)):
                if tried.shape[0]:
                    cost = _cost(start, tried, goal, scene, margin, own, end, best - _WORTH_STEPS)
                    if cost < best:
                        best, kept = cost, tried
            i = min(i, kept.shape[0] - 1) - 1
        for way in range(2):
            for tangent in _TANGENTS_M:
                tried = _at_end(start, kept, tangent) if way == 0 else _at_start(start, kept, tangent)
                if tried.shape[0]:
                    cost = _cost(start, tried, goal, scene, margin, own, end, best - _WORTH_STEPS)
                    if cost < best:
                        best, kept = cost, tried
        for i in range(kept.shape[0] - 1):
            for radius in _RADII_M:
                for outward in _OUTWARD:
                    tried = _at_corner(start, kept, i, radius, outward)
                    if not tried.shape[0]:
                        continue
                    cost = _cost(start, tried, goal, scene, margin, own, end, best - _WORTH_STEPS)
                    if cost < best:
                        best, kept = cost, tried
        if best >= before - _WORTH_STEPS:
            break
    return kept


@njit(cache=True)
def _without(start: np.ndarray, legs: np.ndarray, i: int) -> np.ndarray:
    """The legs without the corner where leg `i` ends, or (0, 5)."""
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
def _flipped(start: np.ndarray, legs: np.ndarray, i: int) -> np.ndarray:
    """The legs with leg `i` driven the other way round, or (0, 5)."""
    if legs[i, 4] > 0.0 or i + 1 >= legs.shape[0]:
        return np.empty((0, 5))
    new = legs.copy()
    new[i, 2] = wrap(legs[i, 2] + math.pi)
    new[i, 3] = -legs[i, 3]
    if i > 0:
        new[i - 1, 4] = 0.0
    return new


@njit(cache=True)
def _cost(
    start: np.ndarray,
    legs: np.ndarray,
    goal: np.ndarray,
    scene: tuple,
    margin: float,
    own: float,
    end: float,
    most: float,
) -> float:
    """Control steps of driving along legs, more for those backwards; inf if not free or > `most`."""
    rows = curve(start, legs)
    limit = _MOST_STEPS if most == np.inf else int(min(most, float(_MOST_STEPS)))
    if limit < 1:
        return np.inf
    poses = forecast(rows, 0, start, np.zeros(3), limit + 1)
    if poses.shape[0] > limit:
        return np.inf
    blind = 0.0
    for i in range(1, rows.shape[0]):
        if rows[i, DIRECTION] < 0.0:
            blind += rows[i, 5] - rows[i - 1, 5]
    cost = poses.shape[0] + _BLIND_STEPS * blind / 0.0833
    if cost > most:
        return np.inf
    for i in range(poses.shape[0]):
        x, y, yaw = poses[i]
        need = required(x, y, start, own, goal, end, margin)
        if pose_margin(x, y, yaw, *scene) < need:
            return np.inf
    return cost


@njit(cache=True)
def _at_end(start: np.ndarray, legs: np.ndarray, tangent: float) -> np.ndarray:
    """The legs with an arc into the last heading that begins `tangent` before the end, or (0, 5).

    What the last leg that drives turned before is driven straight.
    """
    k = legs.shape[0]
    none = np.empty((0, 5))
    if k < 2:
        return none
    final = legs[k - 1]
    drive = k - 2
    if legs[drive, 4] > 0.0:
        return none
    if drive > 0 and legs[drive - 1, 4] > 0.0 and legs[drive, 2] == final[2]:
        drive -= 1  # it has been tried with another tangent
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
    """Legs before `drive`, from (px, py) to (x, y), by an arc to where `final` is, and its turn."""
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
    """The legs with an arc out of the first heading, `tangent` long at the most, or (0, 5)."""
    none = np.empty((0, 5))
    first = 0
    while first < legs.shape[0] and (
        math.hypot(legs[first, 0] - start[0], legs[first, 1] - start[1]) < SHORTEST_M
    ):
        first += 1
    if first == legs.shape[0]:
        return none
    if legs[first, 4] > 0.0 and abs(wrap(legs[first, 2] - start[2])) < SHORTEST_M:
        first += 1  # it has been tried with another tangent
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
    start: np.ndarray, legs: np.ndarray, i: int, radius: float, outward: float
) -> np.ndarray:
    """The legs with an arc at the end of leg `i`, which may be moved outward, or (0, 5)."""
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
    if outward > 0.0:
        ox, oy = ax / a - bx / b, ay / a - by / b
        size = math.hypot(ox, oy)
        reach = min(radius, min(a, b) / math.tan(0.5 * turn))
        shift = outward * min(reach * (1.0 / math.cos(0.5 * turn) - 1.0), 0.5)
        new[i, 0] += shift * ox / size
        new[i, 1] += shift * oy / size
        direction = legs[i, 3]
        ax, ay = direction * (new[i, 0] - px), direction * (new[i, 1] - py)
        new[i, 2] = math.atan2(ay, ax)
        bx, by = direction * (legs[i + 1, 0] - new[i, 0]), direction * (legs[i + 1, 1] - new[i, 1])
        new[i + 1, 2] = math.atan2(by, bx)
    return new
