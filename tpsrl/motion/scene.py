"""Scene of the classical planner: furniture, objects and held object of one home."""

import dataclasses

import numpy as np

from tpsrl.world.collision import (
    ARM_SPHERES,
    ArmChecker,
    Bodies,
    Spheres,
    held_spheres,
    object_bodies,
)
from tpsrl.world.episode import Episode
from tpsrl.world.fetch import CUP, GRIPPER
from tpsrl.world.floor import ABSENT, Joints, layout_obstacles, rounded
from tpsrl.world.footprint import Footprint, make_footprint
from tpsrl.world.geometry import quat_matrix
from tpsrl.world.handles import handle
from tpsrl.world.objects import ObjectKind, object_kind
from tpsrl.world.reach import static_bodies
from tpsrl.world.state import WorldState


@dataclasses.dataclass(frozen=True, slots=True)
class Held:
    """Held object: index, pose relative to the cup's tip, and the spheres that fill it."""

    index: int
    kind: ObjectKind
    offset: np.ndarray  # (3,) centre in the cup's frame
    rotation: np.ndarray  # (3, 3) object axes in the cup's frame
    spheres: Spheres


@dataclasses.dataclass(frozen=True, slots=True)
class Scene:
    """State of one home at one moment, for planning; see `look`."""

    layout: str
    joints: Joints  # rounded positions of fridge and drawers
    kinds: tuple[ObjectKind, ...]
    base: np.ndarray  # (3,)
    arm: np.ndarray  # (7,)
    position: np.ndarray  # (n, 3)
    rotation: np.ndarray  # (n, 3, 3)
    objects: Bodies
    held: Held | None

    @property
    def spheres(self) -> Spheres:
        """Spheres of the arm and the held object."""
        return ARM_SPHERES if self.held is None else ARM_SPHERES.plus(self.held.spheres)

    def loose(self, without: int = -1) -> np.ndarray:
        """Returns the indices of the objects that are obstacles: neither held nor `without`."""
        gone = {without, self.held.index if self.held else -1}
        return np.array([i for i in range(len(self.kinds)) if i not in gone], dtype=np.int64)

    def loose_bodies(self) -> Bodies:
        """Returns the objects of `loose` as obstacles."""
        return _rows(self.objects, self.loose())

    def obstacles(self, without: int = -1) -> Bodies:
        """Returns the furniture, then the objects of `loose`, as obstacles."""
        loose = _rows(self.objects, self.loose(without))
        return static_bodies(self.layout, self.joints).plus(loose)

    def only(self, rows: np.ndarray) -> "Scene":
        """Returns the scene with only the objects in `rows` (k,), none of which may be held."""
        return dataclasses.replace(
            self,
            kinds=tuple(self.kinds[i] for i in rows),
            position=self.position[rows],
            rotation=self.rotation[rows],
            objects=_rows(self.objects, rows),
        )

    def checker(
        self, base: np.ndarray, spheres: Spheres | None = None, touching: int | str = -1
    ) -> ArmChecker:
        """Returns the collision checker at a base pose.

        Args:
            base: (3,) base pose
            spheres: spheres of the robot; by default those of the arm and the held object
            touching: object that the tool may touch, or the marker of a door or drawer whose front
                the tool may touch; -1 for none
        """
        static = static_bodies(self.layout, self.joints)
        loose = self.loose()
        near, rows = static.plus(_rows(self.objects, loose)).seen_from(base)
        target = -1
        if touching != -1:
            if isinstance(touching, str):
                names = layout_obstacles(self.layout, self.joints).names
                row = names.index(handle(self.layout, touching).front)
            else:
                # A held object is not among the obstacles.
                place = np.flatnonzero(loose == touching)
                row = len(static.kind) + int(place[0]) if len(place) else -1
            found = np.flatnonzero(rows == row)
            target = int(found[0]) if len(found) else -1
        return ArmChecker(self.spheres if spheres is None else spheres, near, target)

    def footprint(self, posture: np.ndarray, without: int = -1) -> Footprint:
        """Returns the footprint of the robot with the arm in `posture`.

        The door or drawer `without` (index into JOINTS) is left out of the obstacles.
        """
        rows = _rows(self.objects, self.loose())
        joints = tuple(ABSENT if i == without else q for i, q in enumerate(self.joints))
        return make_footprint(self.layout, posture, rows, self.spheres, joints)


def look(episode: Episode, world: WorldState) -> Scene:
    """Builds the scene of a world state of batch size one."""
    kinds = tuple(object_kind(o.name) for o in episode.objects)
    count = len(kinds)
    position = np.asarray(world.object_pos[0, :count])
    quat = np.asarray(world.object_quat[0, :count])
    objects = object_bodies(list(kinds), position, quat)
    index = int(world.held[0])
    held = None
    if index >= 0:
        cup = quat_matrix(world.ee_quat[0])
        offset = cup.T @ (position[index] - world.ee_pos[0])
        rotation = cup.T @ objects.rotation[index]
        held = hold(index, kinds[index], offset, rotation)
    return Scene(
        episode.layout,
        rounded(world.joints[0]),
        kinds,
        np.asarray(world.base[0]),
        np.asarray(world.arm[0]),
        position,
        objects.rotation,
        objects,
        held,
    )


def hold(index: int, kind: ObjectKind, offset: np.ndarray, rotation: np.ndarray) -> Held:
    """Builds the held object from its pose in the cup's frame."""
    tip = np.array([GRIPPER + CUP, 0.0, 0.0])
    return Held(index, kind, offset, rotation, held_spheres(kind, tip + offset, rotation))


def _rows(bodies: Bodies, rows: np.ndarray) -> Bodies:
    return Bodies(bodies.kind[rows], bodies.centre[rows], bodies.rotation[rows], bodies.half[rows])
