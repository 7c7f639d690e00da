"""Things of a searched category that a robot has seen in its own pictures.

Each environment has a grid of the cells in which a category picture of the head camera has shown
the category, at the distance that the depth picture has there, beside the maps of obstacles and
frontiers (`tpsrl.world.frontiers`). The robot is led to the nearest of these cells, and to the
nearest frontier while there is none. Nothing is privileged but the segmentation: category pictures
of the simulator have no errors.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tpsrl.errors import UserError
from tpsrl.runtime.compiled import njit
from tpsrl.world import map_arrays
from tpsrl.world.explored import CELL_M, SIDE
from tpsrl.world.fetch import HEAD_CAMERA_FAR_M
from tpsrl.world.frontiers import FrontierMaps
from tpsrl.world.own_body import head_point
from tpsrl.world.state import WorldState

REACH_M = 0.8  # distance from a seen cell at which the path to it ends
_SEEN_M = 5.0  # pixels farther away are left out
_LEAST = 4  # pixels, over all steps, for which a cell counts as seen
_MOST = 255  # pixels that are counted for a cell


class SearchMaps:
    """Cells in which n robots have seen what they search for, and paths to them.

    Args:
        num_envs: number of environments, n
    """

    def __init__(self, num_envs: int) -> None:
        self.frontiers = FrontierMaps(num_envs)
        self._hits = np.zeros((num_envs, SIDE, SIDE), np.uint8)
        self._share = np.zeros(num_envs)  # of the current picture

    def begin(self, env_ids: Sequence[int], base: np.ndarray) -> None:
        """Clears the maps of environments; see `FrontierMaps.begin`."""
        self.frontiers.begin(env_ids, base)
        self.forget(env_ids)

    def forget(self, env_ids: Sequence[int]) -> None:
        """Clears what environments have seen of their categories; the other maps stay."""
        rows = np.asarray(env_ids)
        self._hits[rows] = 0
        self._share[rows] = 0.0

    def look(
        self,
        env_ids: Sequence[int],
        world: WorldState,
        laser: np.ndarray,
        depth: np.ndarray,
        category: np.ndarray,
        sought: np.ndarray,
    ) -> None:
        """Updates the maps of m environments.

        Args:
            env_ids: the m environments
            world: their state, for odometry and the robot's own body
            laser: (m, rays) ranges in metres
            depth: (m, height, width) of the head camera, 0 to 1
            category: (m, height, width) uint8, the category picture of the head camera
            sought: (m,) number of the category to find in `category`; 0 finds nothing

        Raises:
            UserError: the pictures have different sizes.
        """
        if depth.shape != category.shape:
            raise UserError(f"category: has shape {category.shape}, but depth has {depth.shape}")
        self.frontiers.look(env_ids, world, laser, depth)
        rows = np.asarray(env_ids, dtype=np.int64)
        pictures = np.ascontiguousarray(depth, np.float32), np.ascontiguousarray(category, np.uint8)
        numbers = np.asarray(sought, dtype=np.int64)
        base = np.ascontiguousarray(world.base, np.float64)
        origin = self.frontiers.explored.origin
        _look(self._hits, self._share, origin, rows, *pictures, numbers, base)

    def spotted(self, env_ids: Sequence[int], base: np.ndarray) -> np.ndarray:
        """Returns the nearest seen cells relative to base poses (m, 3).

        Returns:
            (m, 4): 1 if the category was seen, the centre of the nearest such cell forward and left
            in the base frame in metres, and the share of the current picture that shows it; zeros
            where it was not seen.
        """
        return self._spotted(env_ids, base, *self._nearest(env_ids, base))

    def _spotted(
        self, env_ids: Sequence[int], base: np.ndarray, points: np.ndarray, found: np.ndarray
    ) -> np.ndarray:
        out = np.zeros((len(env_ids), 4))
        away = points - base[:, :2]
        c, s = np.cos(base[:, 2]), np.sin(base[:, 2])
        out[:, 1] = c * away[:, 0] + s * away[:, 1]
        out[:, 2] = c * away[:, 1] - s * away[:, 0]
        out[:, 0], out[:, 3] = 1.0, self._share[np.asarray(env_ids)]
        out[~found] = 0.0
        return out

    def ahead(self, env_ids: Sequence[int], base: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Returns paths to `REACH_M` from the nearest seen cells, else to the nearest frontiers.

        Returns:
            (m, 3): length of the path, and its next corner forward and left in the frame of the
            base, metres; zeros at the end of the path.
        """
        return self._ahead(env_ids, base, steps, *self._nearest(env_ids, base))

    def read(
        self, env_ids: Sequence[int], base: np.ndarray, steps: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns `ahead` and `spotted`; the map is searched once for both."""
        nearest = self._nearest(env_ids, base)
        return self._ahead(env_ids, base, steps, *nearest), self._spotted(env_ids, base, *nearest)

    def _ahead(
        self,
        env_ids: Sequence[int],
        base: np.ndarray,
        steps: np.ndarray,
        points: np.ndarray,
        found: np.ndarray,
    ) -> np.ndarray:
        out = np.zeros((len(env_ids), 3))
        ids, explored = np.asarray(env_ids), self.frontiers.explored
        if found.any():
            goals = points[found]
            out[found] = explored.ahead(ids[found], base[found], goals, REACH_M, steps[found])
        if not found.all():
            out[~found] = self.frontiers.ahead(ids[~found], base[~found], steps[~found])
        return out

    def _nearest(self, env_ids: Sequence[int], base: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the centres (m, 2) of the nearest seen cells, and which robots have one (m,)."""
        rows = np.asarray(env_ids, dtype=np.int64)
        cells = np.zeros((len(rows), 2))
        found = np.zeros(len(rows), np.bool_)
        origin = self.frontiers.explored.origin
        _find(self._hits, origin, rows, np.ascontiguousarray(base, np.float64), cells, found)
        return cells, found

    def to_arrays(self, env_id: int) -> dict[str, np.ndarray]:
        """Returns copies of an environment's maps by name, for snapshots."""
        return {
            **self.frontiers.to_arrays(env_id),
            "hits": self._hits[env_id].copy(),
            "share": self._share[env_id : env_id + 1].copy(),
        }

    def restore(self, env_id: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Restores an environment's maps from the result of `to_arrays`.

        Raises:
            UserError: an array is missing or invalid.
        """
        self.frontiers.restore(env_id, arrays)
        map_arrays.check("search map", ("hits", "share"), arrays, self.to_arrays(env_id))
        self._hits[env_id] = arrays["hits"]
        self._share[env_id] = arrays["share"][0]


@njit(cache=True)
def _look(
    hits: np.ndarray,
    share: np.ndarray,
    origin: np.ndarray,
    rows: np.ndarray,
    depth: np.ndarray,
    category: np.ndarray,
    sought: np.ndarray,
    base: np.ndarray,
) -> None:
    """Counts the pixels of the sought category in the cells that they show."""
    _, height, width = depth.shape
    for i in range(len(rows)):
        env, count = rows[i], 0
        c, s = math.cos(base[i, 2]), math.sin(base[i, 2])
        for v in range(height):
            for u in range(width):
                planar = depth[i, v, u] * HEAD_CAMERA_FAR_M
                if sought[i] == 0 or category[i, v, u] != sought[i] or planar > _SEEN_M:
                    continue
                count += 1
                x, y, _z = head_point(planar, v, u, height, width)
                ix = math.floor((base[i, 0] + c * x - s * y - origin[env, 0]) / CELL_M)
                iy = math.floor((base[i, 1] + s * x + c * y - origin[env, 1]) / CELL_M)
                if 0 <= ix < SIDE and 0 <= iy < SIDE and hits[env, iy, ix] < _MOST:
                    hits[env, iy, ix] += 1
        share[env] = count / (height * width)


@njit(cache=True)
def _find(
    hits: np.ndarray,
    origin: np.ndarray,
    rows: np.ndarray,
    base: np.ndarray,
    cells: np.ndarray,
    found: np.ndarray,
) -> None:
    """Writes the centre of the seen cell nearest to each base, and whether there is one."""
    for i in range(len(rows)):
        env, best = rows[i], np.inf
        for iy in range(SIDE):
            for ix in range(SIDE):
                if hits[env, iy, ix] < _LEAST:
                    continue
                x = origin[env, 0] + (ix + 0.5) * CELL_M
                y = origin[env, 1] + (iy + 0.5) * CELL_M
                away = (x - base[i, 0]) ** 2 + (y - base[i, 1]) ** 2
                if away < best:
                    best = away
                    cells[i] = x, y
                    found[i] = True
