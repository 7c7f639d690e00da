"""The floor from which the arm can get at a point, and the way there.

Such floor is within `REACH_M` of the point, and the line to it from the shoulder, or from above
the shoulder at the height of the point, is free: not behind an open door, a wall or the back of a
chair. What lies in a drawer or a sink is got at from above its rim. But for its end the line keeps
away from what stands beside it, so that the forearm has room.

Only the surroundings of the point are mapped, in a tenth of the time that a whole apartment takes,
unless the way leads through other rooms.
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

# Of the base's centre from the point, the least that will do: over open drawers the arm has to be
# stretched to get at the back of a counter.
REACH_M = (0.85, 1.0, 1.15, 1.25)
_ARM_M = 1.25  # from the shoulder above that centre to the stretched cup
SURROUNDINGS_M = 2.5  # each way from the point; beyond them no way is known
_STRIDE = 2  # every other cell of the apartment's map, each way
_CELL_M = _STRIDE * CELL_M
_WIDTH = 2 * round(SURROUNDINGS_M / _CELL_M)  # cells
_SHOULDER_M = 0.94  # above the floor
_ROOM_M = (0.08, 0.04)  # beside the base's disc, where there is as much
# Room and reach, the first that leaves any way.
_CHOICES_M = (
    *((room, reach) for reach in REACH_M for room in _ROOM_M),
    *((0.0, reach) for reach in REACH_M),
)
_BESIDE_CELLS = 2.0  # beyond that room, how far from a part of the floor a base counts as on it
_SHORT_M = 0.05  # of the point, where the line ends: what is touched is no obstacle
_ABOVE_M = (0.0, 0.1, 0.2, 0.3)  # the arm comes down from
_BESIDE_M = (0.1, 0.05)  # that a line keeps away on its sides; the first that leaves any floor
_ELBOW_M = 0.25  # from the point, where the line needs no room beside it
_UPRIGHT = 0.5  # cosine to the vertical, beyond which the axis of an obstacle counts as upright
_TINY = 1e-12


def approach(
    layout: str,
    point: tuple[float, float, float],
    joints: Joints,
    start: Sequence[float] | np.ndarray,
) -> DistanceField:
    """Distances to the floor from which the arm can get at a point, in its surroundings.

    The shortest way of a disc touches every corner, where the base's filter lets it through at a
    crawl or not at all. So the way keeps as much of `_ROOM_M` from obstacles as there is room for
    on the way from `start`.

    Where there is no such floor, to the free floor nearest to the point. Where there is none of
    that either, all distances are infinite.

    Args:
        layout: "SET/NAME"
        point: x, y, z in metres
        joints: of doors and drawers
        start: x and y in metres of the base
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
    """The floor around a point.

    Cell (iy, ix) is the cell (iy, ix) + `first` of the apartment's, and `clearance[iy, ix]` is how
    far (m) it is from obstacles. `reach[iy, ix]` is how far (m) its centre is from the point, inf
    where the arm does not get at the point from there.
    """

    origin: tuple[float, float]
    first: tuple[int, int]
    clearance: np.ndarray  # (ny, nx)
    reach: np.ndarray  # (ny, nx)

    def free(self, room: float) -> np.ndarray:
        """Where the base has that much room (m) beside it, (ny, nx) bool."""
        return self.clearance >= BASE_RADIUS + room


def _way(
    floor: _Floor, point: tuple[float, float, float], start: Sequence[float] | np.ndarray
) -> DistanceField | None:
    """Distances by the first of `_CHOICES_M` that leaves a way from `start`, None without one."""
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
    """The connected part (ny, nx) bool that a base at `start` is on or right beside, if any."""
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
    """Of the distances over a whole apartment those in the surroundings."""
    (iy, ix), (ny, nx) = near.first, near.clearance.shape
    return DistanceField(near.origin, field.apex[iy : iy + ny, ix : ix + nx], _CELL_M)


@functools.lru_cache(maxsize=256)
def _surroundings(layout: str, point: tuple[float, float, float], joints: Joints) -> _Floor:
    """The floor around a point, all of one shape."""
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
    """The floor of the whole apartment."""
    fine = floor_map(layout, joints=joints)
    clearance = fine.distance[::_STRIDE, ::_STRIDE]
    # A wider cell has its centre where that of the first narrow one is.
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
    """From which of places (n, 2) the arm gets at a point, (n,) bool."""
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
    """`sees`, also over the rim of what the point lies in: by way of a place above it."""
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
    """Whether the line from `_SHORT_M` over a point to one above it is free of boxes."""
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
    """Whether the shoulder above places (n, 2) has a free line to a point (3,), (n,) bool.

    The last `short_m` of the line may meet something. Obstacles are boxes: centres (k, 3),
    rotations (k, 3, 3), half extents (k, 3).
    """
    free = np.ones(len(places), dtype=np.bool_)
    start = np.empty(3)
    for i in range(len(places)):
        # Higher points are on shelves, whose boards a line from below would meet.
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
    """Whether the first `end` (0 to 1) of the line from `start` to `point` is in no box."""
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
