"""Drives between base poses as few straight legs joined by arcs, and their forecast.

A* finds a path (`lattice`), which is converted to straight legs (`shortcutting`), whose corners are
rounded (`arc_smoothing`). `path_following` drives along the result.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from tpsrl.motion.base.arc_smoothing import rounded
from tpsrl.motion.base.lattice import CELL_M, Lattice, cost_to_go
from tpsrl.motion.base.path_following import curve, forecast, wrap
from tpsrl.motion.base.shortcutting import straightened
from tpsrl.runtime.compiled import njit
from tpsrl.world.action import STEP_M, STEP_RAD
from tpsrl.world.fetch import BASE_RADIUS
from tpsrl.world.footprint import Footprint

_MARGIN_M = 0.025
_NARROW_M = (-0.015,)  # fallback for narrow passages; the base is 3 cm slimmer than its disc
STOP_STEPS = 6.0  # additional cost of braking, turning on the spot and starting again
_MOST_STEPS = 1000  # control steps of a drive
_LATTICE = Lattice()


@dataclasses.dataclass(frozen=True, slots=True)
class Leg:
    """Turn on the spot to `heading`, then straight drive (`direction` +1 or -1) to (x, y).

    With a radius (m) the base does not stop at (x, y) but continues on an arc into the next leg.
    """

    x: float
    y: float
    heading: float
    direction: int
    radius: float = 0.0


def plan_drive(
    footprint: Footprint, start: np.ndarray, goal: np.ndarray, margin: float = _MARGIN_M
) -> list[Leg] | None:
    """Plans legs from a base pose (3,) to another, or None; the last leg only turns.

    Near start and goal the required margin is at most their own clearance, so that a robot close to
    an obstacle can leave. There is no plan if either is inside an obstacle or off the map.
    """
    start, goal = np.asarray(start, dtype=np.float64), np.asarray(goal, dtype=np.float64)
    if not (np.isfinite(start).all() and np.isfinite(goal).all()):
        return None
    scene = footprint.arguments()
    for allowed in (margin, *_NARROW_M):
        cells = _LATTICE.path(start, goal, scene, allowed)
        if len(cells):
            legs = straightened(np.vstack([start, cells[1:], goal]), scene, allowed)
            return _as_legs(rounded(start, legs, goal, scene, allowed))
    return None


def _as_rows(legs: list[Leg]) -> np.ndarray:
    rows = [(leg.x, leg.y, leg.heading, leg.direction, leg.radius) for leg in legs]
    return np.array(rows, dtype=np.float64).reshape(-1, 5)


def _as_legs(rows: np.ndarray) -> list[Leg]:
    return [Leg(x, y, heading, int(way), radius) for x, y, heading, way, radius in rows.tolist()]


def drive_metres(footprint: Footprint, start: np.ndarray) -> np.ndarray:
    """Returns distances (ny, nx) in metres from `start` (3,) to cells of 5 cm for the base's disc.

    The distance is inf for cells that are cut off.
    """
    x0, y0 = footprint.origin
    return cost_to_go(footprint.disc, x0, y0, start[0], start[1], BASE_RADIUS)


@njit(cache=True)
def drive_steps(
    metres: np.ndarray, x0: float, y0: float, start: np.ndarray, x: float, y: float, yaw: float
) -> float:
    """Estimates the control steps from `start` (3,) to a base pose; inf if cut off.

    `metres` is the result of `drive_metres`, (x0, y0) the origin of the map.
    """
    iy, ix = int((y - y0) / CELL_M), int((x - x0) / CELL_M)
    if iy < 0 or ix < 0 or iy >= metres.shape[0] or ix >= metres.shape[1]:
        return np.inf
    length = metres[iy, ix]
    turns = abs(wrap(yaw - start[2]))
    if length > 0.3:
        there = math.atan2(y - start[1], x - start[0])
        turns = abs(wrap(there - start[2])) + abs(wrap(yaw - there))
    return length / STEP_M + turns / STEP_RAD + 2 * STOP_STEPS


def drive_field(footprint: Footprint, start: np.ndarray) -> Callable[[np.ndarray], float]:
    """Returns a function that estimates the control steps from `start` (3,) to a base pose."""
    metres = drive_metres(footprint, start)
    x0, y0 = footprint.origin
    return lambda pose: float(drive_steps(metres, x0, y0, start, pose[0], pose[1], pose[2]))


def drive_poses(start: np.ndarray, legs: list[Leg]) -> np.ndarray:
    """Returns the base poses (n, 3) after each control step of driving along legs.

    The base starts at rest from a pose (3,). The forecast runs the tracker on a model of the
    simulated base.
    """
    start = np.asarray(start, dtype=np.float64)
    return forecast(drive_curve(start, legs), 0, start, np.zeros(3), _MOST_STEPS)


def drive_curve(start: np.ndarray, legs: list[Leg]) -> np.ndarray:
    """Returns the curve (n, 6) of legs from a base pose; see `tpsrl.motion.base.path_following`."""
    return curve(np.asarray(start, dtype=np.float64), _as_rows(legs))
