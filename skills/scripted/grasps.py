"""How to grasp an object, and how to put the held one down.

A grasp is chosen with a look at where the object is to go, since the angle of the cup to the
object stays the same until it is let go.
"""

import dataclasses
import functools
import itertools
import math

import numpy as np

from skills.scripted.scene import Held, Scene, hold
from skills.scripted.search import FAR_STANDOFFS, LEVELS, MOST_RAD, CupTarget, Reach, StanceSearch
from tpsrl.world.collision import ARM_SPHERES, REST, ArmChecker
from tpsrl.world.episode import Episode
from tpsrl.world.objects import ObjectKind
from tpsrl.world.reach import APPROACH_M, CUP_AXIS, NO_OFFSET, STANDOFFS, stances

_PITCHES = tuple(math.radians(p) for p in (90, 80, 70, 60, 50, 40, 25, 16, 8))
_TURNS = (0.0, 0.45, -0.45)
_SIDE_HEIGHT_M = 0.09  # the side of lower objects is too near to what they stand on
_LEAST_FACING = 0.6  # cosine between the cup's heading and the side that it meets
_BESIDE = 0.5  # of a side's half width, from its middle
_STEEP = math.radians(50)
LIFTS_M = (0.08, 0.14, 0.2, 0.05, 0.03)  # in the order of trying: a sink asks for the high ones
_LEANING_LIFTS_M = (0.08, 0.03)
_LEANS_RAD = (0.0, 0.35, 0.7, 1.05)  # an object is put down upright, or else leaning
RELEASE_M = 0.005  # objects fall this far, which no can minds


@dataclasses.dataclass(frozen=True, slots=True)
class Touch:
    """Where the cup meets an object, relative to its centre, and where the cup points (world)."""

    point: np.ndarray
    axis: np.ndarray
    pitch: float


def destination(episode: Episode, index: int) -> np.ndarray | None:
    """Where object `index` is to go (3,), if it is one of the episode's targets."""
    for target in episode.targets:
        if target.object == index:
            return np.array(target.goal)
    return None


def touches(kind: ObjectKind, rotation: np.ndarray, toward: float) -> list[Touch]:
    """Ways to touch an upright or fallen object from direction `toward` (rad, world)."""
    top = float((np.abs(rotation) @ np.array(kind.half))[2])  # of the world-aligned box around it
    found = []
    for pitch in _PITCHES:
        for turn in _TURNS if pitch < math.radians(80) else (0.0,):
            heading = toward + turn
            if kind.primitive == "sphere":
                axis = _axis(heading, pitch)
                found.append(Touch(-kind.half[0] * axis, axis, pitch))
            elif pitch >= _STEEP:
                found.append(Touch(np.array([0.0, 0.0, top]), _axis(heading, pitch), pitch))
            else:
                # Low things are taken by their upper edge, where the hand is clear of the shelf.
                height = top if 2 * top < _SIDE_HEIGHT_M else 0.25 * top
                found += [
                    Touch(point + np.array([0.0, 0.0, height]), _axis(along, pitch), pitch)
                    for point, along in _sides(kind, rotation, heading)
                ]
    return found


def _axis(heading: float, pitch: float) -> np.ndarray:
    """A direction (3,) that points so far below the horizontal."""
    level = math.cos(pitch)
    return np.array([level * math.cos(heading), level * math.sin(heading), -math.sin(pitch)])


def _sides(
    kind: ObjectKind, rotation: np.ndarray, heading: float
) -> list[tuple[np.ndarray, float]]:
    """Points on the side that is met with a heading, and headings of the cup there.

    Squarely first; failing that, aslant, and beside the middle, where neighbours are in the way.
    """
    level = np.array([math.cos(heading), math.sin(heading), 0.0])
    if kind.primitive != "box":
        return [(-level * kind.half[0], heading)] if abs(rotation[2, 2]) > 0.9 else []
    scores = rotation.T @ -level
    axis = int(np.argmax(np.abs(scores)))
    if abs(scores[axis]) < _LEAST_FACING or abs(rotation[2, axis]) > 0.2:
        return []
    normal = math.copysign(1.0, scores[axis]) * rotation[:, axis]
    square = math.atan2(-normal[1], -normal[0])
    across = np.array([-normal[1], normal[0], 0.0])
    width = float(np.abs(rotation.T @ across) @ np.array(kind.half))
    middle = normal * kind.half[axis]
    return [
        (middle, square),
        (middle, heading),
        (middle + _BESIDE * width * across, heading),
        (middle - _BESIDE * width * across, heading),
    ]


def plan_pick(scene: Scene, index: int, goal: np.ndarray | None) -> Reach | None:
    """The quickest way to grasp object `index`, or None.

    With a `goal` (3,) grasps are preferred with which the object can also be put there.
    """
    placeable: dict[tuple[float, float], bool] = {}
    kind, rotation, centre = scene.kinds[index], scene.rotation[index], scene.position[index]

    def usable(touch: Touch, goal: np.ndarray) -> bool:
        """Whether a grasp allows the object to be placed; asked once for each kind of grasp."""
        key = (touch.pitch, round(float(touch.point[2]), 3))
        if key not in placeable:
            placeable[key] = _placeable(scene, index, touch, goal)
        return placeable[key]

    def targets(stance: np.ndarray, wanted: np.ndarray | None) -> list[CupTarget]:
        """Cup poses from a base pose, those alone that suit the `wanted` goal."""
        toward = math.atan2(centre[1] - stance[1], centre[0] - stance[0])
        return [
            CupTarget(centre + t.point, CUP_AXIS, t.axis, NO_OFFSET, -APPROACH_M * t.axis)
            for t in touches(kind, rotation, toward)
            if wanted is None or usable(t, wanted)
        ]

    search = StanceSearch(scene, centre)
    for wanted in (goal, None) if goal is not None else (None,):
        for margins in LEVELS:
            found = search.find(functools.partial(targets, wanted=wanted), margins, index)
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
    rotation = scene.rotation[held.index]
    up = held.rotation @ _upright_axis(held.kind, rotation)
    search = StanceSearch(scene, goal, level=abs(float(up[0])) < math.sin(_STEEP))
    for lean in _LEANS_RAD:
        for margins, lift in itertools.product(LEVELS, _LEANING_LIFTS_M if lean else LIFTS_M):
            targets = functools.partial(_place_targets, held, rotation, goal, lift, lean)
            found = search.find(targets, margins)
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
    # The hand is the right way up, as it is when it comes from rest.
    cup = np.column_stack([touch.axis, -side, -np.cross(touch.axis, side)])
    held = hold(index, kind, -cup.T @ touch.point, cup.T @ rotation)
    spheres = ARM_SPHERES.plus(held.spheres)
    obstacles = scene.obstacles(without=index)
    standoffs = STANDOFFS if touch.pitch >= _STEEP else FAR_STANDOFFS
    for stance in stances(scene.layout, goal, standoffs, 16, scene.joints):
        near, _ = obstacles.seen_from(stance)
        checker = ArmChecker(spheres, near)
        target = _place_targets(held, rotation, goal, LIFTS_M[-1], 0.0, stance)[0]
        if all(
            target.posture(stance, shift, checker, margin, REST)[0] < MOST_RAD
            for shift, margin in ((1.0, LEVELS[-1][0]), (0.0, LEVELS[-1][1]))
        ):
            return True
    return False
