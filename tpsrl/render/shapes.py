"""Shapes of a home, for viewers."""

import dataclasses
from typing import Literal

from tpsrl.world.layouts import Quat, Vec3

ShapeKind = Literal["box", "cylinder", "capsule", "sphere", "plane"]
ShapePart = Literal["wall", "furniture", "robot", "object"]


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """One geometric primitive of a home.

    `size` is as MuJoCo's `geom_size`, metres: half extents of a box, radius and half length of a
    cylinder or capsule, radius of a sphere, half extents of a plane. `body` is the row of the
    shape's body in `Simulator.body_poses`, -1 for a shape that never moves; `pos` (m) and `quat`
    (w, x, y, z) are in the frame of the body, else in the world frame. `colour` is red, green, blue
    in 0 to 1.
    """

    name: str
    kind: ShapeKind
    part: ShapePart
    size: Vec3
    colour: Vec3
    body: int
    pos: Vec3
    quat: Quat
