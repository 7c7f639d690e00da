"""A* over (x, y, heading) with the robot's whole footprint."""

import heapq
import math

import numpy as np

from tpsrl.compiled import njit
from tpsrl.world.action import STEP_M, STEP_RAD
from tpsrl.world.fetch import BASE_RADIUS
from tpsrl.world.footprint import pose_margin


CELL_M = 0.05
_MOVES = np.array(
    [
        [1, 0], [2, 1], [1, 1], [1, 2], [0, 1], [-1, 2], [-1, 1], [-2, 1],
        [-1, 0], [-2, -1], [-1, -1], [-1, -2], [0, -1], [1, -2], [1, -1], [2, -1],
    ]
)  # fmt: skip
_HEADINGS = np.arctan2(_MOVES[:, 1], _MOVES[:, 0])
BACKWARD = 1.5  # looking where one drives is worth some detour
_LEAVE_M = 0.4
_TOUCH_M = -0.02  # spheres are a little fatter than what they stand for
_COARSE_M = 0.04  # what a cell's corner may lack where its centre has room
_MAX_POPS = 150_000  # a goal that takes more is walled in
_GREED = 2.5  # weight of the heuristic, which knows no turns: paths are found far sooner


@njit(cache=True)
def required(
    x: float, y: float, start: np.ndarray, own: float, goal: np.ndarray, last: float, margin: float
) -> float:
    """The margin asked for at (x, y): near start and goal no more than they have themselves."""
    need = margin
    if own < margin and (x - start[0]) ** 2 + (y - start[1]) ** 2 < _LEAVE_M**2:
        need = min(need, max(own, _TOUCH_M) - 0.004)
    if last < margin and (x - goal[0]) ** 2 + (y - goal[1]) ** 2 < _LEAVE_M**2:
        need = min(need, max(last, _TOUCH_M) - 0.004)
    return need


@njit(cache=True)
def cost_to_go(
    disc: np.ndarray, x0: float, y0: float, gx: float, gy: float, least: float
) -> np.ndarray:
    """Metres to the goal on the lattice's cells for the disc alone (Dijkstra), inf if cut off."""
    ny, nx = disc.shape[0] // 2, disc.shape[1] // 2
    cost = np.full((ny, nx), np.inf)
    iy = min(max(int((gy - y0) / CELL_M), 0), ny - 1)
    ix = min(max(int((gx - x0) / CELL_M), 0), nx - 1)
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
                new = c + CELL_M * math.sqrt(dx * dx + dy * dy)
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
def astar(start: np.ndarray, goal: np.ndarray, scene: tuple, margin: float) -> np.ndarray:
    """Lattice poses (k, 3) from start to goal, both approximate, or (0, 3)."""
    # The lattice is shifted so that the start is on it: it may have no room to get there.
    disc = scene[2]
    x0 = scene[0] + ((start[0] - scene[0]) / CELL_M % 1.0 - 0.5) * CELL_M
    y0 = scene[1] + ((start[1] - scene[1]) / CELL_M % 1.0 - 0.5) * CELL_M
    ahead = cost_to_go(disc, x0, y0, goal[0], goal[1], BASE_RADIUS - _COARSE_M)
    ahead *= _GREED
    ny, nx = ahead.shape
    best = np.full(ny * nx * 16, np.inf)
    parent = np.full(ny * nx * 16, -1)
    checked = np.zeros(ny * nx * 16, dtype=np.int8)  # 0 unknown, 1 free, 2 blocked
    iy, ix = math.floor((start[1] - y0) / CELL_M), math.floor((start[0] - x0) / CELL_M)
    gy, gx = int((goal[1] - y0) / CELL_M), int((goal[0] - x0) / CELL_M)
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
            length = math.sqrt((jx - ix) ** 2 + (jy - iy) ** 2) * CELL_M
            cost = turn_cost
            if move == 0:
                cost = length / STEP_M
            elif move == 1:
                cost = BACKWARD * length / STEP_M
            to = (jy * nx + jx) * 16 + k
            if best[state] + cost >= best[to] - 1e-9:
                continue
            if checked[to] == 0:
                x, y = x0 + (jx + 0.5) * CELL_M, y0 + (jy + 0.5) * CELL_M
                need = required(x, y, start, own, goal, end, margin)
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
        path[i, 0] = x0 + ((at // 16) % nx + 0.5) * CELL_M
        path[i, 1] = y0 + (at // (16 * nx) + 0.5) * CELL_M
        path[i, 2] = _HEADINGS[at % 16]
        at = parent[at]
    return path


