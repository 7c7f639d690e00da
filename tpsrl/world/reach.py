"""Reachability of the arm: postures for a cup pose, and base poses from which they exist.

Used by the episode generator, to check that places are reachable, and by the classical planner.
"""

import functools
import math
from collections.abc import Sequence

import numpy as np

from tpsrl.runtime.compiled import njit
from tpsrl.world.collision import (
    ARM_SPHERES,
    BOX,
    REST,
    ArmChecker,
    Bodies,
    clearance,
)
from tpsrl.world.fetch import BASE_RADIUS
from tpsrl.world.floor import CELL_M, CLOSED, Joints, floor_map, layout_obstacles, main_floor
from tpsrl.world.kinematics import inverse, wrapped

CUP_AXIS = np.array([1.0, 0.0, 0.0])
NO_OFFSET = np.zeros(3)
APPROACH_M = 0.08  # length of the cup's straight approach along its axis
# Approach pitches below the horizontal, steepest first (radians).
PITCHES = tuple(math.radians(p) for p in (90, 75, 60, 45, 30, 10))
# Distances of the base's centre from the point to reach, best first (m).
STANDOFFS = (0.7, 0.62, 0.78, 0.54, 0.86, 0.95)

# Initial postures of the solver: rest, reaching forward and down, elbow out to each side.
SEEDS = np.array(
    [
        REST,
        [0.0, -0.4, 0.0, 1.0, 0.0, 0.95, 0.0],
        [0.0, 0.5, 0.0, 0.3, 0.0, 0.8, 0.0],
        [0.6, -0.7, 1.3, -1.3, 0.6, -1.6, 0.0],
        [-0.6, -0.7, -1.3, -1.3, -0.6, -1.6, 0.0],
        [0.6, -0.2, 1.3, 1.3, -0.6, 1.3, 0.0],
        [-0.6, -0.2, -1.3, 1.3, 0.6, 1.3, 0.0],
    ]
)
_ITERATIONS = 60
SHOULDER = np.array([0.0326, 0.0, 0.936])  # axis of shoulder_pan, height of shoulder_lift
_UPPER_AND_FOREARM = 0.6735
_WRIST_TO_TIP = 0.385


@njit(cache=True)
def best_posture(
    point: np.ndarray,
    axis_cup: np.ndarray,
    axis_base: np.ndarray,
    offset: np.ndarray,
    seeds: np.ndarray,
    scene: tuple,
    target: int,
    margin: float,
    near: np.ndarray,
) -> tuple[float, np.ndarray]:
    """Finds the collision-free posture for a cup pose that is quickest to reach from `near` (7,).

    The other arguments are those of `tpsrl.world.kinematics.inverse` and
    `tpsrl.world.collision.clearance`.

    Returns:
        The greatest joint difference to `near` (rad, inf if no posture is free), and the posture.
    """
    best = np.inf
    chosen = near.copy()
    for s in range(seeds.shape[0]):
        seed = seeds[s]
        ok, q = inverse(seed, point, axis_cup, axis_base, near, offset, _ITERATIONS, 0.3)
        if not ok:
            continue
        wrapped(q, near)
        cost = np.max(np.abs(q - near))
        if cost >= best:
            continue
        if clearance(q, *scene, target, margin) >= margin:
            best = cost
            chosen = q
    return best, chosen


def seeds_towards(point: np.ndarray) -> np.ndarray:
    """Returns `SEEDS` with the shoulder panned towards a point (3,) in the base frame."""
    seeds = SEEDS.copy()
    pan = math.atan2(point[1], point[0] - SHOULDER[0])
    seeds[:, 0] = np.clip(seeds[:, 0] + pan, -1.6, 1.6)
    return seeds


@njit(cache=True)
def too_far(point: np.ndarray, axis: np.ndarray) -> bool:
    """Returns whether a cup pose in the base frame is beyond the stretched arm."""
    wrist = point - _WRIST_TO_TIP * axis
    out = math.hypot(wrist[0] - SHOULDER[0], wrist[1] - SHOULDER[1]) - 0.117
    return math.hypot(out, wrist[2] - SHOULDER[2]) > _UPPER_AND_FOREARM + 0.002


def to_base(base: Sequence[float] | np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Rotates a world direction (3,) into the frame of a base pose."""
    c, s = math.cos(base[2]), math.sin(base[2])
    return np.array([c * vector[0] + s * vector[1], -s * vector[0] + c * vector[1], vector[2]])


def point_to_base(base: Sequence[float] | np.ndarray, point: np.ndarray) -> np.ndarray:
    """Transforms a world point (3,) into the frame of a base pose."""
    return to_base(base, np.array([point[0] - base[0], point[1] - base[1], point[2]]))


def stances(
    layout: str,
    point: np.ndarray,
    standoffs: Sequence[float] = STANDOFFS,
    directions: int = 32,
    joints: Joints = CLOSED,
) -> np.ndarray:
    """Returns base poses (n, 3) on the main floor that face a point (3,), best distance first."""
    floor = floor_map(layout, joints=joints)
    free = main_floor(layout, joints)
    found = []
    for distance in standoffs:
        for k in range(directions):
            angle = 2 * math.pi * k / directions
            x = point[0] + distance * math.cos(angle)
            y = point[1] + distance * math.sin(angle)
            ix = int((x - floor.origin[0]) / CELL_M)
            iy = int((y - floor.origin[1]) / CELL_M)
            inside = 0 <= iy < free.shape[0] and 0 <= ix < free.shape[1]
            if inside and free[iy, ix] and floor.clearance(x, y) >= BASE_RADIUS + 0.01:
                facing = (angle + 2 * math.pi) % (2 * math.pi) - math.pi
                found.append((x, y, facing))
    return np.array(found).reshape(-1, 3)


@functools.lru_cache(maxsize=128)
def static_bodies(layout: str, joints: Joints = CLOSED) -> Bodies:
    """Returns furniture and walls of a layout as obstacles, with doors and drawers at `joints`."""
    o = layout_obstacles(layout, joints)
    return Bodies(np.full(len(o.half), BOX, dtype=np.int64), o.centre, o.rotation, o.half)


def reachable(
    layout: str, point: np.ndarray, others: Bodies | None = None, joints: Joints = CLOSED
) -> bool:
    """Returns whether the cup can reach a point (3,) from above or aslant, from any free base pose.

    `others` are additional obstacles, such as the objects around the point.
    """
    bodies = static_bodies(layout, joints)
    if others is not None:
        bodies = bodies.plus(others)
    point = np.asarray(point, dtype=np.float64)
    for stance in stances(layout, point, directions=16, joints=joints):
        near, _ = bodies.seen_from(stance)
        checker = ArmChecker(ARM_SPHERES, near)
        scene = checker.arguments()
        goal = point_to_base(stance, point)
        seeds = seeds_towards(goal)
        for pitch in PITCHES:
            axis = np.array([math.cos(pitch), 0.0, -math.sin(pitch)])
            back = goal - APPROACH_M * axis
            if too_far(goal, axis) or too_far(back, axis):
                continue
            for end in (goal, back):
                cost, _ = best_posture(end, CUP_AXIS, axis, NO_OFFSET, seeds, scene, -1, 0.0, REST)
                if not np.isfinite(cost):
                    break
            else:
                return True
    return False
