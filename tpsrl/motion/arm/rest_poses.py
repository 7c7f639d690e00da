"""Postures with the cup near its resting point, from which a robot can see and drive."""

import dataclasses
import functools
import itertools
import math

import numpy as np

from tpsrl.motion.arm.ik_table import estimates, rolled, table
from tpsrl.motion.scene import Held, Scene
from tpsrl.runtime.compiled import njit
from tpsrl.world.action import ARM_DELTA_RAD
from tpsrl.world.collision import ARM_SPHERES, NO_BODIES, REST, ArmChecker, Spheres
from tpsrl.world.fetch import (
    HEAD_CAMERA_FOV_DEG,
    HEAD_CAMERA_POS,
    HEAD_CAMERA_TARGET,
    REST_EE,
)
from tpsrl.world.footprint import posed_spheres
from tpsrl.world.kinematics import LOWER, UPPER, cup_pose, inverse, wrapped
from tpsrl.world.reach import CUP_AXIS, NO_OFFSET

_WITHIN_M = 0.125  # the skills ask for 0.15 m
_SAMPLES = 4000
_AROUND_RAD = 0.5
_USELESS_RAD = 0.9  # postures that are so far from all that is asked for are left out
_SELF_M = 0.01  # of the arm from head, neck and torso
_WIDEST_M = 0.85  # from the base's axis, or doorways become narrow
_PIXELS = 16
_NEAR_M = 0.45  # what is nearer than this hides what is behind it
MOST_VIEW = 0.38  # share of the picture that arm and held object may take at rest
_ARM_VIEW = 0.2
HIDDEN_VIEW, _WAY_LOOKS = 0.38, 8  # much less than half: what stands about hides more
# Where skills take and put things: a little above chairs and sofa, television stand, sink, tables,
# counters.
_HEIGHTS_M = (0.54, 0.76, 0.85, 0.9, 1.0, 1.08)
_PITCHES, _TURNS = np.radians([90.0, 75.0, 60.0, 45.0]), (0.0, 0.4, -0.4)
_QUICK = [0, 4, 9]
_HOPELESS_RAD = 2.0
RESET_RAD = 45 * ARM_DELTA_RAD  # a plan gives the reset of the arm 50 steps
_SPREAD = 6  # of the postures that it can come to, so many are tried
_MOST = 12  # postures of which it is found out whether they are free


@dataclasses.dataclass(frozen=True, slots=True)
class Resting:
    """Postures at rest (n, 7), `REST` among them: the cup is near its point, the view is free.

    `far` (n,) is how far from each one the cup poses are that skills ask for, see `reach_cost`.
    """

    postures: np.ndarray
    far: np.ndarray


@functools.cache
def resting_postures() -> Resting:
    """The postures at rest of this process, always the same ones."""
    rng = np.random.default_rng(0)
    alone = ArmChecker(ARM_SPHERES, NO_BODIES)
    found = [REST]
    low, high = np.maximum(LOWER, -2.6), np.minimum(UPPER, 2.6)
    for number in range(_SAMPLES):
        # Every other one near those that are known, so that there is something near whatever comes.
        near = found[number % len(found)] + rng.uniform(-_AROUND_RAD, _AROUND_RAD, 7)
        seed = np.clip(near, LOWER, UPPER) if number % 2 else rng.uniform(low, high)
        away = rng.normal(size=3)
        point = REST_EE + _WITHIN_M * rng.uniform() ** (1 / 3) * away / np.linalg.norm(away)
        ok, q = inverse(seed, point, CUP_AXIS, CUP_AXIS, seed, NO_OFFSET, 40, 0.0)
        if not ok or np.linalg.norm(cup_pose(q)[0] - REST_EE) > _WITHIN_M:
            continue
        q[6] = 0.0  # turning the cup about its axis changes nothing
        centre, radius = posed_spheres(q)
        wide = float((np.hypot(centre[:, 0], centre[:, 1]) + radius).max())
        if wide > _WIDEST_M or not alone.free(q, _SELF_M) or blocked_view(q) > _ARM_VIEW:
            continue
        if reach_cost(q) < _USELESS_RAD:
            found.append(q)
    return Resting(np.array(found), np.array([reach_cost(q) for q in found]))


def reach_cost(q: np.ndarray) -> float:
    """How far (rad, the slowest joint) the arm has to move from a posture (7,) to be of use.

    The mean over heights of furniture of what the quickest cup poses there take; the very quickest
    will often be in the way of something.
    """
    points, axes = _useful_poses()
    any_roll = np.full(len(points), np.nan)
    far = estimates(points, axes, q, any_roll, *table().arguments())
    far = np.sort(far.reshape(len(_HEIGHTS_M), -1))
    return float(np.minimum(far[:, _QUICK], _HOPELESS_RAD).mean())


@functools.cache
def _useful_poses() -> tuple[np.ndarray, np.ndarray]:
    """Points (n, 3) and directions (n, 3) of the cup before the base, height after height."""
    grid = itertools.product(_HEIGHTS_M, np.arange(0.5, 1.0, 0.05), _PITCHES, _TURNS)
    rows = np.array(list(grid))
    height, out, pitch, turn = rows.T
    level = np.cos(pitch)
    axes = np.column_stack([level * np.cos(turn), level * np.sin(turn), -np.sin(pitch)])
    return np.column_stack([out, np.zeros(len(rows)), height]), axes


def blocked_view(q: np.ndarray, spheres: Spheres = ARM_SPHERES) -> float:
    """The share of the head camera's picture that arm and held object fill from nearby.

    Args:
        q: (7,) posture.
        spheres: of arm and held object.
    """
    centre, radius = posed_spheres(q, spheres)
    return float(_covered(centre - _EYE, radius, _RAYS))


@njit(cache=True)
def _covered(centre: np.ndarray, radius: np.ndarray, rays: np.ndarray) -> float:
    count = 0
    for i in range(rays.shape[0]):
        for j in range(radius.shape[0]):
            along = 0.0
            for k in range(3):
                along += rays[i, k] * centre[j, k]
            if along <= 0.0 or along - radius[j] > _NEAR_M:
                continue
            off = 0.0
            for k in range(3):
                off += centre[j, k] * centre[j, k]
            if off - along * along < radius[j] * radius[j]:
                count += 1
                break
    return count / rays.shape[0]


def _rays() -> np.ndarray:
    """Unit directions (n, 3) of the head camera's pixels, base frame."""
    ahead = np.subtract(HEAD_CAMERA_TARGET, HEAD_CAMERA_POS)
    ahead /= np.linalg.norm(ahead)
    left = np.array([0.0, 1.0, 0.0])
    up = np.cross(ahead, left)
    half = math.tan(math.radians(HEAD_CAMERA_FOV_DEG) / 2)
    steps = half * (2 * (np.arange(_PIXELS) + 0.5) / _PIXELS - 1)
    rays = np.array([ahead + a * left + b * up for a in steps for b in steps])
    return rays / np.linalg.norm(rays, axis=1)[:, None]


_UP = np.array([0.0, 0.0, 1.0])
_EYE = np.array(HEAD_CAMERA_POS)
_RAYS = _rays()


@njit(cache=True)
def _nearest(postures: np.ndarray, arm: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Writes the postures (n, 7) with their rolls turned towards `arm`; how far each is (n,)."""
    far = np.zeros(postures.shape[0])
    for i in range(postures.shape[0]):
        out[i] = postures[i]
        out[i, 6] = arm[6]
        wrapped(out[i], arm)
        for k in range(7):
            far[i] = max(far[i], abs(out[i, k] - arm[k]))
    return far


def rest_postures(
    scene: Scene,
    checker: ArmChecker,
    margin: float,
    later: np.ndarray | None,
    weight: float,
    most: float = math.inf,
) -> list[np.ndarray]:
    """Resting postures (7,) that are free at a base pose, the best first: soon taken, and of use.

    Those that leave the camera free come before the others. What is held is kept as upright as
    turning the wrist can.

    Args:
        scene: where the arm is now.
        checker: of the base pose.
        margin: that a posture keeps, m.
        later: (7,) what the arm will be asked for next, None: anything.
        weight: what the way from the posture to that counts beside the way to the posture.
        most: rad of the slowest joint, how far the postures may be.
    """
    known = resting_postures()
    turned = np.empty_like(known.postures)
    cost = _nearest(known.postures, scene.arm, turned)
    rows = np.flatnonzero(cost <= most)
    if later is None:
        cost += weight * known.far
    else:
        cost += weight * _nearest(known.postures, later, np.empty_like(turned))
    seeing: list[np.ndarray] = []
    blind: list[np.ndarray] = []
    for i in rows[np.argsort(cost[rows], kind="stable")]:
        q = _kept_upright(scene, turned[i])
        if not checker.free(q, margin):
            continue
        (seeing if _sees(scene, q) else blind).append(q)
        if len(seeing) == _MOST or len(blind) == 10 * _MOST:
            break
    return seeing + blind[:_MOST]


def postures_about(scene: Scene, checker: ArmChecker, margin: float) -> list[np.ndarray]:
    """Resting postures (7,), free at a base pose, that a reset of the arm can come to.

    A few that are as different from each other and from where the arm is now as they can be.
    """
    known = resting_postures()
    turned = np.empty_like(known.postures)
    cost = _nearest(known.postures, scene.arm, turned)
    near = [_kept_upright(scene, turned[i]) for i in np.flatnonzero(cost <= RESET_RAD)]
    free = [q for q in near if checker.free(q, margin) and _sees(scene, q)]
    if not free:
        return []
    rows = np.array(free)
    away = np.abs(rows - scene.arm)[:, :6].max(axis=1)
    chosen: list[np.ndarray] = []
    for _ in range(_SPREAD):
        chosen.append(rows[np.argmax(away)])
        away = np.minimum(away, np.abs(rows - chosen[-1])[:, :6].max(axis=1))
    return chosen


def _sees(scene: Scene, q: np.ndarray) -> bool:
    """Whether what is held leaves the camera's view free."""
    return scene.held is None or blocked_view(q, scene.spheres) <= MOST_VIEW


def hidden_share(scene: Scene, way: np.ndarray) -> float:
    """The share of an arm way (k, 7) on which arm and held object hide half of the picture."""
    along = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(way, axis=0)).max(axis=1))])
    at = np.linspace(0.0, along[-1], _WAY_LOOKS)
    places = np.column_stack([np.interp(at, along, way[:, k]) for k in range(7)])
    return float(np.mean([blocked_view(q, scene.spheres) > HIDDEN_VIEW for q in places]))


def _kept_upright(scene: Scene, q: np.ndarray) -> np.ndarray:
    """A posture (7,) with what is held as upright as the wrist can turn it on the way there."""
    if scene.held is None:
        return q
    up = _upright(scene.held, scene.rotation[scene.held.index])
    # Turning the wrist takes no time beside the other joints' way.
    least = float(np.abs(q - scene.arm)[:6].max())
    turn = (rolled(q, up, _UP) - q[6] + math.pi) % (2 * math.pi) - math.pi
    upright = q.copy()
    upright[6] += min(max(turn, -least), least)
    return upright


def _upright(held: Held, rotation: np.ndarray) -> np.ndarray:
    """The direction (3,) of the cup's frame that is up now, as far as the object's sides go."""
    axis = int(np.argmax(np.abs(rotation[2])))
    up: np.ndarray = held.rotation[:, axis] * (1.0 if rotation[2, axis] >= 0 else -1.0)
    return up
