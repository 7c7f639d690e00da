"""Which points that the head camera sees are on the robot itself, or on what it holds."""

import math

import numpy as np

from tpsrl.runtime.compiled import njit
from tpsrl.world.fetch import (
    CAPSULES,
    CUP,
    CUP_RADIUS,
    GRIPPER,
    HEAD_CAMERA_FOV_DEG,
    HEAD_CAMERA_POS,
    HEAD_CAMERA_TARGET,
)
from tpsrl.world.kinematics import arm_frames

SKIN_M = 0.03  # around the robot, where points are its own
HELD_M = 0.3  # around the cup while it holds something

_FORWARD = np.array(HEAD_CAMERA_TARGET) - np.array(HEAD_CAMERA_POS)
# Of the head camera in the base frame: where it looks, its upward axis, its place.
FORWARD = _FORWARD / np.linalg.norm(_FORWARD)
UP = np.cross(np.array([0.0, -1.0, 0.0]), FORWARD)
TAN_HALF = math.tan(math.radians(HEAD_CAMERA_FOV_DEG) / 2)
EYE = np.array(HEAD_CAMERA_POS)

# Of the arm's links in the order of its joints: from, to (m) and radius (m), in the link's frame.
_ENDS = np.array([[start, end] for _, start, end, _ in CAPSULES])
_RADII = np.array([radius for *_, radius in CAPSULES])
_TOOL = np.array([[GRIPPER - 0.05, 0.0, 0.0], [GRIPPER + CUP, 0.0, 0.0]])


@njit(cache=True)
def place_capsules(arm: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The arm's capsules and the tool at joint positions (7,), and the tip of the tool.

    Rows (8, 7): start (3), end (3) and radius, metres in the base frame.
    """
    links, turns = np.empty((7, 3)), np.empty((7, 3, 3))
    arm_frames(arm, links, turns)
    out = np.empty((len(_RADII) + 1, 7))
    count = len(_RADII)
    for c in range(count + 1):
        link = c if c < count else 6
        for end in range(2):
            local = _ENDS[c, end] if c < count else _TOOL[end]
            for r in range(3):
                out[c, 3 * end + r] = links[link, r] + (
                    turns[link, r, 0] * local[0]
                    + turns[link, r, 1] * local[1]
                    + turns[link, r, 2] * local[2]
                )
        out[c, 6] = _RADII[c] if c < count else CUP_RADIUS
    return out, out[count, 3:6]


@njit(cache=True)
def own_bounds(capsules: np.ndarray, tip: np.ndarray, holds: bool) -> tuple[np.ndarray, np.ndarray]:
    """The corners (3,) of a box in the base frame outside which no point is the robot's own."""
    low, high = np.empty(3), np.empty(3)
    around = SKIN_M + (HELD_M if holds else 0.0)
    for k in range(3):
        low[k], high[k] = tip[k] - around, tip[k] + around
        for capsule in capsules:
            reach = capsule[6] + SKIN_M
            low[k] = min(low[k], min(capsule[k], capsule[3 + k]) - reach)
            high[k] = max(high[k], max(capsule[k], capsule[3 + k]) + reach)
    return low, high


@njit(cache=True)
def is_own(
    x: float, y: float, z: float, capsules: np.ndarray, tip: np.ndarray, holds: bool
) -> bool:
    """Whether a point of the base frame is the robot's, or of what it holds."""
    if holds:
        far = (x - tip[0]) ** 2 + (y - tip[1]) ** 2 + (z - tip[2]) ** 2
        if far < HELD_M * HELD_M:
            return True
    for i in range(len(capsules)):
        capsule = capsules[i]
        ax, ay, az = capsule[3] - capsule[0], capsule[4] - capsule[1], capsule[5] - capsule[2]
        px, py, pz = x - capsule[0], y - capsule[1], z - capsule[2]
        length = ax * ax + ay * ay + az * az
        t = min(max((ax * px + ay * py + az * pz) / length, 0.0), 1.0)
        px, py, pz = px - t * ax, py - t * ay, pz - t * az
        reach = capsule[6] + SKIN_M
        if px * px + py * py + pz * pz < reach * reach:
            return True
    return False
