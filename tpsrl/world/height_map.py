"""Height maps around the base, made of what the head camera saw: a memory that is not learned.

Each home has a grid of cells fixed to the floor, which the robot carries along by its odometry, as
a robot registers what it has seen (elevation mapping: Fankhauser et al., RA-L 2018). A cell keeps
how high the highest point was that was seen in it, and when. Points on the robot itself, which
knows where its arm is, and on what it holds are left out.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tpsrl.errors import UserError
from tpsrl.runtime.compiled import njit
from tpsrl.world.fetch import HEAD_CAMERA_FAR_M
from tpsrl.world.own_body import EYE, FORWARD, TAN_HALF, UP, is_own, own_bounds, place_capsules
from tpsrl.world.state import WorldState

CELL_M = 0.05
SIDE = 48  # cells of what is shown, a side
HIGHEST_M = 1.5  # what is higher is shown as so high
SHAPE = (2, SIDE, SIDE)  # height over HIGHEST_M, and how fresh it is
_KEPT = 96  # cells that are kept, a side; the grid goes round
_FADES_STEPS = 100.0  # after so many steps a cell is e times less fresh
_HOLDS_STEPS = 30  # a lower height replaces one that was last seen so long ago
_SEEN_M = 1.9  # farther than any cell that is shown
_NEVER = -1.0
_ARRAYS = ("height", "seen", "cell", "step")


class HeightMaps:
    """The maps of n homes.

    Args:
        num_homes: n
    """

    def __init__(self, num_homes: int) -> None:
        self._height = np.zeros((num_homes, _KEPT, _KEPT), np.float32)
        self._seen = np.full((num_homes, _KEPT, _KEPT), _NEVER, np.float32)
        self._cell = np.zeros((num_homes, 2), np.int64)  # in which the base is
        self._step = np.zeros(num_homes, np.float32)
        self._fresh = np.ones(num_homes, dtype=bool)  # nothing is known yet

    def begin(self, homes: Sequence[int]) -> None:
        """Forgets all that was seen in homes."""
        self._seen[np.asarray(homes)] = _NEVER
        self._fresh[np.asarray(homes)] = True
        self._step[np.asarray(homes)] = 0.0

    def look(
        self, homes: Sequence[int], depth: np.ndarray, world: WorldState, advance: bool
    ) -> None:
        """Adds what the cameras of m homes see now.

        Args:
            homes: which
            depth: (m, height, width) of the head camera, 0 to `HEAD_CAMERA_FAR_M` as 0 to 1
            world: of these homes, for odometry, joint positions of the arm and whether it holds
            advance: whether a control step has passed since the last look
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
        """What is known around base poses (m, 3): (m, 2, SIDE, SIDE) float32 in [0, 1].

        The first row lies farthest ahead, the first column farthest to the left. The first channel
        is the height over `HIGHEST_M`, the second 1 where that was just seen, less where it was
        seen long ago, and 0, as the height, where it never was.
        """
        rows = np.asarray(homes, dtype=np.int64)
        out = np.zeros((len(rows), *SHAPE), np.float32)
        state = (self._height, self._seen, self._cell, self._step)
        _show(*state, rows, np.ascontiguousarray(base, np.float64), out)
        return out

    def to_arrays(self, home: int) -> dict[str, np.ndarray]:
        """The map of a home, as numpy copies by name, for snapshots."""
        return {
            "height": self._height[home].copy(),
            "seen": self._seen[home].copy(),
            "cell": self._cell[home].copy(),
            "step": np.array([self._step[home]]),
        }

    def restore(self, home: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Puts a home's map back to what `to_arrays` said.

        Raises:
            UserError: an array is missing, or not of a map.
        """
        own = self.to_arrays(home)
        for name in _ARRAYS:
            values = arrays.get(name)
            if values is None or values.shape != own[name].shape:
                raise UserError(f"map: array {name} is missing or of another shape")
            if values.dtype != own[name].dtype or not np.isfinite(values).all():
                raise UserError(f"map: array {name} is damaged")
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
    """Carries the grid along with the base: cells that come in were never seen."""
    for axis in range(2):
        new = math.floor(base[axis] / CELL_M)
        old = new if fresh else cell[axis]
        cell[axis] = new
        count = min(abs(new - old), _KEPT)
        ahead = 1 if new > old else -1
        for k in range(count):
            # The line that comes in lies half a grid ahead of the base.
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
    """The highest point of each cell in one picture, -1 where none lies."""
    now[:] = -1.0
    low, high = own_bounds(capsules, tip, holds)
    rows, columns = depth.shape
    c, s = math.cos(base[2]), math.sin(base[2])
    for v in range(rows):
        up = TAN_HALF * (1.0 - (2 * v + 1) / rows) * rows / columns
        for u in range(columns):
            planar = depth[v, u] * HEAD_CAMERA_FAR_M
            if planar > _SEEN_M:
                continue
            left = TAN_HALF * (1.0 - (2 * u + 1) / columns)
            x = EYE[0] + planar * (FORWARD[0] + up * UP[0])
            y = planar * left
            z = EYE[2] + planar * (FORWARD[2] + up * UP[2])
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
