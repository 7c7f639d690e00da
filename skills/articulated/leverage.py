"""Where to stand, and how to hold the arm, to open or close a door or drawer by driving.

The arm takes one posture, in which the base drives up to the face and then takes it along
(`drag`), so a way is a base pose before the face, the stance at contact, and the posture. Costs
are control steps.
"""

import dataclasses
import functools
import itertools
import math

import numpy as np

from skills.articulated.drag import LEAST_FACING, LEAST_PUSHING, Drag, can_back_off, foresee
from skills.scripted.navigation import Leg, drive_field, plan_drive
from skills.scripted.scene import Scene
from skills.scripted.search import DRIVE_STEPS, FOOTPRINT_MARGIN_M, ahead, drivable
from skills.scripted.together import plan_together, slowest
from tpsrl.world.action import ARM_DELTA_RAD, STEP_M
from tpsrl.world.collision import REST
from tpsrl.world.fetch import CUP_RADIUS, GRIPPER
from tpsrl.world.footprint import Footprint, posed_spheres
from tpsrl.world.geometry import wrap_angle
from tpsrl.world.handles import Handle
from tpsrl.world.kinematics import cup_pose, inverse
from tpsrl.world.reach import CUP_AXIS, NO_OFFSET, SEEDS, too_far

# How far to open: drawers to just before the stop, the door until the shelf is free; and what
# must be possible for a stance to be worth it. Less than 0.45 m leaves bowls under the worktop.
_OPEN_M, _LEAST_M = 0.48, 0.46
_OPEN_RAD, _LEAST_RAD, _ENOUGH_RAD = 1.5, 1.3, 1.19
_SHUT = 0.02

RETREAT_M = 0.35  # an arm that folds nearer than this moves the drawer again
_APPROACH_M = 0.1  # the last stretch, driven with the arm out
_ENTER_M = 0.25  # where the hand goes between an open door and a wall
_PUSH_GAP_M = 0.01  # from the face that is going to be pushed
_TOOL_M, _TOOL_RADIUS_M = 0.11, 0.048  # from the cup's tip to the gripper, which is wider
# Stances: distance of the face from the base (m), its bearing from there and the base's heading
# (rad), each relative to the face's normal or the bearing.
_DISTANCES = (0.72, 0.8, 0.88, 0.96, 0.64, 1.04)
_BEARINGS = (0.0, 0.25, -0.25, 0.5, -0.5, 0.8, -0.8)
_BESIDE = (1.1, -1.1, 1.35, -1.35, 1.6, -1.6)
_FACINGS = (0.0, 0.3, -0.3, 0.55, -0.55)
_STRAIGHT_ON_M = (0.1, 0.2, 0.3, 0.45)
# Cup: height of the contact relative to the marker (m), and where it points (rad).
_HEIGHTS = (0.07, 0.0, -0.05)
_PITCHES = tuple(math.radians(p) for p in (0, 20, 35, 45, 55, 65))
_TURNS = (0.0, 0.3, -0.3, 0.6, -0.6, 0.9, -0.9)
_ASLANT = (1.2, -1.2, 1.45, -1.45)
_FACE_MARGIN_M, _MARGIN_M = 0.004, 0.006
_MAX_WAYS = 1200
_POSTURES = 6  # tried for a stance
_MOST_ARM_STEPS = 150.0
_CREEP_STEPS = 6.0
# Navigate is to end within HAB's 15 degrees of the handle, if that does not cost too much.
_FACING_RAD, _ASKEW_STEPS = 0.24, 40.0
_MAX_DRIVES = 6
_COMPARED = 8  # ways of which it is found out how long they really take


@dataclasses.dataclass(frozen=True, slots=True)
class Approach:
    """Drive along `legs` (None: no need) to base pose `first` (3,), put the arm into `posture`
    (7,), and drive straight on to `stance` (3,), where the cup is on the face."""

    legs: list[Leg] | None
    first: np.ndarray
    stance: np.ndarray
    posture: np.ndarray


def open_goal(handle: Handle) -> tuple[float, float, float]:
    """Joint positions (rad or m): how far to open, how far at least, and failing that."""
    if handle.slides:
        return _OPEN_M, _LEAST_M, _LEAST_M
    return _OPEN_RAD, _LEAST_RAD, _ENOUGH_RAD


def plan_approach(scene: Scene, handle: Handle, joint: float, opening: bool) -> Approach | None:
    """The quickest way to open or close from joint position `joint`, or None."""
    goal, least, fallback = open_goal(handle) if opening else (0.0, _SHUT, _SHUT)
    footprint = scene.footprint(scene.arm)
    ways = [
        (max(drive, cost) + _CREEP_STEPS + cost, first, stance, posture)
        for drive, first, stance in _stances(scene, handle, joint, opening, footprint)
        for cost, posture in _postures_at(handle, joint, opening, stance)
    ]
    ways.sort(key=lambda way: way[0])
    walled: list[np.ndarray] = []
    second: tuple[float, Approach] | None = None
    best, chosen, compared = math.inf, None, 0
    for steps, first, stance, posture in ways[:_MAX_WAYS]:
        if steps >= best or compared == _COMPARED:
            break
        if any(first is pose for pose in walled):
            continue
        if not _free(scene, handle, first, stance, posture):
            continue
        reaching = scene.footprint(posture, without=handle.index)
        if not all(reaching.margin(*pose) > 0.0 for pose in (first, stance)):
            continue
        drag = foresee(scene, handle, stance, posture, joint, goal, reaching)
        far, enough = (_far_enough(drag, limit, opening) for limit in (least, fallback))
        if not enough or (second is not None and not far and drag.joint <= second[0]):
            continue
        if not can_back_off(reaching, drag.base, RETREAT_M if far else RETREAT_M / 2):
            continue
        legs = None
        if first is not scene.base:
            legs = plan_drive(footprint, scene.base, first)
            if legs is None:
                walled.append(first)
                if len(walled) == _MAX_DRIVES:
                    break
                continue
        approach = Approach(legs, first, stance, posture)
        if not far:
            second = (drag.joint, approach)
            continue
        compared += 1
        back = float(np.abs(posture - REST).max()) / ARM_DELTA_RAD
        steps = _steps_to(scene, approach) + _CREEP_STEPS + back
        if steps < best:
            best, chosen = steps, approach
    if chosen is None and second is not None:
        return second[1]
    return chosen


def _steps_to(scene: Scene, approach: Approach) -> float:
    """How long base and arm take, one after the other where they cannot move at once."""
    path = np.stack([scene.arm, approach.posture])
    way = plan_together(scene, approach.legs or [], path, anywhere=True)
    return way.steps if way is not None else slowest(scene.base, approach.legs or [], path)


def _far_enough(drag: Drag, least: float, opening: bool) -> bool:
    return drag.joint >= least if opening else drag.joint <= least


def _stances(
    scene: Scene,
    handle: Handle,
    joint: float,
    opening: bool,
    footprint: Footprint,
) -> list[tuple[float, np.ndarray, np.ndarray]]:
    """(steps to get to contact, base pose before it, stance at contact)."""
    point, normal = handle.point(joint), handle.normal(joint)
    outward = math.atan2(normal[1], normal[0])
    found = [(d / STEP_M, scene.base, ahead(scene.base, d)) for d in _STRAIGHT_ON_M]
    field = drive_field(footprint, scene.base)
    bearings = _BEARINGS if opening else _BEARINGS + _BESIDE
    approach = _APPROACH_M if opening or handle.slides else _ENTER_M
    for distance, bearing, facing in itertools.product(_DISTANCES, bearings, _FACINGS):
        angle = outward + bearing
        stance = np.array(
            [
                point[0] + distance * math.cos(angle),
                point[1] + distance * math.sin(angle),
                wrap_angle(angle + math.pi + facing),
            ]
        )
        first = ahead(stance, -approach)
        drive = field(first) + DRIVE_STEPS
        towards = math.atan2(point[1] - first[1], point[0] - first[0])
        if abs(wrap_angle(towards - first[2])) > _FACING_RAD:
            drive += _ASKEW_STEPS
        if np.isfinite(drive) and drivable(footprint, first, FOOTPRINT_MARGIN_M):
            found.append((drive, first, stance))
    return found


def _postures_at(
    handle: Handle, joint: float, opening: bool, stance: np.ndarray
) -> tuple[tuple[float, np.ndarray], ...]:
    """(steps from rest, posture (7,)) with the cup on the face, seen from a stance."""
    point, normal = handle.point(joint), handle.normal(joint)
    away = point[:2] - stance[:2]
    bearing = wrap_angle(math.atan2(away[1], away[0]) - stance[2])
    inward = wrap_angle(math.atan2(-normal[1], -normal[0]) - stance[2])
    return _postures(
        round(float(np.hypot(*away)), 2),
        round(bearing, 2),
        round(inward, 2),
        round(point[2], 2),
        opening,
    )


@functools.lru_cache(maxsize=4096)
def _postures(
    distance: float, bearing: float, inward: float, height: float, opening: bool
) -> tuple[tuple[float, np.ndarray], ...]:
    """The quickest postures for a face at a place of the base frame that looks along -`inward`."""
    if math.cos(inward - bearing) < (0.3 if opening else -0.2):
        return ()
    into = np.array([math.cos(inward), math.sin(inward), 0.0])
    place = np.array([distance * math.cos(bearing), distance * math.sin(bearing), height])
    found: list[tuple[float, np.ndarray]] = []
    turns = _TURNS if opening else _TURNS + _ASLANT
    least = LEAST_FACING if opening else LEAST_PUSHING
    for up, pitch, turn in itertools.product(_HEIGHTS, _PITCHES, turns):
        heading = inward + turn
        axis = np.array(
            [
                math.cos(pitch) * math.cos(heading),
                math.cos(pitch) * math.sin(heading),
                -math.sin(pitch),
            ]
        )
        facing = float(axis @ into)
        tip = place + np.array([0.0, 0.0, up]) - _off_face(facing, opening) * into
        if facing < least or too_far(tip, axis):
            continue
        for seed in SEEDS[:3]:
            ok, q = inverse(seed, tip, CUP_AXIS, axis, REST, NO_OFFSET, 60, 0.3)
            cost = float(np.abs(q - REST).max()) / ARM_DELTA_RAD
            if ok and cost < _MOST_ARM_STEPS and (not opening or _before_face(q, place, into)):
                found.append((cost, q))
                break
    found.sort(key=lambda way: way[0])
    return tuple(found[:_POSTURES])


def _off_face(facing: float, opening: bool) -> float:
    """How far (m) the cup's tip is from a face that the tool just touches, or is to push."""
    # The rim of a tilted cup touches before its middle does, and aslant the gripper before it.
    rim = CUP_RADIUS * math.sqrt(max(0.0, 1.0 - facing * facing))
    return rim if opening else max(rim, _TOOL_RADIUS_M - _TOOL_M * facing) + _PUSH_GAP_M


def _before_face(q: np.ndarray, place: np.ndarray, into: np.ndarray) -> bool:
    """Whether all of the arm but the cup is on the robot's side of the face."""
    centre, radius = posed_spheres(q)
    tip, _ = cup_pose(q)
    depth = (centre - place) @ into + radius
    cup = np.linalg.norm(centre - tip, axis=1) < GRIPPER / 2
    return bool((depth[~cup] < -_FACE_MARGIN_M).all())


def _free(
    scene: Scene,
    handle: Handle,
    first: np.ndarray,
    stance: np.ndarray,
    posture: np.ndarray,
) -> bool:
    """Whether the posture is free before the face and on it."""
    touching = scene.checker(stance, touching=handle.marker)
    return scene.checker(first).free(posture, _MARGIN_M) and touching.free(posture, -0.005)
