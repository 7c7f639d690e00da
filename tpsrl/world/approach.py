"""The floor from which the arm can get at a point, and the way there.

Such floor is within `REACH_M` of the point, and the line to it from the shoulder, or from above
the shoulder at the height of the point, is free: not behind an open door, a wall or the back of a
chair. A level line, into a shelf, keeps away from what stands beside it, so that the forearm has
room. Only the surroundings of the point are mapped, in a tenth of the time that a whole apartment
takes.
"""

import functools

import numpy as np

from tpsrl.runtime.compiled import njit
from tpsrl.world.fetch import BASE_RADIUS
from tpsrl.world.floor import CELL_M, Joints, floor_map, largest_part, layout_obstacles
from tpsrl.world.geodesic import DistanceField, FreeFloor, distance_field

REACH_M = 0.85  # of the base's centre from the point
SURROUNDINGS_M = 2.5  # each way from the point; beyond them no way is known
_STRIDE = 2  # every other cell of the apartment's map, each way
_CELL_M = _STRIDE * CELL_M
_WIDTH = 2 * round(SURROUNDINGS_M / CELL_M)
_SHOULDER_M = 0.94  # above the floor
_SHORT_M = 0.05  # of the point, where the line ends: what is touched is no obstacle
_BESIDE_M = (0.1, 0.05, 0.0)  # that a level line keeps away; the first that leaves any floor
_UPRIGHT = 0.5  # cosine to the vertical, beyond which the axis of an obstacle counts as upright
_TINY = 1e-12


@functools.lru_cache(maxsize=256)
def approach(layout: str, point: tuple[float, float, float], joints: Joints) -> DistanceField:
    """Distances to the floor from which the arm can get at a point, in its surroundings.

    Where there is no such floor, to the free floor nearest to the point. Where there is none of
    that either, all distances are infinite.

    Args:
        layout: "SET/NAME"
        point: x, y, z in metres
        joints: of doors and drawers
    """
    floor = _surroundings(layout, point, joints)
    places = floor.within(point[0], point[1], REACH_M)
    obstacles = layout_obstacles(layout, joints)
    away = np.linalg.norm(obstacles.centre - np.asarray(point), axis=1)
    near = away < REACH_M + _SHOULDER_M + np.linalg.norm(obstacles.half, axis=1)
    rotation = obstacles.rotation[near]
    level = np.abs(rotation[:, 2]) < _UPRIGHT  # (k, 3) bool, of the obstacles' axes
    for beside in _BESIDE_M if point[2] > _SHOULDER_M else (0.0,):
        half = obstacles.half[near] + beside * level
        seen = sees(places, np.asarray(point), obstacles.centre[near], rotation, half)
        if seen.any():
            break
    if not seen.any() and floor.snap(point[0], point[1]) is None:
        nowhere = np.full((*floor.free.shape, 3), np.inf, dtype=np.float32)
        return DistanceField(floor.origin, nowhere, floor.cell_m)
    return distance_field(floor, point, roots=places[seen])


def _surroundings(layout: str, point: tuple[float, float, float], joints: Joints) -> FreeFloor:
    """The free floor around a point, all of one shape: its largest connected part."""
    whole = floor_map(layout, joints=joints)
    ny, nx = whole.distance.shape
    first = [
        min(max(int((at - low) / CELL_M) - _WIDTH // 2, 0), max(cells - _WIDTH, 0))
        for at, low, cells in zip(point, whole.origin, (nx, ny), strict=False)
    ]
    ix, iy = first
    cut = whole.distance[iy : iy + _WIDTH : _STRIDE, ix : ix + _WIDTH : _STRIDE] >= BASE_RADIUS
    # A wider cell has its centre where that of the first narrow one is.
    x, y = (
        low + (i + 0.5) * CELL_M - 0.5 * _CELL_M for i, low in zip(first, whole.origin, strict=True)
    )
    return FreeFloor.of_cells(largest_part(cut), (x, y), _CELL_M)


@njit(cache=True)
def sees(
    places: np.ndarray,
    point: np.ndarray,
    centre: np.ndarray,
    rotation: np.ndarray,
    half: np.ndarray,
) -> np.ndarray:
    """Whether the shoulder above places (n, 2) has a free line to a point (3,), (n,) bool.

    Obstacles are boxes: centres (k, 3), rotations (k, 3, 3), half extents (k, 3).
    """
    free = np.ones(len(places), dtype=np.bool_)
    line, start = np.empty(3), np.empty(3)
    for i in range(len(places)):
        # Higher points are on shelves, whose boards a line from below would meet.
        start[0], start[1], start[2] = places[i, 0], places[i, 1], max(_SHOULDER_M, point[2])
        for axis in range(3):
            line[axis] = point[axis] - start[axis]
        length = np.sqrt(line[0] ** 2 + line[1] ** 2 + line[2] ** 2)
        end = max(1.0 - _SHORT_M / length, 0.0)
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
                free[i] = False
                break
    return free
