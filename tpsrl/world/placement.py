"""Geometric test of whether upright objects fit among the objects and furniture of an apartment.

Every body is an upright prism: a convex outline on the floor and a range of heights. The prism is
exact for objects and for all furniture except the few tilted boxes, which count as their hull.
"""

import dataclasses
import functools
import math

import numpy as np

from tpsrl.runtime.compiled import njit
from tpsrl.world.floor import CLOSED, Joints, layout_obstacles, outline
from tpsrl.world.layouts import PlacedReceptacle, resolve
from tpsrl.world.objects import ObjectKind

_CORNERS = 16  # corners of the polygon around a circle
_SUPPORT_SLACK_M = 0.003  # a body that ends less than this above the underside is its support


@dataclasses.dataclass(frozen=True, slots=True)
class Prism:
    """Convex outline (k, 2), counter-clockwise, between two heights; metres, world frame."""

    corners: np.ndarray
    low: float
    high: float


@njit(cache=True)
def gap(a: np.ndarray, b: np.ndarray) -> float:
    """Returns the greatest separation (m) of two convex polygons along their edges' normals.

    The value is at most the distance of disjoint polygons, and the negative depth of overlapping
    ones (separating axis theorem).
    """
    best = -1e9
    for first, second in ((a, b), (b, a)):
        n = first.shape[0]
        for i in range(n):
            j = (i + 1) % n
            nx, ny = first[j, 1] - first[i, 1], first[i, 0] - first[j, 0]
            length = math.sqrt(nx * nx + ny * ny)
            if length < 1e-9:
                continue
            least = 1e9
            for k in range(second.shape[0]):
                dx, dy = second[k, 0] - first[i, 0], second[k, 1] - first[i, 1]
                least = min(least, (nx * dx + ny * dy) / length)
            best = max(best, least)
    return best


@njit(cache=True)
def _any_closer(
    corners: np.ndarray,
    low: float,
    high: float,
    others: np.ndarray,
    start: np.ndarray,
    lows: np.ndarray,
    highs: np.ndarray,
    bounds: np.ndarray,
    margin: float,
) -> bool:
    x0, x1 = corners[:, 0].min() - margin, corners[:, 0].max() + margin
    y0, y1 = corners[:, 1].min() - margin, corners[:, 1].max() + margin
    for i in range(lows.shape[0]):
        if lows[i] >= high + margin or highs[i] <= low:
            continue
        if bounds[i, 0] > x1 or bounds[i, 1] < x0 or bounds[i, 2] > y1 or bounds[i, 3] < y0:
            continue
        if gap(corners, others[start[i] : start[i + 1]]) < margin:
            return True
    return False


class Crowd:
    """Set of disjoint prisms with a fast test of whether another prism fits."""

    def __init__(self, prisms: list[Prism]) -> None:
        self._prisms = list(prisms)
        self._packed: tuple[np.ndarray, ...] | None = None

    def add(self, prism: Prism) -> None:
        """Adds a prism to the set."""
        self._prisms.append(prism)
        self._packed = None

    def fits(self, prism: Prism, margin: float) -> bool:
        """Returns whether a prism is `margin` metres away from all others, sideways and above.

        Prisms that end within 3 mm above the underside of `prism` count as its support and are
        ignored.
        """
        if not self._prisms:
            return True
        if self._packed is None:
            self._packed = _pack(self._prisms)
        low = prism.low + _SUPPORT_SLACK_M
        return not _any_closer(prism.corners, low, prism.high, *self._packed, margin)


def _pack(prisms: list[Prism]) -> tuple[np.ndarray, ...]:
    corners = [p.corners for p in prisms]
    bounds = [(c[:, 0].min(), c[:, 0].max(), c[:, 1].min(), c[:, 1].max()) for c in corners]
    return (
        np.concatenate(corners),
        np.cumsum([0, *(len(c) for c in corners)]),
        np.array([p.low for p in prisms]),
        np.array([p.high for p in prisms]),
        np.array(bounds),
    )


@functools.lru_cache(maxsize=128)
def furniture(layout: str, joints: Joints = CLOSED, without: str = "") -> Crowd:
    """Returns walls and furniture of layout "SET/NAME" with doors and drawers at `joints`.

    The body `without` is left out, with its doors and drawers. The result is cached and shared, so
    callers must not add prisms.
    """
    layout_set, _ = resolve(layout)
    gone = {without}
    if without:
        gone |= {link.name for link in layout_set.bodies[without].links}
    obstacles = layout_obstacles(layout, joints)
    return Crowd(
        [
            box_prism(centre, turn, half)
            for centre, turn, half, name in zip(
                obstacles.centre, obstacles.rotation, obstacles.half, obstacles.names, strict=True
            )
            if name.partition("/")[0] not in gone
        ]
    )


def box_prism(centre: np.ndarray, rotation: np.ndarray, half: np.ndarray) -> Prism:
    """Returns the prism around a box: centre (3,), rotation (3, 3), half extents (3,)."""
    reach = float(np.abs(rotation[2]) @ half)
    low, high = float(centre[2]) - reach, float(centre[2]) + reach
    return Prism(outline(centre, rotation, half), low, high)


def footprint(kind: ObjectKind, x: float, y: float, yaw: float, surface: float) -> Prism:
    """Returns the prism of an upright object at (x, y) on a surface of height `surface` (m)."""
    hx, hy, hz = kind.half
    if kind.primitive == "box":
        flat = np.array([[-hx, -hy], [hx, -hy], [hx, hy], [-hx, hy]])
        c, s = math.cos(yaw), math.sin(yaw)
        flat = flat @ np.array([[c, s], [-s, c]])
    else:
        flat = circle(hx)
    return Prism(flat + np.array([x, y]), surface, surface + 2 * hz)


def circle(radius: float) -> np.ndarray:
    """Returns the corners (k, 2) of a regular polygon around a circle."""
    angles = np.arange(_CORNERS) * (2 * math.pi / _CORNERS)
    outer = radius / math.cos(math.pi / _CORNERS)
    return outer * np.column_stack([np.cos(angles), np.sin(angles)])


def draw_on(
    receptacle: PlacedReceptacle, rng: np.random.Generator, region: float = 1.0
) -> np.ndarray:
    """Draws a point (2,) uniformly over a receptacle's box, or its middle share `region`.

    The point is the centre of an object, which may reach over the edge.
    """
    half = region * receptacle.half[:2]
    point: np.ndarray = receptacle.pos[:2] + receptacle.rotation[:2, :2] @ rng.uniform(-half, half)
    return point
