"""Driving: a free way between base poses, as few straight legs joined by arcs, and its forecast.

A* finds a way (`lattice`), of which straight legs are made (`straightening`), whose corners are
rounded (`rounding`); how they are driven is in `following`.
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
_NARROW_M = (-0.015,)  # asked for in passages; the base itself is 3 cm slimmer than its disc
STOP_STEPS = 6.0  # what braking, turning on the spot and starting again costs on top
_MOST_STEPS = 1000  # of a drive
_LATTICE = Lattice()


@dataclasses.dataclass(frozen=True, slots=True)
class Leg:
    """Turn on the spot to `heading`, then drive `direction` (+1, -1) straight to (x, y).

    With a radius (m) the base does not stop there: on an arc it goes over into the next leg.
    """

    x: float
    y: float
    heading: float
    direction: int
    radius: float = 0.0


def plan_drive(
    footprint: Footprint, start: np.ndarray, goal: np.ndarray, margin: float = _MARGIN_M
) -> list[Leg] | None:
    """Legs from a base pose (3,) to another, or None; the last leg only turns.

    Near start and goal no more is asked for than they have themselves, so a robot that stands close
    to something can leave. Where either is in an obstacle or off the map there is no way.
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
    """Metres (ny, nx) from `start` (3,) to cells of 5 cm for the base's disc; inf if cut off."""
    x0, y0 = footprint.origin
    return cost_to_go(footprint.disc, x0, y0, start[0], start[1], BASE_RADIUS)


@njit(cache=True)
def drive_steps(
    metres: np.ndarray, x0: float, y0: float, start: np.ndarray, x: float, y: float, yaw: float
) -> float:
    """A quick estimate of the steps from `start` (3,) to a base pose; inf if cut off.

    `metres` are those of `drive_metres`, the map's origin is at (x0, y0).
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
    """A quick estimate of the steps from `start` (3,) to any base pose; inf if cut off."""
    metres = drive_metres(footprint, start)
    x0, y0 = footprint.origin
    return lambda pose: float(drive_steps(metres, x0, y0, start, pose[0], pose[1], pose[2]))


def drive_poses(start: np.ndarray, legs: list[Leg]) -> np.ndarray:
    """Where a base that drives along legs is (n, 3) after each control step.

    It starts at rest from a base pose (3,). That is the tracker itself, driving a base that answers
    as the simulated one does.
    """
    start = np.asarray(start, dtype=np.float64)
    return forecast(drive_curve(start, legs), 0, start, np.zeros(3), _MOST_STEPS)


def drive_curve(start: np.ndarray, legs: list[Leg]) -> np.ndarray:
    """The curve (n, 6) of legs from a base pose (3,); see `tpsrl.motion.base.path_following`."""
    return curve(np.asarray(start, dtype=np.float64), _as_rows(legs))
