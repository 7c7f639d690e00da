"""Stances: base poses from which a point may be reached, with the cost of driving there."""

import dataclasses
import functools
import math

import numpy as np

from tpsrl.motion.base.driving import STOP_STEPS, drive_metres, drive_steps
from tpsrl.motion.scene import Scene
from tpsrl.runtime.compiled import njit
from tpsrl.world.action import STEP_M, STEP_RAD
from tpsrl.world.fetch import BASE_RADIUS
from tpsrl.world.floor import CELL_M, Joints, clearance_gradient, floor_map, main_floor
from tpsrl.world.footprint import Footprint, pose_margin

FOOTPRINT_MARGIN_M = 0.025
DRIVE_STEPS = 10.0  # fixed cost of a drive, so that short ones are avoided
# Lengths (m) of the advance, a straight last stretch with the arm already over the furniture.
_ADVANCES = np.array([0.0, 0.15, 0.3, 0.45, 0.6])
_STANDOFFS = np.array([0.7, 0.62, 0.79, 0.54, 0.88, 0.98, 1.08, 1.18])
# With fewer stances than `_FEW`, as over open drawers, the search is repeated on a finer grid.
_FEW, _CLOSE_STANDOFFS = 25, np.arange(0.54, 1.2, 0.04)
_ADVANCES_HERE = np.array([0.0, 0.07, 0.15, 0.22, 0.3, 0.37, 0.45, 0.52, 0.6])
_TURNS_HERE = np.array([0.0, 0.15, -0.15, 0.35, -0.35])  # rad
_FAR_ADVANCES = np.array([0.3, 0.45, 0.6])  # into a fridge with the arm already stretched out
_SEEN_M, _UNSEEN_STEPS = 1.42, 60.0  # cost beyond this distance: Navigate must end within 1.5 m
_FACING = np.array([0.0, 0.2, -0.2])  # within HAB's 15 degrees of the object (rad)
_NEAREST_M, _BESIDE_M, _ASIDE_RAD = 0.4, 0.1, 1.0  # limits of a point reached from the present base


@dataclasses.dataclass(frozen=True, slots=True)
class Stances:
    """Stances, one a row: steps to drive there, base pose before the advance, advance (m).

    Rows with `here` need no drive except the advance. `stance` is the base pose after the advance.
    """

    drive: np.ndarray  # (n,) control steps without the advance
    first: np.ndarray  # (n, 3)
    advance: np.ndarray  # (n,) m
    stance: np.ndarray  # (n, 3)
    here: np.ndarray  # (n,) bool

    @property
    def on(self) -> np.ndarray:
        """Control steps (n,) of the advance and of driving back."""
        return np.where(self.advance > 0.0, 2.0 * (self.advance / STEP_M + STOP_STEPS), 0.0)


def ahead(pose: np.ndarray, distance: float) -> np.ndarray:
    """Returns the base pose (3,) `distance` metres straight ahead."""
    step = distance * np.array([math.cos(pose[2]), math.sin(pose[2]), 0.0])
    return np.asarray(pose) + step


def find_stances(scene: Scene, footprint: Footprint, point: np.ndarray, enclosed: bool) -> Stances:
    """Finds the stances for a point: those straight ahead of the base, and those around the point.

    Args:
        scene: scene with the present base pose.
        footprint: footprint of the present arm posture.
        point: (3,) point to reach.
        enclosed: whether the point is inside a body; stances are then closer together, and
            include those that drive into the body with the arm stretched out.
    """
    floor = floor_map(scene.layout, joints=scene.joints)
    free = main_floor(scene.layout, scene.joints)
    metres = drive_metres(footprint, scene.base)
    for standoffs, directions in ((_STANDOFFS, 64 if enclosed else 32), (_CLOSE_STANDOFFS, 128)):
        rows = _around(
            point,
            standoffs,
            directions,
            free,
            floor.distance,
            *floor.origin,
            footprint.arguments(),
            scene.base,
            metres,
            enclosed,
        )
        if len(rows) >= _FEW:
            break
    here = _here(
        scene.base,
        point,
        float(_STANDOFFS.max()),
        floor.distance,
        *floor.origin,
        footprint.arguments(),
    )
    rows = np.vstack([here, rows])
    first, advance = rows[:, 1:4], rows[:, 4]
    along = np.column_stack([np.cos(first[:, 2]), np.sin(first[:, 2]), np.zeros(len(rows))])
    stance = first + advance[:, None] * along
    still = np.abs(first - scene.base).max(axis=1) == 0.0
    return Stances(rows[:, 0], first, advance, stance, still)


@functools.lru_cache(maxsize=32)
def _floor_cells(layout: str, joints: Joints) -> np.ndarray:
    """Returns the centres (n, 2) of every other cell of the main floor along x and y."""
    floor = floor_map(layout, joints=joints)
    cells = 2 * np.argwhere(main_floor(layout, joints)[::2, ::2])[:, ::-1]
    return np.array(floor.origin) + (cells + 0.5) * CELL_M


def nearest_floor(scene: Scene, point: np.ndarray) -> np.ndarray:
    """Returns the position (2,) on the main floor that is nearest to a point (3,)."""
    places = _floor_cells(scene.layout, scene.joints)
    nearest: np.ndarray = places[np.argmin(((places - point[:2]) ** 2).sum(axis=1))]
    return nearest


def drivable(footprint: Footprint, pose: np.ndarray, margin: float) -> bool:
    """Returns whether a base pose (3,) is free and not a pocket: the base can back out or turn."""
    return bool(drivable_at(pose[0], pose[1], pose[2], footprint.arguments(), margin))


@njit(cache=True)
def drivable_at(x: float, y: float, yaw: float, scene: tuple, margin: float) -> bool:
    """Implements `drivable`; `scene` is `Footprint.arguments`."""
    if pose_margin(x, y, yaw, *scene) < margin:
        return False
    c, s = math.cos(yaw), math.sin(yaw)
    if (
        pose_margin(x - 0.1 * c, y - 0.1 * s, yaw, *scene) >= 0.0
        and pose_margin(x - 0.2 * c, y - 0.2 * s, yaw, *scene) >= 0.0
    ):
        return True
    return (
        pose_margin(x, y, yaw + 0.4, *scene) >= 0.0 and pose_margin(x, y, yaw - 0.4, *scene) >= 0.0
    )


@njit(cache=True)
def _around(
    point: np.ndarray,
    standoffs: np.ndarray,
    directions: int,
    free: np.ndarray,
    distance: np.ndarray,
    x0: float,
    y0: float,
    footprint: tuple,
    base: np.ndarray,
    metres: np.ndarray,
    enclosed: bool,
) -> np.ndarray:
    """Returns rows (n, 5) around a point: steps to drive, pose before the advance (3), advance."""
    rows = np.empty((standoffs.shape[0] * directions * 2, 5))
    count = 0
    for standoff in standoffs:
        for k in range(directions):
            angle = 2 * math.pi * k / directions
            x = point[0] + standoff * math.cos(angle)
            y = point[1] + standoff * math.sin(angle)
            ix, iy = int((x - x0) / CELL_M), int((y - y0) / CELL_M)
            if ix < 0 or iy < 0 or iy >= free.shape[0] or ix >= free.shape[1] or not free[iy, ix]:
                continue
            if clearance_gradient(distance, x0, y0, x, y)[0] < BASE_RADIUS + 0.01:
                continue
            facing = (angle + 2 * math.pi) % (2 * math.pi) - math.pi
            for group in range(2 if enclosed else 1):
                best = np.inf
                for turn in _FACING:
                    yaw = facing + turn
                    for advance in _ADVANCES if group == 0 else _FAR_ADVANCES:
                        px = x - advance * math.cos(yaw)
                        py = y - advance * math.sin(yaw)
                        drive = drive_steps(metres, footprint[0], footprint[1], base, px, py, yaw)
                        if math.hypot(px - point[0], py - point[1]) > _SEEN_M:
                            drive += _UNSEEN_STEPS
                        total = drive
                        if advance > 0.0:
                            total += 2.0 * (advance / STEP_M + STOP_STEPS)
                        if total < best and drivable_at(px, py, yaw, footprint, FOOTPRINT_MARGIN_M):
                            best = total
                            rows[count, 0] = drive + DRIVE_STEPS
                            rows[count, 1], rows[count, 2], rows[count, 3] = px, py, yaw
                            rows[count, 4] = advance
                if best < np.inf:
                    count += 1
    return rows[:count]


@njit(cache=True)
def _here(
    base: np.ndarray,
    point: np.ndarray,
    farthest: float,
    distance: np.ndarray,
    x0: float,
    y0: float,
    footprint: tuple,
) -> np.ndarray:
    """Returns rows as `_around` for the present base, with at most a small turn and an advance."""
    rows = np.empty((_ADVANCES_HERE.shape[0] * _TURNS_HERE.shape[0], 5))
    count = 0
    for turn in _TURNS_HERE:
        yaw = base[2] + turn
        if turn != 0.0 and pose_margin(base[0], base[1], yaw, *footprint) < 0.0:
            continue
        for advance in _ADVANCES_HERE:
            x, y = base[0] + advance * math.cos(yaw), base[1] + advance * math.sin(yaw)
            room = clearance_gradient(distance, x0, y0, x, y)[0] - BASE_RADIUS
            if advance > 0.0 and room < 0.01:
                break
            dx, dy = point[0] - x, point[1] - y
            off = (math.atan2(dy, dx) - yaw + math.pi) % (2 * math.pi) - math.pi
            if _NEAREST_M < math.hypot(dx, dy) < farthest + _BESIDE_M and abs(off) < _ASIDE_RAD:
                rows[count, 0] = abs(turn) / STEP_RAD + STOP_STEPS if turn != 0.0 else 0.0
                rows[count, 1], rows[count, 2], rows[count, 3] = base[0], base[1], yaw
                rows[count, 4] = advance
                count += 1
    return rows[:count]
