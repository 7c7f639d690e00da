"""How and from where to grasp an object, or to put the held one down: search over base poses.

Costs are control steps: the drive there, then the slowest joint's way. A grasp is chosen with a
look at where the object is to go, since the angle of the cup to the object stays the same.
"""

import dataclasses
import math

import numpy as np

from skills.scripted.navigation import Leg, drive_field, drive_steps, plan_drive
from skills.scripted.scene import Scene
from tpsrl.world.action import ARM_DELTA_RAD
from tpsrl.world.collision import ARM_SPHERES, REST, ArmChecker
from tpsrl.world.geometry import wrap_angle
from tpsrl.world.objects import ObjectKind
from tpsrl.world.reach import (
    APPROACH_M,
    CUP_AXIS,
    NO_OFFSET,
    best_posture,
    point_to_base,
    seeds_towards,
    stances,
    to_base,
    too_far,
)

STANDOFFS = (0.7, 0.62, 0.78, 0.54, 0.86, 0.95)
_PITCHES = tuple(math.radians(p) for p in (90, 70, 55, 40, 25, 8))
_TURNS = (0.0, 0.45, -0.45)
LIFT_M = 0.08
RELEASE_M = 0.005  # objects fall this far, which no can minds
_CONTACT_MARGIN_M = 0.004
_MARGIN_M = 0.015
_FOOTPRINT_MARGIN_M = 0.025
_SIDE_HEIGHT_M = 0.09  # lower objects have no side to hold on to
_STEEP = math.radians(50)
_MAX_STANCES = 90
_MAX_LEGS = 6


@dataclasses.dataclass(frozen=True, slots=True)
class Touch:
    """Where the cup meets an object, relative to its centre, and where the cup points (world)."""

    point: np.ndarray
    axis: np.ndarray
    pitch: float


@dataclasses.dataclass(frozen=True, slots=True)
class Reach:
    """A base pose with two arm postures: near the object (`ready`) and at it (`there`)."""

    stance: np.ndarray
    legs: list[Leg] | None  # None: stay
    ready: np.ndarray
    there: np.ndarray
    steps: float


def touches(kind: ObjectKind, rotation: np.ndarray, toward: float) -> list[Touch]:
    """Ways to touch an upright or fallen object from direction `toward` (rad, world)."""
    half = np.abs(rotation) @ np.array(kind.half)  # of the world-aligned box around it
    top = half[2]
    found = []
    for pitch in _PITCHES:
        steep = pitch >= _STEEP
        if not steep and 2 * top < _SIDE_HEIGHT_M and pitch < math.radians(35):
            continue
        for turn in _TURNS if pitch < math.radians(80) else (0.0,):
            heading = toward + turn
            if steep or 2 * top < _SIDE_HEIGHT_M:
                point = np.array([0.0, 0.0, top])
            else:
                side = _side(kind, rotation, heading)
                if side is None:
                    continue
                point, heading = side
                point = point + np.array([0.0, 0.0, 0.25 * top])
            level = np.array([math.cos(heading), math.sin(heading), 0.0])
            axis = math.cos(pitch) * level - math.sin(pitch) * np.array([0.0, 0.0, 1.0])
            found.append(Touch(point, axis, pitch))
    return found


def _side(kind: ObjectKind, rotation: np.ndarray, heading: float) -> tuple[np.ndarray, float] | None:
    """Point on the side that faces the robot, and the heading that meets it squarely."""
    level = np.array([math.cos(heading), math.sin(heading), 0.0])
    if kind.primitive != "box":
        return (-level * kind.half[0], heading) if abs(rotation[2, 2]) > 0.9 else None
    scores = rotation.T @ -level
    axis = int(np.argmax(np.abs(scores)))
    if abs(scores[axis]) < 0.8 or abs(rotation[2, axis]) > 0.2:
        return None
    normal = math.copysign(1.0, scores[axis]) * rotation[:, axis]
    return normal * kind.half[axis], math.atan2(-normal[1], -normal[0])


def plan_pick(scene: Scene, index: int, goal: np.ndarray | None) -> Reach | None:
    """The quickest way to grasp object `index`, or None.

    With a `goal` (3,) only grasps count with which the object can also be put there; if there is
    none such, any grasp is better than none.
    """
    placeable: dict[tuple[float, float], bool] = {}
    kind, rotation, centre = scene.kinds[index], scene.rotation[index], scene.position[index]

    def usable(touch: Touch) -> bool:
        if goal is None:
            return True
        key = (touch.pitch, round(float(touch.point[2]), 3))
        if key not in placeable:
            placeable[key] = _placeable(scene, index, touch, goal)
        return placeable[key]

    def options(stance: np.ndarray) -> list[Touch]:
        toward = math.atan2(centre[1] - stance[1], centre[0] - stance[0])
        return touches(kind, rotation, toward)

    for look_ahead in (True, False):
        if look_ahead or goal is not None:
            found = _search(
                scene,
                centre,
                lambda stance, ahead=look_ahead: [
                    (centre + t.point, CUP_AXIS, t.axis, NO_OFFSET, -APPROACH_M * t.axis)
                    for t in options(stance)
                    if not ahead or usable(t)
                ],
                touching=index,
            )
            if found is not None:
                return found
    return None


def plan_place(scene: Scene, goal: np.ndarray) -> Reach | None:
    """The quickest way to put the held object upright at `goal` (3,), or None."""
    held = scene.held
    if held is None:
        return None
    up = held.rotation @ _upright_axis(held.kind, scene.rotation[held.index])
    over = np.array([0.0, 0.0, LIFT_M])
    lowered = np.asarray(goal) + np.array([0.0, 0.0, RELEASE_M])
    return _search(
        scene,
        np.asarray(goal),
        lambda stance: [(lowered, up, np.array([0.0, 0.0, 1.0]), held.offset, over)],
        touching=-1,
    )


def _upright_axis(kind: ObjectKind, rotation: np.ndarray) -> np.ndarray:
    """The object's own axis that is to point up: of a cylinder its own, of a box the nearest."""
    axis = 2 if kind.primitive == "cylinder" else int(np.argmax(np.abs(rotation[2])))
    up = np.zeros(3)
    up[axis] = 1.0 if rotation[2, axis] >= 0 else -1.0
    return up


def _placeable(scene: Scene, index: int, touch: Touch, goal: np.ndarray) -> bool:
    """Whether some stance allows the cup where this grasp would have it at the goal."""
    outward = math.hypot(touch.point[0], touch.point[1])
    obstacles = scene.obstacles(without=index)
    for stance in stances(scene.layout, goal, STANDOFFS, directions=16):
        near, _ = obstacles.seen_from(stance)
        arguments = ArmChecker(ARM_SPHERES, near).arguments()
        centre = point_to_base(stance, goal)
        axis = np.array([math.cos(touch.pitch), 0.0, -math.sin(touch.pitch)])
        tip = centre + np.array([-outward, 0.0, touch.point[2]])
        if too_far(tip, axis):
            continue
        seeds = seeds_towards(tip)
        for lift in (LIFT_M, 0.0):
            point = tip + np.array([0.0, 0.0, lift])
            cost, _ = best_posture(
                point, CUP_AXIS, axis, NO_OFFSET, seeds, arguments, -1, _CONTACT_MARGIN_M, REST
            )
            if not np.isfinite(cost):
                break
        else:
            return True
    return False


def _search(scene: Scene, point: np.ndarray, options, touching: int) -> Reach | None:
    """Tries the present base pose and those around `point`; the cheapest that works.

    `options(stance)` lists cup poses: point to bring, axis in the cup's frame, where it points
    (world), offset of the point in the cup's frame, and the shift from there to the ready pose.
    """
    footprint = scene.footprint(scene.arm)
    field = drive_field(footprint, scene.base)
    candidates = [(0.0, scene.base)]
    for stance in stances(scene.layout, point, STANDOFFS):
        for turn in (0.0, 0.2, -0.2):
            pose = stance + np.array([0.0, 0.0, turn])
            if footprint.margin(*pose) < _FOOTPRINT_MARGIN_M:
                continue
            drive = field(pose)
            if np.isfinite(drive):
                candidates.append((drive, pose))
                break
    candidates.sort(key=lambda c: c[0])
    found: list[tuple[float, np.ndarray, np.ndarray, np.ndarray]] = []
    best = np.inf
    for drive, stance in candidates[:_MAX_STANCES]:
        if drive >= best:
            break
        if stance is scene.base and not _near_enough(scene.base, point):
            continue
        result = _postures(scene, stance, options(stance), touching)
        if result is not None:
            steps, ready, there = result
            found.append((drive + steps, stance, ready, there))
            best = min(best, drive + steps)
    found.sort(key=lambda f: f[0])
    for steps, stance, ready, there in found[:_MAX_LEGS]:
        if stance is scene.base:
            return Reach(stance, None, ready, there, steps)
        legs = plan_drive(footprint, scene.base, stance)
        if legs is not None:
            return Reach(stance, legs, ready, there, steps + 0 * drive_steps(legs, scene.base))
    return None


def _near_enough(base: np.ndarray, point: np.ndarray) -> bool:
    bearing = math.atan2(point[1] - base[1], point[0] - base[0])
    near = math.hypot(point[0] - base[0], point[1] - base[1]) < 1.05
    return near and abs(wrap_angle(bearing - base[2])) < 1.2


def _postures(scene: Scene, stance: np.ndarray, options, touching: int):
    """(steps, ready, there) of the quickest cup pose at a stance, or None."""
    checker = scene.checker(stance, touching=touching)
    arguments = checker.arguments()
    apart = scene.checker(stance).arguments()
    best, chosen = np.inf, None
    for point, axis_cup, axis_world, offset, shift in options:
        axis = to_base(stance, axis_world)
        local = point_to_base(stance, point)
        if offset is NO_OFFSET and too_far(local, axis):
            continue
        back = local + to_base(stance, shift)
        cost, ready = best_posture(
            back, axis_cup, axis, offset, seeds_towards(back), apart, -1, _MARGIN_M, REST
        )
        steps = 2 * cost / ARM_DELTA_RAD
        if steps >= best:
            continue
        # From the ready posture the last stretch must be short in joint space as well.
        cost, there = best_posture(
            local, axis_cup, axis, offset, ready[None], arguments, checker.target,
            _CONTACT_MARGIN_M, ready,
        )  # fmt: skip
        if cost > 0.9:
            continue
        steps += 2 * cost / ARM_DELTA_RAD
        if steps < best:
            best, chosen = steps, (steps, ready, there)
    return chosen
