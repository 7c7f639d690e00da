"""Free floor of an apartment: distance of every point from the nearest obstacle.

Occupancy is drawn from the boxes of a layout on a grid, for any band of heights, so that the
base's disc and the arm above it can be checked separately. `joints` has the positions of doors and
drawers, one for each of `JOINTS`: closed by default, or `ABSENT`.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np
from scipy import ndimage
from scipy.spatial import ConvexHull

from tpsrl.runtime.compiled import njit
from tpsrl.world.fetch import BASE_RADIUS
from tpsrl.world.geometry import quat_matrix
from tpsrl.world.layouts import LayoutSet, link_pose, resolve
from tpsrl.world.state import JOINTS

CELL_M = 0.025
# Obstacles of the base. HAB's navmesh uses those between the height of a step and of the agent.
BASE_BAND_M = (0.05, 1.5)
_BORDER_M = 0.5


@dataclasses.dataclass(frozen=True, slots=True)
class Obstacles:
    """World boxes of a layout: centres (n, 3), rotations (n, 3, 3), half extents (n, 3)."""

    centre: np.ndarray
    rotation: np.ndarray
    half: np.ndarray
    names: tuple[str, ...]  # "body/box"
    num_links: int  # number of boxes of doors and drawers, which come last


Joints = tuple[float, ...]
CLOSED: Joints = (0.0,) * len(JOINTS)
ABSENT = math.inf  # position of a door or drawer that is left out
# Training uses 63 apartments and 252 rearranged ones with two bands of heights, with and without
# doors. A map takes 0.7 MB and 10 ms.
_MAPS_KEPT = 1280
_LINK_REACH_M = 2.0  # distances from doors and drawers are drawn up to this, enough for driving


def rounded(joints: Sequence[float] | np.ndarray) -> Joints:
    """Rounds joint positions (5,) to 0.02 rad or m, so that cached results can be reused.

    A joint within 0.01 of closed becomes closed.
    """
    return tuple(round(float(q) / 0.02) * 0.02 + 0.0 if q != ABSENT else q for q in joints)


@functools.lru_cache(maxsize=256)
def layout_obstacles(layout: str, joints: Joints = CLOSED) -> Obstacles:
    """Returns every colliding box of layout "SET/NAME", walls first, moving links last."""
    layout_set, chosen = resolve(layout)
    rows: list[tuple[np.ndarray, np.ndarray, tuple[float, ...], str]] = []
    for wall in layout_set.walls:
        turn = quat_matrix((math.cos(wall.yaw / 2), 0.0, 0.0, math.sin(wall.yaw / 2)))
        rows.append((np.array(wall.pos), turn, wall.half, wall.name))
    links = []
    for name, body in layout_set.bodies.items():
        pose = chosen.poses[name]
        if not (pose.present and body.collide):
            continue
        turn, origin = quat_matrix(pose.quat), np.array(pose.pos)
        for box in body.boxes:
            rows.append((origin + turn @ box.pos, turn, box.half, f"{name}/{box.name}"))
        for link in body.links:
            joint = joints[JOINTS.index(link.key)]
            if joint == ABSENT:
                continue
            shift, swing = link_pose(link, joint)
            for box in link.boxes:
                centre = origin + turn @ (shift + swing @ box.pos)
                links.append((centre, turn @ swing, box.half, f"{link.name}/{box.name}"))
    rows += links
    return Obstacles(
        np.array([r[0] for r in rows]),
        np.array([r[1] for r in rows]),
        np.array([r[2] for r in rows]),
        tuple(r[3] for r in rows),
        len(links),
    )


@njit(cache=True)
def _draw(
    grid: np.ndarray,
    x0: float,
    y0: float,
    cell: float,
    corners: np.ndarray,
) -> None:
    """Fills the cells whose centre is inside a convex polygon (k, 2), counter-clockwise."""
    k = corners.shape[0]
    ny, nx = grid.shape
    ix0 = max(int((corners[:, 0].min() - x0) / cell) - 1, 0)
    ix1 = min(int((corners[:, 0].max() - x0) / cell) + 2, nx)
    iy0 = max(int((corners[:, 1].min() - y0) / cell) - 1, 0)
    iy1 = min(int((corners[:, 1].max() - y0) / cell) + 2, ny)
    for iy in range(iy0, iy1):
        py = y0 + (iy + 0.5) * cell
        for ix in range(ix0, ix1):
            px = x0 + (ix + 0.5) * cell
            inside = True
            for i in range(k):
                j = (i + 1) % k
                ex, ey = corners[j, 0] - corners[i, 0], corners[j, 1] - corners[i, 1]
                # Half a cell of slack keeps thin boxes from falling between centres.
                side = ex * (py - corners[i, 1]) - ey * (px - corners[i, 0])
                if side < -0.5 * cell * math.sqrt(ex * ex + ey * ey):
                    inside = False
                    break
            if inside:
                grid[iy, ix] = True


# Signs of the corners of a box.
_SIGNS = np.array([[a, b, c] for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)])


def outline(centre: np.ndarray, rotation: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Returns the outline (k, 2) on the floor of a box, tilted or not, counter-clockwise."""
    points = (centre + (_SIGNS * half) @ rotation.T)[:, :2]
    if abs(rotation[2, 2]) > 1 - 1e-9:
        order = np.argsort(np.arctan2(*(points[::2] - centre[:2]).T[::-1]))
        return np.ascontiguousarray(points[::2][order])
    return np.ascontiguousarray(points[ConvexHull(points).vertices])


@dataclasses.dataclass(frozen=True, slots=True)
class FloorMap:
    """Grid of distances to the nearest obstacle within a band of heights.

    `distance[iy, ix]` is the distance in metres from the centre of a cell, which is at `origin` +
    (i + 0.5) `CELL_M`; negative inside obstacles and outside the room.
    """

    origin: tuple[float, float]
    distance: np.ndarray

    def clearance(self, x: float, y: float) -> float:
        """Returns the interpolated distance to the nearest obstacle, metres."""
        return float(clearance_gradient(self.distance, *self.origin, x, y)[0])


@njit(cache=True)
def clearance_gradient(
    distance: np.ndarray, x0: float, y0: float, x: float, y: float
) -> tuple[float, float, float]:
    """Returns the bilinear distance (m) at (x, y) and its gradient."""
    fx, fy = (x - x0) / CELL_M - 0.5, (y - y0) / CELL_M - 0.5
    ny, nx = distance.shape
    ix = min(max(math.floor(fx), 0), nx - 2)
    iy = min(max(math.floor(fy), 0), ny - 2)
    tx = min(max(fx - ix, 0.0), 1.0)
    ty = min(max(fy - iy, 0.0), 1.0)
    a, b = distance[iy, ix], distance[iy, ix + 1]
    c, d = distance[iy + 1, ix], distance[iy + 1, ix + 1]
    value = (a * (1 - tx) + b * tx) * (1 - ty) + (c * (1 - tx) + d * tx) * ty
    gx = ((b - a) * (1 - ty) + (d - c) * ty) / CELL_M
    gy = ((c - a) * (1 - tx) + (d - b) * tx) / CELL_M
    return value, gx, gy


@functools.lru_cache(maxsize=_MAPS_KEPT // 4)
def floor_map(
    layout: str,
    low: float = BASE_BAND_M[0],
    high: float = BASE_BAND_M[1],
    joints: Joints = CLOSED,
) -> FloorMap:
    """Returns the map of the obstacles between two heights (m) in layout "SET/NAME"; cached."""
    return band_map(layout, low, high, joints)


def band_map(layout: str, low: float, high: float, joints: Joints) -> FloorMap:
    """Returns `floor_map` without caching: a map has 0.7 MB, and there are many joint positions."""
    if joints == CLOSED:
        return _drawn_map(layout, low, high, with_links=True)
    still = _drawn_map(layout, low, high, with_links=False)
    obstacles = layout_obstacles(layout, joints)
    links = slice(len(obstacles.half) - obstacles.num_links, None)
    distance = still.distance.copy()
    for i in _in_band(obstacles, low, high)[links].nonzero()[0] + links.start:
        centre, turn, half = obstacles.centre[i], obstacles.rotation[i], obstacles.half[i]
        _draw_distance(distance, *still.origin, centre, turn, half)
    return FloorMap(still.origin, distance)


@functools.lru_cache(maxsize=_MAPS_KEPT)
def _drawn_map(layout: str, low: float, high: float, with_links: bool) -> FloorMap:
    """Returns `floor_map` with doors and drawers closed, or without them."""
    layout_set, _ = resolve(layout)
    obstacles = layout_obstacles(layout)
    origin, shape = frame(layout_set)
    blocked = np.zeros(shape, dtype=np.bool_)
    drawn = _in_band(obstacles, low, high)
    if not with_links:
        drawn[len(drawn) - obstacles.num_links :] = False
    for i in np.flatnonzero(drawn):
        corners = outline(obstacles.centre[i], obstacles.rotation[i], obstacles.half[i])
        _draw(blocked, *origin, CELL_M, corners)
    blocked |= ~room_mask(layout_set)
    outside, inside = cells_to(blocked) * CELL_M, cells_to(~blocked) * CELL_M
    return FloorMap(origin, (outside - inside).astype(np.float32))


@njit(cache=True)
def cells_to(marked: np.ndarray) -> np.ndarray:
    """Returns the distance (ny, nx) of every cell from the nearest marked cell, in cells.

    Exact Euclidean distance between centres (P. Felzenszwalb, D. Huttenlocher, "Distance Transforms
    of Sampled Functions", Theory of Computing 8, 2012): along columns by counting, along rows by
    the lower envelope of parabolas.
    """
    ny, nx = marked.shape
    far = float(ny + nx)
    down = np.empty((ny, nx))
    for ix in range(nx):
        down[0, ix] = 0.0 if marked[0, ix] else far
    for iy in range(1, ny):
        for ix in range(nx):
            down[iy, ix] = 0.0 if marked[iy, ix] else down[iy - 1, ix] + 1.0
    for iy in range(ny - 2, -1, -1):
        for ix in range(nx):
            down[iy, ix] = min(down[iy, ix], down[iy + 1, ix] + 1.0)
    vertex, begins = np.empty(nx, dtype=np.int64), np.empty(nx + 1)
    for iy in range(ny):
        square = down[iy] * down[iy]
        k = 0
        vertex[0], begins[0], begins[1] = 0, -np.inf, np.inf
        for q in range(1, nx):
            while True:
                v = vertex[k]
                meet = (square[q] + q * q - square[v] - v * v) / (2.0 * (q - v))
                if meet > begins[k]:
                    break
                k -= 1
            k += 1
            vertex[k], begins[k], begins[k + 1] = q, meet, np.inf
        k = 0
        for q in range(nx):
            while begins[k + 1] < q:
                k += 1
            v = vertex[k]
            down[iy, q] = math.sqrt((q - v) * (q - v) + square[v])
    return down


def _in_band(obstacles: Obstacles, low: float, high: float) -> np.ndarray:
    """Returns which obstacles (n,) bool reach into a band of heights (m)."""
    reach = (np.abs(obstacles.rotation[:, 2, :]) * obstacles.half).sum(axis=1)
    return (obstacles.centre[:, 2] - reach < high) & (obstacles.centre[:, 2] + reach > low)


@njit(cache=True)
def _draw_distance(
    distance: np.ndarray,
    x0: float,
    y0: float,
    centre: np.ndarray,
    rotation: np.ndarray,
    half: np.ndarray,
) -> None:
    """Lowers a map (ny, nx) where the distance (m) from the outline of an upright box is less."""
    ny, nx = distance.shape
    for iy in range(ny):
        dy = y0 + (iy + 0.5) * CELL_M - centre[1]
        if abs(dy) > _LINK_REACH_M:
            continue
        for ix in range(nx):
            dx = x0 + (ix + 0.5) * CELL_M - centre[0]
            if abs(dx) > _LINK_REACH_M:
                continue
            u = abs(rotation[0, 0] * dx + rotation[1, 0] * dy) - half[0]
            v = abs(rotation[0, 1] * dx + rotation[1, 1] * dy) - half[1]
            outside = math.sqrt(max(u, 0.0) ** 2 + max(v, 0.0) ** 2)
            value = outside + min(max(u, v), 0.0)
            if value < distance[iy, ix]:
                distance[iy, ix] = value


def frame(layout_set: LayoutSet) -> tuple[tuple[float, float], tuple[int, int]]:
    """Returns origin (m) and shape (ny, nx) of the maps of a layout set."""
    (x0, y0), (x1, y1) = layout_set.floor
    origin = (x0 - _BORDER_M, y0 - _BORDER_M)
    shape = (
        int((y1 - y0 + 2 * _BORDER_M) / CELL_M) + 1,
        int((x1 - x0 + 2 * _BORDER_M) / CELL_M) + 1,
    )
    return origin, shape


@functools.lru_cache(maxsize=4)
def _mask_of(name: str) -> np.ndarray:
    layout_set, _ = resolve(name)
    (x0, y0), (ny, nx) = frame(layout_set)
    xs = x0 + (np.arange(nx) + 0.5) * CELL_M
    ys = y0 + (np.arange(ny) + 0.5) * CELL_M
    px, py = np.meshgrid(xs, ys)
    inside = np.zeros((ny, nx), dtype=bool)
    room = layout_set.room
    for (ax, ay), (bx, by) in zip(room, room[1:] + room[:1], strict=True):
        crosses = (ay > py) != (by > py)
        with np.errstate(divide="ignore", invalid="ignore"):
            inside ^= crosses & (px < (bx - ax) * (py - ay) / (by - ay) + ax)
    return inside


def room_mask(layout_set: LayoutSet) -> np.ndarray:
    """Returns the cells (ny, nx) bool inside the room."""
    return _mask_of(f"{layout_set.name}/{next(iter(layout_set.layouts))}")


def in_room(layout_set: LayoutSet, x: float, y: float) -> bool:
    """Returns whether the cell of a point (m) is inside the room."""
    (x0, y0), (ny, nx) = frame(layout_set)
    ix, iy = math.floor((x - x0) / CELL_M), math.floor((y - y0) / CELL_M)
    return 0 <= ix < nx and 0 <= iy < ny and bool(room_mask(layout_set)[iy, ix])


@functools.lru_cache(maxsize=256)
def main_floor(layout: str, joints: Joints = CLOSED) -> np.ndarray:
    """Returns the cells (ny, nx) bool of the largest connected part that is free for the base."""
    return largest_part(floor_map(layout, joints=joints).distance >= BASE_RADIUS)


def largest_part(free: np.ndarray) -> np.ndarray:
    """Returns the largest connected part of cells (ny, nx) bool."""
    labels, count = ndimage.label(free)
    if count == 0:
        return free
    sizes = ndimage.sum_labels(free, labels, range(1, count + 1))
    return labels == 1 + int(np.argmax(sizes))


@functools.lru_cache(maxsize=128)
def _main_cells(layout: str, joints: Joints) -> tuple[np.ndarray, int]:
    """Returns flat indices (k,) of the main floor's cells, and the number of cells in a row."""
    floor = main_floor(layout, joints)
    return np.flatnonzero(floor).astype(np.int32), floor.shape[1]


def random_base_pose(
    layout: str, rng: np.random.Generator, joints: Joints = CLOSED
) -> tuple[float, float, float]:
    """Draws a base pose (x, y, yaw) uniformly from the main floor."""
    cells, width = _main_cells(layout, joints)
    iy, ix = divmod(int(cells[rng.integers(len(cells))]), width)
    x0, y0 = floor_map(layout).origin
    yaw = rng.uniform(-math.pi, math.pi)
    return (x0 + (ix + 0.5) * CELL_M, y0 + (iy + 0.5) * CELL_M, float(yaw))
