"""Instances of each category of furniture in an apartment, and their viewpoints.

The instances of a category are bodies of the apartment, or parts of a body for the sink. The
viewpoints of an instance are the positions of the base on the free floor within `VIEW_M` of its
boxes from which the head camera can see the instance while the robot turns on the spot, as in
Habitat's ObjectNav.
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

VIEW_M = 1.0  # largest horizontal distance of a viewpoint from the nearest box
_EVERY = 2  # every second cell of the free floor is a candidate: 5 cm
_BESIDE_M = 1.1  # upper bound of the distance between an instance and the camera at a viewpoint


@dataclasses.dataclass(frozen=True, slots=True)
class Instance:
    """Instance of a category: its boxes, points on them, and the boxes that may occlude it.

    `boxes` and `others` are centres (b, 3), rotations (b, 3, 3) and half extents (b, 3) in the
    world frame. `viewpoints` (k, 2) are on the free floor and may be empty.
    """

    body: str
    boxes: Boxes
    others: Boxes
    points: np.ndarray  # (p, 3), see `tpsrl.world.sight.surface_points`
    viewpoints: np.ndarray

    @property
    def centre(self) -> tuple[float, float, float]:
        """Centre of the bounding box of the points, metres."""
        x, y, z = (self.points.min(axis=0) + self.points.max(axis=0)) / 2
        return float(x), float(y), float(z)

    def away(self, points: np.ndarray) -> np.ndarray:
        """Returns horizontal distances (n,) from points (n, 2 or 3) to the nearest box, metres."""
        return away(self.boxes, points)

    def sees(
        self, base: np.ndarray, turning: bool = False, range_m: float = math.inf
    ) -> np.ndarray:
        """Returns whether the instance is in sight (n,) bool; arguments as in `sight.in_sight`."""
        return in_sight(base, self.points, self.others, turning, range_m)


def away(boxes: Boxes, points: np.ndarray) -> np.ndarray:
    """Returns horizontal distances (n,) from points (n, 2 or 3) to the nearest box, metres.

    The distance is 0 within the outline of a box. A tilted box counts as the upright box around it.
    """
    nearest = np.full(len(points), np.inf)
    for centre, rotation, half in zip(*boxes, strict=True):
        yaw = np.arctan2(rotation[1, 0], rotation[0, 0])
        turn = np.array([[np.cos(yaw), -np.sin(yaw)], [np.sin(yaw), np.cos(yaw)]])
        reach = np.abs(turn.T @ rotation[:2]) @ half
        beyond = np.maximum(np.abs((points[:, :2] - centre[:2]) @ turn) - reach, 0.0)
        nearest = np.minimum(nearest, np.hypot(beyond[:, 0], beyond[:, 1]))
    return nearest


# Training uses 63 apartments with 11 to 15 categories each; an instance takes about 100 kB.
@functools.lru_cache(maxsize=1024)
def instances(layout: str, category: str, joints: Joints = CLOSED) -> tuple[Instance, ...]:
    """Returns the instances with viewpoints in layout "SET/NAME", doors and drawers at `joints`.

    Raises:
        UserError: the category is unknown; the message names the nearest one.
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
    """Returns the categories with viewpoints in an apartment."""
    return tuple(name for name in CATEGORIES if instances(layout, name))


def viewpoints(layout: str, category: str, joints: Joints = CLOSED) -> np.ndarray:
    """Returns the viewpoints (k, 2) of all instances of a category."""
    found = [instance.viewpoints for instance in instances(layout, category, joints)]
    return np.concatenate(found) if found else np.empty((0, 2))


@functools.lru_cache(maxsize=128)
def category_field(layout: str, category: str, joints: Joints = CLOSED) -> DistanceField:
    """Computes geodesic distances to the nearest viewpoint of any instance of a category; cached.

    Raises:
        UserError: the apartment has no viewpoint of the category; the message names the nearest
            category that has one.
    """
    return _packed_field(layout, category, joints).unpack()


# Enough for all categories of all apartments of training.
@functools.lru_cache(maxsize=4096)
def _packed_field(layout: str, category: str, joints: Joints) -> PackedField:
    roots = viewpoints(layout, category, joints)
    if not len(roots):
        raise unknown(f"category in view in {layout}", category, present(layout))
    floor = free_floor(layout, joints)
    return PackedField.of(distance_field(floor, roots[0], roots=roots))


def _instance(layout: str, body: str, parts: tuple[str, ...] | None, joints: Joints) -> Instance:
    """Builds the instance for a body of a layout, or for its boxes named in `parts`."""
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
    """Returns points (k, 2) of the free floor within `VIEW_M` of boxes, 5 cm apart."""
    floor = free_floor(layout, joints)
    iy, ix = (_EVERY * at for at in np.nonzero(floor.free[::_EVERY, ::_EVERY]))
    spots = np.stack([ix + 0.5, iy + 0.5], axis=1) * floor.cell_m + floor.origin
    return spots[away(boxes, spots) <= VIEW_M]


def _beside(points: np.ndarray, boxes: Boxes) -> np.ndarray:
    """Returns which boxes (b,) bool may be between points (p, 3) and one of their viewpoints."""
    centre, _, half = boxes
    low, high = points.min(axis=0)[:2] - _BESIDE_M, points.max(axis=0)[:2] + _BESIDE_M
    reach = np.linalg.norm(half, axis=1)[:, None]
    return ((centre[:, :2] + reach >= low) & (centre[:, :2] - reach <= high)).all(axis=1)
