"""How to hold the arm against the face of a door or drawer, wherever the base stands.

The base goes anywhere, so a posture and the direction in which it meets the face say where to
stand. One table for a height of the face therefore serves every stance, and every home.
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

# Cup: distance and bearing of its tip from the base, height of the contact relative to the marker
# (m), and where it points (rad; downwards, and to the side).
_DISTANCES = np.arange(0.45, 1.01, 0.05)
_BEARINGS = np.arange(-0.45, 0.46, 0.15)
_HEIGHTS = np.array([0.065, 0.03, 0.0, -0.05])
_PITCHES = np.radians([60.0, 50.0, 42.0, 35.0, 28.0, 15.0, 0.0])
_HEADINGS = np.arange(-1.2, 1.21, 0.3)
# Where the face is towards, as seen from the base: to pull one stands before it, to push at most
# beside it.
_INWARD = np.arange(-0.9, 0.91, 0.15)
_BESIDE = np.arange(-2.1, 2.11, 0.3)
_MOST_ARM_STEPS = 120.0
_SEEDS = 3
_FACE_MARGIN_M, _BODY_MARGIN_M = 0.004, 0.006
PUSH_GAP_M = 0.015  # from the face that is going to be pushed
_TOOL_M, _TOOL_RADIUS_M = 0.11, 0.048  # from the cup's tip to the gripper, which is wider
_NOTHING = Bodies(
    np.empty(0, dtype=np.int64), np.empty((0, 3)), np.empty((0, 3, 3)), np.empty((0, 3))
)


@dataclasses.dataclass(frozen=True, slots=True)
class Holds:
    """Ways to put the cup on a face, one a row; base frame."""

    posture: np.ndarray  # (n, 7)
    tip: np.ndarray  # (n, 3) of the cup, when it is on the face
    inward: np.ndarray  # (n,) heading of the direction into the face, rad
    apart: np.ndarray  # (n,) how far the tip is off the face, m

    def rows(self, rows: np.ndarray) -> "Holds":
        """Some of them."""
        return Holds(*(getattr(self, field.name)[rows] for field in dataclasses.fields(self)))


@functools.lru_cache(maxsize=16)
def holds(height: float, opening: bool) -> Holds:
    """The ways to hold the arm against a face whose marker is at a height (m), to pull or push."""
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
        if opening:  # all of the arm but the cup has to stay on the robot's side of the face
            depth = (centre - tip[:, None]) @ into + radius - apart[:, None]
            good &= np.where(body, depth, -np.inf).max(axis=1) < -_FACE_MARGIN_M
        count = int(good.sum())
        parts.append(Holds(posture[good], tip[good], np.full(count, inward), apart[good]))
    fields = (field.name for field in dataclasses.fields(Holds))
    return Holds(*(np.concatenate([getattr(part, name) for part in parts]) for name in fields))


def least_facing(opening: bool) -> float:
    """The least cosine between the cup's axis and the direction into the face."""
    return LEAST_FACING if opening else LEAST_PUSHING


def off_face(facing: np.ndarray, opening: bool) -> np.ndarray:
    """How far (m) the cup's tip is from a face that the tool just touches, or is to push.

    `facing` (...,) is the cosine between the cup's axis and the direction into the face.
    """
    # The rim of a tilted cup touches before its middle does, and aslant the gripper before it.
    rim = CUP_RADIUS * np.sqrt(np.maximum(0.0, 1.0 - facing * facing))
    return rim if opening else np.maximum(rim, _TOOL_RADIUS_M - _TOOL_M * facing) + PUSH_GAP_M


@functools.lru_cache(maxsize=8)
def _postures(height: float) -> np.ndarray:
    """Postures (n, 7), clear of the robot itself, with the cup at the height of a marker (m).

    Of those with the cup in one place and heading the quickest from rest, and slower ones only if
    they are more level.
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
    """For each point of the grid that can be reached: the posture (n, 7) nearest to rest, its
    greatest joint difference (n,) from there (rad, below `most`), the number of its distance,
    bearing and heading together, and how level it is: 0 for the last of `pitches`.
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
