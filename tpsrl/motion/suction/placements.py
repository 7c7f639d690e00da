"""Poses in which the held object can stand at its goal, for many stances at once."""

import math

import numpy as np

from tpsrl.motion.base.stances import Stances, nearest_floor
from tpsrl.motion.scene import Held, Scene
from tpsrl.motion.suction.cup_targets import CupTargets
from tpsrl.runtime.compiled import njit
from tpsrl.world.collision import distance_to
from tpsrl.world.objects import ObjectKind
from tpsrl.world.reach import static_bodies

RELEASE_M = 0.005  # height from which objects are released, low enough for cans to stay upright
# Height from which an object is lowered onto its place (m), and pairs of shares of that height and
# their costs (steps): large shares are for sinks, small ones for shelves.
_LIFT_M = 0.08
_LIFTS = ((0.6, 0.0), (1.2, 4.0), (2.0, 8.0), (0.35, 2.0))
_HEADINGS = np.array([0.0, 0.5, -0.5])  # of the cup relative to the direction to the goal, rad
# Radii of rings of places around the goal (m), and their costs (steps). The skill's tolerance is
# 0.15 m; the rings leave a reserve, since objects may fall over or be pushed later. The far rings
# are for goals that are occupied or out of reach: the skill then fails, but 0.3 m are near enough
# for the plan.
_RINGS = ((0.0, 0.0), (0.05, 5.0), (0.09, 14.0), (0.125, 26.0))
_FAR_RINGS = ((0.17, 90.0), (0.21, 100.0), (0.25, 110.0))
_ON_TOP_STEPS = 15.0  # cost of standing on another object
_SLENDER, _SLENDER_STEPS = 1.6, 15.0  # ratio of height to width that topples easily, and its cost
_RING_TURNS = (0.0, 0.8, -0.8, 1.6, -1.6, 2.6, -2.6)  # relative to the direction to the floor (rad)
_MOST_PLACES = 12
_LOWEST_M, _HIGHEST_M = 0.1, 0.1  # most by which the support may be below and above the goal's
_NEAREST_M, _FARTHEST_M = 0.135, 0.26  # largest distances from the goal: for the skill, the plan
_MOST_UP = 0.3  # sine of the largest upward pitch of the cup
_EDGE_M = 0.015  # least distance of an object's middle from an edge
_APART_M = 0.004  # gap to other objects


def standing(
    scene: Scene,
    held: Held,
    goal: np.ndarray,
    stances: Stances,
    lean: float = 0.0,
    drop: float = 0.0,
    beyond: bool = False,
) -> CupTargets:
    """Returns cup poses with the held object at or near its goal, on any of its sides, from above.

    Args:
        scene: scene with the supports.
        held: pose of the object in the cup.
        goal: (3,) goal of the object's centre, world frame.
        stances: stances of the robot.
        lean: angle (rad) by which the object leans towards the robot or away from it.
        drop: height above its place from which the object is dropped, metres.
        beyond: whether to use places beyond the skill's tolerance, within that of the plan.
    """
    goal = np.asarray(goal, dtype=np.float64)
    there = nearest_floor(scene, goal) - goal[:2]
    toward = math.atan2(there[1], there[0])
    parts = []
    for own in _sides_down(held.kind):
        up = held.rotation @ own
        if up[0] > _MOST_UP:
            continue
        tall = height(held.kind, own, 0.0)
        places = _places(scene, held, goal, own, tall, toward, beyond)
        if held.kind.primitive == "box" and tall > _SLENDER * _slim(held.kind, own):
            places[:, 3] += _SLENDER_STEPS
        raised = height(held.kind, own, lean) - tall + RELEASE_M + drop
        rows = _rows(stances.stance, places, raised, up, held.offset, lean)
        parts.append((*rows, np.tile(up, (len(rows[0]), 1))))
    if not parts:
        nothing = np.zeros((0, 3))
        parts = [(np.zeros(0, np.int64), *[nothing] * 4, np.zeros(0), nothing)]
    row, point, axis, tip, pointing, extra, ups = (
        np.concatenate(part) for part in zip(*parts, strict=True)
    )
    shift = np.tile([0.0, 0.0, _LIFT_M], (len(row), 1))
    kind = np.zeros(len(row), dtype=np.int64)
    return CupTargets(row, point, ups, axis, held.offset, shift, tip, pointing, extra, kind, _LIFTS)


def _sides_down(kind: ObjectKind) -> np.ndarray:
    """Returns the directions (n, 3) in the object's frame that can point up when it stands."""
    both = np.vstack([np.eye(3), -np.eye(3)])
    return both[[2, 5]] if kind.primitive == "cylinder" else both


def _slim(kind: ObjectKind, own: np.ndarray) -> float:
    """Returns half the least width of an object whose direction `own` (3,) points up, m."""
    return float(np.array(kind.half)[np.abs(own) < 0.5].min())


def _places(
    scene: Scene,
    held: Held,
    goal: np.ndarray,
    own: np.ndarray,
    tall: float,
    toward: float,
    beyond: bool,
) -> np.ndarray:
    """Returns places (n, 3) for the centre of the held object with their costs, as rows (n, 4).

    The places are the goal and free supported ones around it, nearest first. If there is none, the
    result is the goal itself, except with `beyond`.
    """
    static = static_bodies(scene.layout, scene.joints)
    loose = scene.loose_bodies()
    slim = _slim(held.kind, own) + _APART_M
    found: list[tuple[float, float, float, float]] = []
    farthest = _FARTHEST_M if beyond else _NEAREST_M
    for radius, cost in _FAR_RINGS if beyond else _RINGS:
        for turn in _RING_TURNS if radius else (0.0,):
            angle = toward + turn
            x, y = goal[0] + radius * math.cos(angle), goal[1] + radius * math.sin(angle)
            for bodies, more in ((static, 0.0), (loose, _ON_TOP_STEPS)):
                top = _support(
                    x, y, float(goal[2]) - tall, bodies.centre, bodies.rotation, bodies.half
                )
                place = np.array([x, y, top + tall])
                near = math.hypot(radius, top + tall - goal[2]) < farthest
                if near and not _taken(
                    place, slim, tall, loose.kind, loose.centre, loose.rotation, loose.half
                ):
                    found.append((x, y, top + tall, cost + more))
                    break
    if not found and not beyond:
        found = [(*goal, 0.0)]
    # Within a ring, places towards the robot's floor come first.
    return np.array(found[:_MOST_PLACES]).reshape(-1, 4)


@njit(cache=True)
def _support(
    x: float, y: float, z: float, centre: np.ndarray, rotation: np.ndarray, half: np.ndarray
) -> float:
    """Returns the highest top of an upright box at about height `z` under (x, y), or -inf.

    A margin of `_EDGE_M` at the edges of a box does not count.
    """
    best = -np.inf
    for i in range(half.shape[0]):
        top = centre[i, 2] + half[i, 2]
        if top > z + _HIGHEST_M or top < z - _LOWEST_M or top < best or rotation[i, 2, 2] < 0.99:
            continue
        dx, dy = x - centre[i, 0], y - centre[i, 1]
        u = abs(rotation[i, 0, 0] * dx + rotation[i, 1, 0] * dy)
        v = abs(rotation[i, 0, 1] * dx + rotation[i, 1, 1] * dy)
        if u < half[i, 0] - _EDGE_M and v < half[i, 1] - _EDGE_M:
            best = top
    return best


@njit(cache=True)
def _taken(
    place: np.ndarray,
    slim: float,
    tall: float,
    kind: np.ndarray,
    centre: np.ndarray,
    rotation: np.ndarray,
    half: np.ndarray,
) -> bool:
    """Returns whether an object occupies a place even for a slim object of half height `tall`."""
    point = place.copy()
    for i in range(half.shape[0]):
        gap = max(abs(centre[i, 2] - place[2]) - tall - half[i].max(), 0.0)
        if gap > 0.0:
            continue
        point[2] = min(max(centre[i, 2], place[2] - tall), place[2] + tall)
        if distance_to(kind[i], centre[i], rotation[i], half[i], point) < slim:
            return True
    return False


@njit(cache=True)
def _cup_turn(heading: float, up: np.ndarray) -> np.ndarray:
    """Returns the cup's rotation (3, 3) with a heading and its direction `up` (3,) pointing up."""
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
    """Returns the rotation (3, 3) that leans an upright object by `lean` in a direction (rad)."""
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
    places: np.ndarray,
    raised: float,
    up: np.ndarray,
    offset: np.ndarray,
    lean: float,
) -> tuple[np.ndarray, ...]:
    """Returns fields of `CupTargets` for every stance, place and heading."""
    most = stances.shape[0] * places.shape[0] * _HEADINGS.shape[0] * 2
    row, extra = np.empty(most, dtype=np.int64), np.empty(most)
    point, axis = np.empty((most, 3)), np.empty((most, 3))
    tip, pointing = np.empty((most, 3)), np.empty((most, 3))
    m = 0
    for i in range(stances.shape[0]):
        toward = math.atan2(places[0, 1] - stances[i, 1], places[0, 0] - stances[i, 0])
        for side in range(2 if lean > 0.0 else 1):
            tilt = _tilt(toward, lean if side == 0 else -lean)
            for k in range(_HEADINGS.shape[0]):
                turn = tilt @ _cup_turn(toward + _HEADINGS[k], up)
                from_tip = turn @ offset
                for j in range(places.shape[0]):
                    row[m] = i
                    point[m] = places[j, :3]
                    point[m, 2] += raised
                    axis[m] = tilt[:, 2]
                    tip[m] = point[m] - from_tip
                    pointing[m] = turn[:, 0]
                    extra[m] = places[j, 3]
                    m += 1
    return row[:m], point[:m], axis[:m], tip[:m], pointing[:m], extra[:m]


def height(kind: ObjectKind, up: np.ndarray, lean: float) -> float:
    """Returns the height (m) of an object's centre with its axis `up` (3,) leaning by `lean`."""
    half = np.array(kind.half)
    tall = float(half @ np.abs(up))
    wide = float(np.linalg.norm(half * (1.0 - np.abs(up)))) if kind.primitive == "box" else half[0]
    return tall * math.cos(lean) + wide * math.sin(lean)
