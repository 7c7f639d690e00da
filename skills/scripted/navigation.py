"""Driving: A* over (x, y, heading) with the robot's whole footprint, and a path follower.

Costs are control steps at HAB's greatest speeds (0.083 m and 4.8 degrees a step). The lattice has
cells of 5 cm and the 16 headings of the moves (1, 0), (2, 1), (1, 1), ...
"""

import dataclasses
import heapq
import math
from collections.abc import Callable

import numpy as np

from skills.scripted.following import curve, forecast
from tpsrl.compiled import njit
from tpsrl.world.action import STEP_M, STEP_RAD
from tpsrl.world.fetch import BASE_RADIUS
from tpsrl.world.footprint import Footprint, pose_margin
from tpsrl.world.geometry import wrap_angle

_CELL = 0.05
_MOVES = np.array(
    [
        [1, 0], [2, 1], [1, 1], [1, 2], [0, 1], [-1, 2], [-1, 1], [-2, 1],
        [-1, 0], [-2, -1], [-1, -1], [-1, -2], [0, -1], [1, -2], [1, -1], [2, -1],
    ]
)  # fmt: skip
_HEADINGS = np.arctan2(_MOVES[:, 1], _MOVES[:, 0])
_BACKWARD = 1.5  # looking where one drives is worth some detour
_MARGIN_M = 0.025
_LEAVE_M = 0.4
_TOUCH_M = -0.02  # spheres are a little fatter than what they stand for
_NARROW_M = (-0.015,)  # asked for in passages; the base itself is 3 cm slimmer than its disc
_COARSE_M = 0.04  # what a cell's corner may lack where its centre has room
_MAX_POPS = 150_000  # a goal that takes more is walled in
_GREED = 2.5  # weight of the heuristic, which knows no turns: paths are found far sooner
STOP_STEPS = 6.0  # what braking, turning on the spot and starting again costs on top

MOST_STEPS = 1000  # of a drive


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
        cells = _astar(start, goal, scene, allowed)
        if len(cells):
            return _legs(footprint, np.vstack([start, cells[1:], goal]), allowed)
    return None


@njit(cache=True)
def _required(
    x: float, y: float, start: np.ndarray, own: float, goal: np.ndarray, last: float, margin: float
) -> float:
    """The margin asked for at (x, y): near start and goal no more than they have themselves."""
    need = margin
    if own < margin and (x - start[0]) ** 2 + (y - start[1]) ** 2 < _LEAVE_M**2:
        need = min(need, max(own, _TOUCH_M) - 0.004)
    if last < margin and (x - goal[0]) ** 2 + (y - goal[1]) ** 2 < _LEAVE_M**2:
        need = min(need, max(last, _TOUCH_M) - 0.004)
    return need


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
        cost = turns / STEP_RAD + (1.0 if direction > 0 else _BACKWARD) * length / STEP_M
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
    if not _turn_free(x, y, yaw, heading, scene, _required(x, y, start, own, goal, end, margin)):
        return False
    length = math.hypot(x1 - x, y1 - y)
    count = math.ceil(length / 0.04)
    for i in range(1, count + 1):
        px, py = x + i / count * (x1 - x), y + i / count * (y1 - y)
        need = _required(px, py, start, own, goal, end, margin)
        if pose_margin(px, py, heading, *scene) < need:
            return False
    need = _required(x1, y1, start, own, goal, end, margin)
    return _turn_free(x1, y1, heading, final, scene, need)


@njit(cache=True)
def _cost_to_go(
    disc: np.ndarray, x0: float, y0: float, gx: float, gy: float, least: float
) -> np.ndarray:
    """Metres to the goal on the lattice's cells for the disc alone (Dijkstra), inf if cut off."""
    ny, nx = disc.shape[0] // 2, disc.shape[1] // 2
    cost = np.full((ny, nx), np.inf)
    iy = min(max(int((gy - y0) / _CELL), 0), ny - 1)
    ix = min(max(int((gx - x0) / _CELL), 0), nx - 1)
    cost[iy, ix] = 0.0
    queue = [(0.0, iy, ix)]
    while len(queue):
        c, iy, ix = heapq.heappop(queue)
        if c > cost[iy, ix]:
            continue
        for dy in range(-1, 2):
            for dx in range(-1, 2):
                jy, jx = iy + dy, ix + dx
                if jy < 0 or jx < 0 or jy >= ny or jx >= nx:
                    continue
                # The finer map has its nodes at a quarter of the coarse cell.
                if disc[2 * jy, 2 * jx] < least:
                    continue
                new = c + _CELL * math.sqrt(dx * dx + dy * dy)
                if new < cost[jy, jx] - 1e-9:
                    cost[jy, jx] = new
                    heapq.heappush(queue, (new, jy, jx))
    return cost


@njit(cache=True)
def _nearest_heading(yaw: float) -> int:
    best, at = 10.0, 0
    for h in range(16):
        d = abs((yaw - _HEADINGS[h] + math.pi) % (2 * math.pi) - math.pi)
        if d < best:
            best, at = d, h
    return at


@njit(cache=True)
def _astar(start: np.ndarray, goal: np.ndarray, scene: tuple, margin: float) -> np.ndarray:
    """Lattice poses (k, 3) from start to goal, both approximate, or (0, 3)."""
    # The lattice is shifted so that the start is on it: it may have no room to get there.
    disc = scene[2]
    x0 = scene[0] + ((start[0] - scene[0]) / _CELL % 1.0 - 0.5) * _CELL
    y0 = scene[1] + ((start[1] - scene[1]) / _CELL % 1.0 - 0.5) * _CELL
    ahead = _cost_to_go(disc, x0, y0, goal[0], goal[1], BASE_RADIUS - _COARSE_M)
    ahead *= _GREED
    ny, nx = ahead.shape
    best = np.full(ny * nx * 16, np.inf)
    parent = np.full(ny * nx * 16, -1)
    checked = np.zeros(ny * nx * 16, dtype=np.int8)  # 0 unknown, 1 free, 2 blocked
    iy, ix = math.floor((start[1] - y0) / _CELL), math.floor((start[0] - x0) / _CELL)
    gy, gx = int((goal[1] - y0) / _CELL), int((goal[0] - x0) / _CELL)
    if not (0 <= iy < ny and 0 <= ix < nx and 0 <= gy < ny and 0 <= gx < nx):
        return np.empty((0, 3))
    first = (iy * nx + ix) * 16 + _nearest_heading(start[2])
    last = (gy * nx + gx) * 16 + _nearest_heading(goal[2])
    own = pose_margin(start[0], start[1], start[2], *scene)
    end = pose_margin(goal[0], goal[1], goal[2], *scene)
    best[first] = 0.0
    checked[first] = 1
    checked[last] = 1
    queue = [(ahead[iy, ix] / STEP_M, first)]
    turn_cost = 2 * math.pi / 16 / STEP_RAD + 1.0
    popped = 0
    while len(queue) and popped < _MAX_POPS:
        popped += 1
        f, state = heapq.heappop(queue)
        if state == last:
            break
        h = state % 16
        ix = (state // 16) % nx
        iy = state // (16 * nx)
        if f > best[state] + ahead[iy, ix] / STEP_M + 1e-6:
            continue
        for move in range(4):
            jx, jy, k = ix, iy, h
            if move == 0:
                jx, jy = ix + _MOVES[h, 0], iy + _MOVES[h, 1]
            elif move == 1:
                jx, jy = ix - _MOVES[h, 0], iy - _MOVES[h, 1]
            elif move == 2:
                k = (h + 1) % 16
            else:
                k = (h + 15) % 16
            if jx < 0 or jy < 0 or jx >= nx or jy >= ny or not np.isfinite(ahead[jy, jx]):
                continue
            length = math.sqrt((jx - ix) ** 2 + (jy - iy) ** 2) * _CELL
            cost = turn_cost
            if move == 0:
                cost = length / STEP_M
            elif move == 1:
                cost = _BACKWARD * length / STEP_M
            to = (jy * nx + jx) * 16 + k
            if best[state] + cost >= best[to] - 1e-9:
                continue
            if checked[to] == 0:
                x, y = x0 + (jx + 0.5) * _CELL, y0 + (jy + 0.5) * _CELL
                need = _required(x, y, start, own, goal, end, margin)
                free = pose_margin(x, y, _HEADINGS[k], *scene) >= need
                checked[to] = 1 if free else 2
            if checked[to] == 2:
                continue
            best[to] = best[state] + cost
            parent[to] = state
            heapq.heappush(queue, (best[to] + ahead[jy, jx] / STEP_M, to))
    if not np.isfinite(best[last]):
        return np.empty((0, 3))
    count, at = 0, last
    while at >= 0:
        count += 1
        at = parent[at]
    path = np.empty((count, 3))
    at = last
    for i in range(count - 1, -1, -1):
        path[i, 0] = x0 + ((at // 16) % nx + 0.5) * _CELL
        path[i, 1] = y0 + (at // (16 * nx) + 0.5) * _CELL
        path[i, 2] = _HEADINGS[at % 16]
        at = parent[at]
    return path


def drive_metres(footprint: Footprint, start: np.ndarray) -> np.ndarray:
    """Metres (ny, nx) from `start` (3,) to cells of 5 cm for the base's disc; inf if cut off."""
    x0, y0 = footprint.origin
    return _cost_to_go(footprint.disc, x0, y0, start[0], start[1], BASE_RADIUS)


@njit(cache=True)
def drive_steps(
    metres: np.ndarray, x0: float, y0: float, start: np.ndarray, x: float, y: float, yaw: float
) -> float:
    """A quick estimate of the steps from `start` (3,) to a base pose; inf if cut off.

    `metres` are those of `drive_metres`, the map's origin is at (x0, y0).
    """
    iy, ix = int((y - y0) / _CELL), int((x - x0) / _CELL)
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
    return forecast(drive_curve(start, legs), 0, start, np.zeros(3), MOST_STEPS)


def drive_curve(start: np.ndarray, legs: list[Leg]) -> np.ndarray:
    """The curve (n, 6) of legs from a base pose (3,); see `skills.scripted.following`."""
    rows = np.array([(g.x, g.y, g.heading, g.direction, g.radius) for g in legs], dtype=np.float64)
    return curve(np.asarray(start, dtype=np.float64), rows.reshape(-1, 5))
