"""Path planning on a map of the obstacles that the robot has seen; uses no privileged map.

Each environment has a grid fixed to the floor, centred where the skill began. Obstacles seen by the
head camera and the laser are drawn into the grid at the pose given by odometry. Cells without a
seen obstacle count as free, so that paths lead through unknown space until an obstacle is seen
there: the freespace assumption (Koenig and Tovey, "Performance bounds for planning in unknown
terrain", Artificial Intelligence 147, 2003). Paths are planned by A*. Cells near obstacles, and
cells on which the base cannot stand, cost more instead of being forbidden, so that a path always
exists.

A path may have a range of distances from the goal in which it may end. Each cell beyond the least
one costs as much as a detour of `_BEYOND` cells, so that a path around a chair to the near side of
a table is preferred to its far side, from which the arm does not reach over the table. The cost
falls to 0 over `_HURRY_STEPS`. Where the robot does not advance, the cell before it is marked as an
obstacle; where that does not help either, the path ends if it may.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tpsrl.errors import UserError
from tpsrl.runtime.compiled import njit
from tpsrl.world import map_arrays
from tpsrl.world.fetch import HEAD_CAMERA_FAR_M, LASER_POS, LASER_RANGE_M, laser_angles
from tpsrl.world.own_body import head_point, is_own, own_bounds, place_capsules
from tpsrl.world.state import WorldState

CELL_M = 0.1
SIDE = 256  # cells
_LOW_M, _HIGH_M = 0.1, 1.5  # heights at which a point is an obstacle to base, torso or head
_SEEN_M = 5.0  # points farther away are left out
_STRIDE = 2  # every second pixel of every second row is used
_PLAN_STEPS = 8  # control steps between plans
_OFF_PATH_M = 0.5  # a base farther than this from its path causes a new plan
_LONGEST = 400  # most cells of a path
_AHEAD = 40  # cells of the path that are searched for the next corner
_EXPANDED = 40_000  # most cells that one search expands
# Outer radii (m) of the rings around an obstacle, from near to far, and the costs of their cells.
_RINGS_M = np.array([0.22, 0.3, 0.4])
_COSTS = np.array([1.0, 2.0, 15.0, 60.0])  # by level: free, then the rings from far to near
_AT_GOAL = 0.75  # cells; every point has the centre of a cell within this distance
_BEYOND = 20.0  # cost per cell by which a path ends farther from its goal than necessary
_HURRY_STEPS = 300.0  # control steps after which an early end costs nothing
_PATIENCE = 60  # control steps without progress after which the robot counts as blocked
_PROGRESS = 1.0  # cells by which the path becomes shorter with progress
_DETOUR = 5.0  # cells by which a new path is longer, which counts as progress
_BEFORE = 3.0  # cells from the base's centre to the cell marked before a blocked robot
_RESIGNED = 2.0  # times blocked after which a path ends where it may
_FAR = 1e6  # cells, longer than any path
# Columns of the progress: least length of the path, its last length, step of the last progress,
# times blocked.
_LEAST, _LAST, _SINCE, _TIMES = range(4)
_NONE = np.array([_FAR, _FAR, 0.0, 0.0])
_BLOCKED = 3  # level of the innermost ring
_SEEN = 4  # level of cells in which an obstacle was seen
_ANGLES = np.array(laser_angles())
_ARRAYS = ("seen", "origin", "route", "length", "progress")


class ExploredMaps:
    """Maps of n environments, and the paths to their goals.

    Args:
        num_envs: number of environments, n
    """

    def __init__(self, num_envs: int) -> None:
        self._level = np.zeros((num_envs, SIDE, SIDE), np.uint8)
        self._origin = np.zeros((num_envs, 2))
        self._route = np.zeros((num_envs, _LONGEST, 2), np.int16)
        self._length = np.zeros(num_envs, np.int64)
        self._progress = np.full((num_envs, 4), _NONE)
        cells = SIDE * SIDE
        self._search = (
            np.zeros(cells, np.int32),  # number of the last search that reached a cell
            np.zeros(cells, np.float32),  # cost from the start
            np.zeros(cells, np.int32),  # previous cell on the path
            np.zeros(8 * _EXPANDED, np.float32),  # heap: costs including the heuristic
            np.zeros(8 * _EXPANDED, np.int32),  # heap: cells
        )
        self._searches = np.zeros(1, np.int32)

    def begin(self, env_ids: Sequence[int], base: np.ndarray) -> None:
        """Clears the maps of m environments and centres them on the base poses (m, 3)."""
        rows = np.asarray(env_ids)
        self._level[rows] = 0
        self._length[rows] = 0
        self._progress[rows] = _NONE
        self._origin[rows] = np.asarray(base)[:, :2] - 0.5 * SIDE * CELL_M

    def look(
        self,
        env_ids: Sequence[int],
        world: WorldState,
        laser: np.ndarray,
        depth: np.ndarray | None = None,
    ) -> None:
        """Draws the obstacles that the sensors of m environments see now.

        Args:
            env_ids: the m environments
            world: their state; used are odometry, joint positions of the arm, and whether an
                object is held
            laser: (m, rays) ranges in metres, as from `tpsrl.sim.base.Simulator.laser`
            depth: (m, height, width) of the head camera, 0 to `HEAD_CAMERA_FAR_M` scaled to 0 to 1
        """
        rows = np.asarray(env_ids, dtype=np.int64)
        base = np.ascontiguousarray(world.base, np.float64)
        ranges = np.ascontiguousarray(laser, np.float64)
        _draw_laser(self._level, self._origin, rows, base, ranges)
        if depth is not None:
            arm = np.ascontiguousarray(world.arm, np.float64)
            holds = np.asarray(world.held) >= 0
            pictures = np.ascontiguousarray(depth, np.float32)
            _draw_depth(self._level, self._origin, rows, pictures, base, arm, holds)

    def ahead(
        self,
        env_ids: Sequence[int],
        base: np.ndarray,
        goals: np.ndarray,
        reach_m: np.ndarray | float,
        steps: np.ndarray,
        reach_max_m: float | None = None,
    ) -> np.ndarray:
        """Returns the lengths of the paths to goals, and the next corner of each path.

        Args:
            env_ids: the m environments
            base: (m, 3) base poses
            goals: (m, 2 or 3) goal points
            reach_m: a path ends at this distance from its goal, metres; one value or (m,)
            steps: (m,) control steps since the skill began
            reach_max_m: if nearer floor is blocked, a path may end at this distance; None: the same

        Returns:
            (m, 3): length of the path, and its next corner forward and left in the frame of the
            base, metres. (0, 0, 0) where the path has ended.
        """
        rows = np.asarray(env_ids, np.int64)
        out = np.zeros((len(rows), 3))
        reach = np.broadcast_to(np.asarray(reach_m, np.float64), rows.shape)
        most = reach if reach_max_m is None else np.maximum(reach, reach_max_m)
        _lead(
            self._level,
            self._origin,
            self._route,
            self._length,
            self._search,
            self._searches,
            self._progress,
            rows,
            np.ascontiguousarray(base, np.float64),
            np.ascontiguousarray(goals, np.float64),
            np.stack([reach, most], axis=1),
            np.asarray(steps, np.int64),
            out,
        )
        return out

    @property
    def level(self) -> np.ndarray:
        """Levels (n, SIDE, SIDE) uint8: 4 where an obstacle was seen, then 3, 2, 1 around it.

        The base cannot stand on cells of levels 3 and 4. Index order is row (y), column (x).
        """
        return self._level

    @property
    def origin(self) -> np.ndarray:
        """Corners (n, 2) of the maps with the least x and y, metres."""
        return self._origin

    def to_arrays(self, env_id: int) -> dict[str, np.ndarray]:
        """Returns copies of an environment's map and path by name, for snapshots."""
        return {
            "seen": np.packbits(self._level[env_id] == _SEEN),
            "origin": self._origin[env_id].copy(),
            "route": self._route[env_id].copy(),
            "length": self._length[env_id : env_id + 1].copy(),
            "progress": self._progress[env_id].copy(),
        }

    def restore(self, env_id: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Restores an environment's map and path from the result of `to_arrays`.

        Raises:
            UserError: an array is missing or invalid.
        """
        map_arrays.check("explored map", _ARRAYS, arrays, self.to_arrays(env_id))
        route, length = arrays["route"], int(arrays["length"][0])
        if not 0 <= length <= _LONGEST or not ((route >= 0) & (route < SIDE)).all():
            raise UserError("explored map: array route is damaged")
        self._origin[env_id] = arrays["origin"]
        self._route[env_id], self._length[env_id] = route, length
        self._progress[env_id] = arrays["progress"]
        self._level[env_id] = 0
        seen = np.unpackbits(arrays["seen"]).reshape(SIDE, SIDE)
        for iy, ix in np.argwhere(seen):
            _mark(self._level[env_id], int(iy), int(ix))


def _disc() -> np.ndarray:
    """Returns row and column offsets of the cells around an obstacle and their levels, (k, 3)."""
    reach = math.ceil(_RINGS_M[-1] / CELL_M)
    rows = []
    for dy in range(-reach, reach + 1):
        for dx in range(-reach, reach + 1):
            ring = int(np.searchsorted(_RINGS_M, CELL_M * math.hypot(dx, dy) - 1e-9))
            if ring < len(_RINGS_M):
                rows.append((dy, dx, len(_RINGS_M) - ring))
    return np.array(rows, np.int64)


_DISC = _disc()


@njit(cache=True)
def _mark(level: np.ndarray, iy: int, ix: int) -> None:
    """Draws an obstacle and the rings around it."""
    if not (0 <= iy < SIDE and 0 <= ix < SIDE) or level[iy, ix] == _SEEN:
        return
    level[iy, ix] = _SEEN
    for k in range(len(_DISC)):
        y, x = iy + _DISC[k, 0], ix + _DISC[k, 1]
        if 0 <= y < SIDE and 0 <= x < SIDE:
            level[y, x] = max(level[y, x], _DISC[k, 2])


@njit(cache=True)
def _draw_laser(
    level: np.ndarray,
    origin: np.ndarray,
    rows: np.ndarray,
    base: np.ndarray,
    ranges: np.ndarray,
) -> None:
    for i in range(len(rows)):
        env = rows[i]
        x, y, yaw = base[i]
        x += LASER_POS[0] * math.cos(yaw) - LASER_POS[1] * math.sin(yaw)
        y += LASER_POS[0] * math.sin(yaw) + LASER_POS[1] * math.cos(yaw)
        for ray in range(ranges.shape[1]):
            gone = ranges[i, ray]
            if gone >= LASER_RANGE_M - 1e-3:
                continue
            turn = yaw + _ANGLES[ray]
            ix = math.floor((x + gone * math.cos(turn) - origin[env, 0]) / CELL_M)
            iy = math.floor((y + gone * math.sin(turn) - origin[env, 1]) / CELL_M)
            _mark(level[env], iy, ix)


@njit(cache=True)
def _draw_depth(
    level: np.ndarray,
    origin: np.ndarray,
    rows: np.ndarray,
    depth: np.ndarray,
    base: np.ndarray,
    arm: np.ndarray,
    holds: np.ndarray,
) -> None:
    _, height, width = depth.shape
    for i in range(len(rows)):
        env = rows[i]
        capsules, tip = place_capsules(arm[i])
        low, high = own_bounds(capsules, tip, holds[i])
        c, s = math.cos(base[i, 2]), math.sin(base[i, 2])
        for v in range(0, height, _STRIDE):
            for u in range(0, width, _STRIDE):
                planar = depth[i, v, u] * HEAD_CAMERA_FAR_M
                if planar > _SEEN_M:
                    continue
                x, y, z = head_point(planar, v, u, height, width)
                if z < _LOW_M or z > _HIGH_M:
                    continue
                near = low[0] < x < high[0] and low[1] < y < high[1] and low[2] < z < high[2]
                if near and is_own(x, y, z, capsules, tip, holds[i]):
                    continue
                ix = math.floor((base[i, 0] + c * x - s * y - origin[env, 0]) / CELL_M)
                iy = math.floor((base[i, 1] + s * x + c * y - origin[env, 1]) / CELL_M)
                _mark(level[env], iy, ix)


@njit(cache=True)
def _lead(
    level: np.ndarray,
    origin: np.ndarray,
    route: np.ndarray,
    length: np.ndarray,
    search: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    searches: np.ndarray,
    progress: np.ndarray,
    rows: np.ndarray,
    base: np.ndarray,
    goals: np.ndarray,
    reaches: np.ndarray,
    steps: np.ndarray,
    out: np.ndarray,
) -> None:
    for i in range(len(rows)):
        env = rows[i]
        # Coordinates are in cells from here; the centre of cell k is at k.
        x = (base[i, 0] - origin[env, 0]) / CELL_M - 0.5
        y = (base[i, 1] - origin[env, 1]) / CELL_M - 0.5
        gx = (goals[i, 0] - origin[env, 0]) / CELL_M - 0.5
        gy = (goals[i, 1] - origin[env, 1]) / CELL_M - 0.5
        reach, most = max(reaches[i, 0] / CELL_M, _AT_GOAL), max(reaches[i, 1] / CELL_M, _AT_GOAL)
        away = math.hypot(gx - x, gy - y)
        if away <= reach or (away <= most and progress[env, _TIMES] >= _RESIGNED):
            continue
        grid = level[env]
        at = _nearest(route[env], length[env], x, y)
        if steps[i] % _PLAN_STEPS == 0 or _is_bad(grid, route[env], length[env], at, x, y):
            searches[0] += 1
            beyond = _BEYOND * max(1.0 - steps[i] / _HURRY_STEPS, 0.0)
            ends = reach, most, beyond
            length[env] = _plan(grid, search, searches[0], x, y, gx, gy, ends, route[env])
            at = 0
        if length[env] == 0:
            left, cx, cy = away - reach, gx, gy
        else:
            last = route[env, length[env] - 1]
            if away <= min(most, math.hypot(gx - last[0], gy - last[1]) + _AT_GOAL):
                continue
            left, cx, cy = _corner(grid, route[env], length[env], at, x, y)
        if most > reach and _is_blocked(progress[env], left, steps[i]):
            far = max(math.hypot(cx - x, cy - y), 1.0)
            ix = math.floor(x + _BEFORE * (cx - x) / far + 0.5)
            iy = math.floor(y + _BEFORE * (cy - y) / far + 0.5)
            _mark(grid, iy, ix)
        c, s = math.cos(base[i, 2]), math.sin(base[i, 2])
        dx, dy = cx - x, cy - y
        out[i, 0] = left * CELL_M
        out[i, 1] = (c * dx + s * dy) * CELL_M
        out[i, 2] = (c * dy - s * dx) * CELL_M


@njit(cache=True)
def _is_blocked(progress: np.ndarray, left: float, step: int) -> bool:
    """Updates a robot's progress along a path of length `left`; returns whether it is blocked."""
    shorter = left < progress[_LEAST] - _PROGRESS
    if shorter or left > progress[_LAST] + _DETOUR:
        progress[_LEAST], progress[_SINCE] = left, step
    progress[_LAST] = left
    if step - progress[_SINCE] < _PATIENCE:
        return False
    progress[_LEAST], progress[_SINCE] = _FAR, step
    progress[_TIMES] += 1.0
    return True


@njit(cache=True)
def _nearest(route: np.ndarray, length: int, x: float, y: float) -> int:
    """Returns the index of the path's cell nearest to a point, the last one of equals."""
    at, best = 0, np.inf
    for k in range(length):
        away = (route[k, 0] - x) ** 2 + (route[k, 1] - y) ** 2
        if away <= best:
            at, best = k, away
    return at


@njit(cache=True)
def _is_bad(grid: np.ndarray, route: np.ndarray, length: int, at: int, x: float, y: float) -> bool:
    """Returns whether the path is missing, too far away, or blocked after index `at`."""
    if length == 0:
        return True
    if math.hypot(route[at, 0] - x, route[at, 1] - y) * CELL_M > _OFF_PATH_M:
        return True
    blocked = False
    for k in range(at + 1, length):
        blocked |= grid[route[k, 1], route[k, 0]] >= _BLOCKED
    return blocked


@njit(cache=True)
def _cost(level: int) -> float:
    return _COSTS[min(level, _BLOCKED)]


@njit(cache=True)
def _plan(
    grid: np.ndarray,
    search: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    number: int,
    x: float,
    y: float,
    gx: float,
    gy: float,
    ends: tuple[float, float, float],
    route: np.ndarray,
) -> int:
    """Plans by A* from a point to near a goal and writes the path to `route`.

    `ends` are the distances from the goal at which the path may end, least and most, and the cost
    of each cell beyond the least.

    Returns:
        The number of cells of the path, 0 if it is too long or the search found no end.
    """
    found_in, cost, before, keys, cells = search
    reach, most, beyond = ends
    sx, sy = math.floor(x + 0.5), math.floor(y + 0.5)
    if not (0 <= sx < SIDE and 0 <= sy < SIDE):
        return 0
    start = sy * SIDE + sx
    found_in[start], cost[start], before[start] = number, 0.0, -1
    keys[0], cells[0] = max(math.hypot(gx - sx, gy - sy) - reach, 0.0), start
    size, expanded, end, least = 1, 0, -1, np.inf
    while size > 0 and expanded < _EXPANDED:
        key, cell = keys[0], cells[0]
        if key >= least:
            break
        size -= 1
        _sift_down(keys, cells, size, keys[size], cells[size])
        cy, cx = cell // SIDE, cell % SIDE
        # A lower bound of the remaining cost, as long as `beyond` is at least that of a free cell.
        left = max(math.hypot(gx - cx, gy - cy) - reach, 0.0)
        if key > cost[cell] + left + 1e-3:
            continue  # this cell was expanded at a lower cost
        expanded += 1
        if left <= most - reach and cost[cell] + beyond * left < least:
            end, least = cell, cost[cell] + beyond * left
        for dy in range(-1, 2):
            for dx in range(-1, 2):
                ny, nx = cy + dy, cx + dx
                if (dx == 0 and dy == 0) or not (0 <= ny < SIDE and 0 <= nx < SIDE):
                    continue
                step = math.sqrt(2.0) if dx != 0 and dy != 0 else 1.0
                total = np.float32(cost[cell] + step * _cost(grid[ny, nx]))
                near = ny * SIDE + nx
                if found_in[near] == number and total >= cost[near] - 1e-4:
                    continue
                found_in[near], cost[near], before[near] = number, total, cell
                ahead = max(math.hypot(gx - nx, gy - ny) - reach, 0.0)
                if size < len(keys):
                    _sift_up(keys, cells, size, np.float32(total + ahead), near)
                    size += 1
    if end < 0:
        return 0
    count, cell = 0, end
    while cell >= 0:
        count, cell = count + 1, before[cell]
    if count > _LONGEST:
        return 0
    cell = end
    for k in range(count - 1, -1, -1):
        route[k, 0], route[k, 1] = cell % SIDE, cell // SIDE
        cell = before[cell]
    return count


@njit(cache=True)
def _sift_up(keys: np.ndarray, cells: np.ndarray, at: int, key: float, cell: int) -> None:
    while at > 0:
        above = (at - 1) // 2
        if keys[above] <= key:
            break
        keys[at], cells[at] = keys[above], cells[above]
        at = above
    keys[at], cells[at] = key, cell


@njit(cache=True)
def _sift_down(keys: np.ndarray, cells: np.ndarray, size: int, key: float, cell: int) -> None:
    at = 0
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and keys[below + 1] < keys[below]:
            below += 1
        if keys[below] >= key:
            break
        keys[at], cells[at] = keys[below], cells[below]
        at = below
    keys[at], cells[at] = key, cell


@njit(cache=True)
def _corner(
    grid: np.ndarray, route: np.ndarray, length: int, at: int, x: float, y: float
) -> tuple[float, float, float]:
    """Returns the length left of a path, and its next corner, in cells.

    The corner (x, y) is the farthest of the next `_AHEAD` cells of the path to which a straight
    line costs no more than the path, up to a tolerance of 2.
    """
    after = np.empty(length + 1)
    after[length] = after[length - 1] = 0.0
    for k in range(length - 2, -1, -1):
        step = math.hypot(
            float(route[k + 1, 0] - route[k, 0]), float(route[k + 1, 1] - route[k, 1])
        )
        after[k] = after[k + 1] + step
    best = min(at + 1, length - 1)
    spent = 0.0  # cost of the path after the cell `at`
    for k in range(at + 1, min(at + _AHEAD, length)):
        step = after[k - 1] - after[k]
        spent += step * _cost(grid[route[k, 1], route[k, 0]])
        if _line(grid, x, y, float(route[k, 0]), float(route[k, 1])) <= spent + 2.0:
            best = k
    cx, cy = float(route[best, 0]), float(route[best, 1])
    return math.hypot(cx - x, cy - y) + after[best], cx, cy


@njit(cache=True)
def _line(grid: np.ndarray, x: float, y: float, tx: float, ty: float) -> float:
    """Returns the cost of a straight line between two points, inf off the map."""
    far = math.hypot(tx - x, ty - y)
    count = int(2.0 * far) + 1
    total = 0.0
    for k in range(1, count + 1):
        part = k / count
        ix = math.floor(x + part * (tx - x) + 0.5)
        iy = math.floor(y + part * (ty - y) + 0.5)
        if not (0 <= ix < SIDE and 0 <= iy < SIDE):
            return np.inf
        total += _cost(grid[iy, ix])
    return total * far / count
