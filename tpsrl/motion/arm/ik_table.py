"""Table of arm postures for cup poses, filled on demand.

The shoulder pan turns the whole arm about a vertical axis. The other joints therefore depend on
only four numbers: the cup's distance from that axis, its height, and two angles of its direction,
one of them relative to the line from the axis. For each cell of a grid over these four numbers the
table stores the branches that inverse kinematics finds from a set of seeds (elbow up, out to either
side, ...). A look-up takes nanoseconds. It gives an estimate of the arm's motion to a cup pose, and
seeds from which the exact posture is found in a few iterations.

A cell is filled at its first look-up, by a deterministic procedure, so that results do not depend
on earlier look-ups.
"""

import dataclasses
import functools
import math

import numpy as np

from tpsrl.runtime.compiled import njit
from tpsrl.world.collision import ARM_SPHERES, NO_BODIES, ArmChecker, clearance
from tpsrl.world.kinematics import LOWER, UPPER, cup_pose, inverse, wrapped
from tpsrl.world.reach import CUP_AXIS, NO_OFFSET, SEEDS, SHOULDER, too_far

MOST_BRANCHES = 6
_STEP_M = 0.05
_STEP_PITCH, _STEP_TURN = math.radians(15.0), 0.25
# First values of: distance from the shoulder's axis (m), height (m), pitch below the horizontal
# (rad), yaw relative to the line from the axis (rad).
_FIRST = np.array([0.20, 0.05, -math.radians(15.0), -1.25])
_STEPS = np.array([_STEP_M, _STEP_M, _STEP_PITCH, _STEP_TURN])
_SHAPE = (20, 32, 8, 11)
_SAME_RAD = 0.25  # branches that differ by less count as one
_ALONG = 0.995  # cosine beyond which a direction counts as parallel to the cup's axis
_ALIKE_RAD = 0.4  # largest change of a posture between neighbouring cells
_SEED_POSTURES = np.vstack([SEEDS, SEEDS[1:3] * np.array([1, 1, -1, 1, -1, 1, 1])])
_NEAR = SEEDS[0].copy()
_NEAR[0] = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class PostureTable:
    """Cells of the table: number of branches (-1 if not yet filled), and their postures."""

    count: np.ndarray  # (cells,) int8
    postures: np.ndarray  # (cells, MOST_BRANCHES, 7) float32, the last joint 0
    upward: np.ndarray  # (cells, MOST_BRANCHES) float32, angle of world up about the cup's axis

    def arguments(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the fields in the argument order of the compiled functions."""
        return self.count, self.postures, self.upward


@functools.cache
def table() -> PostureTable:
    """Returns the table of this process."""
    cells = math.prod(_SHAPE)
    return PostureTable(
        np.full(cells, -1, dtype=np.int8),
        np.zeros((cells, MOST_BRANCHES, 7), dtype=np.float32),
        np.zeros((cells, MOST_BRANCHES), dtype=np.float32),
    )


_ALONE = ArmChecker(ARM_SPHERES, NO_BODIES).arguments()


@njit(cache=True)
def _cell(point: np.ndarray, axis: np.ndarray) -> tuple[int, float]:
    """Returns the cell of a cup pose in the base frame (-1 if outside), and its shoulder pan."""
    dx, dy = point[0] - SHOULDER[0], point[1] - SHOULDER[1]
    pan = math.atan2(dy, dx)
    level = math.hypot(axis[0], axis[1])
    pitch = math.atan2(-axis[2], level)
    turn = 0.0
    if level > 0.05:
        turn = (math.atan2(axis[1], axis[0]) - pan + math.pi) % (2 * math.pi) - math.pi
    index = 0
    values = (math.hypot(dx, dy), point[2], pitch, turn)
    for k in range(4):
        i = math.floor((values[k] - _FIRST[k]) / _STEPS[k] + 0.5)
        if i < 0 or i >= _SHAPE[k]:
            return -1, pan
        index = index * _SHAPE[k] + i
    return index, pan


@njit(cache=True)
def _fill(cell: int, count: np.ndarray, postures: np.ndarray, upward: np.ndarray) -> None:
    """Finds the branches of a cell."""
    rest, values = cell, np.empty(4)
    for k in range(3, -1, -1):
        values[k] = _FIRST[k] + (rest % _SHAPE[k]) * _STEPS[k]
        rest //= _SHAPE[k]
    out, height, pitch, turn = values
    point = np.array([SHOULDER[0] + out, 0.0, height])
    level = math.cos(pitch)
    axis = np.array([level * math.cos(turn), level * math.sin(turn), -math.sin(pitch)])
    found = 0
    if not too_far(point, axis):
        for s in range(_SEED_POSTURES.shape[0]):
            ok, q = inverse(_SEED_POSTURES[s], point, CUP_AXIS, axis, _NEAR, NO_OFFSET, 60, 0.3)
            if not ok:
                continue
            wrapped(q, _NEAR)
            q[6] = 0.0  # the cup is round; the caller sets the roll of a held object
            new = True
            for b in range(found):
                if np.max(np.abs(postures[cell, b] - q)) < _SAME_RAD:
                    new = False
                    break
            if new and clearance(q, *_ALONE, -1, 0.0) >= 0.0:
                for k in range(7):
                    postures[cell, found, k] = q[k]
                _, turn_cup = cup_pose(q)
                upward[cell, found] = math.atan2(turn_cup[2, 2], turn_cup[2, 1])
                found += 1
                if found == MOST_BRANCHES:
                    break
    count[cell] = found


@njit(cache=True)
def branches(
    point: np.ndarray,
    axis: np.ndarray,
    near: np.ndarray,
    up_angle: float,
    count: np.ndarray,
    postures: np.ndarray,
    upward: np.ndarray,
    cost: np.ndarray,
    found: np.ndarray,
) -> int:
    """Writes approximate postures for a cup pose, and their distances from a posture.

    Args:
        point: (3,) tip of the cup, base frame.
        axis: (3,) unit vector out of the cup, base frame.
        near: (7,) posture from which the arm comes.
        up_angle: angle about the cup's axis, from its y to its z, of the direction that is to
            point up (rad); NaN if any roll will do.
        count: field of the table.
        postures: field of the table.
        upward: field of the table.
        cost: (MOST_BRANCHES,) receives the greatest joint differences to `near` (rad).
        found: (MOST_BRANCHES, 7) receives the postures.

    Returns:
        The number of postures.
    """
    cell, pan = _cell(point, axis)
    if cell < 0:
        return 0
    if count[cell] < 0:
        _fill(cell, count, postures, upward)
    number = 0
    for b in range(count[cell]):
        q = found[number]
        for k in range(7):
            q[k] = postures[cell, b, k]
        q[0] += pan
        q[6] = near[6] if math.isnan(up_angle) else upward[cell, b] - up_angle
        if q[0] < LOWER[0] or q[0] > UPPER[0]:
            continue
        wrapped(q, near)
        worst = 0.0
        for k in range(7):
            worst = max(worst, abs(q[k] - near[k]))
        cost[number] = worst
        number += 1
    return number


@njit(cache=True)
def estimates(
    points: np.ndarray,
    axes: np.ndarray,
    near: np.ndarray,
    up_angles: np.ndarray,
    count: np.ndarray,
    postures: np.ndarray,
    upward: np.ndarray,
) -> np.ndarray:
    """Estimates distances (n,) from a posture to cup poses, rad of the slowest joint.

    `points` and `axes` (n, 3) and `up_angles` (n,) are as in `branches`. The distance is inf for a
    pose out of reach.
    """
    out = np.full(points.shape[0], np.inf)
    cost, found = np.empty(MOST_BRANCHES), np.empty((MOST_BRANCHES, 7))
    for i in range(points.shape[0]):
        number = branches(
            points[i], axes[i], near, up_angles[i], count, postures, upward, cost, found
        )
        for b in range(number):
            out[i] = min(out[i], cost[b])
    return out


@njit(cache=True)
def up_angle_of(up_cup: np.ndarray) -> float:
    """Returns the angle about the cup's axis of a direction (3,), NaN if parallel to the axis."""
    if abs(up_cup[0]) > _ALONG:
        return np.nan
    return math.atan2(up_cup[2], up_cup[1])


@njit(cache=True)
def rolled(q: np.ndarray, up_cup: np.ndarray, up_base: np.ndarray) -> float:
    """Returns the position of the last joint that best aligns `up_cup` with `up_base`, rad."""
    straight = q.copy()
    straight[6] = 0.0
    _, turn = cup_pose(straight)
    y = turn[0, 1] * up_base[0] + turn[1, 1] * up_base[1] + turn[2, 1] * up_base[2]
    z = turn[0, 2] * up_base[0] + turn[1, 2] * up_base[1] + turn[2, 2] * up_base[2]
    return math.atan2(z, y) - math.atan2(up_cup[2], up_cup[1])


@njit(cache=True)
def reach_and_touch(
    tip: np.ndarray,
    axis: np.ndarray,
    point: np.ndarray,
    axis_cup: np.ndarray,
    axis_base: np.ndarray,
    offset: np.ndarray,
    shift: np.ndarray,
    near: np.ndarray,
    apart: tuple,
    margin: float,
    contact: tuple,
    target: int,
    touch_margin: float,
    most: float,
    stretch: float,
    count: np.ndarray,
    postures: np.ndarray,
    upward: np.ndarray,
) -> tuple[float, np.ndarray, np.ndarray]:
    """Finds the quickest collision-free postures for a touch and for the ready pose before it.

    Args:
        tip: (3,) approximate tip of the cup at the ready pose, base frame.
        axis: (3,) approximate direction of the cup at the ready pose, base frame.
        point: (3,) target of `tpsrl.world.kinematics.inverse` at the touch; `axis_cup`,
            `axis_base` and `offset` are its arguments too.
        axis_cup: (3,) see `point`.
        axis_base: (3,) see `point`.
        offset: (3,) see `point`.
        shift: (3,) displacement from the touch to the ready pose.
        near: (7,) posture from which the arm comes.
        apart: arguments of the collision checker at the ready pose.
        margin: required clearance at the ready pose, metres.
        contact: arguments of the collision checker at the touch.
        target: obstacle that may be touched, -1 for none.
        touch_margin: required clearance at the touch, metres.
        most: largest distance of the ready posture from `near`, rad.
        stretch: largest distance between the two postures, rad.
        count: field of the table.
        postures: field of the table.
        upward: field of the table.

    Returns:
        Distance of the ready posture from `near` (rad, inf if none was found), the ready posture,
        and the posture of the touch.
    """
    cost, found = np.empty(MOST_BRANCHES), np.empty((MOST_BRANCHES, 7))
    up_angle = up_angle_of(axis_cup)
    number = branches(tip, axis, near, up_angle, count, postures, upward, cost, found)
    best, ready, there = np.inf, near.copy(), near.copy()
    while True:
        b = -1
        for i in range(number):
            if cost[i] < np.inf and (b < 0 or cost[i] < cost[b]):
                b = i
        # The table is accurate to some tenths of a radian.
        if b < 0 or cost[b] > min(most, best) + _ALIKE_RAD:
            return best, ready, there
        seed = found[b].copy()
        cost[b] = np.inf
        if not math.isnan(up_angle):
            seed[6] = rolled(seed, axis_cup, axis_base)
            wrapped(seed, near)
        ok, first = inverse(seed, point + shift, axis_cup, axis_base, near, offset, 40, 0.3)
        if not ok:
            continue
        wrapped(first, near)
        far = np.max(np.abs(first - near))
        if far >= min(best, most) or clearance(first, *apart, -1, margin) < margin:
            continue
        ok, second = inverse(first, point, axis_cup, axis_base, first, offset, 40, 0.3)
        if not ok or np.max(np.abs(second - first)) > stretch:
            continue
        if clearance(second, *contact, target, touch_margin) < touch_margin:
            continue
        best, ready, there = far, first, second
