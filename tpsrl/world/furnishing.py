"""Random furnishing of apartments: new places for kitchen, fridge and other furniture.

The counter goes to any wall, with its cupboard. The fridge stands at either end of the counter or
at any wall. Every other body keeps its place or takes its place from another apartment; a body
that fits in neither is left out.
"""

import math
from collections.abc import Iterable, Iterator

import numpy as np

from tpsrl.world.geometry import quat_matrix, yaw_quat
from tpsrl.world.layouts import BodyKind, Box, Layout, LayoutSet, Pose, link_pose
from tpsrl.world.placement import Crowd, Prism, box_prism
from tpsrl.world.scenarios import DRAWERS, FRIDGE

_OFF_M = 0.05  # gap at the wall: the cupboard reaches 4 cm farther back than the counter
_FREE_M = 0.95  # depth of the free floor in front of counter and fridge, open drawers included
_GAP_M = (0.01, 0.15)  # range of the gap between counter and fridge
_BESIDE = 0.7  # share of apartments with the fridge at an end of the counter
_KEPT = 0.5  # share of the other bodies that keep their place
_BORROWED = 40  # number of apartments whose places are tried
_TOUCH_M = 0.02  # overlap allowed between pieces of furniture, as it occurs in the dataset
_FIXED, _ABOVE = "door2", "kitchenCupboard_01"


class NoRoomError(Exception):
    """Raised if counter or fridge does not fit where it was drawn."""


def furnished(layout_set: LayoutSet, plain: Layout, rng: np.random.Generator) -> dict[str, Pose]:
    """Draws poses of all bodies for a new apartment with the furniture of `plain`.

    Raises:
        NoRoomError: counter or fridge does not fit in this draw; another draw may fit.
    """
    room = _Room(layout_set)
    counter, fridge = kitchen(layout_set)
    room.put(_FIXED, plain.poses[_FIXED])
    room.put_at_a_wall(counter, plain.poses[counter], rng)
    above = _moved(plain.poses[_ABOVE], plain.poses[counter], room.poses[counter])
    room.put(_ABOVE, above)
    if rng.random() < _BESIDE:
        room.put_beside(fridge, counter, plain.poses[fridge], rng)
    else:
        room.put_at_a_wall(fridge, plain.poses[fridge], rng)
    others = [layout for layout in layout_set.split(plain.split) if layout.name != plain.name]
    for name in room.missing():
        own = [plain.poses[name]] if rng.random() < _KEPT else []
        drawn = [others[i].poses[name] for i in rng.permutation(len(others))[:_BORROWED]]
        room.put_where_it_fits(name, [*own, *drawn] if plain.poses[name].present else [])
    return {name: room.poses[name] for name in layout_set.bodies}


def kitchen(layout_set: LayoutSet) -> tuple[str, str]:
    """Returns the names of the bodies of the counter, which has the drawers, and the fridge."""
    counter, fridge = (layout_set.link(key)[0] for key in (next(iter(DRAWERS.values())), FRIDGE))
    return counter, fridge


def pose_at_a_wall(outline: np.ndarray, away: float, z: float, rng: np.random.Generator) -> Pose:
    """Draws a pose at a uniformly random point of the walls, facing the room.

    Args:
        outline: corners (k, 2) of the room, counter-clockwise
        away: distance of the body's origin from the wall, metres
        z: height of the origin, metres
        rng: generator that draws the point
    """
    edges = np.roll(outline, -1, axis=0) - outline
    length = np.linalg.norm(edges, axis=1)
    wall = int(rng.choice(len(length), p=length / length.sum()))
    x, y = edges[wall] / length[wall]
    inwards = np.array([-y, x])
    x, y = outline[wall] + rng.random() * edges[wall] + away * inwards
    yaw = math.atan2(inwards[1], inwards[0])
    return Pose((float(x), float(y), z), yaw_quat(yaw), present=True)


def free_front(body: BodyKind, pose: Pose) -> Prism:
    """Returns the floor in front (+x) of counter or fridge that other furniture leaves free."""
    low, high = extent(body)
    centre = np.array([high[0] + _FREE_M / 2, (low[1] + high[1]) / 2, (low[2] + high[2]) / 2])
    half = np.array([_FREE_M, high[1] - low[1], high[2] - low[2]]) / 2
    turn = quat_matrix(pose.quat)
    return box_prism(np.array(pose.pos) + turn @ centre, turn, half)


class _Room:
    """Apartment being furnished; `poses` has the bodies placed so far."""

    def __init__(self, layout_set: LayoutSet) -> None:
        self.poses: dict[str, Pose] = {}
        self._bodies = layout_set.bodies
        self._outline = np.array(layout_set.room)
        self._crowd = Crowd([_prism(wall) for wall in layout_set.walls])

    def missing(self) -> list[str]:
        """Returns the bodies without a pose, largest outline first."""
        names = [name for name in self._bodies if name not in self.poses]
        return sorted(names, key=lambda name: -_area(self._bodies[name]))

    def put(self, name: str, pose: Pose) -> None:
        """Sets the pose of a body."""
        self.poses[name] = pose
        if pose.present and self._bodies[name].collide:
            for prism in _prisms(self._bodies[name], pose):
                self._crowd.add(prism)

    def put_at_a_wall(self, name: str, old: Pose, rng: np.random.Generator) -> None:
        """Puts a body with its back (-x) to a random point of the walls, free floor in front."""
        low, _ = extent(self._bodies[name])
        pose = pose_at_a_wall(self._outline, _OFF_M - low[0], old.pos[2], rng)
        self._put_with_front(name, pose)

    def put_beside(self, name: str, other: str, old: Pose, rng: np.random.Generator) -> None:
        """Puts a body at one end of another body that stands at a wall, with backs aligned."""
        low, high = extent(self._bodies[name])
        other_low, other_high = extent(self._bodies[other])
        gap = rng.uniform(*_GAP_M)
        left, right = other_high[1] + gap - low[1], other_low[1] - gap - high[1]
        side = float(left if rng.random() < 0.5 else right)
        pose = self.poses[other]
        x, y, _ = pose.pos + quat_matrix(pose.quat) @ [other_low[0] - low[0], side, 0.0]
        self._put_with_front(name, Pose((float(x), float(y), old.pos[2]), pose.quat, True))

    def put_where_it_fits(self, name: str, poses: Iterable[Pose]) -> None:
        """Puts a body at the first of the poses without a collision; absent if there is none."""
        body = self._bodies[name]
        for pose in poses:
            if pose.present and (not body.collide or self._fits(_prisms(body, pose), -_TOUCH_M)):
                self.put(name, pose)
                return
        self.poses[name] = Pose((0.0, 0.0, -10.0), (1.0, 0.0, 0.0, 0.0), False)

    def _put_with_front(self, name: str, pose: Pose) -> None:
        body = self._bodies[name]
        front = free_front(body, pose)
        if not self._fits([*_prisms(body, pose), front], _GAP_M[0] / 2):
            raise NoRoomError(name)
        self.put(name, pose)
        self._crowd.add(front)

    def _fits(self, prisms: Iterable[Prism], margin: float) -> bool:
        return all(self._crowd.fits(prism, margin) for prism in prisms)


def _moved(pose: Pose, old: Pose, new: Pose) -> Pose:
    """Moves a pose along with a body that is moved and turned about z from `old` to `new`."""
    turn = quat_matrix(new.quat) @ quat_matrix(old.quat).T
    pos = np.array(new.pos) + turn @ np.subtract(pose.pos, old.pos)
    yaw = math.atan2(turn[1, 0], turn[0, 0]) + 2.0 * math.atan2(pose.quat[3], pose.quat[0])
    x, y, z = pos.tolist()
    return Pose((x, y, z), yaw_quat(yaw), True)


def _boxes(body: BodyKind) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yields centre, rotation and half extents of a body's boxes, doors and drawers closed."""
    for box in body.boxes:
        yield np.array(box.pos), quat_matrix(yaw_quat(box.yaw)), np.array(box.half)
    for link in body.links:
        shift, turn = link_pose(link, 0.0)
        for box in link.boxes:
            yield shift + turn @ box.pos, turn, np.array(box.half)


def extent(body: BodyKind) -> tuple[np.ndarray, np.ndarray]:
    """Returns the least and greatest corner (3,) of a body's boxes without doors and drawers."""
    low = np.min([np.subtract(b.pos, b.half) for b in body.boxes], axis=0)
    high = np.max([np.add(b.pos, b.half) for b in body.boxes], axis=0)
    return low, high


def _area(body: BodyKind) -> float:
    low, high = extent(body)
    return float(np.prod((high - low)[:2]))


def _prisms(body: BodyKind, pose: Pose) -> list[Prism]:
    turn, origin = quat_matrix(pose.quat), np.array(pose.pos)
    return [
        box_prism(origin + turn @ centre, turn @ own, half) for centre, own, half in _boxes(body)
    ]


def _prism(wall: Box) -> Prism:
    return box_prism(np.array(wall.pos), quat_matrix(yaw_quat(wall.yaw)), np.array(wall.half))
