"""Distance maps of the obstacles in thin bands of heights, drawn box by box."""

import functools
import math

import numpy as np

from tpsrl.runtime.compiled import njit
from tpsrl.world.floor import (
    CELL_M,
    Joints,
    Obstacles,
    cells_to,
    frame,
    layout_obstacles,
    outline,
    room_mask,
)
from tpsrl.world.layouts import LayoutSet, resolve


def slab_maps(layout: str, slab: float, count: int, joints: Joints, most: float) -> np.ndarray:
    """Returns distances (count, ny, nx) float32 from the obstacles in each band, capped at `most`.

    The bands are `slab` metres high, the first on the floor. Distances are in metres, 0 in
    obstacles and outside the room.
    """
    maps = _still_slabs(layout, slab, count, most).copy()
    obstacles = layout_obstacles(layout, joints)
    still = len(obstacles.half) - obstacles.num_links
    _draw_slabs(maps, resolve(layout)[0], obstacles, range(still, len(obstacles.half)), slab, most)
    return maps


@functools.lru_cache(maxsize=4)
def _still_slabs(layout: str, slab: float, count: int, most: float) -> np.ndarray:
    """Returns `slab_maps` without doors and drawers; cached."""
    layout_set, _ = resolve(layout)
    maps = np.empty((count, *frame(layout_set)[1]), dtype=np.float32)
    maps[:] = np.minimum(cells_to(~room_mask(layout_set)) * CELL_M, most)
    obstacles = layout_obstacles(layout)
    still = range(len(obstacles.half) - obstacles.num_links)
    _draw_slabs(maps, layout_set, obstacles, still, slab, most)
    return maps


def _draw_slabs(
    maps: np.ndarray,
    layout_set: LayoutSet,
    obstacles: Obstacles,
    rows: range,
    slab: float,
    most: float,
) -> None:
    """Lowers maps where the distances from the obstacles in `rows` are less."""
    (x0, y0), _ = frame(layout_set)
    for i in rows:
        centre, turn, half = obstacles.centre[i], obstacles.rotation[i], obstacles.half[i]
        reach = float(np.abs(turn[2]) @ half)
        low = max(math.floor((centre[2] - reach) / slab), 0)
        high = min(math.ceil((centre[2] + reach) / slab), len(maps))
        if low < high:
            _draw_outside(maps[low:high], x0, y0, outline(centre, turn, half), most)


@njit(cache=True)
def _draw_outside(maps: np.ndarray, x0: float, y0: float, corners: np.ndarray, most: float) -> None:
    """Lowers maps (k, ny, nx) where the distance from a convex polygon (n, 2) is less."""
    n = corners.shape[0]
    ix0 = max(int((corners[:, 0].min() - most - x0) / CELL_M), 0)
    ix1 = min(int((corners[:, 0].max() + most - x0) / CELL_M) + 1, maps.shape[2])
    iy0 = max(int((corners[:, 1].min() - most - y0) / CELL_M), 0)
    iy1 = min(int((corners[:, 1].max() + most - y0) / CELL_M) + 1, maps.shape[1])
    edge = np.empty((n, 3))
    for i in range(n):
        edge[i, 0] = corners[(i + 1) % n, 0] - corners[i, 0]
        edge[i, 1] = corners[(i + 1) % n, 1] - corners[i, 1]
        edge[i, 2] = edge[i, 0] ** 2 + edge[i, 1] ** 2
    for iy in range(iy0, iy1):
        py = y0 + (iy + 0.5) * CELL_M
        for ix in range(ix0, ix1):
            px = x0 + (ix + 0.5) * CELL_M
            nearest, inside = np.inf, True
            for i in range(n):
                dx, dy = px - corners[i, 0], py - corners[i, 1]
                if edge[i, 0] * dy - edge[i, 1] * dx >= 0.0:
                    continue  # on the inner side of this edge, so that another edge is nearer
                inside = False
                t = (dx * edge[i, 0] + dy * edge[i, 1]) / max(edge[i, 2], 1e-12)
                t = min(max(t, 0.0), 1.0)
                square = (dx - t * edge[i, 0]) ** 2 + (dy - t * edge[i, 1]) ** 2
                nearest = min(nearest, square)
            value = 0.0 if inside else math.sqrt(nearest)
            for k in range(maps.shape[0]):
                if value < maps[k, iy, ix]:
                    maps[k, iy, ix] = value
