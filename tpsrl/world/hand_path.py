"""Shortest paths of the cup through the air to a point, around furniture.

Distances spread from the point over a cube of cells around it, from free cell to free cell. A cell
is free if a ball of the cup's size fits there without touching furniture. The straight-line
distance can mislead: from a hand in an open fridge to an object on the counter beside it, 0.5 m in
a straight line may be 1.5 m along the path.
"""

import dataclasses
import functools

import numpy as np

from tpsrl.runtime.compiled import njit
from tpsrl.world.floor import Joints, layout_obstacles

CELL_M = 0.06
CELLS = 13  # from the middle of the cube to each side
_SIDE = 2 * CELLS + 1
REACH_M = (CELLS + 0.5) * CELL_M  # from the point to the sides of the cube
_ROOM_M = 0.04  # radius of the ball around the middle of the cup
_UP = 4  # cells above the point that count as free, since the cup may touch the object there
NEAR = 2  # a path may begin within this many cells of the cup's own cell
AHEAD = 4  # cells along the path to the waypoint that `ahead` returns
COSTS = (0, 10, 14, 17)  # of a step along one, two, three axes: tenths of a cell
_FAR = np.iinfo(np.int32).max
_MOST_STEPS = 10 * 8 * _SIDE  # length at which the search stops, tenths of a cell
_ENTRIES = 6 * _SIDE**3  # size of the lists; a cell is seldom reached more than three times


@dataclasses.dataclass(frozen=True, slots=True)
class HandField:
    """Distances (m) of the cells of a cube from the point in its middle.

    Cell (i, j, k) is centred at `origin` + `CELL_M` (i, j, k). Its distance is inf if the cell is
    blocked or no path leads from it to the point.
    """

    origin: np.ndarray  # (3,)
    distance: np.ndarray  # (n, n, n) float32


@functools.lru_cache(maxsize=256)
def hand_field(layout: str, point: tuple[float, float, float], joints: Joints) -> HandField:
    """Computes the distances to a point in a layout; cached.

    Args:
        layout: "SET/NAME"
        point: x, y, z in metres
        joints: positions of doors and drawers
    """
    origin = np.asarray(point) - CELLS * CELL_M
    obstacles = layout_obstacles(layout, joints)
    offset = np.abs(obstacles.centre - np.asarray(point))
    extent = np.einsum("kij,kj->ki", np.abs(obstacles.rotation), obstacles.half)
    near = (offset < extent + REACH_M + 2.0 * _ROOM_M).all(axis=1)
    boxes = obstacles.centre[near], obstacles.rotation[near], obstacles.half[near]
    return HandField(origin, spread(origin, *boxes))


class HandFields:
    """Hand fields of n homes, evaluated as a batch."""

    def __init__(self, num_homes: int) -> None:
        self._origin = np.zeros((num_homes, 3))
        self._distance = np.full((num_homes, _SIDE, _SIDE, _SIDE), np.inf, np.float32)
        # Cup and base of the last result of each home, which is asked for twice in a step.
        self._asked = np.full((num_homes, 6), np.nan)
        self._found = np.zeros((num_homes, 4))

    def set(self, home: int, field: HandField) -> None:
        """Sets the field of a home."""
        self._origin[home], self._distance[home] = field.origin, field.distance
        self._asked[home] = np.nan

    def ahead(self, homes: np.ndarray, cup: np.ndarray, base: np.ndarray) -> np.ndarray:
        """Returns the distances left from cups (n, 3), and the next waypoints.

        Args:
            homes: (n,) indices of the homes
            cup: (n, 3) tips of the cups, world frame
            base: (n, 3) base poses

        Returns:
            (n, 4): distance along the path, and a waypoint about 0.25 m ahead on the path relative
            to the cup, along the axes of the base; metres. Zeros where no path is known.
        """
        homes = np.asarray(homes, dtype=np.int64)
        cup, base = (np.ascontiguousarray(values, np.float64) for values in (cup, base))
        known = self._asked, self._found
        return _ahead_of(self._distance, self._origin, *known, homes, cup, base)


@njit(cache=True)
def spread(
    origin: np.ndarray, centre: np.ndarray, rotation: np.ndarray, half: np.ndarray
) -> np.ndarray:
    """Returns the distances (n, n, n) of a cube's cells from the cell in its middle, metres.

    Obstacles are boxes: centres (k, 3), rotations (k, 3, 3), half extents (k, 3).
    """
    # A surrounding layer of blocked cells keeps every step inside the array.
    wide = _SIDE + 2
    blocked = np.ones((wide, wide, wide), dtype=np.bool_)
    inner = blocked[1:-1, 1:-1, 1:-1]
    inner[:] = False
    for k in range(len(half)):
        _block(inner, origin, centre[k], rotation[k], half[k])
    closed = blocked.ravel()
    offset, price = np.empty(26, np.int64), np.empty(26, np.int32)
    count = 0
    for di in range(-1, 2):
        for dj in range(-1, 2):
            for dk in range(-1, 2):
                if di or dj or dk:
                    offset[count] = (di * wide + dj) * wide + dk
                    price[count] = COSTS[abs(di) + abs(dj) + abs(dk)]
                    count += 1
    steps = np.full(wide**3, _FAR, dtype=np.int32)
    # Cells reached at the same cost form a linked list, so that cells come in order of cost.
    first = np.full(_MOST_STEPS + 18, -1, dtype=np.int32)
    cell_of = np.empty(_ENTRIES, dtype=np.int32)
    after = np.empty(_ENTRIES, dtype=np.int32)
    count = 0
    middle = ((CELLS + 1) * wide + CELLS + 1) * wide + CELLS + 1
    for up in range(_UP + 1):
        steps[middle + up] = 10 * up
        cell_of[count], after[count], first[10 * up] = middle + up, first[10 * up], count
        count += 1
        if not closed[middle + up]:
            break
    highest, cost = 10 * _UP, 0
    while cost <= min(highest, _MOST_STEPS):
        entry = first[cost]
        while entry >= 0:
            cell, entry = cell_of[entry], after[entry]
            if steps[cell] != cost:
                continue
            for n in range(26):
                other = cell + offset[n]
                total = cost + price[n]
                if closed[other] or total >= steps[other] or count == _ENTRIES:
                    continue
                steps[other] = total
                cell_of[count], after[count], first[total] = other, first[total], count
                count += 1
                highest = max(highest, total)
        cost += 1
    found = steps.reshape((wide, wide, wide))[1:-1, 1:-1, 1:-1]
    return np.where(found == _FAR, np.inf, 0.1 * CELL_M * found).astype(np.float32)


@njit(cache=True)
def _block(
    blocked: np.ndarray,
    origin: np.ndarray,
    centre: np.ndarray,
    rotation: np.ndarray,
    half: np.ndarray,
) -> None:
    """Marks the cells whose centre is within `_ROOM_M` of a box, measured along the box's axes."""
    low, high = np.empty(3, np.int64), np.empty(3, np.int64)
    for axis in range(3):
        extent = 0.0
        for side in range(3):
            extent += abs(rotation[axis, side]) * (half[side] + _ROOM_M)
        low[axis] = max(int(np.ceil((centre[axis] - extent - origin[axis]) / CELL_M)), 0)
        high[axis] = min(int((centre[axis] + extent - origin[axis]) / CELL_M), _SIDE - 1)
    for i in range(low[0], high[0] + 1):
        x = origin[0] + i * CELL_M - centre[0]
        for j in range(low[1], high[1] + 1):
            y = origin[1] + j * CELL_M - centre[1]
            for k in range(low[2], high[2] + 1):
                z = origin[2] + k * CELL_M - centre[2]
                inside = True
                for side in range(3):
                    at = rotation[0, side] * x + rotation[1, side] * y + rotation[2, side] * z
                    inside = inside and abs(at) <= half[side] + _ROOM_M
                if inside:
                    blocked[i, j, k] = True


@njit(cache=True)
def _ahead_of(
    distance: np.ndarray,
    origin: np.ndarray,
    asked: np.ndarray,
    found: np.ndarray,
    homes: np.ndarray,
    cup: np.ndarray,
    base: np.ndarray,
) -> np.ndarray:
    out = np.zeros((len(homes), 4))
    for n in range(len(homes)):
        home = homes[n]
        same = True
        for k in range(3):
            same = same and asked[home, k] == cup[n, k] and asked[home, 3 + k] == base[n, k]
        if not same:
            asked[home, :3], asked[home, 3:] = cup[n], base[n]
            _ahead(distance[home], origin[home], cup[n], base[n], found[home])
        out[n] = found[home]
    return out


@njit(cache=True)
def _ahead(
    field: np.ndarray, low: np.ndarray, cup: np.ndarray, base: np.ndarray, out: np.ndarray
) -> None:
    """Writes a row of the result of `HandFields.ahead`."""
    out[:] = 0.0
    cell, at = np.empty(3, np.int64), np.empty(3)
    left = _begin(field, low, cup, cell)
    if not np.isfinite(left):
        return
    if field[cell[0], cell[1], cell[2]] < NEAR * CELL_M:
        for axis in range(3):
            cell[axis] = CELLS
    else:
        for _ in range(AHEAD):
            _descend(field, cell)
    for axis in range(3):
        at[axis] = low[axis] + cell[axis] * CELL_M - cup[axis]
    c, s = np.cos(base[2]), np.sin(base[2])
    out[0], out[1], out[2], out[3] = left, c * at[0] + s * at[1], c * at[1] - s * at[0], at[2]


@njit(cache=True)
def _begin(field: np.ndarray, low: np.ndarray, cup: np.ndarray, cell: np.ndarray) -> float:
    """Returns the distance left from a cup, and writes the first `cell` of its path.

    If no cell near the cup is free, or the cup is outside the cube, the path begins on a side of
    the cube.
    """
    best = np.inf
    if not np.isfinite(cup).all():
        return best
    near = np.empty(3, np.int64)
    for axis in range(3):
        near[axis] = int(np.rint(min(max((cup[axis] - low[axis]) / CELL_M, -9.0), 1.0 * _SIDE + 9)))
    for i in range(max(near[0] - NEAR, 0), min(near[0] + NEAR, _SIDE - 1) + 1):
        for j in range(max(near[1] - NEAR, 0), min(near[1] + NEAR, _SIDE - 1) + 1):
            for k in range(max(near[2] - NEAR, 0), min(near[2] + NEAR, _SIDE - 1) + 1):
                best = _better(field, low, cup, i, j, k, best, cell)
    if np.isfinite(best):
        return best
    last = _SIDE - 1
    for i in range(_SIDE):
        for j in range(_SIDE):
            inner = 0 < i < last and 0 < j < last
            for k in range(0, _SIDE, last if inner else 1):
                best = _better(field, low, cup, i, j, k, best, cell)
    return best


@njit(cache=True)
def _better(
    field: np.ndarray,
    low: np.ndarray,
    cup: np.ndarray,
    i: int,
    j: int,
    k: int,
    best: float,
    cell: np.ndarray,
) -> float:
    """Returns the smaller of `best` and the distance through (i, j, k), and updates `cell`."""
    dx, dy, dz = (
        low[0] + i * CELL_M - cup[0],
        low[1] + j * CELL_M - cup[1],
        low[2] + k * CELL_M - cup[2],
    )
    left = field[i, j, k] + np.sqrt(dx * dx + dy * dy + dz * dz)
    if left < best:
        cell[0], cell[1], cell[2] = i, j, k
        return left
    return best


@njit(cache=True)
def _descend(field: np.ndarray, cell: np.ndarray) -> None:
    """Moves `cell` to the neighbour on the shortest path."""
    i, j, k = cell
    best = field[i, j, k]
    for di in range(-1, 2):
        for dj in range(-1, 2):
            for dk in range(-1, 2):
                ni, nj, nk = i + di, j + dj, k + dk
                if min(ni, nj, nk) < 0 or max(ni, nj, nk) >= _SIDE:
                    continue
                step = 0.1 * CELL_M * COSTS[abs(di) + abs(dj) + abs(dk)]
                total = field[ni, nj, nk] + step
                if field[ni, nj, nk] < field[i, j, k] and total < best + 1e-6:
                    best = total
                    cell[0], cell[1], cell[2] = ni, nj, nk
