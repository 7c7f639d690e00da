"""Geodesic distances and shortest paths over the free floor, for the base's disc.

The free floor is the union of the cells of `main_floor`. Distances spread from the goal in
Dijkstra's order. Each cell takes its distance from an apex, a point in its line of sight: the goal,
or a cell at a corner of the path, as in Theta* (Nash, Daniel, Koenig and Felner, "Theta*: any-angle
path planning on grids", AAAI 2007), but chosen from the apexes of all neighbours. Distances are
therefore those of straight lines instead of grid moves. They are exact in sight of the goal;
elsewhere the only error is the choice of the cell at which the path bends around a corner.

A point off the free floor has the distance of the nearest free cell plus the gap to that cell. Such
points are on furniture, or in pockets too narrow for the disc (the robot is slightly slimmer and
can enter them). The distance is inf off the map and where no path leads to the goal. A goal has to
be within `SNAP_M` of the free floor.
"""

import dataclasses
import functools
import heapq
import math
import zlib
from collections.abc import Sequence

import numpy as np
from scipy import ndimage

from tpsrl.errors import UserError
from tpsrl.runtime.compiled import njit
from tpsrl.world.floor import CELL_M, CLOSED, Joints, floor_map, main_floor

SNAP_M = 1.5  # even objects at the back of furniture are nearer than this to the free floor
_MAX_BENDS = 1000
_FIELDS_USED, _FIELDS_KEPT = 128, 4096
_TINY = 1e-9


@dataclasses.dataclass(frozen=True, slots=True)
class FreeFloor:
    """Cells on which the base can stand, and the nearest such cell for every other cell.

    Cell (iy, ix) is centred at `origin` + (i + 0.5) `cell_m`.
    """

    origin: tuple[float, float]
    free: np.ndarray  # (ny, nx) bool
    nearest: np.ndarray  # (ny, nx) int32, flat index of the nearest free cell, -1 for none
    cell_m: float = CELL_M

    @property
    def frame(self) -> tuple[float, float, float]:
        """Origin (x, y) and width of a cell, metres."""
        return (*self.origin, self.cell_m)

    @staticmethod
    def of_cells(
        free: np.ndarray, origin: tuple[float, float] = (0.0, 0.0), cell_m: float = CELL_M
    ) -> "FreeFloor":
        """Builds a floor from its free cells (ny, nx) bool."""
        nearest = np.full(free.shape, -1, dtype=np.int32)
        if free.any():
            _, (iy, ix) = ndimage.distance_transform_edt(~free, return_indices=True)
            nearest[:] = iy * free.shape[1] + ix
        return FreeFloor(origin, np.ascontiguousarray(free), nearest, cell_m)

    def within(self, x: float, y: float, radius_m: float) -> np.ndarray:
        """Returns the centres (k, 2) of the free cells within a radius of a point."""
        iy, ix = np.nonzero(self.free)
        centres = np.stack([ix + 0.5, iy + 0.5], axis=1) * self.cell_m + self.origin
        return centres[np.hypot(centres[:, 0] - x, centres[:, 1] - y) < radius_m]

    def snap(self, x: float, y: float) -> tuple[float, float] | None:
        """Returns a free point as it is, otherwise the centre of the nearest free cell.

        None if no free cell is within `SNAP_M`.
        """
        found, px, py = _snap(self.free, self.nearest, *self.frame, x, y)
        return (px, py) if found and math.hypot(px - x, py - y) <= SNAP_M else None

    def is_near(self, x: float, y: float, radius_m: float) -> bool:
        """Returns whether a point can be a goal: free floor is within `SNAP_M` or the radius."""
        return self.snap(x, y) is not None or len(self.within(x, y, radius_m)) > 0


@functools.lru_cache(maxsize=128)
def free_floor(layout: str, joints: Joints = CLOSED) -> FreeFloor:
    """Returns the free floor of layout "SET/NAME" with doors and drawers at `joints`."""
    return FreeFloor.of_cells(main_floor(layout, joints), floor_map(layout, joints=joints).origin)


@dataclasses.dataclass(frozen=True, slots=True)
class DistanceField:
    """Geodesic distances to one goal.

    `apex[iy, ix]` holds x and y (m) of the next corner of a cell's shortest path, which the cell
    sees in a straight line, and the distance (m) of that corner; inf where there is no path.
    """

    origin: tuple[float, float]
    apex: np.ndarray  # (ny, nx, 3) float32
    cell_m: float = CELL_M

    @staticmethod
    def unreachable(
        origin: tuple[float, float], cells: tuple[int, ...], cell_m: float = CELL_M
    ) -> "DistanceField":
        """Builds the field of a map of (ny, nx) cells without a path to the goal."""
        return DistanceField(origin, np.full((*cells, 3), np.inf, dtype=np.float32), cell_m)

    @property
    def frame(self) -> tuple[float, float, float]:
        """Origin (x, y) and width of a cell, metres."""
        return (*self.origin, self.cell_m)

    def distance(self, x: float, y: float) -> float:
        """Returns the distance (m) from a point to the goal, inf where there is no path."""
        return float(field_distance(self.apex, *self.frame, x, y))

    def distances(self, points: np.ndarray) -> np.ndarray:
        """Returns the distances (n,) from points (n, 2) to the goal, metres."""
        return _distances(self.apex, *self.frame, np.ascontiguousarray(points, np.float64))

    def path(self, x: float, y: float) -> np.ndarray:
        """Returns the corners (k, 2) of the shortest path from a point to the goal.

        Both ends are included. The shape is (0, 2) where there is no path.
        """
        return _path(self.apex, *self.frame, x, y)


def distance_field(
    floor: FreeFloor,
    goal: Sequence[float],
    radius_m: float = 0.0,
    roots: np.ndarray | None = None,
) -> DistanceField:
    """Computes the distances to a goal (x, y), which need not be free.

    Args:
        floor: the free floor
        goal: x and y in metres
        radius_m: free floor within this straight-line distance of the goal has distance 0
        roots: (k, 2) points on the free floor with distance 0, in place of the goal; the distances
            are then to the nearest of them

    Raises:
        UserError: no free floor is within `SNAP_M` or the radius of the goal.
    """
    x, y = float(goal[0]), float(goal[1])
    if roots is None:
        roots = floor.within(x, y, radius_m) if radius_m > 0.0 else np.empty((0, 2))
    if not len(roots):
        snapped = floor.snap(x, y)
        if snapped is None:
            raise UserError(f"goal: no free floor within {SNAP_M} m of ({x:.2f}, {y:.2f})")
        roots = np.array([snapped])
    apex = _spread(floor.free, floor.nearest, *floor.frame, roots)
    return DistanceField(floor.origin, apex, floor.cell_m)


@dataclasses.dataclass(frozen=True, slots=True)
class PackedField:
    """Compressed distance field for caches: 2 MB become 70 kB."""

    origin: tuple[float, float]
    shape: tuple[int, ...]
    content: bytes

    @staticmethod
    def of(field: DistanceField) -> "PackedField":
        """Compresses a field with cells of `CELL_M`."""
        content = zlib.compress(field.apex.tobytes(), level=1)
        return PackedField(field.origin, field.apex.shape, content)

    def unpack(self) -> DistanceField:
        """Decompresses the field."""
        apex = np.frombuffer(zlib.decompress(self.content), np.float32).reshape(self.shape)
        return DistanceField(self.origin, apex.copy())  # compiled code requires writable arrays


@functools.lru_cache(maxsize=_FIELDS_USED)
def field_of(layout: str, x: float, y: float, joints: Joints, radius_m: float) -> DistanceField:
    """Returns the `distance_field` of layout "SET/NAME", doors and drawers at `joints`; cached."""
    return _packed_field(layout, x, y, joints, radius_m).unpack()


# Training repeats some thousands of goals. A field takes 20 ms to compute and 3 ms to unpack.
@functools.lru_cache(maxsize=_FIELDS_KEPT)
def _packed_field(layout: str, x: float, y: float, joints: Joints, radius_m: float) -> PackedField:
    return PackedField.of(distance_field(free_floor(layout, joints), (x, y), radius_m))


class DistanceFields:
    """Distance fields of n homes, evaluated as a batch.

    All fields must have maps of one shape.
    """

    def __init__(self, num_homes: int) -> None:
        self._fields: list[DistanceField | None] = [None] * num_homes
        self._apex = np.empty((num_homes, 0, 0, 3), dtype=np.float32)
        self._frame = np.zeros((num_homes, 3))

    def set(self, home: int, field: DistanceField) -> None:
        """Sets the field of a home.

        Raises:
            UserError: the shape of its map differs from those of the other homes.
        """
        if self._apex.size == 0:
            self._apex = np.full((len(self._fields), *field.apex.shape), np.inf, np.float32)
        if field.apex.shape != self._apex.shape[1:]:
            raise UserError("layout: homes of one batch must have the same layout set")
        self._fields[home] = field
        self._apex[home], self._frame[home] = field.apex, field.frame

    def __getitem__(self, home: int) -> DistanceField:
        field = self._fields[home]
        if field is None:
            raise KeyError(home)
        return field

    def distances(self, homes: np.ndarray, points: np.ndarray) -> np.ndarray:
        """Returns distances (n,) in metres from points (n, 2) to the goals of homes (n,).

        A home may be repeated.
        """
        homes = np.asarray(homes, dtype=np.int64)
        points = np.ascontiguousarray(points, np.float64)
        return _distances_of(self._apex, self._frame, homes, points)

    def ahead(self, homes: np.ndarray, base: np.ndarray) -> np.ndarray:
        """Returns the distances left from base poses (n, 3), and the next corners of the paths.

        Returns:
            (n, 3): geodesic distance, and the next corner forward and left in the frame of the
            base, metres. (0, 0, 0) off the map and where there is no path.
        """
        homes = np.asarray(homes, dtype=np.int64)
        base = np.ascontiguousarray(base, np.float64)
        return _ahead_of(self._apex, self._frame, homes, base)


@njit(cache=True)
def field_distance(
    apex: np.ndarray, x0: float, y0: float, cell_m: float, x: float, y: float
) -> float:
    """Returns the distance (m) at (x, y), interpolated bilinearly from the four nearest cells.

    Each cell contributes the distance through its own apex. Cells without a path are left out. The
    distance is inf if the point itself lies in such a cell.
    """
    ny, nx, _ = apex.shape
    if not (math.isfinite(x) and math.isfinite(y)):
        return np.inf
    fx, fy = (x - x0) / cell_m, (y - y0) / cell_m
    if fx < 0.0 or fy < 0.0 or fx >= nx or fy >= ny:
        return np.inf
    if not math.isfinite(apex[int(fy), int(fx), 2]):
        return np.inf
    ix = min(max(math.floor(fx - 0.5), 0), nx - 2)
    iy = min(max(math.floor(fy - 0.5), 0), ny - 2)
    tx = min(max(fx - 0.5 - ix, 0.0), 1.0)
    ty = min(max(fy - 0.5 - iy, 0.0), 1.0)
    total, weight = 0.0, 0.0
    for dy in range(2):
        for dx in range(2):
            ax, ay, start = apex[iy + dy, ix + dx]
            w = (tx if dx else 1.0 - tx) * (ty if dy else 1.0 - ty)
            if w > 0.0 and math.isfinite(start):
                total += w * (start + math.sqrt((x - ax) ** 2 + (y - ay) ** 2))
                weight += w
    return total / weight


@njit(cache=True)
def _distances(
    apex: np.ndarray, x0: float, y0: float, cell_m: float, points: np.ndarray
) -> np.ndarray:
    out = np.empty(len(points))
    for i in range(len(points)):
        out[i] = field_distance(apex, x0, y0, cell_m, points[i, 0], points[i, 1])
    return out


@njit(cache=True)
def _distances_of(
    apex: np.ndarray, frame: np.ndarray, homes: np.ndarray, points: np.ndarray
) -> np.ndarray:
    out = np.empty(len(points))
    for i in range(len(points)):
        x0, y0, cell_m = frame[homes[i]]
        out[i] = field_distance(apex[homes[i]], x0, y0, cell_m, points[i, 0], points[i, 1])
    return out


@njit(cache=True)
def _ahead_of(
    apex: np.ndarray, frame: np.ndarray, homes: np.ndarray, base: np.ndarray
) -> np.ndarray:
    out = np.zeros((len(base), 3))
    for i in range(len(base)):
        x, y, yaw = base[i]
        x0, y0, cell_m = frame[homes[i]]
        left = field_distance(apex[homes[i]], x0, y0, cell_m, x, y)
        if math.isfinite(left):
            ax, ay, _ = apex[homes[i], int((y - y0) / cell_m), int((x - x0) / cell_m)]
            c, s = math.cos(yaw), math.sin(yaw)
            out[i] = left, c * (ax - x) + s * (ay - y), c * (ay - y) - s * (ax - x)
    return out


@njit(cache=True)
def _snap(
    free: np.ndarray, nearest: np.ndarray, x0: float, y0: float, cell_m: float, x: float, y: float
) -> tuple[bool, float, float]:
    """Returns whether a point has a nearest free cell, and the snapped point."""
    ny, nx = free.shape
    if not (math.isfinite(x) and math.isfinite(y)):
        return False, x, y
    ix, iy = math.floor((x - x0) / cell_m), math.floor((y - y0) / cell_m)
    if ix < 0 or iy < 0 or ix >= nx or iy >= ny or nearest[iy, ix] < 0:
        return False, x, y
    if free[iy, ix]:
        return True, x, y
    cell = nearest[iy, ix]
    return True, x0 + (cell % nx + 0.5) * cell_m, y0 + (cell // nx + 0.5) * cell_m


@njit(cache=True)
def _sees(free: np.ndarray, ax: float, ay: float, bx: float, by: float) -> bool:
    """Returns whether the straight line between two points, in cells, stays on free cells.

    Where the line passes exactly through a corner, both cells beside the corner must be free.
    """
    ix, iy = int(ax), int(ay)
    ex, ey = int(bx), int(by)
    dx, dy = bx - ax, by - ay
    sx, sy = (1 if dx > 0 else -1), (1 if dy > 0 else -1)
    # Fractions of the line between crossings of cell edges (px, py), and up to the next (tx, ty).
    px = abs(1.0 / dx) if dx != 0.0 else np.inf
    py = abs(1.0 / dy) if dy != 0.0 else np.inf
    tx = ((ix + 1 - ax) if dx > 0 else (ax - ix)) * px if dx != 0.0 else np.inf
    ty = ((iy + 1 - ay) if dy > 0 else (ay - iy)) * py if dy != 0.0 else np.inf
    if not free[iy, ix]:
        return False
    for _ in range(abs(ex - ix) + abs(ey - iy)):
        if abs(tx - ty) < _TINY:
            if not (free[iy, ix + sx] and free[iy + sy, ix]):
                return False
            ix, iy = ix + sx, iy + sy
            tx, ty = tx + px, ty + py
        elif tx < ty:
            ix += sx
            tx += px
        else:
            iy += sy
            ty += py
        if not free[iy, ix]:
            return False
        if ix == ex and iy == ey:
            return True
    return ix == ex and iy == ey


@njit(cache=True)
def _spread(
    free: np.ndarray, nearest: np.ndarray, x0: float, y0: float, cell_m: float, roots: np.ndarray
) -> np.ndarray:
    """Returns the apexes (ny, nx, 3) for a goal that consists of points (k, 2) on the free floor.

    A cell enters the queue with the distance through its neighbour's apex, as if it saw that apex.
    The line of sight is checked only when the cell leaves the queue (Lazy Theta*: Nash, Koenig and
    Tovey, AAAI 2010). If the check fails, the cell is queued again with the best visible apex of
    its neighbours.
    """
    ny, nx = free.shape
    px, py = np.full(ny * nx, np.inf), np.full(ny * nx, np.inf)  # apex of a cell
    start = np.full(ny * nx, np.inf)  # distance of the apex from the goal
    best = np.full(ny * nx, np.inf)
    state = np.zeros(ny * nx, dtype=np.int8)  # 1 queued unchecked, 2 queued and checked, 3 done
    queue = [(0.0, 0) for _ in range(0)]
    for i in range(len(roots)):  # all lengths below are in cells
        gx, gy = (roots[i, 0] - x0) / cell_m, (roots[i, 1] - y0) / cell_m
        cell = int(gy) * nx + int(gx)
        px[cell], py[cell], start[cell] = gx, gy, 0.0
        best[cell] = math.sqrt((int(gx) + 0.5 - gx) ** 2 + (int(gy) + 0.5 - gy) ** 2)
        state[cell] = 2
        heapq.heappush(queue, (best[cell], cell))
    while len(queue):
        value, cell = heapq.heappop(queue)
        if state[cell] == 3 or value > best[cell]:
            continue
        iy, ix = cell // nx, cell % nx
        cx, cy = ix + 0.5, iy + 0.5
        known = _between(state, px, py, cell, nx, px[cell] - cx, py[cell] - cy)
        if state[cell] == 1 and not (known or _sees(free, px[cell], py[cell], cx, cy)):
            _best_offer(free, px, py, start, best, state, cell)
            state[cell] = 2
            heapq.heappush(queue, (best[cell], cell))
            continue
        state[cell] = 3
        for dy in range(-1, 2):
            for dx in range(-1, 2):
                other = cell + dy * nx + dx
                if not _may_step(free, iy, ix, dy, dx) or state[other] == 3:
                    continue
                ox, oy = ix + dx + 0.5, iy + dy + 0.5
                length = start[cell] + math.sqrt((ox - px[cell]) ** 2 + (oy - py[cell]) ** 2)
                if length < best[other] - _TINY:
                    best[other] = length
                    px[other], py[other], start[other] = px[cell], py[cell], start[cell]
                    state[other] = 1
                    heapq.heappush(queue, (length, other))
    return _apexes(free, nearest, x0, y0, cell_m, px, py, start, best)


@njit(cache=True)
def _best_offer(
    free: np.ndarray,
    px: np.ndarray,
    py: np.ndarray,
    start: np.ndarray,
    best: np.ndarray,
    state: np.ndarray,
    cell: int,
) -> None:
    """Sets a cell's apex to the best visible apex of its neighbours, or to a neighbour itself."""
    nx = free.shape[1]
    iy, ix = cell // nx, cell % nx
    cx, cy = ix + 0.5, iy + 0.5
    best[cell] = np.inf
    for dy in range(-1, 2):
        for dx in range(-1, 2):
            other = cell + dy * nx + dx
            if not _may_step(free, iy, ix, dy, dx) or state[other] != 3:
                continue
            ax, ay, begin = px[other], py[other], start[other]
            length = begin + math.sqrt((cx - ax) ** 2 + (cy - ay) ** 2)
            if length < best[cell] and _sees(free, ax, ay, cx, cy):
                best[cell] = length
                px[cell], py[cell], start[cell] = ax, ay, begin
            length = best[other] + math.sqrt(dx * dx + dy * dy)
            if length < best[cell]:
                best[cell] = length
                px[cell], py[cell], start[cell] = cx + dx, cy + dy, best[other]


@njit(cache=True)
def _between(
    state: np.ndarray, px: np.ndarray, py: np.ndarray, cell: int, nx: int, dx: float, dy: float
) -> bool:
    """Returns whether both neighbours in the direction (dx, dy) of a cell's apex share that apex.

    The cell then sees the apex too: both neighbours see it and are one cell apart, so that no
    blocked cell fits between their lines of sight.
    """
    sx, sy = (1 if dx > 0 else -1), (nx if dy > 0 else -nx)
    straight = cell + (sx if abs(dx) > abs(dy) else sy)
    diagonal = cell + sx + sy
    for other in (straight, diagonal):
        if state[other] != 3 or px[other] != px[cell] or py[other] != py[cell]:
            return False
    return True


@njit(cache=True)
def _may_step(free: np.ndarray, iy: int, ix: int, dy: int, dx: int) -> bool:
    """Returns whether a cell's neighbour is free, and for a diagonal both cells beside it."""
    if (dy == 0 and dx == 0) or not (0 <= iy + dy < free.shape[0] and 0 <= ix + dx < free.shape[1]):
        return False
    return free[iy + dy, ix + dx] and free[iy + dy, ix] and free[iy, ix + dx]


@njit(cache=True)
def _apexes(
    free: np.ndarray,
    nearest: np.ndarray,
    x0: float,
    y0: float,
    cell_m: float,
    px: np.ndarray,
    py: np.ndarray,
    start: np.ndarray,
    best: np.ndarray,
) -> np.ndarray:
    """Returns apexes (ny, nx, 3) in metres; a blocked cell has the nearest free cell as its apex.

    Blocked cells next to the free floor share the apex of their nearest free cell, so that
    distances are smooth there.
    """
    ny, nx = free.shape
    apex = np.full((ny, nx, 3), np.inf, dtype=np.float32)
    for iy in range(ny):
        for ix in range(nx):
            cell = iy * nx + ix
            near = nearest[iy, ix]
            if free[iy, ix]:
                apex[iy, ix, 0] = x0 + px[cell] * cell_m
                apex[iy, ix, 1] = y0 + py[cell] * cell_m
                apex[iy, ix, 2] = start[cell] * cell_m
            elif near >= 0 and _touch(iy, ix, near, nx):
                apex[iy, ix, 0] = x0 + px[near] * cell_m
                apex[iy, ix, 1] = y0 + py[near] * cell_m
                apex[iy, ix, 2] = start[near] * cell_m
            elif near >= 0:
                apex[iy, ix, 0] = x0 + (near % nx + 0.5) * cell_m
                apex[iy, ix, 1] = y0 + (near // nx + 0.5) * cell_m
                apex[iy, ix, 2] = best[near] * cell_m
    return apex


@njit(cache=True)
def _touch(iy: int, ix: int, other: int, nx: int) -> bool:
    """Returns whether a cell is `other` or one of its eight neighbours."""
    return abs(other // nx - iy) <= 1 and abs(other % nx - ix) <= 1


@njit(cache=True)
def _path(apex: np.ndarray, x0: float, y0: float, cell_m: float, x: float, y: float) -> np.ndarray:
    """Returns the corners (k, 2) from a point over the apexes to the goal; (0, 2) for no path."""
    if not math.isfinite(field_distance(apex, x0, y0, cell_m, x, y)):
        return np.empty((0, 2))
    points = np.empty((_MAX_BENDS, 2))
    points[0] = x, y
    count = 1
    while count < _MAX_BENDS:
        ax, ay, start = apex[int((y - y0) / cell_m), int((x - x0) / cell_m)]
        x, y = float(ax), float(ay)
        points[count] = x, y
        count += 1
        if start <= 0.0:
            break
    return points[:count].copy()
