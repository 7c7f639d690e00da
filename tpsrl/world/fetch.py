"""The Fetch: kinematics of its URDF, torso fixed at 0.15 m as in HAB, a suction cup for a gripper.

Frame of the base: x forward, z up, origin on the floor under the centre.
"""

import dataclasses

import mujoco
import numpy as np

# Joints after torso_lift, from the URDF: name, axis, offset from parent (m), limits (rad).
# Continuous joints get +-pi times two, so that no path has to unwind.
_TURN = 6.2832


@dataclasses.dataclass(frozen=True, slots=True)
class ArmJoint:
    """One revolute joint of the arm; `offset` in metres in the parent's frame."""

    name: str
    axis: tuple[float, float, float]
    offset: tuple[float, float, float]
    limits: tuple[float, float]
    mass: float


TORSO = (-0.0869, 0.0, 0.3774 + 0.15)
ARM = (
    ArmJoint("shoulder_pan", (0, 0, 1), (0.1195, 0.0, 0.3486), (-1.6056, 1.6056), 2.56),
    ArmJoint("shoulder_lift", (0, 1, 0), (0.117, 0.0, 0.06), (-1.221, 1.518), 2.66),
    ArmJoint("upperarm_roll", (1, 0, 0), (0.219, 0.0, 0.0), (-_TURN, _TURN), 2.33),
    ArmJoint("elbow_flex", (0, 1, 0), (0.133, 0.0, 0.0), (-2.251, 2.251), 2.10),
    ArmJoint("forearm_roll", (1, 0, 0), (0.197, 0.0, 0.0), (-_TURN, _TURN), 1.66),
    ArmJoint("wrist_flex", (0, 1, 0), (0.1245, 0.0, 0.0), (-2.16, 2.16), 1.73),
    ArmJoint("wrist_roll", (1, 0, 0), (0.1385, 0.0, 0.0), (-_TURN, _TURN), 0.5),
)
GRIPPER = 0.1665  # gripper link in front of wrist_roll, m
CUP = 0.08  # tip of the suction cup in front of the gripper link, m (HAB's ee_offset)
CUP_RADIUS = 0.02

# HAB's rest point of the end effector, in the base frame (FACTS, simulator facts).
REST_EE = (0.5, 0.0, 1.0)
# Joint positions that hold the cup 5 cm from REST_EE, pointing down, so that objects hang upright.
# The elbow leans out to the side: in the arm's own plane it would stand in the head camera. HAB's
# own values put this cup 0.28 m away.
REST_ARM = (-0.363, -1.203, 0.785, 0.807, -0.291, 2.05, 0.0)

BASE_RADIUS = 0.3  # HAB's navmesh agent radius, m
HEAD_CAMERA_POS = (0.25, 0.0, 1.20)
HEAD_CAMERA_TARGET = (0.75, 0.0, 1.00)

# Gains that follow HAB's 0.375 rad/s and 2.5 m/s within millimetres (measured: see docs).
_ARM_KP, _ARM_KV, _ARM_FORCE = 20000.0, 300.0, 300.0
_BASE_KV, _BASE_FORCE = 20000.0, 2000.0
_YAW_KV, _YAW_TORQUE = 2000.0, 600.0

# Contact bits. Held against each other by MuJoCo as (contype_a & conaffinity_b) or the reverse.
STATIC, ROBOT, OBJECT, SELF, FLOOR = 1, 2, 4, 8, 16

# Capsules of the arm: body, from, to (m, in the body's frame), radius. The contact geoms of the
# model and the collision model of the motion planner are made of this one list.
CAPSULES = (
    ("shoulder_pan", (0.0, 0.0, 0.03), (0.117, 0.0, 0.06), 0.07),
    ("shoulder_lift", (0.04, 0.0, 0.0), (0.219, 0.0, 0.0), 0.06),
    ("upperarm_roll", (0.0, 0.0, 0.0), (0.133, 0.0, 0.0), 0.06),
    ("elbow_flex", (0.02, 0.0, 0.0), (0.197, 0.0, 0.0), 0.055),
    ("forearm_roll", (0.0, 0.0, 0.0), (0.1245, 0.0, 0.0), 0.055),
    ("wrist_flex", (0.01, 0.0, 0.0), (0.1385, 0.0, 0.0), 0.05),
    ("wrist_roll", (0.0, 0.0, 0.0), (GRIPPER - 0.03, 0.0, 0.0), 0.045),
)
# Base, torso and head: name, MuJoCo type, size, centre in the base frame (m).
TRUNK = (
    ("base", "cylinder", (0.27, 0.165), (0.0, 0.0, 0.185)),
    ("torso", "box", (0.11, 0.15, 0.32), (-0.11, 0.0, 0.67)),
    ("neck", "box", (0.05, 0.06, 0.08), (-0.05, 0.0, 1.06)),
    ("head", "box", (0.09, 0.12, 0.055), (0.04, 0.0, 1.19)),
)

_LIGHT, _DARK, _BLUE = (0.92, 0.92, 0.93, 1), (0.25, 0.27, 0.30, 1), (0.16, 0.38, 0.72, 1)


def add_fetch(spec: mujoco.MjSpec) -> None:
    """Adds the robot to a spec: planar base, arm, cup, actuators, sites "cup" and camera "head"."""
    base = spec.worldbody.add_body(name="base", gravcomp=1)
    slide, hinge = mujoco.mjtJoint.mjJNT_SLIDE, mujoco.mjtJoint.mjJNT_HINGE
    base.add_joint(name="base_x", type=slide, axis=[1, 0, 0])
    base.add_joint(name="base_y", type=slide, axis=[0, 1, 0])
    base.add_joint(name="base_yaw", type=hinge, axis=[0, 0, 1])
    base.explicitinertial = True
    base.mass, base.ipos, base.inertia = 95.0, [-0.03, 0.0, 0.4], [9.0, 9.0, 5.0]
    for name, kind, size, centre in TRUNK:
        base.add_geom(
            name=name,
            type=getattr(mujoco.mjtGeom, f"mjGEOM_{kind.upper()}"),
            size=[*size, 0.0][:3],
            pos=centre,
            contype=ROBOT | SELF,
            conaffinity=STATIC,
            rgba=_DARK if name in ("base", "neck") else _LIGHT,
        )
    _add_head_camera(base)
    parent, carrier, ahead = base, base, np.zeros(3)
    for index, joint in enumerate(ARM):
        offset = np.add(TORSO, joint.offset) if index == 0 else joint.offset
        body = parent.add_body(name=joint.name, pos=offset, gravcomp=1)
        body.add_joint(
            name=joint.name,
            type=hinge,
            axis=joint.axis,
            range=joint.limits,
            limited=True,
            # What geared motors add; without it the arm shakes what it holds by 2 cm.
            armature=0.5,
        )
        # A roll does not move what is round about its axis, so the link before carries the geoms:
        # the engine looks for contacts body by body.
        rolls = joint.axis == (1, 0, 0)
        carrier, ahead = (carrier, ahead + joint.offset) if rolls else (body, np.zeros(3))
        _add_capsules(body, carrier, ahead, joint, index)
        parent = body
    _add_cup(parent, carrier, ahead)
    _add_actuators(spec)


def _add_head_camera(base: mujoco.MjsBody) -> None:
    forward = np.subtract(HEAD_CAMERA_TARGET, HEAD_CAMERA_POS)
    forward /= np.linalg.norm(forward)
    up = np.cross([0.0, -1.0, 0.0], forward)
    matrix = np.column_stack([[0.0, -1.0, 0.0], up, -forward])
    quat = np.zeros(4)
    mujoco.mju_mat2Quat(quat, matrix.flatten())
    base.add_camera(name="head", pos=HEAD_CAMERA_POS, quat=quat, fovy=90)


def _add_capsules(
    body: mujoco.MjsBody, carrier: mujoco.MjsBody, ahead: np.ndarray, joint: ArmJoint, index: int
) -> None:
    """Gives a link its inertia, and `carrier`, whose frame is `ahead` (m) behind, its geoms."""
    body.explicitinertial = True
    body.mass = joint.mass
    for name, start, end, radius in CAPSULES:
        if name != joint.name:
            continue
        centre = np.add(start, end) / 2
        length = float(np.linalg.norm(np.subtract(end, start)))
        body.ipos = centre
        side = joint.mass * (3 * radius**2 + length**2) / 12
        body.inertia = [joint.mass * radius**2 / 2, side, side]
        carrier.add_geom(
            name=name,
            type=mujoco.mjtGeom.mjGEOM_CAPSULE,
            fromto=[*(ahead + start), *(ahead + end)],
            size=[radius, 0, 0],
            contype=ROBOT,
            # The first links are always beside the torso; only the later ones can run into it.
            conaffinity=STATIC | FLOOR | (SELF if index >= 3 else 0),
            rgba=_BLUE if index % 2 else _LIGHT,
        )


def _add_cup(wrist: mujoco.MjsBody, carrier: mujoco.MjsBody, ahead: np.ndarray) -> None:
    tip = GRIPPER + CUP
    carrier.add_geom(
        name="cup",
        type=mujoco.mjtGeom.mjGEOM_CYLINDER,
        fromto=[*(ahead + np.array([GRIPPER - 0.01, 0, 0])), *(ahead + np.array([tip, 0, 0]))],
        size=[CUP_RADIUS, 0, 0],
        contype=ROBOT,
        conaffinity=STATIC | FLOOR | SELF,
        # Contacts are noticed 2 mm before they push, so a grasp needs no blow.
        gap=0.002,
        rgba=_DARK,
    )
    wrist.add_site(name="cup", pos=[tip, 0, 0])


def _add_actuators(spec: mujoco.MjSpec) -> None:
    for joint in ARM:
        actuator = spec.add_actuator(
            name=joint.name,
            target=joint.name,
            trntype=mujoco.mjtTrn.mjTRN_JOINT,
            forcerange=[-_ARM_FORCE, _ARM_FORCE],
            forcelimited=True,
        )
        actuator.set_to_position(kp=_ARM_KP, kv=_ARM_KV)
    for name, gain, limit in (
        ("base_x", _BASE_KV, _BASE_FORCE),
        ("base_y", _BASE_KV, _BASE_FORCE),
        ("base_yaw", _YAW_KV, _YAW_TORQUE),
    ):
        actuator = spec.add_actuator(
            name=name,
            target=name,
            trntype=mujoco.mjtTrn.mjTRN_JOINT,
            forcerange=[-limit, limit],
            forcelimited=True,
        )
        actuator.set_to_velocity(kv=gain)
