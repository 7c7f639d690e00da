"""Postures of the arm for cup poses, by a table that fills itself as it is asked.

Turning the shoulder turns the whole arm about one upright axis, so what the other joints have to do
depends only on how far from that axis the cup is to be, how high, and how it points relative to
the line from the axis: four numbers. For each cell of a grid over them the table keeps the
branches that inverse kinematics finds from a set of seeds (elbow up, out to either side, ...).
A look-up says in nanoseconds about how far the arm has to move for a cup pose, and gives the seeds
from which the exact posture is found in a few iterations.

A cell is filled when it is first asked for, always in the same way, so what a look-up gives does
not depend on what was asked before.
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
# Metres from the shoulder's axis, height (m), pitch below the horizontal, turn off the line (rad).
_FIRST = np.array([0.20, 0.05, -math.radians(15.0), -1.25])
_STEPS = np.array([_STEP_M, _STEP_M, _STEP_PITCH, _STEP_TURN])
_SHAPE = (20, 32, 8, 11)
_SAME_RAD = 0.25  # branches that differ by less are one
_ALONG = 0.995  # cosine with which a direction counts as the cup's own axis
_ALIKE_RAD = 0.4  # from one cell to the next a posture may change by so much
_SEED_POSTURES = np.vstack([SEEDS, SEEDS[1:3] * np.array([1, 1, -1, 1, -1, 1, 1])])
_NEAR = SEEDS[0].copy()
_NEAR[0] = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class PostureTable:
    """The cells: how many branches each has (-1: not yet filled), and their postures."""

    count: np.ndarray  # (cells,) int8
    postures: np.ndarray  # (cells, MOST_BRANCHES, 7) float32, the last joint 0
    upward: np.ndarray  # (cells, MOST_BRANCHES) float32, angle of up about the cup's axis

    def arguments(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The fields, in the order that the compiled functions take them."""
        return self.count, self.postures, self.upward


@functools.cache
def table() -> PostureTable:
    """The table of this process."""
    cells = math.prod(_SHAPE)
    return PostureTable(
        np.full(cells, -1, dtype=np.int8),
        np.zeros((cells, MOST_BRANCHES, 7), dtype=np.float32),
        np.zeros((cells, MOST_BRANCHES), dtype=np.float32),
    )


_ALONE = ArmChecker(ARM_SPHERES, NO_BODIES).arguments()


@njit(cache=True)
def _cell(point: np.ndarray, axis: np.ndarray) -> tuple[int, float]:
    """The cell of a cup pose in the base frame (-1: outside the table), and its shoulder pan."""
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
            q[6] = 0.0  # the cup is round; what is held turns with it, which the caller sees to
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
    """Writes about which postures reach a cup pose, and how far they are.

    Args:
        point: (3,) of the cup's tip, base frame.
        axis: (3,) unit vector out of the cup, base frame.
        near: (7,) the posture from which the arm comes.
        up_angle: about the cup's axis, from its y to its z, where what points up in the end is
            (rad); NaN where that does not matter.
        count: of the table.
        postures: of the table.
        upward: of the table.
        cost: (MOST_BRANCHES,) receives the greatest difference of a joint (rad).
        found: (MOST_BRANCHES, 7) receives the postures.

    Returns:
        How many there are.
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
    """About how far (n,), in rad of the slowest joint, cup poses are; inf for out of reach.

    `points` and `axes` (n, 3), `up_angles` (n,) as in `branches`.
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
    """The angle about the cup's axis of its direction `up_cup` (3,), NaN if along the axis."""
    if abs(up_cup[0]) > _ALONG:
        return np.nan
    return math.atan2(up_cup[2], up_cup[1])


@njit(cache=True)
def rolled(q: np.ndarray, up_cup: np.ndarray, up_base: np.ndarray) -> float:
    """The last joint with which the cup's direction `up_cup` points most nearly to `up_base`."""
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
    """The quickest free postures for a cup pose and for the one from which it is come to.

    Args:
        tip: (3,) about where the cup's tip is at the ready pose, base frame.
        axis: (3,) about where the cup points there.
        point: (3,) as `tpsrl.world.kinematics.inverse` takes it, at the touch; so `axis_cup`,
            `axis_base`, `offset`.
        shift: (3,) from the touch to the ready pose.
        near: (7,) where the arm comes from.
        apart: arguments of the checker for the ready pose, which keeps `margin` (m).
        contact: the same for the touch, of which obstacle `target` may be touched.
        most: the farthest that the ready posture may be (rad).
        stretch: the farthest that the two may be from each other (rad).

    Returns:
        How far the ready posture is from `near` (rad, inf: there is none), it, and the other one.
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
        # What the table says is good to some tenths of a radian.
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
