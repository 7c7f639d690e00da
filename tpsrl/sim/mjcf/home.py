"""The MuJoCo model of a home: one MJCF of fixed topology for every apartment and episode."""

import dataclasses

import mujoco
import numpy as np

from tpsrl.sim.mjcf.fetch import add_fetch
from tpsrl.sim.mjcf.masks import FLOOR, OBJECT, ROBOT, STATIC
from tpsrl.world.action import CONTROL_HZ
from tpsrl.world.fetch import CUP, GRIPPER
from tpsrl.world.layouts import BodyKind, Box, LayoutSet, Link
from tpsrl.world.slots import PRIMITIVES
from tpsrl.world.state import JOINTS

SUBSTEPS = 4  # physics steps in a control step
TIMESTEP_S = 1.0 / (CONTROL_HZ * SUBSTEPS)

# The compiler marks geoms that have the orientation of their body, and the engine then ignores
# later changes of their rotation; geoms with a yaw are not marked.
_ANY_YAW = 0.3
PARK_Z = 20.0  # m; not below the floor, an infinite plane that would push objects up
SPECK_M = 1e-3  # half extents of the unused geoms of a slot
NEVER_M = -100.0  # margin of unused geoms: deeper than any two geoms can penetrate
# Without rolling resistance a released apple rolls 2 m along a counter. With these coefficients in
# metres, ball and can roll as far as their convex hulls of 320 and 22 facets, which lose energy at
# every edge: 0.2 and 0.3 m from 0.3 m/s.
_ROLLING_M = {"box": 0.0, "cylinder": 0.002, "sphere": 0.003}
_WOOD = (0.72, 0.55, 0.38, 1)
_COLOURS = {
    "sofa": (0.36, 0.48, 0.60, 1),
    "chair_01_0": (0.80, 0.58, 0.34, 1),
    "chair_01_1": (0.80, 0.58, 0.34, 1),
    "table_01": (0.70, 0.52, 0.36, 1),
    "table_02": (0.45, 0.58, 0.44, 1),
    "table_03": (0.60, 0.66, 0.52, 1),
    "tvstand": (0.55, 0.35, 0.30, 1),
    "tv_screen": (0.12, 0.12, 0.14, 1),
    "beanbag_0": (0.55, 0.42, 0.52, 1),
    "beanbag_1": (0.55, 0.42, 0.52, 1),
    "bike_01": (0.70, 0.40, 0.45, 1),
    "bike_02": (0.70, 0.40, 0.45, 1),
    "indoor_plant_02": (0.30, 0.52, 0.32, 1),
    "rug_01": (0.76, 0.70, 0.62, 1),
    "rug_02": (0.66, 0.68, 0.74, 1),
    "mat": (0.55, 0.52, 0.50, 1),
    "fridge": (0.80, 0.84, 0.88, 1),
    "kitchen_counter": (0.86, 0.80, 0.70, 1),
    "kitchenCupboard_01": (0.86, 0.80, 0.70, 1),
}


def home_spec(layouts: LayoutSet, capacity: int) -> mujoco.MjSpec:
    """Returns the uncompiled model of a home.

    Bodies and joints have the names in the layout set and in `tpsrl.world.fetch`. Boxes are
    named "BODY/BOX"; objects and their joints "slot_0", "slot_1" and so on, their geoms
    "slot_0/box", "slot_0/cylinder" and so on. The equality that holds object 0 is "weld_0", the
    equality that holds a handle has the name of the handle's marker.

    Args:
        layouts: the apartments.
        capacity: number of slots for objects.
    """
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    spec.modelname = "tpsrl_home"
    option = spec.option
    option.timestep = TIMESTEP_S
    option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    option.cone = mujoco.mjtCone.mjCONE_PYRAMIDAL
    option.enableflags |= mujoco.mjtEnableBit.mjENBL_SLEEP
    spec.stat.extent = 1.0
    _add_shell(spec, layouts)
    for name, body in layouts.bodies.items():
        _add_furniture(spec, name, body)
    add_fetch(spec)
    for key in JOINTS:
        _add_handle(spec, key, layouts.link(key)[1])
    for slot in range(capacity):
        _add_slot(spec, slot)
    return spec


def _add_shell(spec: mujoco.MjSpec, layouts: LayoutSet) -> None:
    (x0, y0), (x1, y1) = layouts.floor
    spec.worldbody.add_geom(
        name="floor",
        type=mujoco.mjtGeom.mjGEOM_PLANE,
        pos=[(x0 + x1) / 2, (y0 + y1) / 2, 0],
        size=[(x1 - x0) / 2 + 0.3, (y1 - y0) / 2 + 0.3, 0.1],
        contype=FLOOR,
        conaffinity=0,
        rgba=(0.78, 0.72, 0.64, 1),
    )
    for box in layouts.walls:
        _add_box(spec.worldbody, box, box.name, (0.90, 0.89, 0.86, 1), STATIC)


def _add_box(
    body: mujoco.MjsBody, box: Box, name: str, rgba: tuple[float, ...], contype: int
) -> None:
    body.add_geom(
        name=name,
        type=mujoco.mjtGeom.mjGEOM_BOX,
        pos=box.pos,
        size=box.half,
        quat=[np.cos(box.yaw / 2), 0, 0, np.sin(box.yaw / 2)],
        contype=contype,
        conaffinity=0,
        rgba=rgba,
    )


def _add_furniture(spec: mujoco.MjSpec, name: str, kind: BodyKind) -> None:
    """Adds furniture as boxes of the world body, and doors and drawers as bodies.

    Boxes of the world body cost a third of the broad phase that separate bodies would cost.
    """
    colour = _COLOURS.get(name, _WOOD)
    for box in kind.boxes:
        turned = dataclasses.replace(box, yaw=_ANY_YAW)
        contype = STATIC if kind.collide else 0
        _add_box(spec.worldbody, turned, f"{name}/{box.name}", colour, contype)
    if kind.links:
        body = spec.worldbody.add_body(name=name)
        for link in kind.links:
            _add_link(body, link, colour)


def _add_link(parent: mujoco.MjsBody, link: Link, colour: tuple[float, ...]) -> None:
    body = parent.add_body(name=link.name, pos=link.pos)
    hinge = link.joint == "hinge"
    body.add_joint(
        name=link.key,
        type=mujoco.mjtJoint.mjJNT_HINGE if hinge else mujoco.mjtJoint.mjJNT_SLIDE,
        axis=link.axis,
        range=link.range,
        limited=True,
        # With HAB's damping of 0.01 a touched door would swing for ever: Bullet additionally damps
        # links by 5% a step. Friction holds a door like a seal, so that a hand that brushes it
        # does not open it.
        damping=3.0 if hinge else 10.0,
        frictionloss=2.0 if hinge else 4.0,
    )
    low = np.min([np.subtract(b.pos, b.half) for b in link.boxes], axis=0)
    high = np.max([np.add(b.pos, b.half) for b in link.boxes], axis=0)
    x, y, z = high - low
    body.explicitinertial = True
    body.mass, body.ipos = link.mass, (low + high) / 2
    body.inertia = link.mass / 12 * np.array([y * y + z * z, x * x + z * z, x * x + y * y])
    shade = tuple(0.94 * c for c in colour[:3])
    for box in link.boxes:
        # With contype alone, links touch robot and objects, never the body in which they slide.
        _add_box(body, box, f"{link.name}/{box.name}", (*shade, 1.0), STATIC)


def _add_slot(spec: mujoco.MjSpec, slot: int) -> None:
    """Adds a body with one geom per primitive type, of which an object uses one.

    The engine cannot change a geom's type. Unused geoms are specks in the middle of the object
    that touch nothing: contacts with their margin never form.
    """
    body = spec.worldbody.add_body(name=f"slot_{slot}", pos=[100.0 + 2.0 * slot, 100.0, PARK_Z])
    joint = body.add_freejoint()
    joint.name = f"slot_{slot}"
    for primitive in PRIMITIVES:
        body.add_geom(
            name=f"slot_{slot}/{primitive}",
            type=getattr(mujoco.mjtGeom, f"mjGEOM_{primitive.upper()}"),
            size=[SPECK_M, SPECK_M, SPECK_M],
            mass=0.1,
            contype=OBJECT,
            conaffinity=STATIC | ROBOT | OBJECT | FLOOR,
            # Six-dimensional contacts resist sliding, spinning and rolling; three-dimensional
            # contacts resist sliding only.
            condim=6 if _ROLLING_M[primitive] else 3,
            friction=[0.9, _ROLLING_M[primitive], _ROLLING_M[primitive]],
            margin=NEVER_M,
            rgba=(0.5, 0.5, 0.5, 0.0),
        )
    spec.add_equality(
        name=f"weld_{slot}",
        type=mujoco.mjtEq.mjEQ_WELD,
        objtype=mujoco.mjtObj.mjOBJ_BODY,
        name1="wrist_roll",
        name2=f"slot_{slot}",
        active=False,
        data=[0, 0, 0, GRIPPER + CUP, 0, 0, 1, 0, 0, 0, 1, 0],
    )


def _add_handle(spec: mujoco.MjSpec, key: str, link: Link) -> None:
    """Adds the ball joint by which the cup holds a door or drawer; a grasp poses and enables it."""
    spec.add_equality(
        name=key,
        type=mujoco.mjtEq.mjEQ_CONNECT,
        objtype=mujoco.mjtObj.mjOBJ_BODY,
        name1="wrist_roll",
        name2=link.name,
        active=False,
        data=[0.0] * 12,
    )
