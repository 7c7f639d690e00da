"""Where each category of furniture stands in an apartment, and from where it can be seen.

A category has instances: bodies of the apartment, or for the sink parts of one. The viewpoints of
an instance are the positions of the base on the free floor within `VIEW_M` of its boxes from which
the head camera has it in sight when the robot turns on the spot, as in Habitat's ObjectNav.
"""

import dataclasses
import functools
import math

import numpy as np

from tpsrl.errors import unknown
from tpsrl.world.categories import (
    CATEGORIES,
    CATEGORY_BODIES,
    CATEGORY_PARTS,
    check_category,
)
from tpsrl.world.floor import CLOSED, Joints, layout_obstacles
from tpsrl.world.geodesic import DistanceField, PackedField, distance_field, free_floor
from tpsrl.world.layouts import resolve
from tpsrl.world.sight import in_sight, surface_points

Boxes = tuple[np.ndarray, np.ndarray, np.ndarray]  # centres, rotations, half extents

VIEW_M = 1.0  # from the base's centre to the nearest box, over the floor
_EVERY = 2  # cells of the free floor, of which one is looked at: 5 cm
_BESIDE_M = 1.1  # the eye is at most so far from a thing that is seen from a viewpoint


@dataclasses.dataclass(frozen=True, slots=True)
class Instance:
    """One thing of a category: its boxes, points on them, and what may hide it.

    `boxes` and `others` are centres (b, 3), rotations (b, 3, 3) and half extents (b, 3) in the
    world; `viewpoints` (k, 2) are on the free floor, perhaps none.
    """

    body: str
    boxes: Boxes
    others: Boxes
    points: np.ndarray  # (p, 3), see `tpsrl.world.sight.surface_points`
    viewpoints: np.ndarray

    @property
    def centre(self) -> tuple[float, float, float]:
        """Of the points' bounding box, metres."""
        x, y, z = (self.points.min(axis=0) + self.points.max(axis=0)) / 2
        return float(x), float(y), float(z)

    def away(self, points: np.ndarray) -> np.ndarray:
        """Metres (n,) over the floor from points (n, 2 or 3) to the nearest box, 0 under it."""
        return away(self.boxes, points)

    def sees(
        self, base: np.ndarray, turning: bool = False, range_m: float = math.inf
    ) -> np.ndarray:
        """Whether it is in sight (n,) bool from base poses (n, 3); see `sight.in_sight`."""
        return in_sight(base, self.points, self.others, turning, range_m)


def away(boxes: Boxes, points: np.ndarray) -> np.ndarray:
    """Metres (n,) over the floor from points (n, 2 or 3) to the nearest of some boxes' outlines.

    A box that is not upright counts as the upright one around it.
    """
    nearest = np.full(len(points), np.inf)
    for centre, rotation, half in zip(*boxes, strict=True):
        yaw = np.arctan2(rotation[1, 0], rotation[0, 0])
        turn = np.array([[np.cos(yaw), -np.sin(yaw)], [np.sin(yaw), np.cos(yaw)]])
        reach = np.abs(turn.T @ rotation[:2]) @ half
        beyond = np.maximum(np.abs((points[:, :2] - centre[:2]) @ turn) - reach, 0.0)
        nearest = np.minimum(nearest, np.hypot(beyond[:, 0], beyond[:, 1]))
    return nearest


# A training has 63 apartments with 11 to 15 categories each, an instance has some 100 kB.
@functools.lru_cache(maxsize=1024)
def instances(layout: str, category: str, joints: Joints = CLOSED) -> tuple[Instance, ...]:
    """The instances in "SET/NAME" that have viewpoints, doors and drawers at `joints`.

    Raises:
        UserError: there is no such category; names the nearest.
    """
    check_category(category)
    _, chosen = resolve(layout)
    found = []
    for body in CATEGORY_BODIES[category]:
        if body in chosen.poses and chosen.poses[body].present:
            instance = _instance(layout, body, CATEGORY_PARTS.get(category), joints)
            found += [instance] if len(instance.viewpoints) else []
    return tuple(found)


def present(layout: str) -> tuple[str, ...]:
    """The categories that an apartment has in view of its free floor."""
    return tuple(name for name in CATEGORIES if instances(layout, name))


def viewpoints(layout: str, category: str, joints: Joints = CLOSED) -> np.ndarray:
    """Where any instance of a category can be seen from, (k, 2)."""
    found = [instance.viewpoints for instance in instances(layout, category, joints)]
    return np.concatenate(found) if found else np.empty((0, 2))


@functools.lru_cache(maxsize=128)
def category_field(layout: str, category: str, joints: Joints = CLOSED) -> DistanceField:
    """Geodesic distances to the nearest viewpoint of any instance of a category.

    Raises:
        UserError: the apartment has none in view of its free floor; names the nearest.
    """
    return _packed_field(layout, category, joints).unpack()


# As many as apartments of a training have categories.
@functools.lru_cache(maxsize=4096)
def _packed_field(layout: str, category: str, joints: Joints) -> PackedField:
    roots = viewpoints(layout, category, joints)
    if not len(roots):
        raise unknown(f"category in view in {layout}", category, present(layout))
    floor = free_floor(layout, joints)
    return PackedField.of(distance_field(floor, roots[0], roots=roots))


def _instance(layout: str, body: str, parts: tuple[str, ...] | None, joints: Joints) -> Instance:
    """A body of a layout, or some of its boxes."""
    layout_set, _ = resolve(layout)
    obstacles = layout_obstacles(layout, joints)
    names = {body, *(link.name for link in layout_set.bodies[body].links)}
    own = np.array(
        [
            name.partition("/")[0] in names and (parts is None or name.partition("/")[2] in parts)
            for name in obstacles.names
        ]
    )
    boxes = obstacles.centre, obstacles.rotation, obstacles.half
    mine, others = _rows(boxes, own), _rows(boxes, ~own)
    points = surface_points(*mine)
    spots = _near_floor(layout, mine, joints)
    near = _rows(others, _beside(points, others))
    seen = in_sight(np.column_stack([spots, np.zeros(len(spots))]), points, near, turning=True)
    return Instance(body, mine, others, points, spots[seen])


def _rows(boxes: Boxes, rows: np.ndarray) -> Boxes:
    centre, rotation, half = boxes
    return centre[rows], rotation[rows], half[rows]


def _near_floor(layout: str, boxes: Boxes, joints: Joints) -> np.ndarray:
    """Points (k, 2) of the free floor within `VIEW_M` of boxes, 5 cm apart."""
    floor = free_floor(layout, joints)
    iy, ix = (_EVERY * at for at in np.nonzero(floor.free[::_EVERY, ::_EVERY]))
    spots = np.stack([ix + 0.5, iy + 0.5], axis=1) * floor.cell_m + floor.origin
    return spots[away(boxes, spots) <= VIEW_M]


def _beside(points: np.ndarray, boxes: Boxes) -> np.ndarray:
    """Which boxes (b,) bool may be between points (p, 3) and a viewpoint of theirs."""
    centre, _, half = boxes
    low, high = points.min(axis=0)[:2] - _BESIDE_M, points.max(axis=0)[:2] + _BESIDE_M
    reach = np.linalg.norm(half, axis=1)[:, None]
    return ((centre[:, :2] + reach >= low) & (centre[:, :2] - reach <= high)).all(axis=1)
