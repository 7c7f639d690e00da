"""Motion of a door or drawer by the base, while the arm keeps its posture.

Driving moves the tip of the cup (`tpsrl.motion.base.tip_tracking`).
"""

import dataclasses
import functools
import math

import numpy as np

from tpsrl.motion.base.stances import ahead
from tpsrl.motion.base.tip_tracking import to_world
from tpsrl.motion.scene import Scene
from tpsrl.runtime.compiled import njit
from tpsrl.world.collision import ARM_SPHERES, BOX, TOOL, distance_to
from tpsrl.world.fetch import BASE_RADIUS
from tpsrl.world.floor import ABSENT, layout_obstacles, rounded
from tpsrl.world.footprint import Footprint, pose_margin, posed_spheres
from tpsrl.world.handles import Handle
from tpsrl.world.handles import handle as handle_of
from tpsrl.world.kinematics import arm_frames, cup_pose
from tpsrl.world.layouts import resolve
from tpsrl.world.state import JOINTS

_STEP_M = 0.03  # step of the cup between checked poses
_START_MARGIN_M, _ARM_MARGIN_M = -0.005, -0.015  # negative, since spheres are larger than the links
_FLOOR_MARGIN_M = 0.005
# Least cosine between the cup's axis and the direction into the face. At flatter angles the gripper
# touches before the cup.
LEAST_FACING = 0.42
LEAST_PUSHING = 0.0  # a touch of the gripper does no harm when pushing
_HEAD_M = 1.25  # higher boxes pass over the robot's head


@dataclasses.dataclass(frozen=True, slots=True)
class Drag:
    """Motion of a door or drawer from a stance: last joint position, and last base pose (3,)."""

    joint: float
    base: np.ndarray


def foresee(
    scene: Scene,
    handle: Handle,
    base: np.ndarray,
    posture: np.ndarray,
    joint: float,
    goal: float,
    footprint: Footprint | None = None,
) -> Drag:
    """Predicts the motion of a handle from position `joint` towards `goal` until a collision.

    Args:
        scene: present scene.
        handle: handle of the door or drawer.
        base: (3,) base pose with the cup on the face.
        posture: (7,) arm posture.
        joint: present joint position, rad or m.
        goal: goal of the joint position, rad or m.
        footprint: footprint of the posture without the door or drawer and its contents; computed if
            None.
    """
    tip, turn = cup_pose(posture)
    if footprint is None:
        empty = without_load(scene, handle, joint)
        footprint = empty.footprint(posture, without=handle.index)
    way = _way(scene.layout, handle.marker, joint, goal)
    least = LEAST_FACING if goal > joint else LEAST_PUSHING
    spheres = scene.spheres
    centre, _ = posed_spheres(posture, spheres)
    hand = (spheres.link == TOOL).astype(np.int64)
    last, at = _follow(
        np.array(base, dtype=np.float64),
        (tip, turn[:, 0].copy()),
        least,
        way.arguments(),
        (centre, spheres.radius, hand),
        footprint.arguments(),
    )
    return Drag(float(way.joints[last]), at)


def without_load(scene: Scene, handle: Handle, joint: float) -> Scene:
    """Returns the scene without the objects in a drawer, which move along with it."""
    if not handle.slides or scene.held is not None:
        return scene
    boxes = handle.boxes(joint)
    pos, turn = handle.pose(joint)
    corners = np.abs(np.einsum("ji,bj->bi", turn, boxes.centre - pos)) + boxes.half
    inside = (np.abs((scene.position - pos) @ turn) < corners.max(axis=0)).all(axis=1)
    out = np.flatnonzero(~inside)
    return scene.only(out)


def foresee_all(
    layout: str, marker: str, bases: np.ndarray, postures: np.ndarray, goal: float
) -> np.ndarray:
    """Predicts how far (n,) a shut door or drawer can be opened, with only its furniture around.

    `bases` (n, 3) are the stances, `postures` (n, 7) the arm postures.
    """
    way = _way(layout, marker, 0.0, goal)
    joints = [0.0] * len(JOINTS)
    joints[JOINTS.index(marker)] = ABSENT
    around = layout_obstacles(layout, rounded(np.array(joints)))
    body, _ = resolve(layout)[0].link(marker)
    own = [row for row, name in enumerate(around.names) if name.startswith(f"{body}/")]
    furniture = (around.centre[own], around.rotation[own], around.half[own])
    s = ARM_SPHERES
    places = _follow_all(
        bases,
        postures,
        LEAST_FACING,
        way.arguments(),
        furniture,
        (s.link, s.centre, s.radius),
    )
    found: np.ndarray = way.joints[places]
    return found


def clear_of_link(
    scene: Scene, handle: Handle, joint: float, base: np.ndarray, posture: np.ndarray
) -> bool:
    """Returns whether arm and trunk at a base pose (3,) are clear of the door or drawer itself.

    The hand may touch the front.
    """
    way = _way(scene.layout, handle.marker, joint, joint)
    centre, _ = posed_spheres(posture, scene.spheres)
    hand = (scene.spheres.link == TOOL).astype(np.int64)
    link = (way.centre[0], way.turn[0], way.half, way.front)
    pose = np.array(base, dtype=np.float64)
    return not _hits_link(pose, *link, centre, scene.spheres.radius, hand, _START_MARGIN_M)


def hand_to_front(handle: Handle, joint: float, base: np.ndarray, posture: np.ndarray) -> float:
    """Returns the least distance (m) of the hand's spheres to the front of a door or drawer."""
    boxes = handle.boxes(joint)
    row = [box.name for box in handle.link.boxes].index(handle.front.partition("/")[2])
    hand = ARM_SPHERES.link == TOOL
    centre, radius = posed_spheres(posture)
    front = boxes.centre[[row]], boxes.rotation[[row]], boxes.half[[row]]
    return float(_least_distance(base, centre[hand], radius[hand], *front))


def can_back_off(footprint: Footprint, base: np.ndarray, by: float) -> bool:
    """Returns whether a base (3,) can drive straight back by `by` metres with the same posture."""
    return all(
        footprint.margin(*ahead(base, -d)) > _FLOOR_MARGIN_M for d in (by / 3, 2 * by / 3, by)
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _Way:
    """Poses of a door or drawer at m joint positions: origin, rotation, centres of its boxes."""

    joints: np.ndarray  # (m,)
    pos: np.ndarray  # (m, 3)
    turn: np.ndarray  # (m, 3, 3)
    centre: np.ndarray  # (m, b, 3)
    half: np.ndarray  # (b, 3)
    front: int  # index of the box with the face

    def arguments(self) -> tuple:
        """Returns the arguments of the compiled functions: all fields except `joints`."""
        return self.pos, self.turn, self.centre, self.half, self.front


@functools.lru_cache(maxsize=256)
def _way(layout: str, marker: str, joint: float, goal: float) -> _Way:
    """Returns the poses from one joint position to another in steps of `_STEP_M` at the handle."""
    where = handle_of(layout, marker)
    reach = 1.0 if where.slides else math.hypot(where.face[0], where.face[1])
    count = max(1, math.ceil(abs(goal - joint) * reach / _STEP_M))
    joints = np.array([joint + (goal - joint) * i / count for i in range(count + 1)])
    poses = [where.pose(q) for q in joints]
    boxes = [where.boxes(q) for q in joints]
    names = [box.name for box in where.link.boxes]
    return _Way(
        joints,
        np.array([pos for pos, _ in poses]),
        np.array([turn for _, turn in poses]),
        np.array([bodies.centre for bodies in boxes]),
        boxes[0].half,
        names.index(where.front.partition("/")[2]),
    )


@njit(cache=True)
def _follow(
    base: np.ndarray,
    hold: tuple,
    least: float,
    way: tuple,
    arm: tuple,
    footprint: tuple,
) -> tuple[int, np.ndarray]:
    """Returns the last place of a way that the base can follow to, and its base pose (3,)."""
    at = base.copy()
    local = way[1][0].T @ (to_world(base, hold[0]) - way[0][0])
    for i in range(1, len(way[0])):
        moved, good = _follow_one(at, i, local, hold, least, way, arm)
        if not good or pose_margin(moved[0], moved[1], moved[2], *footprint) < _FLOOR_MARGIN_M:
            return i - 1, at
        at = moved
    return len(way[0]) - 1, at


@njit(cache=True)
def _follow_one(
    base: np.ndarray, i: int, local: np.ndarray, hold: tuple, least: float, way: tuple, arm: tuple
) -> tuple[np.ndarray, bool]:
    """Returns the base pose (3,) with the cup at place `i` of a way, and whether it is allowed.

    Args:
        base: (3,) base pose at the previous place.
        i: index of the place.
        local: (3,) point held by the cup, frame of the door or drawer.
        hold: tip (3,) and axis (3,) of the cup, base frame.
        least: least cosine between the axis and the direction into the face.
        way: see `_Way.arguments`.
        arm: spheres (n, 3) in the base frame, radii (n,), whether they are the hand's (n,).
    """
    origin, turn, centre, half, front = way
    tip, axis = hold
    after = origin[i] + turn[i] @ local
    step = after - to_world(base, tip)
    c, s = math.cos(base[2]), math.sin(base[2])
    omega = (c * step[1] - s * step[0]) / tip[0]
    v = c * step[0] + s * step[1] + omega * tip[1]
    heading = base[2] + omega / 2
    moved = base + np.array([v * math.cos(heading), v * math.sin(heading), omega])
    moved[:2] += (after - to_world(moved, tip))[:2]
    out = turn[i][:, 0]
    c, s = math.cos(moved[2]), math.sin(moved[2])
    ahead, aside = c * out[0] + s * out[1], c * out[1] - s * out[0]
    if -(ahead * axis[0] + aside * axis[1] + out[2] * axis[2]) < least:
        return moved, False
    hits = _hits_link(moved, centre[i], turn[i], half, front, *arm, _ARM_MARGIN_M)
    return moved, not hits


@njit(cache=True)
def _follow_all(
    bases: np.ndarray,
    postures: np.ndarray,
    least: float,
    way: tuple,
    furniture: tuple,
    spheres: tuple,
) -> np.ndarray:
    """Returns the last places (n,) of a way that the base can follow to.

    The base starts at poses (n, 3) with arm postures (n, 7). The furniture's boxes (m, ...) are
    checked only at the first place.
    """
    link, centre, radius = spheres
    reached = np.zeros(len(bases), dtype=np.int64)
    pos, rot = np.empty((7, 3)), np.empty((7, 3, 3))
    sphere, hand = np.empty_like(centre), (link == TOOL).astype(np.int64)
    for n in range(len(bases)):
        arm_frames(postures[n], pos, rot)
        for i in range(len(link)):
            sphere[i] = pos[link[i]] + rot[link[i]] @ centre[i]
        tip, turn = cup_pose(postures[n])
        hold = (tip, turn[:, 0].copy())
        at = bases[n].copy()
        if _least_distance(at, sphere, radius, *furniture) < 0.0:
            continue
        local = way[1][0].T @ (to_world(at, tip) - way[0][0])
        for i in range(1, len(way[0])):
            at, good = _follow_one(at, i, local, hold, least, way, (sphere, radius, hand))
            if not good:
                break
            reached[n] = i
    return reached


@njit(cache=True)
def _hits_link(
    base: np.ndarray,
    centre: np.ndarray,
    turn: np.ndarray,
    half: np.ndarray,
    front: int,
    sphere: np.ndarray,
    radius: np.ndarray,
    hand: np.ndarray,
    margin: float,
) -> bool:
    """Returns whether arm or trunk collide with the door or drawer that is being moved.

    Its boxes have centres (b, 3), one rotation (3, 3), and half extents (b, 3). The spheres (n, 3),
    (n,) are in the base frame; those of the hand may touch box `front`.
    """
    for j in range(len(centre)):
        if centre[j, 2] - half[j, 2] < _HEAD_M:
            trunk = np.array([base[0], base[1], centre[j, 2]])
            if distance_to(BOX, centre[j], turn, half[j], trunk) < BASE_RADIUS:
                return True
        for i in range(len(radius)):
            if hand[i] and j == front:
                continue
            point = to_world(base, sphere[i])
            if distance_to(BOX, centre[j], turn, half[j], point) - radius[i] < margin:
                return True
    return False


@njit(cache=True)
def _least_distance(
    base: np.ndarray,
    sphere: np.ndarray,
    radius: np.ndarray,
    centre: np.ndarray,
    turn: np.ndarray,
    half: np.ndarray,
) -> float:
    """Returns the least distance (m) of spheres in the frame of a base pose to boxes (m, ...)."""
    least = 1e9
    for i in range(len(radius)):
        point = to_world(base, sphere[i])
        for j in range(len(centre)):
            least = min(least, distance_to(BOX, centre[j], turn[j], half[j], point) - radius[i])
    return least
