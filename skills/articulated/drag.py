"""Moving a door or drawer with the base while the arm keeps its posture.

The cup's tip is a point (px, py) of the base frame with px > 0, ahead of the wheels' axle, so
driving and turning together move it in any direction over the floor: with a tip velocity (vx, vy)
in the base frame, omega = vy / px and v = vx + omega py. The base follows like a trailer, and the
arm, far slower than the base, need not move.
"""

import dataclasses
import functools
import math

import numpy as np

from skills.scripted.scene import Scene
from skills.scripted.search import ahead
from tpsrl.world.collision import ArmChecker, Bodies
from tpsrl.world.fetch import BASE_RADIUS
from tpsrl.world.footprint import Footprint
from tpsrl.world.handles import Handle
from tpsrl.world.handles import handle as handle_of
from tpsrl.world.kinematics import cup_pose
from tpsrl.world.reach import to_base

_STEP_M = 0.03  # of the cup, between two checked poses
_ARM_MARGIN_M = -0.015  # spheres are fatter than what they stand for
_FLOOR_MARGIN_M = 0.005
# Cosine between the cup's axis and the face: flatter, the gripper touches before the cup.
LEAST_FACING = 0.42
LEAST_PUSHING = 0.0  # which does no harm when it only pushes
_HEAD_M = 1.25  # what is above passes over the robot's head


@dataclasses.dataclass(frozen=True, slots=True)
class Drag:
    """How far a door or drawer can be moved from a stance, and where the base ends (3,)."""

    joint: float
    base: np.ndarray


def base_velocity(tip: np.ndarray, velocity: np.ndarray) -> tuple[float, float]:
    """(linear m/s, angular rad/s) that give the cup's tip (2+,) a velocity (2+,); base frame."""
    omega = velocity[1] / tip[0]
    return float(velocity[0] + omega * tip[1]), float(omega)


def foresee(
    scene: Scene,
    handle: Handle,
    base: np.ndarray,
    posture: np.ndarray,
    joint: float,
    goal: float,
    footprint: Footprint | None = None,
) -> Drag:
    """Follows the handle from joint position `joint` towards `goal` until something is hit.

    `footprint`, that of the posture without the door or drawer that is moved, saves making it.
    """
    tip, turn = cup_pose(posture)
    axis = turn[:, 0]
    footprint = footprint or scene.footprint(posture, without=handle.index)
    way = _way(scene.layout, handle.marker, joint, goal)
    local = way[0].turn.T @ (tip_in_world(base, tip) - way[0].pos)
    at, reached, before = np.array(base, dtype=np.float64), joint, tip_in_world(base, tip)
    for place in way[1:]:
        after = place.pos + place.turn @ local
        v, omega = base_velocity(tip, to_base(at, after - before))
        turned = at[2] + omega / 2
        moved = at + np.array([v * math.cos(turned), v * math.sin(turned), omega])
        moved[:2] += (after - tip_in_world(moved, tip))[:2]
        if footprint.margin(*moved) < _FLOOR_MARGIN_M:
            break
        facing = -to_base(moved, place.turn[:, 0]) @ axis
        if facing < (LEAST_FACING if goal > joint else LEAST_PUSHING):
            break
        if _hits_link(scene, handle, place.boxes, moved, posture):
            break
        at, reached, before = moved, place.joint, after
    return Drag(reached, at)


def can_back_off(footprint: Footprint, base: np.ndarray, by: float) -> bool:
    """Whether a base (3,) can then drive straight back with the arm as it is."""
    return all(
        footprint.margin(*ahead(base, -d)) > _FLOOR_MARGIN_M for d in (by / 3, 2 * by / 3, by)
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _Place:
    """Where a door or drawer is at a joint position: origin, rotation, boxes."""

    joint: float
    pos: np.ndarray
    turn: np.ndarray
    boxes: Bodies


@functools.lru_cache(maxsize=64)
def _way(layout: str, marker: str, joint: float, goal: float) -> list[_Place]:
    """From one joint position to another in steps of `_STEP_M` at the handle."""
    where = handle_of(layout, marker)
    reach = 1.0 if where.slides else math.hypot(where.face[0], where.face[1])
    count = max(1, math.ceil(abs(goal - joint) * reach / _STEP_M))
    joints = [joint + (goal - joint) * i / count for i in range(count + 1)]
    return [_Place(q, *where.pose(q), where.boxes(q)) for q in joints]


def tip_in_world(base: np.ndarray, tip: np.ndarray) -> np.ndarray:
    """A point (3,) of the frame of a base pose (3,) in the world."""
    c, s = math.cos(base[2]), math.sin(base[2])
    return np.array([base[0] + c * tip[0] - s * tip[1], base[1] + s * tip[0] + c * tip[1], tip[2]])


def _hits_link(
    scene: Scene, handle: Handle, boxes: Bodies, base: np.ndarray, posture: np.ndarray
) -> bool:
    """Whether arm or trunk run into the very door or drawer that is being moved."""
    front = [box.name for box in handle.link.boxes].index(handle.front.partition("/")[2])
    near, rows = boxes.seen_from(base)
    found = np.flatnonzero(rows == front)
    checker = ArmChecker(scene.spheres, near, int(found[0]) if len(found) else -1)
    return _under_head(boxes, base) or not checker.free(posture, _ARM_MARGIN_M)


def _under_head(boxes: Bodies, base: np.ndarray) -> bool:
    """Whether the base's disc is under a box that the trunk would run into."""
    for centre, turn, half in zip(boxes.centre, boxes.rotation, boxes.half, strict=True):
        if centre[2] - half[2] > _HEAD_M:
            continue
        local = turn.T @ (np.array([base[0], base[1], centre[2]]) - centre)
        outside = np.maximum(np.abs(local[:2]) - half[:2], 0.0)
        if math.hypot(*outside) < BASE_RADIUS:
            return True
    return False
