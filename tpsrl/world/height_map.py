"""Height maps around the base from depth pictures of the head camera: a memory without learning.

Each home has a grid of cells fixed to the floor, which moves along with the robot's odometry
(elevation mapping: Fankhauser et al., RA-L 2018). A cell stores the height of the highest point
seen in it, and the step at which the point was seen. Points on the robot itself, whose arm posture
is measured, and on the held object are left out.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tpsrl.runtime.compiled import njit
from tpsrl.world import map_arrays
from tpsrl.world.fetch import HEAD_CAMERA_FAR_M
from tpsrl.world.own_body import head_point, is_own, own_bounds, place_capsules
from tpsrl.world.state import WorldState

CELL_M = 0.05
SIDE = 48  # cells per side of the map that `show` returns
HIGHEST_M = 1.5  # larger heights are clipped to this value
SHAPE = (2, SIDE, SIDE)  # height divided by HIGHEST_M, and freshness
_KEPT = 96  # cells per side of the stored grid, which wraps around
_FADES_STEPS = 100.0  # time constant of the freshness, control steps
_HOLDS_STEPS = 30  # control steps after which a lower height may replace a higher one
_SEEN_M = 1.9  # farther than any cell that `show` returns
_NEVER = -1.0
_ARRAYS = ("height", "seen", "cell", "step")


class HeightMaps:
    """Height maps of n homes.

    Args:
        num_homes: number of homes, n
    """

    def __init__(self, num_homes: int) -> None:
        self._height = np.zeros((num_homes, _KEPT, _KEPT), np.float32)
        self._seen = np.full((num_homes, _KEPT, _KEPT), _NEVER, np.float32)
        self._cell = np.zeros((num_homes, 2), np.int64)  # cell of the base
        self._step = np.zeros(num_homes, np.float32)
        self._fresh = np.ones(num_homes, dtype=bool)  # no picture has been added yet

    def begin(self, homes: Sequence[int]) -> None:
        """Clears the maps of homes."""
        self._seen[np.asarray(homes)] = _NEVER
        self._fresh[np.asarray(homes)] = True
        self._step[np.asarray(homes)] = 0.0

    def look(
        self, homes: Sequence[int], depth: np.ndarray, world: WorldState, advance: bool
    ) -> None:
        """Adds the current depth pictures of m homes.

        Args:
            homes: the m homes
            depth: (m, height, width) of the head camera, 0 to `HEAD_CAMERA_FAR_M` scaled to 0 to 1
            world: their state; used are odometry, joint positions of the arm, and whether an
                object is held
            advance: whether a control step has passed since the last call
        """
        rows = np.asarray(homes, dtype=np.int64)
        if advance:
            self._step[rows] += 1.0
        base = np.ascontiguousarray(world.base, dtype=np.float64)
        arm = np.ascontiguousarray(world.arm, dtype=np.float64)
        holds = np.asarray(world.held) >= 0
        state = (self._height, self._seen, self._cell, self._step, self._fresh)
        _look(*state, rows, np.ascontiguousarray(depth, np.float32), base, arm, holds)

    def show(self, homes: Sequence[int], base: np.ndarray) -> np.ndarray:
        """Returns the maps around base poses (m, 3): (m, 2, SIDE, SIDE) float32 in [0, 1].

        The first row is farthest ahead, the first column farthest to the left. The first channel is
        the height divided by `HIGHEST_M`. The second channel is the freshness: 1 for a cell just
        seen, decaying with time. Both are 0 for a cell that was never seen.
        """
        rows = np.asarray(homes, dtype=np.int64)
        out = np.zeros((len(rows), *SHAPE), np.float32)
        state = (self._height, self._seen, self._cell, self._step)
        _show(*state, rows, np.ascontiguousarray(base, np.float64), out)
        return out

    def to_arrays(self, home: int) -> dict[str, np.ndarray]:
        """Returns copies of a home's map by name, for snapshots."""
        return {
            "height": self._height[home].copy(),
            "seen": self._seen[home].copy(),
            "cell": self._cell[home].copy(),
            "step": np.array([self._step[home]]),
        }

    def restore(self, home: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Restores a home's map from the result of `to_arrays`.

        Raises:
            UserError: an array is missing or invalid.
        """
        map_arrays.check("map", _ARRAYS, arrays, self.to_arrays(home))
        self._height[home], self._seen[home] = arrays["height"], arrays["seen"]
        self._cell[home], self._step[home] = arrays["cell"], arrays["step"][0]
        self._fresh[home] = False


@njit(cache=True)
def _look(
    height: np.ndarray,
    seen: np.ndarray,
    cell: np.ndarray,
    step: np.ndarray,
    fresh: np.ndarray,
    homes: np.ndarray,
    depth: np.ndarray,
    base: np.ndarray,
    arm: np.ndarray,
    holds: np.ndarray,
) -> None:
    now = np.empty((_KEPT, _KEPT), np.float32)
    for i in range(len(homes)):
        home = homes[i]
        _move(height[home], seen[home], cell[home], base[i], fresh[home])
        fresh[home] = False
        capsules, tip = place_capsules(arm[i])
        _splat(now, depth[i], base[i], capsules, tip, holds[i])
        for iy in range(_KEPT):
            for ix in range(_KEPT):
                if now[iy, ix] < -0.5:
                    continue
                old, when = height[home, iy, ix], seen[home, iy, ix]
                known = when >= 0.0 and step[home] - when <= _HOLDS_STEPS
                if known and old > now[iy, ix]:
                    continue
                height[home, iy, ix] = now[iy, ix]
                seen[home, iy, ix] = step[home]


@njit(cache=True)
def _move(
    height: np.ndarray, seen: np.ndarray, cell: np.ndarray, base: np.ndarray, fresh: bool
) -> None:
    """Moves the grid along with the base; cells that enter the grid become unseen."""
    for axis in range(2):
        new = math.floor(base[axis] / CELL_M)
        old = new if fresh else cell[axis]
        cell[axis] = new
        count = min(abs(new - old), _KEPT)
        ahead = 1 if new > old else -1
        for k in range(count):
            # The line that enters lies half a grid ahead of the base.
            line = (old + ahead * (k + 1) + (_KEPT // 2 - 1 if ahead > 0 else -_KEPT // 2)) % _KEPT
            for other in range(_KEPT):
                if axis == 0:
                    seen[other, line] = _NEVER
                else:
                    seen[line, other] = _NEVER


@njit(cache=True)
def _splat(
    now: np.ndarray,
    depth: np.ndarray,
    base: np.ndarray,
    capsules: np.ndarray,
    tip: np.ndarray,
    holds: bool,
) -> None:
    """Writes the highest point of each cell in one picture to `now`, -1 for cells without one."""
    now[:] = -1.0
    low, high = own_bounds(capsules, tip, holds)
    rows, columns = depth.shape
    c, s = math.cos(base[2]), math.sin(base[2])
    for v in range(rows):
        for u in range(columns):
            planar = depth[v, u] * HEAD_CAMERA_FAR_M
            if planar > _SEEN_M:
                continue
            x, y, z = head_point(planar, v, u, rows, columns)
            near = low[0] < x < high[0] and low[1] < y < high[1] and low[2] < z < high[2]
            if near and is_own(x, y, z, capsules, tip, holds):
                continue
            ix = math.floor((base[0] + c * x - s * y) / CELL_M) % _KEPT
            iy = math.floor((base[1] + s * x + c * y) / CELL_M) % _KEPT
            now[iy, ix] = max(now[iy, ix], np.float32(max(z, 0.0)))


@njit(cache=True)
def _show(
    height: np.ndarray,
    seen: np.ndarray,
    cell: np.ndarray,
    step: np.ndarray,
    homes: np.ndarray,
    base: np.ndarray,
    out: np.ndarray,
) -> None:
    for i in range(len(homes)):
        home = homes[i]
        c, s = math.cos(base[i, 2]), math.sin(base[i, 2])
        for row in range(SIDE):
            x = (SIDE / 2 - row - 0.5) * CELL_M
            for column in range(SIDE):
                y = (SIDE / 2 - column - 0.5) * CELL_M
                ix = math.floor((base[i, 0] + c * x - s * y) / CELL_M)
                iy = math.floor((base[i, 1] + s * x + c * y) / CELL_M)
                when = seen[home, iy % _KEPT, ix % _KEPT]
                if when < 0.0:
                    continue
                known = height[home, iy % _KEPT, ix % _KEPT]
                out[i, 0, row, column] = min(known / HIGHEST_M, 1.0)
                out[i, 1, row, column] = math.exp((when - step[home]) / _FADES_STEPS)
