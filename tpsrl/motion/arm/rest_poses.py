"""Resting postures: the cup is near the rest point, and the robot can see and drive."""

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

_WITHIN_M = 0.125  # largest distance of the cup from the rest point; the skills require 0.15 m
_SAMPLES = 4000
_AROUND_RAD = 0.5
_USELESS_RAD = 0.9  # postures with a greater `reach_cost` are left out
_SELF_M = 0.01  # clearance of the arm from head, neck and torso
_WIDEST_M = 0.85  # largest reach from the base's axis; more would not fit through doorways
_PIXELS = 16
_NEAR_M = 0.45  # only nearer parts of the arm count as blocking the view
MOST_VIEW = 0.38  # share of the picture that arm and held object may cover at rest
_ARM_VIEW = 0.2
HIDDEN_VIEW, _WAY_LOOKS = 0.38, 8  # much less than half, since other objects hide more
# Heights at which skills grasp and place: slightly above chairs and sofa, television stand, sink,
# tables, counters.
_HEIGHTS_M = (0.54, 0.76, 0.85, 0.9, 1.0, 1.08)
_PITCHES, _TURNS = np.radians([90.0, 75.0, 60.0, 45.0]), (0.0, 0.4, -0.4)
_QUICK = [0, 4, 9]
_HOPELESS_RAD = 2.0
RESET_RAD = 45 * ARM_DELTA_RAD  # a plan allows 50 control steps for the reset of the arm
_SPREAD = 6  # number of postures that `postures_about` returns
_MOST = 12  # most postures of each group that `rest_postures` returns


@dataclasses.dataclass(frozen=True, slots=True)
class Resting:
    """Resting postures (n, 7), including `REST`: the cup is near the rest point, the view is free.

    `far` (n,) is the `reach_cost` of each posture.
    """

    postures: np.ndarray
    far: np.ndarray


@functools.cache
def resting_postures() -> Resting:
    """Samples the resting postures; deterministic and cached."""
    rng = np.random.default_rng(0)
    alone = ArmChecker(ARM_SPHERES, NO_BODIES)
    found = [REST]
    low, high = np.maximum(LOWER, -2.6), np.minimum(UPPER, 2.6)
    for number in range(_SAMPLES):
        # Every other sample is near a known posture, so that each has close neighbours.
        near = found[number % len(found)] + rng.uniform(-_AROUND_RAD, _AROUND_RAD, 7)
        seed = np.clip(near, LOWER, UPPER) if number % 2 else rng.uniform(low, high)
        away = rng.normal(size=3)
        point = REST_EE + _WITHIN_M * rng.uniform() ** (1 / 3) * away / np.linalg.norm(away)
        ok, q = inverse(seed, point, CUP_AXIS, CUP_AXIS, seed, NO_OFFSET, 40, 0.0)
        if not ok or np.linalg.norm(cup_pose(q)[0] - REST_EE) > _WITHIN_M:
            continue
        q[6] = 0.0  # the roll of the cup is irrelevant
        centre, radius = posed_spheres(q)
        wide = float((np.hypot(centre[:, 0], centre[:, 1]) + radius).max())
        if wide > _WIDEST_M or not alone.free(q, _SELF_M) or blocked_view(q) > _ARM_VIEW:
            continue
        if reach_cost(q) < _USELESS_RAD:
            found.append(q)
    return Resting(np.array(found), np.array([reach_cost(q) for q in found]))


def reach_cost(q: np.ndarray) -> float:
    """Returns the typical motion of the arm from a posture (7,) to useful cup poses.

    The motion is in rad of the slowest joint. The result is the mean over heights of furniture and
    several of the quickest cup poses at each height, since the quickest itself is often blocked.
    """
    points, axes = _useful_poses()
    any_roll = np.full(len(points), np.nan)
    far = estimates(points, axes, q, any_roll, *table().arguments())
    far = np.sort(far.reshape(len(_HEIGHTS_M), -1))
    return float(np.minimum(far[:, _QUICK], _HOPELESS_RAD).mean())


@functools.cache
def _useful_poses() -> tuple[np.ndarray, np.ndarray]:
    """Returns points (n, 3) and directions (n, 3) of the cup in front of the base, by height."""
    grid = itertools.product(_HEIGHTS_M, np.arange(0.5, 1.0, 0.05), _PITCHES, _TURNS)
    rows = np.array(list(grid))
    height, out, pitch, turn = rows.T
    level = np.cos(pitch)
    axes = np.column_stack([level * np.cos(turn), level * np.sin(turn), -np.sin(pitch)])
    return np.column_stack([out, np.zeros(len(rows)), height]), axes


def blocked_view(q: np.ndarray, spheres: Spheres = ARM_SPHERES) -> float:
    """Returns the share of the head camera's picture that nearby arm and held object cover.

    Args:
        q: (7,) posture.
        spheres: spheres of arm and held object.
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
    """Returns unit directions (n, 3) of the head camera's pixels, base frame."""
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
    """Writes postures (n, 7) with rolls turned towards `arm`; returns distances (n,), rad."""
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
    """Returns resting postures (7,) that are free at a base pose, in order of cost.

    The cost is the motion to the posture plus `weight` times the motion from the posture to the
    next one. Postures that leave the camera's view free come before the others. A held object is
    kept as upright as the wrist roll allows.

    Args:
        scene: scene with the current posture of the arm.
        checker: collision checker at the base pose.
        margin: required clearance, metres.
        later: (7,) next posture of the arm; None uses `reach_cost`.
        weight: weight of the motion from the resting posture to the next one.
        most: largest distance from the current posture, rad of the slowest joint.
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
    """Returns resting postures (7,), free at a base pose, within reach of a reset of the arm.

    The result is a small set of postures that differ as much as possible from each other and from
    the current posture.
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
    """Returns whether a held object leaves the camera's view free."""
    return scene.held is None or blocked_view(q, scene.spheres) <= MOST_VIEW


def hidden_share(scene: Scene, way: np.ndarray) -> float:
    """Returns the share of an arm path (k, 7) that hides more than `HIDDEN_VIEW` of the picture."""
    along = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(way, axis=0)).max(axis=1))])
    at = np.linspace(0.0, along[-1], _WAY_LOOKS)
    places = np.column_stack([np.interp(at, along, way[:, k]) for k in range(7)])
    return float(np.mean([blocked_view(q, scene.spheres) > HIDDEN_VIEW for q in places]))


def _kept_upright(scene: Scene, q: np.ndarray) -> np.ndarray:
    """Rolls the wrist of a posture (7,) to keep the held object as upright as possible.

    The roll is limited to the time that the other joints take.
    """
    if scene.held is None:
        return q
    up = _upright(scene.held, scene.rotation[scene.held.index])
    least = float(np.abs(q - scene.arm)[:6].max())
    turn = (rolled(q, up, _UP) - q[6] + math.pi) % (2 * math.pi) - math.pi
    upright = q.copy()
    upright[6] += min(max(turn, -least), least)
    return upright


def _upright(held: Held, rotation: np.ndarray) -> np.ndarray:
    """Returns the axis (3,) of a held object that is most nearly up now, in the cup's frame."""
    axis = int(np.argmax(np.abs(rotation[2])))
    up: np.ndarray = held.rotation[:, axis] * (1.0 if rotation[2, axis] >= 0 else -1.0)
    return up
