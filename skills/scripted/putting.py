"""How the held object can stand at its goal, seen from many stances at once."""

import math

import numpy as np

from skills.scripted.scene import Held, Scene
from skills.scripted.search import CupTargets
from skills.scripted.stances import Stances
from tpsrl.compiled import njit
from tpsrl.world.objects import ObjectKind
from tpsrl.world.reach import static_bodies

RELEASE_M = 0.005  # objects fall this far, which no can minds
# How far above its place an object begins to be lowered, and steps that this costs beside: high
# ones are for sinks, low ones for shelves.
_LIFTS = np.array([[0.08, 0.0], [0.14, 2.0], [0.2, 4.0], [0.05, 2.0], [0.03, 4.0]])
# How far from the goal an object may be put, towards the robot, of the 0.15 m that the skill
# allows, and what that costs: what falls over or is pushed has less to spare.
_SHIFTS = np.array([[0.0, 0.0], [0.05, 8.0], [0.09, 24.0]])
_HEADINGS = np.array([0.0, 0.35, -0.35, 0.8, -0.8])  # of the cup, off the direction to the goal
_EDGE_M = 0.015  # the middle of an object stands at least so far from an edge
_LEVEL_M = 0.02


def standing(
    scene: Scene,
    held: Held,
    rotation: np.ndarray,
    goal: np.ndarray,
    stances: Stances,
    lean: float = 0.0,
    drop: float = 0.0,
) -> CupTargets:
    """The held object at its goal (3,) or a little nearer to the robot, come to from above.

    Args:
        scene: with what the object may stand on.
        held: how the cup holds it.
        rotation: (3, 3) its axes in the world, from which follows which of them is to be up.
        goal: (3,) of its centre, world.
        stances: where the robot may stand.
        lean: how far it leans (rad), towards the robot or away from it.
        drop: from how far above its place it is let fall (m).
    """
    own = upright_axis(held.kind, rotation)
    up = held.rotation @ own
    raised = _height(held.kind, own, lean) - _height(held.kind, own, 0.0) + RELEASE_M + drop
    bodies = static_bodies(scene.layout, scene.joints)
    bottom = float(goal[2]) - _height(held.kind, own, 0.0)
    row, point, axis, tip, pointing, lift, extra = _rows(
        stances.stance,
        np.asarray(goal, dtype=np.float64),
        raised,
        up,
        held.offset,
        lean,
        bottom,
        bodies.centre,
        bodies.rotation,
        bodies.half,
    )
    shift = np.zeros_like(point)
    shift[:, 2] = lift
    kind = np.zeros(len(row), dtype=np.int64)
    return CupTargets(row, point, up, axis, held.offset, shift, tip, pointing, extra, kind)


@njit(cache=True)
def _supported(
    x: float, y: float, z: float, centre: np.ndarray, rotation: np.ndarray, half: np.ndarray
) -> bool:
    """Whether the top of some upright box is at height `z` under (x, y), not just its edge."""
    for i in range(half.shape[0]):
        if abs(centre[i, 2] + half[i, 2] - z) > _LEVEL_M or rotation[i, 2, 2] < 0.99:
            continue
        dx, dy = x - centre[i, 0], y - centre[i, 1]
        u = abs(rotation[i, 0, 0] * dx + rotation[i, 1, 0] * dy)
        v = abs(rotation[i, 0, 1] * dx + rotation[i, 1, 1] * dy)
        if u < half[i, 0] - _EDGE_M and v < half[i, 1] - _EDGE_M:
            return True
    return False


@njit(cache=True)
def _cup_turn(heading: float, up: np.ndarray) -> np.ndarray:
    """The cup's rotation (3, 3) with this heading in which its direction `up` (3,) points up."""
    down = min(max(-up[0], -1.0), 1.0)
    level = math.sqrt(1.0 - down * down)
    a = np.array([level * math.cos(heading), level * math.sin(heading), -down])
    b = np.array([-math.sin(heading), math.cos(heading), 0.0])
    c = np.array([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])
    roll = math.atan2(up[1], up[2]) if level > 1e-3 else 0.0
    cos, sin = math.cos(roll), math.sin(roll)
    turn = np.empty((3, 3))
    for k in range(3):
        turn[k, 0], turn[k, 1], turn[k, 2] = a[k], cos * b[k] + sin * c[k], cos * c[k] - sin * b[k]
    return turn


@njit(cache=True)
def _tilt(toward: float, lean: float) -> np.ndarray:
    """The rotation (3, 3) that leans what is upright by `lean` in a direction."""
    x, y = math.cos(toward), math.sin(toward)
    c, s = math.cos(lean), math.sin(lean)
    return np.array(
        [
            [c * x * x + y * y, (c - 1.0) * x * y, s * x],
            [(c - 1.0) * x * y, c * y * y + x * x, s * y],
            [-s * x, -s * y, c],
        ]
    )


@njit(cache=True)
def _rows(
    stances: np.ndarray,
    goal: np.ndarray,
    raised: float,
    up: np.ndarray,
    offset: np.ndarray,
    lean: float,
    bottom: float,
    centre: np.ndarray,
    rotation: np.ndarray,
    half: np.ndarray,
) -> tuple[np.ndarray, ...]:
    most = stances.shape[0] * _SHIFTS.shape[0] * _HEADINGS.shape[0] * _LIFTS.shape[0] * 2
    row, lift, extra = np.empty(most, dtype=np.int64), np.empty(most), np.empty(most)
    point, axis = np.empty((most, 3)), np.empty((most, 3))
    tip, pointing = np.empty((most, 3)), np.empty((most, 3))
    m = 0
    for i in range(stances.shape[0]):
        toward = math.atan2(goal[1] - stances[i, 1], goal[0] - stances[i, 0])
        for j in range(_SHIFTS.shape[0]):
            x = goal[0] - _SHIFTS[j, 0] * math.cos(toward)
            y = goal[1] - _SHIFTS[j, 0] * math.sin(toward)
            if j > 0 and not _supported(x, y, bottom, centre, rotation, half):
                break
            place = np.array([x, y, goal[2] + raised])
            for side in range(2 if lean > 0.0 else 1):
                tilt = _tilt(toward, lean if side == 0 else -lean)
                for k in range(_HEADINGS.shape[0]):
                    turn = tilt @ _cup_turn(toward + _HEADINGS[k], up)
                    for n in range(_LIFTS.shape[0]):
                        row[m] = i
                        point[m] = place
                        axis[m] = tilt[:, 2]
                        tip[m] = place - turn @ offset
                        pointing[m] = turn[:, 0]
                        lift[m] = _LIFTS[n, 0]
                        extra[m] = _LIFTS[n, 1] + _SHIFTS[j, 1]
                        m += 1
    return row[:m], point[:m], axis[:m], tip[:m], pointing[:m], lift[:m], extra[:m]


def _height(kind: ObjectKind, up: np.ndarray, lean: float) -> float:
    """How high the centre of an object stands when it leans by `lean`, its axis `up` (3,), m."""
    half = np.array(kind.half)
    tall = float(half @ np.abs(up))
    wide = float(np.linalg.norm(half * (1.0 - np.abs(up)))) if kind.primitive == "box" else half[0]
    return tall * math.cos(lean) + wide * math.sin(lean)


def upright_axis(kind: ObjectKind, rotation: np.ndarray) -> np.ndarray:
    """The object's own axis that is to point up: of a cylinder its own, of a box the nearest."""
    axis = 2 if kind.primitive == "cylinder" else int(np.argmax(np.abs(rotation[2])))
    up = np.zeros(3)
    up[axis] = 1.0 if rotation[2, axis] >= 0 else -1.0
    return up
