"""Driving: A* over (x, y, heading) with the robot's whole footprint, and a path follower.

Costs are control steps at HAB's greatest speeds (0.083 m and 4.8 degrees a step). The lattice has
cells of 5 cm and the 16 headings of the moves (1, 0), (2, 1), (1, 1), ...
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from skills.scripted.following import curve, forecast
from skills.scripted.lattice import BACKWARD, CELL_M, Lattice, cost_to_go, required
from skills.scripted.rounding import rounded
from tpsrl.compiled import njit
from tpsrl.world.action import STEP_M, STEP_RAD
from tpsrl.world.fetch import BASE_RADIUS
from tpsrl.world.footprint import Footprint, pose_margin
from tpsrl.world.geometry import wrap_angle

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

    Within `_LEAVE_M` of start and goal no more is asked for than they have themselves, so a robot
    that stands close to something can leave.
    """
    scene = footprint.arguments()
    for allowed in (margin, *_NARROW_M):
        cells = _LATTICE.path(start, goal, scene, allowed)
        if len(cells):
            legs = _legs(footprint, np.vstack([start, cells[1:], goal]), allowed)
            return _as_legs(rounded(start, _as_rows(legs), goal, scene, allowed))
    return None


def _as_rows(legs: list[Leg]) -> np.ndarray:
    rows = [(leg.x, leg.y, leg.heading, leg.direction, leg.radius) for leg in legs]
    return np.array(rows, dtype=np.float64).reshape(-1, 5)


def _as_legs(rows: np.ndarray) -> list[Leg]:
    return [Leg(x, y, heading, int(way), radius) for x, y, heading, way, radius in rows.tolist()]


def _legs(footprint: Footprint, poses: np.ndarray, margin: float) -> list[Leg]:
    """Straightens a lattice path: from each pose on to the farthest that a single leg reaches.

    A leg must also be able to turn to the heading that the path has where it ends, so that the
    way on stays as free as the lattice found it.
    """
    scene = (footprint.arguments(), margin, poses[0], poses[-1])
    legs: list[Leg] = []
    at, yaw = 0, float(poses[0, 2])
    last = len(poses) - 1
    while at < last:
        to, chosen = _farthest(poses, at, yaw, scene)
        if chosen is None and abs(wrap_angle(yaw - poses[at, 2])) > 1e-6:
            yaw = float(poses[at, 2])  # back to the path's own heading, which is known to be free
            legs.append(Leg(float(poses[at, 0]), float(poses[at, 1]), yaw, 1))
            continue
        if chosen is None:
            to = at + 1
            chosen = _lattice_step(poses[at], poses[to])
        if chosen is not None:
            legs.append(chosen)
            yaw = chosen.heading
        else:
            yaw = float(poses[to, 2])
            legs.append(Leg(float(poses[to, 0]), float(poses[to, 1]), yaw, 1))
        at = to
    legs.append(Leg(float(poses[-1, 0]), float(poses[-1, 1]), float(poses[-1, 2]), 1))
    return legs


def _farthest(poses: np.ndarray, at: int, yaw: float, scene: tuple) -> tuple[int, Leg | None]:
    """The farthest pose on the path that one free leg reaches, and the leg."""
    for to in range(len(poses) - 1, at, -1):
        for leg in _variants(poses[at], poses[to], yaw):
            ends = (poses[at, 0], poses[at, 1], yaw, leg.x, leg.y, leg.heading, poses[to, 2])
            if _leg_free(*ends, *scene):
                return to, leg
    return at, None


def _variants(start: np.ndarray, end: np.ndarray, yaw: float) -> list[Leg]:
    """Driving forwards and backwards from a pose to another, the quicker first; [] for no way."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = math.hypot(dx, dy)
    if length < 0.03:
        return []
    x, y, forward = float(end[0]), float(end[1]), math.atan2(dy, dx)
    found = []
    for direction, heading in ((1, forward), (-1, wrap_angle(forward + math.pi))):
        turns = abs(wrap_angle(heading - yaw)) + abs(wrap_angle(end[2] - heading))
        cost = turns / STEP_RAD + (1.0 if direction > 0 else BACKWARD) * length / STEP_M
        found.append((cost, Leg(x, y, heading, direction)))
    return [leg for _, leg in sorted(found, key=lambda f: f[0])]


def _lattice_step(start: np.ndarray, end: np.ndarray) -> Leg | None:
    """The leg of one move of the lattice, None for a turn."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    if math.hypot(dx, dy) < 0.01:
        return None
    along = dx * math.cos(end[2]) + dy * math.sin(end[2])
    heading = math.atan2(dy, dx) if along >= 0 else math.atan2(-dy, -dx)
    return Leg(float(end[0]), float(end[1]), heading, 1 if along >= 0 else -1)


@njit(cache=True)
def _turn_free(x: float, y: float, a: float, b: float, scene: tuple, margin: float) -> bool:
    """Whether turning on the spot the short way from heading a to b keeps the margin."""
    turn = (b - a + math.pi) % (2 * math.pi) - math.pi
    count = math.ceil(abs(turn) / 0.12)
    for i in range(1, count + 1):
        if pose_margin(x, y, a + turn * i / count, *scene) < margin:
            return False
    return True


@njit(cache=True)
def _leg_free(
    x: float,
    y: float,
    yaw: float,
    x1: float,
    y1: float,
    heading: float,
    final: float,
    scene: tuple,
    margin: float,
    start: np.ndarray,
    goal: np.ndarray,
) -> bool:
    """Whether turning to `heading`, driving straight to (x1, y1), turning to `final` is free."""
    own = pose_margin(start[0], start[1], start[2], *scene)
    end = pose_margin(goal[0], goal[1], goal[2], *scene)
    if not _turn_free(x, y, yaw, heading, scene, required(x, y, start, own, goal, end, margin)):
        return False
    length = math.hypot(x1 - x, y1 - y)
    count = math.ceil(length / 0.04)
    for i in range(1, count + 1):
        px, py = x + i / count * (x1 - x), y + i / count * (y1 - y)
        need = required(px, py, start, own, goal, end, margin)
        if pose_margin(px, py, heading, *scene) < need:
            return False
    need = required(x1, y1, start, own, goal, end, margin)
    return _turn_free(x1, y1, heading, final, scene, need)


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
    turns = abs((yaw - start[2] + math.pi) % (2 * math.pi) - math.pi)
    if length > 0.3:
        there = math.atan2(y - start[1], x - start[0])
        turns = abs((there - start[2] + math.pi) % (2 * math.pi) - math.pi)
        turns += abs((yaw - there + math.pi) % (2 * math.pi) - math.pi)
    return length / STEP_M + turns / STEP_RAD + 2 * STOP_STEPS


def drive_field(footprint: Footprint, start: np.ndarray) -> Callable[[np.ndarray], float]:
    """A quick estimate of the steps from `start` (3,) to any base pose; inf if cut off."""
    metres = drive_metres(footprint, start)
    x0, y0 = footprint.origin
    return lambda pose: float(drive_steps(metres, x0, y0, start, pose[0], pose[1], pose[2]))


def drive_poses(start: np.ndarray, legs: list[Leg]) -> np.ndarray:
    """Where a base that drives along legs is (n, 3) after each control step."""
    start = np.asarray(start, dtype=np.float64)
    return forecast(drive_curve(start, legs), 0, start, np.zeros(3), _MOST_STEPS)


def drive_curve(start: np.ndarray, legs: list[Leg]) -> np.ndarray:
    """The curve (n, 6) of legs from a base pose (3,); see `skills.scripted.following`."""
    return curve(np.asarray(start, dtype=np.float64), _as_rows(legs))
