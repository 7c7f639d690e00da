"""How and from where to grasp an object, or to put the held one down: search over base poses.

Costs are control steps: the drive there, then the slowest joint's way. A grasp is chosen with a
look at where the object is to go, since the angle of the cup to the object stays the same.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable

import numpy as np

from skills.scripted.navigation import Leg, drive_field, plan_drive
from skills.scripted.scene import Held, Scene, hold
from tpsrl.world.action import ARM_DELTA_RAD
from tpsrl.world.collision import ARM_SPHERES, REST, ArmChecker
from tpsrl.world.episode import Episode
from tpsrl.world.fetch import BASE_RADIUS, REST_EE
from tpsrl.world.floor import floor_map
from tpsrl.world.footprint import Footprint
from tpsrl.world.geometry import wrap_angle
from tpsrl.world.kinematics import inverse
from tpsrl.world.objects import ObjectKind
from tpsrl.world.reach import (
    APPROACH_M,
    CUP_AXIS,
    NO_OFFSET,
    SEEDS,
    best_posture,
    point_to_base,
    seeds_towards,
    stances,
    to_base,
    too_far,
)

STANDOFFS = (0.7, 0.62, 0.78, 0.54, 0.86, 0.95)
_PITCHES = tuple(math.radians(p) for p in (90, 80, 70, 60, 50, 40, 25, 8))
_TURNS = (0.0, 0.45, -0.45)
LIFTS_M = (0.08, 0.14, 0.2, 0.05, 0.03)  # in the order of trying: a sink asks for the high ones
_LINE_M = 0.04
_LEANING_LIFTS_M = (0.08, 0.03)
_LEANS_RAD = (0.0, 0.35, 0.7, 1.05)  # an object is put down upright, or else leaning
_MOST_RAD = 2.0  # a way of more than 160 steps leaves no time for the rest of the skill
_HIGH_SHIFTS = ((0.08, 0.0, 0.08), (0.2, 0.0, 0.2), (0.15, 0.0, 0.3))  # from the resting point, m
_STRETCH_RAD = 10.0  # per metre of lift: farther apart in joint space, two postures do not belong
RELEASE_M = 0.005  # objects fall this far, which no can minds
# Margins (m) at the ready pose and at the touch, the wider ones tried first; a base pose that is
# yet to be driven to will be missed by a centimetre or two, the present one is exact.
_LEVELS = ((0.02, 0.004), (0.008, 0.0))
_HERE = (0.006, 0.0)
_FOOTPRINT_MARGIN_M = 0.025
_SIDE_HEIGHT_M = 0.09  # lower objects have no side to hold on to
_STEEP = math.radians(50)
_MAX_STANCES = 200
_MAX_DRIVES = 4
_SAME_PLACE = 0.25  # m and rad: if one pose there cannot be driven to, nor can the other
_LEAST_ARM_STEPS = 60.0  # no reach and return takes less
# The last stretch may be driven with the arm already over the furniture (m).
_ADVANCES = (0.0, 0.15, 0.3, 0.45, 0.6)
_FACING = (0.0, 0.2, -0.2)  # within HAB's 15 degrees of the object (rad)


@dataclasses.dataclass(frozen=True, slots=True)
class Touch:
    """Where the cup meets an object, relative to its centre, and where the cup points (world)."""

    point: np.ndarray
    axis: np.ndarray
    pitch: float


@dataclasses.dataclass(frozen=True, slots=True)
class CupTarget:
    """A cup pose, free to turn about one axis, and how to come to it; world frame.

    The point `offset` (3,) of the cup's frame is to be at `point` (3,), the direction `axis_cup`
    of that frame is to be `axis`; the ready pose is the same, moved by `shift`.
    """

    point: np.ndarray
    axis_cup: np.ndarray
    axis: np.ndarray
    offset: np.ndarray
    shift: np.ndarray

    def line(
        self, base: np.ndarray, checker: ArmChecker, margin: float, start: np.ndarray
    ) -> np.ndarray | None:
        """Postures (k, 7) along the straight way from the ready pose to the pose, or None."""
        count = max(1, math.ceil(float(np.linalg.norm(self.shift)) / _LINE_M))
        postures = []
        for i in range(count - 1, -1, -1):
            cost, start = self.posture(base, i / count, checker, margin, start)
            if not cost < 0.5:
                return None
            postures.append(start)
        return np.array(postures)

    def posture(
        self, base: np.ndarray, shift: float, checker: ArmChecker, margin: float, near: np.ndarray
    ) -> tuple[float, np.ndarray]:
        """The free posture nearest to `near` (7,) for the pose moved by `shift` times the shift.

        From a base pose (3,); returns the greatest joint difference (rad, inf for none) and it.
        """
        point = point_to_base(base, self.point + shift * self.shift)
        axis = to_base(base, self.axis)
        if self.offset is NO_OFFSET and too_far(point, axis):
            return np.inf, near
        seeds = (
            np.vstack([near[None], seeds_towards(point)])
            if near is not REST
            else seeds_towards(point)
        )
        return best_posture(
            point, self.axis_cup, axis, self.offset, seeds, checker.arguments(), checker.target,
            margin, near,
        )  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Reach:
    """How to bring the cup to a target: drive, raise the arm, drive on, lower it.

    `legs` lead to the pose `first` (3,) with the arm as it is (None: it is there already); from
    it `advance` metres straight on lead to `stance` (3,), driven with the arm in posture `via`
    (7,): the ready posture itself, or a high one where that would run into something.
    """

    target: CupTarget
    legs: list[Leg] | None
    first: np.ndarray
    advance: float
    stance: np.ndarray
    via: np.ndarray
    ready: np.ndarray
    there: np.ndarray
    steps: float


def destination(episode: Episode, index: int) -> np.ndarray | None:
    """Where object `index` is to go (3,), if it is one of the episode's targets."""
    for target in episode.targets:
        if target.object == index:
            return np.array(target.goal)
    return None


@dataclasses.dataclass(frozen=True, slots=True)
class _Options:
    """What `_search` may aim at from a stance.

    With the object that the tool may touch, margins at the ready pose and the touch (m), and high
    postures in which to drive over furniture.
    """

    targets: Callable[[np.ndarray], list[CupTarget]]
    touching: int
    margins: tuple[float, float]
    highs: tuple[np.ndarray, ...]


def ahead(pose: np.ndarray, distance: float) -> np.ndarray:
    """The base pose (3,) `distance` metres straight ahead."""
    step = distance * np.array([math.cos(pose[2]), math.sin(pose[2]), 0.0])
    return np.asarray(pose) + step


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


def _side(
    kind: ObjectKind, rotation: np.ndarray, heading: float
) -> tuple[np.ndarray, float] | None:
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

    With a `goal` (3,) grasps are preferred with which the object can also be put there.
    """
    placeable: dict[tuple[float, float], bool] = {}
    kind, rotation, centre = scene.kinds[index], scene.rotation[index], scene.position[index]

    def usable(touch: Touch, goal: np.ndarray) -> bool:
        key = (touch.pitch, round(float(touch.point[2]), 3))
        if key not in placeable:
            placeable[key] = _placeable(scene, index, touch, goal)
        return placeable[key]

    def targets(stance: np.ndarray, wanted: np.ndarray | None) -> list[CupTarget]:
        toward = math.atan2(centre[1] - stance[1], centre[0] - stance[0])
        return [
            CupTarget(centre + t.point, CUP_AXIS, t.axis, NO_OFFSET, -APPROACH_M * t.axis)
            for t in touches(kind, rotation, toward)
            if wanted is None or usable(t, wanted)
        ]

    highs = high_postures(scene)
    for wanted in (goal, None) if goal is not None else (None,):
        for level in _LEVELS:
            options = _Options(functools.partial(targets, wanted=wanted), index, level, highs)
            found = _search(scene, centre, options)
            if found is not None:
                return found
    return None


def plan_place(scene: Scene, goal: np.ndarray) -> Reach | None:
    """The quickest way to put the held object down at `goal` (3,), or None.

    Upright if that can be done. How the cup holds the object may not allow it where the arm
    cannot bend like that, as far back on a high table; it is then let go leaning, towards the
    robot or away from it, which a box survives by lying down within the goal's tolerance.
    """
    held = scene.held
    if held is None:
        return None
    highs = high_postures(scene)
    rotation = scene.rotation[held.index]
    for lean in _LEANS_RAD:
        for level, lift in itertools.product(_LEVELS, LIFTS_M if lean == 0.0 else _LEANING_LIFTS_M):
            targets = functools.partial(_place_targets, held, rotation, goal, lift, lean)
            found = _search(scene, goal, _Options(targets, -1, level, highs))
            if found is not None:
                return found
    return None


def _place_targets(
    held: Held, rotation: np.ndarray, goal: np.ndarray, lift: float, lean: float, stance: np.ndarray
) -> list[CupTarget]:
    """The held object at its goal (3,), leaning by `lean` rad, come to from `lift` m above."""
    own = _upright_axis(held.kind, rotation)
    up, over = held.rotation @ own, np.array([0.0, 0.0, lift])
    toward = math.atan2(goal[1] - stance[1], goal[0] - stance[0])
    level = np.array([math.cos(toward), math.sin(toward), 0.0])
    found = []
    for side in (-1.0, 1.0) if lean else (0.0,):
        axis = np.array([0.0, 0.0, math.cos(lean)]) + side * math.sin(lean) * level
        raised = _height(held.kind, own, lean) - _height(held.kind, own, 0.0) + RELEASE_M
        point = np.asarray(goal) + np.array([0.0, 0.0, raised])
        found.append(CupTarget(point, up, axis, held.offset, over))
    return found


def _height(kind: ObjectKind, up: np.ndarray, lean: float) -> float:
    """How high the centre of an object stands when it leans by `lean`, its axis `up` (3,), m."""
    half = np.array(kind.half)
    tall = float(half @ np.abs(up))
    wide = float(np.linalg.norm(half * (1.0 - np.abs(up)))) if kind.primitive == "box" else half[0]
    return tall * math.cos(lean) + wide * math.sin(lean)


def _upright_axis(kind: ObjectKind, rotation: np.ndarray) -> np.ndarray:
    """The object's own axis that is to point up: of a cylinder its own, of a box the nearest."""
    axis = 2 if kind.primitive == "cylinder" else int(np.argmax(np.abs(rotation[2])))
    up = np.zeros(3)
    up[axis] = 1.0 if rotation[2, axis] >= 0 else -1.0
    return up


def _placeable(scene: Scene, index: int, touch: Touch, goal: np.ndarray) -> bool:
    """Whether, grasped like this, the object could be put at the goal from some stance."""
    kind, rotation = scene.kinds[index], scene.rotation[index]
    side = np.cross(touch.axis, [0.0, 0.0, 1.0] if abs(touch.axis[2]) < 0.9 else [1.0, 0.0, 0.0])
    side /= np.linalg.norm(side)
    cup = np.column_stack([touch.axis, side, np.cross(touch.axis, side)])
    held = hold(index, kind, -cup.T @ touch.point, cup.T @ rotation)
    spheres = ARM_SPHERES.plus(held.spheres)
    obstacles = scene.obstacles(without=index)
    for stance in stances(scene.layout, goal, STANDOFFS, directions=16):
        near, _ = obstacles.seen_from(stance)
        checker = ArmChecker(spheres, near)
        target = _place_targets(held, rotation, goal, LIFTS_M[-1], 0.0, stance)[0]
        if all(
            target.posture(stance, shift, checker, margin, REST)[0] < _MOST_RAD
            for shift, margin in ((1.0, _LEVELS[-1][0]), (0.0, _LEVELS[-1][1]))
        ):
            return True
    return False


def _search(scene: Scene, point: np.ndarray, options: _Options) -> Reach | None:
    """The cheapest way among the present base pose and those around `point`, or None."""
    footprint = scene.footprint(scene.arm)
    found: list[Reach] = []
    best = np.inf
    for drive, first, advance in _candidates(scene, footprint, point)[:_MAX_STANCES]:
        if drive + _LEAST_ARM_STEPS >= best:
            break
        reach = _postures(scene, first, advance, options)
        if reach is not None:
            found.append(dataclasses.replace(reach, steps=drive + reach.steps))
            best = min(best, drive + reach.steps)
    found.sort(key=lambda reach: reach.steps)
    walled: list[np.ndarray] = []
    for reach in found:
        if reach.first is scene.base:
            return reach
        if any(np.abs(reach.first - pose).max() < _SAME_PLACE for pose in walled):
            continue
        legs = plan_drive(footprint, scene.base, reach.first)
        if legs is not None:
            return dataclasses.replace(reach, legs=legs)
        walled.append(reach.first)
        if len(walled) == _MAX_DRIVES:
            break
    return None


def _candidates(
    scene: Scene, footprint: Footprint, point: np.ndarray
) -> list[tuple[float, np.ndarray, float]]:
    """(steps to get there, base pose for the arm as it is, advance), cheapest first."""
    field = drive_field(footprint, scene.base)
    floor = floor_map(scene.layout)
    found: list[tuple[float, np.ndarray, float]] = []
    for advance in _ADVANCES:
        final = ahead(scene.base, advance)
        bearing = math.atan2(point[1] - final[1], point[0] - final[0])
        off = abs(wrap_angle(bearing - final[2]))
        distance = math.hypot(point[0] - final[0], point[1] - final[1])
        clear = advance == 0.0 or floor.clearance(final[0], final[1]) > BASE_RADIUS + 0.01
        if 0.4 < distance < 1.05 and off < 1.0 and clear:
            found.append((_advance_steps(advance), scene.base, advance))
    for stance in stances(scene.layout, point, STANDOFFS):
        best = (np.inf, stance, 0.0)
        for turn, advance in itertools.product(_FACING, _ADVANCES):
            first = ahead(stance + np.array([0.0, 0.0, turn]), -advance)
            drive = field(first) + _advance_steps(advance) + 10.0
            if drive < best[0] and drivable(footprint, first, _FOOTPRINT_MARGIN_M):
                best = (drive, first, advance)
        if np.isfinite(best[0]):
            found.append(best)
    found.sort(key=lambda candidate: candidate[0])
    return found


def drivable(footprint: Footprint, pose: np.ndarray, margin: float) -> bool:
    """Whether a base pose is free, and no pocket: one can back out of it, or turn in it."""
    if footprint.margin(*pose) < margin:
        return False
    turns = (pose + np.array([0.0, 0.0, turn]) for turn in (0.4, -0.4))
    backs = all(footprint.margin(*ahead(pose, -d)) >= 0.0 for d in (0.1, 0.2))
    return backs or all(footprint.margin(*turned) >= 0.0 for turned in turns)


def _advance_steps(advance: float) -> float:
    return 2.0 * (advance / 0.083 + 6.0) if advance else 0.0


def _postures(scene: Scene, first: np.ndarray, advance: float, options: _Options) -> Reach | None:
    """The quickest target at a stance; `steps` counts the arm alone, there and back."""
    margin, touch_margin = _HERE if first is scene.base else options.margins
    stance = ahead(first, advance) if advance else first
    contact = scene.checker(stance, touching=options.touching)
    apart = scene.checker(stance)
    way = [scene.checker(ahead(first, t * advance)) for t in (0.0, 0.34, 0.67) if advance]
    best: Reach | None = None
    for target in options.targets(stance):
        cost, ready = target.posture(stance, 1.0, apart, margin, scene.arm)
        steps = 2 * cost / ARM_DELTA_RAD
        if cost > _MOST_RAD or (best is not None and steps >= best.steps):
            continue
        via = _via(scene, way, apart, ready, options.highs, margin)
        if via is None:
            continue
        cost, there = target.posture(stance, 0.0, contact, touch_margin, ready)
        steps += (2 * cost + float(np.abs(ready - via).max())) / ARM_DELTA_RAD
        # The last stretch must be short in joint space as well, or the cup leaves its line.
        short = cost < _STRETCH_RAD * np.linalg.norm(target.shift)
        if short and (best is None or steps < best.steps):
            best = Reach(target, None, first, advance, stance, via, ready, there, steps)
    return best


def _via(
    scene: Scene,
    way: list[ArmChecker],
    last: ArmChecker,
    ready: np.ndarray,
    highs: tuple[np.ndarray, ...],
    margin: float,
) -> np.ndarray | None:
    """The posture (7,) in which to advance past the checkers of `way` to `last`, or None."""
    if all(checker.free(ready, margin) for checker in way):
        return ready
    for high in highs:
        if all(checker.free(high, margin) for checker in (*way, last)):
            return high
    return None


def high_postures(scene: Scene) -> tuple[np.ndarray, ...]:
    """Postures with the cup above its resting point, for driving over furniture, lowest first."""
    found = (posture_at(np.add(REST_EE, shift), scene.arm) for shift in _HIGH_SHIFTS)
    return tuple(q for q in found if q is not None)


def posture_at(point: np.ndarray, near: np.ndarray) -> np.ndarray | None:
    """The posture (7,) nearest to `near` with the cup at a point (3,) of the base frame, or None.

    The cup may point anywhere.
    """
    best, chosen = _MOST_RAD, None
    for seed in (near, *SEEDS):
        ok, q = inverse(seed, point, CUP_AXIS, CUP_AXIS, near, NO_OFFSET, 60, 0.0)
        cost = float(np.abs(q - near).max())
        if ok and cost < best:
            best, chosen = cost, q
    return chosen
