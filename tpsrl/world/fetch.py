"""Fetch robot: kinematics of its URDF, torso fixed at 0.15 m as in HAB, suction cup as gripper.

Frame of the base: x forward, z up, origin on the floor under the centre.
"""

import dataclasses
import math

# Joints after torso_lift, from the URDF: name, axis, offset from parent (m), limits (rad).
# Continuous joints have limits of +-2 pi, so that no path has to unwind a turn.
_TURN = 6.2832


@dataclasses.dataclass(frozen=True, slots=True)
class ArmJoint:
    """Revolute joint of the arm; `offset` in metres in the parent's frame, `limits` in radians."""

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

# HAB's rest point of the end effector, in the base frame (habitat-lab 0.3.3).
REST_EE = (0.5, 0.0, 1.0)
# Joint positions that hold the cup 5 cm from REST_EE, pointing down, so that objects hang upright.
# The elbow leans out to the side, where it does not block the view of the head camera. HAB's rest
# posture would put this cup 0.28 m from REST_EE.
REST_ARM = (-0.69, -1.07, 1.79, 1.19, -0.72, 1.86, 0.0)

BASE_RADIUS = 0.3  # HAB's navmesh agent radius, m
HEAD_CAMERA_POS = (0.25, 0.0, 1.20)
HEAD_CAMERA_TARGET = (0.75, 0.0, 1.00)
HEAD_CAMERA_FOV_DEG = 90.0
HEAD_CAMERA_FAR_M = 10.0  # larger depths are clipped to this value

# Habitat-lab's `articulated_agent_arm` camera, in the frame of wrist_roll: beside the gripper,
# looking forwards and away from it by 45 degrees, with the gripper at the picture's upper side.
HAND_CAMERA_POS = (GRIPPER, 0.0, 0.1)
HAND_CAMERA_AHEAD = (math.sqrt(0.5), 0.0, math.sqrt(0.5))
HAND_CAMERA_UP = (math.sqrt(0.5), 0.0, -math.sqrt(0.5))
HAND_CAMERA_FOV_DEG = 90.0

# Laser on the base as in the URDF: a SICK TIM571, whose field of view is 220 degrees around ahead.
LASER_POS = (0.235, 0.0, 0.2878)
LASER_FOV_DEG = 220.0
LASER_RAYS = 24  # rays of one scan
LASER_RANGE_M = 3.0  # larger ranges are clipped to this value
LASER_SECTIONS = 3  # pictures of less than 180 degrees each, whose middle rows form the scan

# Capsules of the arm: body, from, to (m, in the body's frame), radius. Both the contact geoms of
# the model and the collision model of the motion planner are built from this list.
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

# Points on the robot from which clearance is measured (`tpsrl.sim.clearance`): body, position in
# its frame (m). The first `HAND_POINTS` are on the hand. Rows of the held object follow these.
CLEARANCE_RANGE_M = 0.4
CLEARANCE_POINTS = (
    ("wrist_roll", (GRIPPER + CUP, 0.0, 0.0)),
    ("wrist_roll", (0.1, 0.0, 0.0)),
    ("wrist_flex", (0.07, 0.0, 0.0)),
    ("elbow_flex", (0.1, 0.0, 0.0)),
    ("forearm_roll", (0.06, 0.0, 0.0)),
    ("elbow_flex", (0.0, 0.0, 0.0)),
    ("shoulder_lift", (0.13, 0.0, 0.0)),
    ("upperarm_roll", (0.06, 0.0, 0.0)),
    ("base", (0.25, 0.0, 0.2)),
    ("base", (-0.25, 0.0, 0.2)),
    ("base", (0.0, 0.25, 0.2)),
    ("base", (0.0, -0.25, 0.2)),
    ("base", (-0.02, 0.13, 0.75)),
    ("base", (-0.02, -0.13, 0.75)),
)
HAND_POINTS, HELD_POINTS = 2, 2
CLEARANCE_ROWS = len(CLEARANCE_POINTS) + HELD_POINTS
# Loose objects that are measured: nearest to the cup, nearest to the goal, and the target.
NEIGHBOUR_ROWS = 3


def laser_angles() -> tuple[float, ...]:
    """Returns the angles of the laser's rays (rad), right to left, 0 ahead, positive left."""
    section = math.radians(LASER_FOV_DEG) / LASER_SECTIONS
    columns = LASER_RAYS // LASER_SECTIONS
    across = [
        math.atan(math.tan(section / 2) * ((2 * column + 1) / columns - 1))
        for column in range(columns)
    ]
    turns = [section * (k - (LASER_SECTIONS - 1) / 2) for k in range(LASER_SECTIONS)]
    return tuple(turn + angle for turn in turns for angle in across)
