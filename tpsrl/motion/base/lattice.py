"""A* over (x, y, heading) with the robot's whole footprint.

At regular intervals a straight leg from the current state to the goal is tried, as in hybrid A*
(D. Dolgov et al., "Path Planning for Autonomous Vehicles in Unknown Semi-structured Environments",
IJRR 2010). Costs are control steps at HAB's maximum speeds (0.083 m and 4.8 degrees a step). The
lattice has cells of 5 cm and the 16 headings of the moves (1, 0), (2, 1), (1, 1), ...
"""

import heapq
import math

import numpy as np

from tpsrl.motion.base.shortcutting import BACKWARD, free_leg, leg_free, required
from tpsrl.runtime.compiled import njit
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
_COARSE_M = 0.04  # slack of the heuristic, which samples the map beside the centres of cells
# Expansions between trials of a straight leg, and distances of its end before the goal.
_SHOT_EVERY, _GATES_M = 32, np.array([0.0, 0.3, 0.6, 1.0])
_MAX_POPS = 15_000  # a goal that takes more expansions counts as unreachable
_GREED = 2.5  # weight of the heuristic, which ignores turns; paths are found much sooner


@njit(cache=True)
def cost_to_go(
    disc: np.ndarray, x0: float, y0: float, gx: float, gy: float, least: float
) -> np.ndarray:
    """Returns distances (m) to the goal on the lattice's cells for the disc alone, inf if cut off.

    Dijkstra's algorithm with buckets (R. B. Dial, "Algorithm 360", CACM 12, 1969). No edge is
    shorter than the width of a bucket, so that the order within a bucket is irrelevant.
    """
    ny, nx = disc.shape[0] // 2, disc.shape[1] // 2
    cost = np.full(ny * nx, np.inf)
    iy = min(max(int((gy - y0) / CELL_M), 0), ny - 1)
    ix = min(max(int((gx - x0) / CELL_M), 0), nx - 1)
    cost[iy * nx + ix] = 0.0
    # An edge is shorter than two buckets, so that three buckets are in use at a time.
    buckets, sizes = np.empty((3, 8 * ny * nx), dtype=np.int32), np.zeros(3, dtype=np.int64)
    buckets[0, 0], sizes[0] = iy * nx + ix, 1
    level = 0
    while sizes[0] + sizes[1] + sizes[2] > 0:
        now = level % 3
        for i in range(sizes[now]):
            node = buckets[now, i]
            c = cost[node]
            if int(c / CELL_M + 1e-6) != level:
                continue  # handled in an earlier bucket
            iy, ix = node // nx, node % nx
            for dy in range(-1, 2):
                for dx in range(-1, 2):
                    jy, jx = iy + dy, ix + dx
                    if jy < 0 or jx < 0 or jy >= ny or jx >= nx:
                        continue
                    new = c + CELL_M * (1.0 if dx * dy == 0 else math.sqrt(2.0))
                    to = jy * nx + jx
                    # The finer map is sampled at a quarter of the coarse cell.
                    if new >= cost[to] - 1e-9 or disc[2 * jy, 2 * jx] < least:
                        continue
                    cost[to] = new
                    later = int(new / CELL_M + 1e-6) % 3
                    buckets[later, sizes[later]] = to
                    sizes[later] += 1
        sizes[now] = 0
        level += 1
    return cost.reshape(ny, nx)


@njit(cache=True)
def _nearest_heading(yaw: float) -> int:
    best, at = 10.0, 0
    for h in range(16):
        d = abs((yaw - _HEADINGS[h] + math.pi) % (2 * math.pi) - math.pi)
        if d < best:
            best, at = d, h
    return at


class Lattice:
    """Lattice search that reuses its memory, whose initialisation takes longer than a search."""

    def __init__(self) -> None:
        self._best, self._parent = np.empty(0), np.empty(0, dtype=np.int32)
        self._mark = np.empty(0, dtype=np.int32)
        self._epoch = 0

    def path(self, start: np.ndarray, goal: np.ndarray, scene: tuple, margin: float) -> np.ndarray:
        """Returns lattice poses (k, 3) from about `start` to about `goal`, (0, 3) if none is found.

        Args:
            start: base pose (3,).
            goal: base pose (3,).
            scene: `Footprint.arguments`.
            margin: required clearance, metres.
        """
        ny, nx = scene[2].shape
        size = (ny // 2) * (nx // 2) * 16
        if size > len(self._best) or self._epoch > 2**29:
            self._best, self._parent = np.empty(size), np.empty(size, dtype=np.int32)
            self._mark, self._epoch = np.zeros(size, dtype=np.int32), 0
        self._epoch += 1
        memory = (self._best, self._parent, self._mark, self._epoch)
        found: np.ndarray = astar(start, goal, scene, margin, *memory)
        return found


@njit(cache=True)
def _gates(goal: np.ndarray, query: tuple) -> np.ndarray:
    """Returns the goal and poses before it with a free straight leg to it, (k, 3)."""
    gates = np.empty((_GATES_M.shape[0], 3))
    count = 0
    for d in _GATES_M:
        x, y, yaw = goal[0] - d * math.cos(goal[2]), goal[1] - d * math.sin(goal[2]), goal[2]
        if d == 0.0 or leg_free(x, y, yaw, goal[0], goal[1], yaw, yaw, query):
            gates[count] = x, y, yaw
            count += 1
    return gates[:count]


@njit(cache=True)
def astar(
    start: np.ndarray,
    goal: np.ndarray,
    scene: tuple,
    margin: float,
    best: np.ndarray,
    parent: np.ndarray,
    mark: np.ndarray,
    epoch: int,
) -> np.ndarray:
    """Implements `Lattice.path` with memory for each state in `best`, `parent` and `mark`.

    The entries of a state are valid if `mark` is 2 `epoch` (free) or 2 `epoch` + 1 (blocked).
    """
    # The lattice is shifted to contain the start, which may have no room to move onto it.
    disc = scene[2]
    none = np.empty((0, 3))
    x0 = scene[0] + ((start[0] - scene[0]) / CELL_M % 1.0 - 0.5) * CELL_M
    y0 = scene[1] + ((start[1] - scene[1]) / CELL_M % 1.0 - 0.5) * CELL_M
    ny, nx = disc.shape[0] // 2, disc.shape[1] // 2
    iy, ix = math.floor((start[1] - y0) / CELL_M), math.floor((start[0] - x0) / CELL_M)
    gy, gx = math.floor((goal[1] - y0) / CELL_M), math.floor((goal[0] - x0) / CELL_M)
    if not (0 <= iy < ny and 0 <= ix < nx and 0 <= gy < ny and 0 <= gx < nx):
        return none
    ahead = cost_to_go(disc, x0, y0, goal[0], goal[1], BASE_RADIUS - _COARSE_M)
    ahead *= _GREED / STEP_M
    free, blocked = 2 * epoch, 2 * epoch + 1
    first = (iy * nx + ix) * 16 + _nearest_heading(start[2])
    last = (gy * nx + gx) * 16 + _nearest_heading(goal[2])
    own = pose_margin(start[0], start[1], start[2], *scene)
    end = pose_margin(goal[0], goal[1], goal[2], *scene)
    query = (scene, start, own, goal, end, margin)
    if end < required(goal[0], goal[1], start, own, goal, end, margin):
        return none
    gates = _gates(goal, query)
    best[last], mark[last] = np.inf, free
    best[first], mark[first], parent[first] = 0.0, free, -1
    queue = [(ahead[iy, ix], first)]
    turn_cost = 2 * math.pi / 16 / STEP_RAD + 1.0
    popped = 0
    while len(queue) and popped < _MAX_POPS:
        f, state = heapq.heappop(queue)
        if state == last:
            break
        h, ix, iy = state % 16, (state // 16) % nx, state // (16 * nx)
        if f > best[state] + ahead[iy, ix] + 1e-6:
            continue
        if popped % _SHOT_EVERY == 0:
            x, y = x0 + (ix + 0.5) * CELL_M, y0 + (iy + 0.5) * CELL_M
            for i in range(gates.shape[0]):
                gate = gates[i]
                _, way = free_leg(x, y, _HEADINGS[h], gate[0], gate[1], gate[2], query)
                if way != 0.0:
                    return np.vstack((_poses(parent, state, nx, x0, y0), gates[i : i + 1]))
        popped += 1
        for move in range(4):
            jx, jy, k = ix, iy, h
            cost = turn_cost
            if move < 2:
                way = 1 - 2 * move
                jx, jy = ix + way * _MOVES[h, 0], iy + way * _MOVES[h, 1]
                cost = math.hypot(_MOVES[h, 0], _MOVES[h, 1]) * CELL_M / STEP_M
                cost *= 1.0 if move == 0 else BACKWARD
            else:
                k = (h + 2 * move - 5) % 16
            if jx < 0 or jy < 0 or jx >= nx or jy >= ny or not np.isfinite(ahead[jy, jx]):
                continue
            to = (jy * nx + jx) * 16 + k
            if mark[to] == blocked:
                continue
            cost += best[state]
            if mark[to] == free and cost >= best[to] - 1e-9:
                continue
            if mark[to] != free:
                x, y = x0 + (jx + 0.5) * CELL_M, y0 + (jy + 0.5) * CELL_M
                need = required(x, y, start, own, goal, end, margin)
                if pose_margin(x, y, _HEADINGS[k], *scene) < need:
                    mark[to] = blocked
                    continue
                mark[to] = free
            best[to], parent[to] = cost, state
            heapq.heappush(queue, (cost + ahead[jy, jx], to))
    if not np.isfinite(best[last]):
        return none
    return _poses(parent, last, nx, x0, y0)


@njit(cache=True)
def _poses(parent: np.ndarray, last: int, nx: int, x0: float, y0: float) -> np.ndarray:
    """Returns the poses (k, 3) of the states that lead to `last`."""
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
