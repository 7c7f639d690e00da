"""The Fetch of `tpsrl.world.fetch` as bodies, joints and actuators of a MuJoCo model."""

import mujoco
import numpy as np

from tpsrl.sim.mjcf.masks import FLOOR, ROBOT, SELF, STATIC
from tpsrl.world.fetch import (
    ARM,
    CAPSULES,
    CUP,
    CUP_RADIUS,
    GRIPPER,
    HEAD_CAMERA_FOV_DEG,
    HEAD_CAMERA_POS,
    HEAD_CAMERA_TARGET,
    TORSO,
    TRUNK,
    ArmJoint,
)

# Gains that track HAB's 0.375 rad/s and 2.5 m/s within millimetres (measured: see docs).
_ARM_KP, _ARM_KV, _ARM_FORCE = 20000.0, 300.0, 300.0
_BASE_KV, _BASE_FORCE = 20000.0, 2000.0
_YAW_KV, _YAW_TORQUE = 2000.0, 600.0

_LIGHT, _DARK, _BLUE = (0.92, 0.92, 0.93, 1), (0.25, 0.27, 0.30, 1), (0.16, 0.38, 0.72, 1)


def add_fetch(spec: mujoco.MjSpec) -> None:
    """Adds the robot to a spec: planar base, arm, cup, actuators, site "cup", camera "head"."""
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
            # Inertia of geared motors; without it the arm shakes a held object by 2 cm.
            armature=0.5,
        )
        # Geoms that are round about a roll axis do not move with the roll, so the previous link
        # carries them: the engine searches contacts body by body.
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
    base.add_camera(name="head", pos=HEAD_CAMERA_POS, quat=quat, fovy=HEAD_CAMERA_FOV_DEG)


def _add_capsules(
    body: mujoco.MjsBody, carrier: mujoco.MjsBody, ahead: np.ndarray, joint: ArmJoint, index: int
) -> None:
    """Sets the inertia of a link and adds its geoms to `carrier`.

    `ahead` (3,) is the link's origin in the frame of `carrier` (m).
    """
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
            # The first links are always next to the torso; only the later ones can hit it.
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
        # Contacts are reported 2 mm before they exert a force, so a grasp needs no impact.
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
