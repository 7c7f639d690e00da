"""Points that the head camera's depth picture shows, and whether they are the robot's own."""

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

SKIN_M = 0.03  # points this near to the arm count as the robot's own
HELD_M = 0.3  # points this near to the tip of the cup count as the held object's

_FORWARD = np.array(HEAD_CAMERA_TARGET) - np.array(HEAD_CAMERA_POS)
# Viewing direction, upward axis (UP) and position (EYE) of the head camera in the base frame.
FORWARD = _FORWARD / np.linalg.norm(_FORWARD)
UP = np.cross(np.array([0.0, -1.0, 0.0]), FORWARD)
TAN_HALF = math.tan(math.radians(HEAD_CAMERA_FOV_DEG) / 2)
EYE = np.array(HEAD_CAMERA_POS)

# Ends (m) and radii (m) of the arm's capsules in the frames of their links, in order of the joints.
_ENDS = np.array([[start, end] for _, start, end, _ in CAPSULES])
_RADII = np.array([radius for *_, radius in CAPSULES])
_TOOL = np.array([[GRIPPER - 0.05, 0.0, 0.0], [GRIPPER + CUP, 0.0, 0.0]])


@njit(cache=True)
def place_capsules(arm: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places the capsules of arm and tool at joint positions (7,).

    Returns:
        Rows (8, 7) with start (3), end (3) and radius, and the tip (3,) of the tool; metres in the
        base frame.
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
def head_point(
    planar: float, row: int, column: int, height: int, width: int
) -> tuple[float, float, float]:
    """Returns the point (x, y, z) in the base frame that a pixel of the head camera shows.

    Args:
        planar: depth of the pixel along the viewing direction, metres
        row: row of the pixel, from the top
        column: column of the pixel, from the left
        height: rows of the picture
        width: columns of the picture
    """
    up = TAN_HALF * (1.0 - (2 * row + 1) / height) * height / width
    left = TAN_HALF * (1.0 - (2 * column + 1) / width)
    x = EYE[0] + planar * (FORWARD[0] + up * UP[0])
    z = EYE[2] + planar * (FORWARD[2] + up * UP[2])
    return x, planar * left, z


@njit(cache=True)
def own_bounds(capsules: np.ndarray, tip: np.ndarray, holds: bool) -> tuple[np.ndarray, np.ndarray]:
    """Returns the corners (3,), (3,) of a box in the base frame that contains all own points."""
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
    """Returns whether a point in the base frame is on the robot's arm or the held object."""
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
