"""Apartments as data: a fixed list of bodies made of boxes, and their poses in each layout.

A `LayoutSet` has the topology (the bodies) and the layouts (the poses of the bodies). The existing
set is HAB's 84 ReplicaCAD apartments. Another set needs a loader in `_LOADERS` and the same names
for its articulated parts.
"""

import dataclasses
import functools
import gzip
import json
import math
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any

import numpy as np

from tpsrl.errors import unknown
from tpsrl.world.geometry import quat_matrix, yaw_quat

VARIANT = "~"

Vec3 = tuple[float, float, float]
Quat = tuple[float, float, float, float]


@dataclasses.dataclass(frozen=True, slots=True)
class Box:
    """Upright box in the frame of its body, or of the world for walls; metres and radians."""

    name: str
    pos: Vec3
    half: Vec3
    yaw: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Link:
    """Moving part of an articulated body: one slide or hinge joint and its boxes.

    `pos` is the position of the joint in the frame of the body. The link's frame has its origin at
    the joint and is unrotated at joint position 0. `marker` is the handle point in the link's
    frame, `key` the marker's name in HAB.
    """

    name: str
    key: str
    joint: str  # "slide" or "hinge"
    pos: Vec3
    axis: Vec3
    range: tuple[float, float]
    mass: float
    boxes: tuple[Box, ...]
    marker: Vec3


@dataclasses.dataclass(frozen=True, slots=True)
class BodyKind:
    """Boxes of one body and its moving links; `collide` is False for rugs."""

    name: str
    boxes: tuple[Box, ...]
    collide: bool = True
    links: tuple[Link, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Receptacle:
    """Surface on which objects stand, with the upright box of free space above it.

    `pos`, `half` and `surface` are metres in the frame of the body, or of its moving link if `link`
    is not "". `surface` is the height on which objects rest. `bodies` are the bodies that have this
    receptacle.
    """

    name: str
    bodies: tuple[str, ...]
    link: str
    pos: Vec3
    half: Vec3
    surface: float


@dataclasses.dataclass(frozen=True, slots=True)
class Pose:
    """Pose of a body in the world frame; absent bodies are parked 10 m under the floor."""

    pos: Vec3
    quat: Quat
    present: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """One apartment: the pose of every body of its set."""

    name: str
    family: str
    split: str
    poses: Mapping[str, Pose]


@dataclasses.dataclass(frozen=True, slots=True)
class LayoutSet:
    """Topology shared by all layouts of a set, and the layouts."""

    name: str
    bodies: Mapping[str, BodyKind]
    walls: tuple[Box, ...]
    floor: tuple[tuple[float, float], tuple[float, float]]  # least (x, y), greatest (x, y)
    room: tuple[tuple[float, float], ...]  # corners of the room's outline, counter-clockwise
    receptacles: Mapping[str, Receptacle]
    layouts: Mapping[str, Layout]
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)  # receptacles by HAB name

    def layout(self, name: str) -> Layout:
        """Returns the layout `name` (without the set's name), which may be a rearranged variant.

        Raises:
            UserError: the layout is unknown; the message names the nearest one.
        """
        if is_variant(name):
            from tpsrl.world.rearranging import rearranged  # avoids a circular import

            return rearranged(self.name, name)
        if name not in self.layouts:
            raise unknown("layout", name, self.layouts)
        return self.layouts[name]

    def split(self, split: str) -> tuple[Layout, ...]:
        """Returns the layouts of a split, "train" or "val", sorted by name.

        Raises:
            UserError: the split is unknown.
        """
        chosen = [lay for _, lay in sorted(self.layouts.items()) if lay.split == split]
        if not chosen:
            raise unknown("split", split, {lay.split for lay in self.layouts.values()})
        return tuple(chosen)

    def link(self, key: str) -> tuple[str, Link]:
        """Returns the link whose handle is marker `key`, after the name of its body.

        Raises:
            UserError: the marker is unknown.
        """
        for name, body in self.bodies.items():
            for link in body.links:
                if link.key == key:
                    return name, link
        raise unknown("marker", key, [k.key for b in self.bodies.values() for k in b.links])


@dataclasses.dataclass(frozen=True, slots=True)
class PlacedReceptacle:
    """Receptacle of one layout in the world frame, with its link at joint position 0.

    `pos` (3,) is the centre of the free box and `rotation` (3, 3) its axes. `marker` is the key of
    the link that carries the receptacle, "" for a receptacle that does not move.
    """

    name: str
    body: str
    marker: str
    pos: np.ndarray
    rotation: np.ndarray
    half: np.ndarray
    surface: float

    def contains(self, point: np.ndarray, shift: np.ndarray | float = 0.0) -> bool:
        """Returns whether a world point (3,) is inside the box moved by `shift` (3,)."""
        local = self.rotation.T @ (np.asarray(point) - shift - self.pos)
        return bool(np.all(np.abs(local) <= self.half))

    def over(self, point: np.ndarray) -> bool:
        """Returns whether a world point (3,) is inside the box in the horizontal plane."""
        local = self.rotation.T @ (np.asarray(point) - self.pos)
        return bool(np.all(np.abs(local[:2]) <= self.half[:2]))


def link_pose(link: Link, joint: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns origin (3,) and rotation (3, 3) of a link in its body's frame."""
    pos, axis = np.array(link.pos), np.array(link.axis)
    if link.joint == "slide":
        return pos + joint * axis, np.eye(3)
    x, y, z = link.axis
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])  # Rodrigues' formula
    return pos, np.eye(3) + math.sin(joint) * cross + (1.0 - math.cos(joint)) * (cross @ cross)


def is_variant(name: str) -> bool:
    """Returns whether a name is that of a rearranged layout, NAME~K (`tpsrl.world.rearranging`)."""
    return VARIANT in name


def resolve(layout: str) -> tuple[LayoutSet, Layout]:
    """Returns the layout set and the layout of "SET/NAME".

    Raises:
        UserError: the set or the layout is unknown.
    """
    set_name, _, name = layout.partition("/")
    layout_set = load_layout_set(set_name)
    return layout_set, layout_set.layout(name)


def placed_receptacles(layout_set: LayoutSet, layout: Layout) -> list[PlacedReceptacle]:
    """Returns the receptacles of a layout in the world frame, one for each body that has it."""
    placed = []
    for receptacle in layout_set.receptacles.values():
        for body in receptacle.bodies:
            pose = layout.poses[body]
            if not pose.present:
                continue
            offset = np.array(receptacle.pos)
            base, marker = 0.0, ""
            for link in layout_set.bodies[body].links:
                if link.name == receptacle.link:
                    offset, base, marker = offset + link.pos, link.pos[2], link.key
            rotation = quat_matrix(pose.quat)
            placed.append(
                PlacedReceptacle(
                    receptacle.name,
                    body,
                    marker,
                    np.array(pose.pos) + rotation @ offset,
                    rotation,
                    np.array(receptacle.half),
                    pose.pos[2] + base + receptacle.surface,
                )
            )
    return placed


@functools.cache
def load_layout_set(name: str) -> LayoutSet:
    """Loads a layout set; cached.

    Raises:
        UserError: the set is unknown; the message names the nearest one.
    """
    if name not in _LOADERS:
        raise unknown("layout set", name, _LOADERS)
    return _LOADERS[name]()


def _replica_cad() -> LayoutSet:
    """Loads HAB's 84 apartments; boxes that no robot or camera can tell apart are merged."""
    packed = resources.files("tpsrl.world").joinpath("data/replica_cad.json.gz").read_bytes()
    data = json.loads(gzip.decompress(packed))
    present: dict[str, bool] = {}
    for scene in data["scenes"]:
        for body, pose in {**scene["furniture"], **scene["articulated"]}.items():
            inside = pose["present"] and pose.get("in_room", True)
            present[body] = present.get(body, False) or inside
    bodies = {}
    for body in [*data["body_order"]["furniture"], *data["body_order"]["articulated"]]:
        if not present[body]:
            continue  # in no layout inside the rooms
        if body in data["articulated"]:
            bodies[body] = _articulated(body, data["articulated"][body])
        else:
            kind = data["furniture"][data["body_type"][body]]
            bodies[body] = BodyKind(body, _boxes(kind["boxes"]), collide=kind["collide"])
    shell = data["shell"]["common"]
    short = data["hab_receptacles"]["short_names"]
    receptacles = {
        name: _receptacle(name, data["hab_receptacles"]["receptacles"][full])
        for name, full in short.items()
    }
    (x0, y0), (x1, y1) = shell["bounds"]
    return LayoutSet(
        name="replica_cad",
        bodies=bodies,
        walls=tuple(
            Box(w["name"], tuple(w["pos"]), tuple(w["half"]), w["yaw"]) for w in shell["walls"]
        ),
        floor=((x0, y0), (x1, y1)),
        room=tuple((x, y) for x, y in shell["polygon_ccw"]),
        receptacles=receptacles,
        layouts={s["name"]: _layout(s, bodies) for s in data["scenes"]},
        aliases={full: name for name, full in short.items()},
    )


_LOADERS: dict[str, Callable[[], LayoutSet]] = {"replica_cad": _replica_cad}


def _boxes(records: list[dict[str, Any]]) -> tuple[Box, ...]:
    return tuple(Box(r["name"], tuple(r["pos"]), tuple(r["half"])) for r in records)


def _hull(name: str, boxes: tuple[Box, ...], offset: Vec3 = (0.0, 0.0, 0.0)) -> Box:
    """Returns the axis-aligned bounding box of boxes, shifted by `offset`."""
    low = np.min([np.subtract(b.pos, b.half) for b in boxes], axis=0) + offset
    high = np.max([np.add(b.pos, b.half) for b in boxes], axis=0) + offset
    return Box(name, tuple(((low + high) / 2).tolist()), tuple(((high - low) / 2).tolist()))


def _articulated(name: str, record: dict[str, Any]) -> BodyKind:
    if record.get("treat_as") == "static":
        box = record["aabb_closed"]
        return BodyKind(name, (Box("hull", tuple(box["pos"]), tuple(box["half"])),))
    boxes = list(_boxes(record["body_boxes"]))
    links = []
    for joint in record["joints"]:
        link_boxes = _boxes(joint["boxes"])
        if joint.get("marker") is None:  # never moved in HAB: the closed drawer or door is one box
            boxes.append(_hull(joint["link"], link_boxes, joint["pos"]))
            continue
        links.append(
            Link(
                name=joint["link"],
                key=joint["marker"]["name"],
                joint=joint["type"],
                pos=tuple(joint["pos"]),
                axis=tuple(joint["axis"]),
                range=tuple(joint["range"]),
                mass=joint["mass"],
                boxes=link_boxes,
                marker=tuple(joint["marker"]["pos"]),
            )
        )
    if name == "fridge":
        boxes = _merge_fridge(boxes)
    return BodyKind(name, tuple(boxes), links=tuple(links))


def _merge_fridge(boxes: list[Box]) -> list[Box]:
    """Fills the lower compartment, whose door HAB never opens, and drops a 2 cm drawer rail."""
    shelf = next(b for b in boxes if b.name == "shelf_bottom")
    shell = next(b for b in boxes if b.name == "bottom")
    low = shell.pos[2] - shell.half[2]
    high = shelf.pos[2] + shelf.half[2]
    x, y = shell.pos[:2]
    block = Box("lower", (x, y, (low + high) / 2), (shell.half[0], shell.half[1], (high - low) / 2))
    gone = ("shelf_bottom", "bottom", "drawer_slide")
    return [block, *(b for b in boxes if b.name not in gone)]


def _receptacle(name: str, record: dict[str, Any]) -> Receptacle:
    return Receptacle(
        name=name,
        bodies=tuple(record["instances"]),
        link="" if record["link"] == "body" else record["link"],
        pos=tuple(record["pos"]),
        half=tuple(record["half"]),
        surface=record["surface_z"],
    )


def _layout(scene: dict[str, Any], bodies: Mapping[str, BodyKind]) -> Layout:
    poses = {}
    for name, pose in {**scene["furniture"], **scene["articulated"]}.items():
        if name in bodies:
            quat = _unit(pose["quat"]) if "quat" in pose else yaw_quat(pose["yaw"])
            poses[name] = Pose(tuple(pose["pos"]), quat, pose["present"])
    return Layout(scene["name"], scene["family"], scene["split"], poses)


def _unit(quat: list[float]) -> Quat:
    """Normalises a quaternion, since the file's numbers are rounded."""
    w, x, y, z = (np.array(quat) / np.linalg.norm(quat)).tolist()
    return (w, x, y, z)
