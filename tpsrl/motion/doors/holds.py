"""Holds: arm postures with the cup against the face of a door or drawer, for any base pose.

A posture and the direction into the face determine the base pose. One table for each height of a
face therefore serves every stance and every home.
"""

import dataclasses
import functools
import math

import numpy as np

from tpsrl.motion.doors.door_motion import LEAST_FACING, LEAST_PUSHING
from tpsrl.runtime.compiled import njit
from tpsrl.world.action import ARM_DELTA_RAD
from tpsrl.world.collision import ARM_SPHERES, REST, ArmChecker, Bodies
from tpsrl.world.fetch import CUP_RADIUS, GRIPPER
from tpsrl.world.footprint import posed_spheres
from tpsrl.world.kinematics import cup_pose, inverse
from tpsrl.world.reach import CUP_AXIS, NO_OFFSET, SEEDS

# Cup: distance (m) and bearing (rad) of its tip from the base, height of the contact relative to
# the marker (m), pitch below the horizontal and heading (rad).
_DISTANCES = np.arange(0.45, 1.01, 0.05)
_BEARINGS = np.arange(-0.45, 0.46, 0.15)
_HEIGHTS = np.array([0.065, 0.03, 0.0, -0.05])
_PITCHES = np.radians([60.0, 50.0, 42.0, 35.0, 28.0, 15.0, 0.0])
_HEADINGS = np.arange(-1.2, 1.21, 0.3)
# Headings (rad) of the direction into the face in the base frame: a pulling robot stands in front
# of the face, a pushing one may stand beside it.
_INWARD = np.arange(-0.9, 0.91, 0.15)
_BESIDE = np.arange(-2.1, 2.11, 0.3)
_MOST_ARM_STEPS = 120.0
_SEEDS = 3
_FACE_MARGIN_M, _BODY_MARGIN_M = 0.004, 0.006
PUSH_GAP_M = 0.015  # gap to a face that is about to be pushed
_TOOL_M, _TOOL_RADIUS_M = 0.11, 0.048  # distance from the cup's tip to the gripper, and its radius
_NOTHING = Bodies(
    np.empty(0, dtype=np.int64), np.empty((0, 3)), np.empty((0, 3, 3)), np.empty((0, 3))
)


@dataclasses.dataclass(frozen=True, slots=True)
class Holds:
    """Holds with the cup on a face, one a row; base frame."""

    posture: np.ndarray  # (n, 7)
    tip: np.ndarray  # (n, 3) tip of the cup on the face
    inward: np.ndarray  # (n,) heading of the direction into the face, rad
    apart: np.ndarray  # (n,) distance of the tip from the face, m

    def rows(self, rows: np.ndarray) -> "Holds":
        """Returns the holds in some rows."""
        return Holds(*(getattr(self, field.name)[rows] for field in dataclasses.fields(self)))


@functools.lru_cache(maxsize=16)
def holds(height: float, opening: bool) -> Holds:
    """Returns the holds for a face whose marker is at a height (m), to pull or push; cached."""
    posture = _postures(height)
    poses = [cup_pose(q) for q in posture]
    tip, axis = np.array([pose[0] for pose in poses]), np.array([pose[1][:, 0] for pose in poses])
    spheres = [posed_spheres(q) for q in posture]
    centre, radius = np.array([posed[0] for posed in spheres]), spheres[0][1]
    body = np.linalg.norm(centre - tip[:, None], axis=2) >= GRIPPER / 2
    least = least_facing(opening)
    parts = []
    for inward in _INWARD if opening else _BESIDE:
        into = np.array([math.cos(inward), math.sin(inward), 0.0])
        facing = axis @ into
        apart = off_face(facing, opening)
        good = facing >= least
        if opening:  # the arm, except the cup, has to stay on the robot's side of the face
            depth = (centre - tip[:, None]) @ into + radius - apart[:, None]
            good &= np.where(body, depth, -np.inf).max(axis=1) < -_FACE_MARGIN_M
        count = int(good.sum())
        parts.append(Holds(posture[good], tip[good], np.full(count, inward), apart[good]))
    fields = (field.name for field in dataclasses.fields(Holds))
    return Holds(*(np.concatenate([getattr(part, name) for part in parts]) for name in fields))


def least_facing(opening: bool) -> float:
    """Returns the least cosine between the cup's axis and the direction into the face."""
    return LEAST_FACING if opening else LEAST_PUSHING


def off_face(facing: np.ndarray, opening: bool) -> np.ndarray:
    """Returns the distance (m) of the cup's tip from a face that the tool touches or will push.

    `facing` (...,) is the cosine between the cup's axis and the direction into the face.
    """
    # The rim of a tilted cup touches before its middle. At flat angles the gripper touches first.
    rim = CUP_RADIUS * np.sqrt(np.maximum(0.0, 1.0 - facing * facing))
    return rim if opening else np.maximum(rim, _TOOL_RADIUS_M - _TOOL_M * facing) + PUSH_GAP_M


@functools.lru_cache(maxsize=8)
def _postures(height: float) -> np.ndarray:
    """Returns self-collision-free postures (n, 7) with the cup near the height (m) of a marker.

    For each place and heading of the cup these are the posture quickest from rest, and slower ones
    only if the cup is more level.
    """
    grid = (_DISTANCES, _BEARINGS, _HEADINGS, height + _HEIGHTS, _PITCHES)
    posture, cost, cell, pitch = _solve(*grid, SEEDS[:_SEEDS], _MOST_ARM_STEPS * ARM_DELTA_RAD)
    checker = ArmChecker(ARM_SPHERES, _NOTHING)
    lowest: dict[int, int] = {}
    chosen = []
    for row in np.argsort(cost, kind="stable"):
        if pitch[row] < lowest.get(cell[row], len(_PITCHES)) and checker.free(
            posture[row], _BODY_MARGIN_M
        ):
            lowest[cell[row]] = pitch[row]
            chosen.append(row)
    return np.ascontiguousarray(posture[chosen])


@njit(cache=True)
def _solve(
    distances: np.ndarray,
    bearings: np.ndarray,
    headings: np.ndarray,
    heights: np.ndarray,
    pitches: np.ndarray,
    seeds: np.ndarray,
    most: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Solves inverse kinematics for each point of the grid.

    Returns:
        For each point that can be reached: the posture (n, 7) nearest to rest, its greatest joint
        difference (n,) from rest (rad, below `most`), the index (n,) of the combination of
        distance, bearing and heading, and the index (n,) of the pitch from the last of `pitches`.
    """
    cells = len(distances) * len(bearings) * len(headings)
    size = cells * len(heights) * len(pitches)
    posture, cost = np.empty((size, 7)), np.empty(size)
    cell, level = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    count = 0
    tip, axis = np.empty(3), np.empty(3)
    for i in range(cells):
        heading = headings[i % len(headings)]
        bearing = bearings[i // len(headings) % len(bearings)]
        distance = distances[i // len(headings) // len(bearings)]
        tip[0], tip[1] = distance * math.cos(bearing), distance * math.sin(bearing)
        for height in heights:
            tip[2] = height
            for k in range(len(pitches)):
                axis[0] = math.cos(pitches[k]) * math.cos(heading)
                axis[1] = math.cos(pitches[k]) * math.sin(heading)
                axis[2] = -math.sin(pitches[k])
                best = most
                for seed in seeds:
                    ok, q = inverse(seed, tip, CUP_AXIS, axis, REST, NO_OFFSET, 60, 0.3)
                    far = np.max(np.abs(q - REST))
                    if ok and far < best:
                        best = far
                        posture[count] = q
                if best < most:
                    cost[count], cell[count] = best, i
                    level[count] = len(pitches) - 1 - k
                    count += 1
    return posture[:count], cost[:count], cell[:count], level[:count]
