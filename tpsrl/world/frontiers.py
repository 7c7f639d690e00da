"""Frontiers of the floor that a robot's own camera has seen, for exploration.

Beside the map of obstacles (`tpsrl.world.explored`) each environment has a grid of the cells that
the head camera has seen, as floor or as obstacle. A frontier is a seen cell on which the base can
stand, next to an unseen one (Yamauchi, "A frontier-based approach for autonomous exploration",
CIRA 1997). The robot is led to the nearest frontier until the cells behind it have been seen. When
no frontier is left, all floor counts as unseen again.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tpsrl.errors import UserError
from tpsrl.runtime.compiled import njit
from tpsrl.world import map_arrays
from tpsrl.world.explored import CELL_M, SIDE, ExploredMaps
from tpsrl.world.fetch import HEAD_CAMERA_FAR_M
from tpsrl.world.own_body import head_point, is_own, own_bounds, place_capsules
from tpsrl.world.state import WorldState

_FLOOR_M, _HIGH_M = 0.1, 1.5  # heights: below is floor, above is no obstacle to the base
_SEEN_M = 5.0  # points farther away are left out
_STRIDE = 2  # every second column of the picture is used
_NEAR_M = 0.8  # floor around the base, outside the camera's view, counts as seen
_BLOCKED = 3  # least level of the map of obstacles at which the base cannot stand on a cell
_BESIDE = 3  # cells; a goal is kept while a frontier is this near
_LEAST = 3  # frontiers among a cell and its neighbours; fewer are ignored as noise
_PATIENCE = 120  # control steps after which a frontier counts as seen
_ARRAYS = ("looked", "frontier", "waited")
_NONE = -1


class FrontierMaps:
    """Floor seen in n environments, and paths to the nearest frontiers.

    Args:
        num_envs: number of environments, n
    """

    def __init__(self, num_envs: int) -> None:
        self.explored = ExploredMaps(num_envs)
        self._looked = np.zeros((num_envs, SIDE, SIDE), np.bool_)
        self._frontier = np.full((num_envs, 2), _NONE, np.int64)  # column, row
        self._waited = np.zeros(num_envs, np.int64)
        self._queue = np.zeros((SIDE * SIDE, 2), np.int64)
        self._reached = np.zeros((SIDE, SIDE), np.bool_)

    def begin(self, env_ids: Sequence[int], base: np.ndarray) -> None:
        """Clears the maps of environments; see `ExploredMaps.begin`."""
        rows = np.asarray(env_ids)
        self.explored.begin(env_ids, base)
        self._looked[rows] = False
        self._frontier[rows] = _NONE
        self._waited[rows] = 0

    def look(
        self,
        env_ids: Sequence[int],
        world: WorldState,
        laser: np.ndarray,
        depth: np.ndarray | None = None,
    ) -> None:
        """Updates the maps and chooses frontiers; arguments as in `ExploredMaps.look`.

        Without depth only the floor near the base counts as seen.
        """
        self.explored.look(env_ids, world, laser, depth)
        rows = np.asarray(env_ids, dtype=np.int64)
        base = np.ascontiguousarray(world.base, np.float64)
        origin = self.explored.origin
        _look_near(self._looked, origin, rows, base)
        if depth is not None:
            arm = np.ascontiguousarray(world.arm, np.float64)
            holds = np.asarray(world.held) >= 0
            pictures = np.ascontiguousarray(depth, np.float32)
            _look(self._looked, origin, rows, pictures, base, arm, holds)
        for row, env in enumerate(env_ids):
            self._choose(env, float(base[row, 0]), float(base[row, 1]))

    def ahead(self, env_ids: Sequence[int], base: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Returns the lengths (m) of the paths to the chosen frontiers and their next corners.

        Returns:
            (m, 3) as in `ExploredMaps.ahead`; (0, 0, 0) where there is no frontier.
        """
        goals = np.array(base[:, :2], np.float64)
        rows = np.asarray(env_ids)
        frontier = self._frontier[rows]
        centres = (frontier + 0.5) * CELL_M + self.explored.origin[rows]
        goals = np.where(frontier == _NONE, goals, centres)
        return self.explored.ahead(env_ids, base, goals, 0.0, steps)

    def _choose(self, env: int, x: float, y: float) -> None:
        """Keeps or replaces the frontier of a robot at (x, y)."""
        level, looked = self.explored.level[env], self._looked[env]
        frontier = self._frontier[env]
        if frontier[0] != _NONE:
            self._waited[env] += 1
            if self._waited[env] > _PATIENCE:
                _mark_looked(looked, frontier[0], frontier[1])
            elif _is_beside(level, looked, frontier):
                return
        x0, y0 = self.explored.origin[env]
        at = np.array([math.floor((x - x0) / CELL_M), math.floor((y - y0) / CELL_M)])
        self._waited[env] = 0
        self._frontier[env] = _nearest(level, looked, at, self._queue, self._reached)
        if self._frontier[env, 0] == _NONE:
            looked[:] = False

    def to_arrays(self, env_id: int) -> dict[str, np.ndarray]:
        """Returns copies of an environment's maps, frontier and path by name, for snapshots."""
        return {
            **self.explored.to_arrays(env_id),
            "looked": np.packbits(self._looked[env_id]),
            "frontier": self._frontier[env_id].copy(),
            "waited": self._waited[env_id : env_id + 1].copy(),
        }

    def restore(self, env_id: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Restores an environment's maps, frontier and path from the result of `to_arrays`.

        Raises:
            UserError: an array is missing or invalid.
        """
        self.explored.restore(env_id, arrays)
        map_arrays.check("frontier map", _ARRAYS, arrays, self.to_arrays(env_id))
        frontier = arrays["frontier"]
        if not ((frontier >= _NONE) & (frontier < SIDE)).all():
            raise UserError("frontier map: array frontier is damaged")
        self._looked[env_id] = np.unpackbits(arrays["looked"]).reshape(SIDE, SIDE)
        self._frontier[env_id] = frontier
        self._waited[env_id] = arrays["waited"][0]


@njit(cache=True)
def _look_near(looked: np.ndarray, origin: np.ndarray, rows: np.ndarray, base: np.ndarray) -> None:
    reach = math.ceil(_NEAR_M / CELL_M)
    for i in range(len(rows)):
        env = rows[i]
        cx = math.floor((base[i, 0] - origin[env, 0]) / CELL_M)
        cy = math.floor((base[i, 1] - origin[env, 1]) / CELL_M)
        for dy in range(-reach, reach + 1):
            for dx in range(-reach, reach + 1):
                x, y = cx + dx, cy + dy
                near = math.hypot(dx, dy) * CELL_M <= _NEAR_M
                if near and 0 <= x < SIDE and 0 <= y < SIDE:
                    looked[env, y, x] = True


@njit(cache=True)
def _look(
    looked: np.ndarray,
    origin: np.ndarray,
    rows: np.ndarray,
    depth: np.ndarray,
    base: np.ndarray,
    arm: np.ndarray,
    holds: np.ndarray,
) -> None:
    """Marks the cells of seen points, and the floor between neighbouring points of a column."""
    _, height, width = depth.shape
    for i in range(len(rows)):
        env = rows[i]
        capsules, tip = place_capsules(arm[i])
        low, high = own_bounds(capsules, tip, holds[i])
        c, s = math.cos(base[i, 2]), math.sin(base[i, 2])
        for u in range(0, width, _STRIDE):
            before = False  # whether the pixel below showed floor, at (bx, by)
            bx, by = 0.0, 0.0
            for v in range(height - 1, -1, -1):
                planar = depth[i, v, u] * HEAD_CAMERA_FAR_M
                x, y, z = head_point(planar, v, u, height, width)
                near = low[0] < x < high[0] and low[1] < y < high[1] and low[2] < z < high[2]
                own = near and is_own(x, y, z, capsules, tip, holds[i])
                if own or planar > _SEEN_M or z > _HIGH_M:
                    before = False
                    continue
                floor = z < _FLOOR_M
                count = 1
                if floor and before:
                    count = int(math.hypot(x - bx, y - by) / (0.7 * CELL_M)) + 1
                for k in range(count):
                    px, py = x + (bx - x) * k / count, y + (by - y) * k / count
                    ix = math.floor((base[i, 0] + c * px - s * py - origin[env, 0]) / CELL_M)
                    iy = math.floor((base[i, 1] + s * px + c * py - origin[env, 1]) / CELL_M)
                    if 0 <= ix < SIDE and 0 <= iy < SIDE:
                        looked[env, iy, ix] = True
                before, bx, by = floor, x, y


@njit(cache=True)
def _is_frontier(level: np.ndarray, looked: np.ndarray, x: int, y: int) -> bool:
    if not (0 < x < SIDE - 1 and 0 < y < SIDE - 1):
        return False
    if not looked[y, x] or level[y, x] >= _BLOCKED:
        return False
    for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1)):
        if not looked[y + dy, x + dx] and level[y + dy, x + dx] < _BLOCKED:
            return True
    return False


@njit(cache=True)
def _is_large(level: np.ndarray, looked: np.ndarray, x: int, y: int) -> bool:
    """Returns whether enough neighbouring cells are frontiers too."""
    count = 0
    for dy in range(-1, 2):
        for dx in range(-1, 2):
            count += _is_frontier(level, looked, x + dx, y + dy)
    return count >= _LEAST


@njit(cache=True)
def _is_beside(level: np.ndarray, looked: np.ndarray, frontier: np.ndarray) -> bool:
    """Returns whether a frontier still exists within `_BESIDE` cells of the chosen one."""
    for dy in range(-_BESIDE, _BESIDE + 1):
        for dx in range(-_BESIDE, _BESIDE + 1):
            x, y = frontier[0] + dx, frontier[1] + dy
            if _is_frontier(level, looked, x, y) and _is_large(level, looked, x, y):
                return True
    return False


@njit(cache=True)
def _mark_looked(looked: np.ndarray, x: int, y: int) -> None:
    for iy in range(max(y - 2 * _BESIDE, 0), min(y + 2 * _BESIDE + 1, SIDE)):
        for ix in range(max(x - 2 * _BESIDE, 0), min(x + 2 * _BESIDE + 1, SIDE)):
            looked[iy, ix] = True


@njit(cache=True)
def _nearest(
    level: np.ndarray,
    looked: np.ndarray,
    start: np.ndarray,
    queue: np.ndarray,
    reached: np.ndarray,
) -> np.ndarray:
    """Returns the frontier (x, y) that is fewest moves over seen cells away, (-1, -1) for none.

    Moves over blocked cells are allowed from blocked cells, on which the base may be after a
    collision.
    """
    reached[:] = False
    queue[0] = start
    head, tail = 0, 1
    if 0 <= start[0] < SIDE and 0 <= start[1] < SIDE:
        reached[start[1], start[0]] = True
    else:
        return np.array([_NONE, _NONE])
    while head < tail:
        x, y = queue[head]
        head += 1
        if _is_frontier(level, looked, x, y) and _is_large(level, looked, x, y):
            return np.array([x, y])
        leaves = level[y, x] >= _BLOCKED
        for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1)):
            nx, ny = x + dx, y + dy
            if not (0 <= nx < SIDE and 0 <= ny < SIDE) or reached[ny, nx]:
                continue
            if not looked[ny, nx] or (level[ny, nx] >= _BLOCKED and not leaves):
                continue
            reached[ny, nx] = True
            queue[tail] = nx, ny
            tail += 1
    return np.array([_NONE, _NONE])
