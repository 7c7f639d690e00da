"""Floor from which the arm can reach a point, and paths of the base to that floor.

A floor cell qualifies if it is within `REACH_M` of the point and the line of sight from the
shoulder to the point is free. The line starts at the height of the shoulder, or of the point if
that is higher. Cells behind an open door, a wall or the back of a chair do not qualify. A point
inside a drawer or a sink may be seen from above the rim. Except near the point, the line keeps a
distance from obstacles beside it, so that the forearm has room.

Only the surroundings of the point are mapped, which takes a tenth of the time of a whole
apartment, unless the path leads through other rooms.
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
from scipy import ndimage

from tpsrl.runtime.compiled import njit
from tpsrl.world.fetch import BASE_RADIUS
from tpsrl.world.floor import CELL_M, Joints, floor_map, largest_part, layout_obstacles
from tpsrl.world.geodesic import DistanceField, FreeFloor, distance_field

# Maximum distances of the base's centre from the point. The smallest that leaves a path is used;
# the larger ones are for the back of a counter above open drawers.
REACH_M = (0.85, 1.0, 1.15, 1.25)
_ARM_M = 1.25  # from the shoulder above the base's centre to the cup of the stretched arm
SURROUNDINGS_M = 2.5  # half the width of the mapped square around the point
_STRIDE = 2  # every other cell of the apartment's map, along x and y
_CELL_M = _STRIDE * CELL_M
_WIDTH = 2 * round(SURROUNDINGS_M / _CELL_M)  # cells
_SHOULDER_M = 0.94  # above the floor
_ROOM_M = (0.08, 0.04)  # preferred clearances of the base's disc
# Pairs of clearance and reach in order of preference; the first that leaves a path is used.
_CHOICES_M = (
    *((room, reach) for reach in REACH_M for room in _ROOM_M),
    *((0.0, reach) for reach in REACH_M),
)
_BESIDE_CELLS = 2.0  # a base this far beyond the clearance from a part still counts as on it
_SHORT_M = 0.05  # the line ends this far from the point, whose own body is no obstacle
_ABOVE_M = (0.0, 0.1, 0.2, 0.3)  # heights over the point from which the arm may come down
_BESIDE_M = (0.1, 0.05)  # clearances beside the line; the first that leaves any floor is used
_ELBOW_M = 0.25  # the line needs no clearance within this distance of the point
_UPRIGHT = 0.5  # cosine to the vertical, beyond which the axis of an obstacle counts as upright
_TINY = 1e-12


def approach(
    layout: str,
    point: tuple[float, float, float],
    joints: Joints,
    start: Sequence[float] | np.ndarray,
) -> DistanceField:
    """Returns distances to the floor from which the arm can reach a point, in its surroundings.

    The shortest path of a disc touches every corner, where the base's filter slows it to a crawl
    or stops it. Therefore the path keeps the largest clearance of `_ROOM_M` that leaves a path from
    `start`.

    If no floor qualifies, the distances are to the free floor nearest to the point. Without free
    floor near the point, all distances are infinite.

    Args:
        layout: "SET/NAME"
        point: x, y, z in metres
        joints: positions of doors and drawers
        start: x and y of the base in metres
    """
    near = _surroundings(layout, point, joints)
    field = _way(near, point, start)
    if field is not None:
        return field
    field = _way(_whole(layout, point, joints), point, start)
    if field is not None:
        return _cut(field, near)
    floor = FreeFloor.of_cells(largest_part(near.free(0.0)), near.origin, _CELL_M)
    if floor.snap(point[0], point[1]) is None:
        return DistanceField.unreachable(near.origin, near.clearance.shape, _CELL_M)
    return distance_field(floor, point)


@dataclasses.dataclass(frozen=True, slots=True)
class _Floor:
    """Floor around a point.

    Cell (iy, ix) is cell (iy, ix) + `first` of the whole apartment. `clearance[iy, ix]` is its
    distance (m) from obstacles. `reach[iy, ix]` is the distance (m) of its centre from the point,
    inf where the arm cannot reach the point.
    """

    origin: tuple[float, float]
    first: tuple[int, int]
    clearance: np.ndarray  # (ny, nx)
    reach: np.ndarray  # (ny, nx)

    def free(self, room: float) -> np.ndarray:
        """Returns the cells (ny, nx) bool at which the base has a clearance of `room` metres."""
        return self.clearance >= BASE_RADIUS + room


def _way(
    floor: _Floor, point: tuple[float, float, float], start: Sequence[float] | np.ndarray
) -> DistanceField | None:
    """Returns distances for the first of `_CHOICES_M` that leaves a path from `start`, or None."""
    parts: dict[float, np.ndarray | None] = {}
    for room, reach in _CHOICES_M:
        if room not in parts:
            parts[room] = _part_at(floor, start, room)
        part = parts[room]
        if part is None:
            continue
        iy, ix = np.nonzero(part & (floor.reach < reach))
        if len(iy):
            places = (np.stack([ix, iy], axis=1) + 0.5) * _CELL_M + floor.origin
            free = FreeFloor.of_cells(part, floor.origin, _CELL_M)
            return distance_field(free, point, roots=places)
    return None


def _part_at(floor: _Floor, start: Sequence[float] | np.ndarray, room: float) -> np.ndarray | None:
    """Returns the connected part (ny, nx) bool on or beside which `start` lies, or None."""
    parts = ndimage.label(floor.free(room))[0]
    ny, nx = parts.shape
    x, y = ((at - low) / _CELL_M for at, low in zip(start[:2], floor.origin, strict=True))
    reach = room / _CELL_M + _BESIDE_CELLS
    rows = np.arange(max(int(y - reach), 0), min(int(y + reach) + 1, ny))
    columns = np.arange(max(int(x - reach), 0), min(int(x + reach) + 1, nx))
    around = parts[rows[:, None], columns]
    away = np.hypot((rows + 0.5 - y)[:, None], columns + 0.5 - x)
    away[around == 0] = np.inf
    if not away.size or away.min() > reach:
        return None
    part: np.ndarray = parts == around.flat[int(np.argmin(away))]
    return part


def _cut(field: DistanceField, near: _Floor) -> DistanceField:
    """Crops distances over a whole apartment to the surroundings."""
    (iy, ix), (ny, nx) = near.first, near.clearance.shape
    # A copy, since a view would keep the whole apartment in memory.
    return DistanceField(near.origin, field.apex[iy : iy + ny, ix : ix + nx].copy(), _CELL_M)


@functools.lru_cache(maxsize=256)
def _surroundings(layout: str, point: tuple[float, float, float], joints: Joints) -> _Floor:
    """Returns the floor around a point, in one shape for all points."""
    whole = _whole(layout, point, joints)
    ny, nx = whole.clearance.shape
    ix, iy = (
        min(max(int((at - low) / _CELL_M) - _WIDTH // 2, 0), max(cells - _WIDTH, 0))
        for at, low, cells in zip(point, whole.origin, (nx, ny), strict=False)
    )
    rows, columns = slice(iy, iy + _WIDTH), slice(ix, ix + _WIDTH)
    x, y = whole.origin
    origin = x + ix * _CELL_M, y + iy * _CELL_M
    return _Floor(origin, (iy, ix), whole.clearance[rows, columns], whole.reach[rows, columns])


@functools.lru_cache(maxsize=256)
def _whole(layout: str, point: tuple[float, float, float], joints: Joints) -> _Floor:
    """Returns the floor of the whole apartment."""
    fine = floor_map(layout, joints=joints)
    clearance = fine.distance[::_STRIDE, ::_STRIDE]
    # A wide cell has its centre at that of the narrow cell from which its value is taken.
    x, y = (low + 0.5 * CELL_M - 0.5 * _CELL_M for low in fine.origin)
    low_y, low_x = (
        max(int((at - REACH_M[-1] - low) / _CELL_M), 0)
        for at, low in ((point[1], y), (point[0], x))
    )
    width = 2 * round(REACH_M[-1] / _CELL_M) + 2
    around = clearance[low_y : low_y + width, low_x : low_x + width]
    iy, ix = np.nonzero(around >= BASE_RADIUS)
    places = (np.stack([low_x + ix, low_y + iy], axis=1) + 0.5) * _CELL_M + (x, y)
    away = np.hypot(places[:, 0] - point[0], places[:, 1] - point[1])
    within = np.flatnonzero(np.hypot(away, point[2] - _SHOULDER_M) < _ARM_M)
    seen = within[_seen(layout, point, joints, places[within])]
    reach = np.full(clearance.shape, np.inf, np.float32)
    reach[low_y + iy[seen], low_x + ix[seen]] = away[seen]
    return _Floor((x, y), (0, 0), clearance, reach)


def _seen(
    layout: str, point: tuple[float, float, float], joints: Joints, places: np.ndarray
) -> np.ndarray:
    """Returns from which of the places (n, 2) the arm reaches a point, (n,) bool."""
    obstacles = layout_obstacles(layout, joints)
    away = np.linalg.norm(obstacles.centre - np.asarray(point), axis=1)
    near = away < REACH_M[-1] + _SHOULDER_M + np.linalg.norm(obstacles.half, axis=1)
    rotation = obstacles.rotation[near]
    level = np.abs(rotation[:, 2]) < _UPRIGHT  # (k, 3) bool, of the obstacles' axes
    goal, centre, half = np.asarray(point), obstacles.centre[near], obstacles.half[near]
    seen = _sees_over(places, goal, centre, rotation, half)
    for beside in _BESIDE_M:
        wide = half + beside * level
        roomy = seen.copy()
        roomy[seen] = _sees_over(places[seen], goal, centre, rotation, wide, _ELBOW_M)
        if roomy.any():
            return roomy
    return seen


def _sees_over(
    places: np.ndarray,
    point: np.ndarray,
    centre: np.ndarray,
    rotation: np.ndarray,
    half: np.ndarray,
    short_m: float = _SHORT_M,
) -> np.ndarray:
    """Returns `sees`, also for lines that pass over a rim and come down on the point."""
    free = np.zeros(len(places), dtype=np.bool_)
    for height in _ABOVE_M:
        above = point + np.array([0.0, 0.0, height])
        if height and short_m == _SHORT_M and not _is_free(point, above, centre, rotation, half):
            break
        other = np.flatnonzero(~free)
        free[other] = sees(places[other], above, centre, rotation, half, short_m)
    return free


@njit(cache=True)
def _is_free(
    point: np.ndarray,
    above: np.ndarray,
    centre: np.ndarray,
    rotation: np.ndarray,
    half: np.ndarray,
) -> bool:
    """Returns whether the line from `_SHORT_M` over `point` up to `above` is free of boxes."""
    low = point.copy()
    low[2] += _SHORT_M
    return _free_line(above, low, 1.0, centre, rotation, half)


@njit(cache=True)
def sees(
    places: np.ndarray,
    point: np.ndarray,
    centre: np.ndarray,
    rotation: np.ndarray,
    half: np.ndarray,
    short_m: float = _SHORT_M,
) -> np.ndarray:
    """Returns whether the shoulder above places (n, 2) has a free line to a point (3,), (n,) bool.

    The last `short_m` metres of the line are not checked. Obstacles are boxes: centres (k, 3),
    rotations (k, 3, 3), half extents (k, 3).
    """
    free = np.ones(len(places), dtype=np.bool_)
    start = np.empty(3)
    for i in range(len(places)):
        # Points above the shoulder are on shelves, whose boards would block a line from below.
        start[0], start[1], start[2] = places[i, 0], places[i, 1], max(_SHOULDER_M, point[2])
        length = np.sqrt(((point - start) ** 2).sum())
        end = max(1.0 - short_m / length, 0.0)
        free[i] = _free_line(start, point, end, centre, rotation, half)
    return free


@njit(cache=True)
def _free_line(
    start: np.ndarray,
    point: np.ndarray,
    end: float,
    centre: np.ndarray,
    rotation: np.ndarray,
    half: np.ndarray,
) -> bool:
    """Returns whether the first `end` (0 to 1) of the line from `start` to `point` is free."""
    line = point - start
    for k in range(len(half)):
        first, last = 0.0, end
        for axis in range(3):
            along = at = 0.0
            for world in range(3):
                along += rotation[k, world, axis] * line[world]
                at += rotation[k, world, axis] * (start[world] - centre[k, world])
            if abs(along) < _TINY:
                if abs(at) > half[k, axis]:
                    last = -1.0
                continue
            one, other = (-half[k, axis] - at) / along, (half[k, axis] - at) / along
            first, last = max(first, min(one, other)), min(last, max(one, other))
        if first < last:
            return False
    return True
