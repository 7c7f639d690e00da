"""Tracking of a planned path from any state near it.

The next action depends only on the state of base and arm, not on previous actions. The robot may
therefore be moved by another policy: a student can act while the plan provides the labels.
"""

import math
from collections.abc import Callable

import numpy as np

from tpsrl.motion.base.driving import Leg, drive_curve, drive_poses
from tpsrl.motion.base.path_following import command, forecast, off_way, wrap
from tpsrl.runtime.compiled import njit
from tpsrl.world import action as act
from tpsrl.world.footprint import Footprint
from tpsrl.world.state import WorldState

_AHEAD_RAD = 0.03  # look-ahead of the arm along its path, which bounds the cutting of corners
_ARRIVED_RAD, _THROUGH_RAD = 0.004, 0.015
_OFF_PATH_RAD = 0.12
_WINDOW_RAD = 0.3  # length of the path that is searched for the arm's position
_OFF_WAY_M, _OFF_WAY_RAD, _WINDOW_STEPS = 0.2, 0.6, 20
_OFF_END_M = 0.1  # the same distance at the end of a drive
# With a larger error than this, the base checks that it can steer back within `_BACK_STEPS`.
_NEAR_WAY_M, _NEAR_WAY_RAD, _BACK_STEPS = 0.06, 0.25, 15
_METRES_A_RAD = 0.3  # weight of an error of heading
_BLOCKED_STEPS = 12
# Without a contact nothing blocks the robot; another policy may be acting. The plan then stays
# valid for longer, but not for ever, since some contacts are not measured.
_IDLE_STEPS, _CONTACT_N = 60, 1.0
# Changes after which planning may succeed where it failed: base (m or rad), arm (rad), door or
# drawer (m or rad), object (m). After success, `_DONE_SHARE` of these changes is enough.
_OTHER_BASE, _OTHER_ARM_RAD, _OTHER_JOINT, _OTHER_PLACE_M = 0.25, 0.4, 0.1, 0.05
_DONE_SHARE = 0.05
_PUSH_N, _PUSH_STEPS = 100.0, 4  # a stronger and longer contact counts as pushing


class Blocked(Exception):
    """Raised if arm or base makes no progress; the routine then plans again."""


class OffPlan(Exception):
    """Raised if the robot is too far from the plan; the routine then plans again."""


class End:
    """End of a plan: the skill is `done`, or no plan was found; valid until the world changes."""

    def __init__(self, world: WorldState, done: bool) -> None:
        self.done = done
        self._world = world

    def holds(self, world: WorldState) -> bool:
        """Returns whether a world still resembles the one in which the plan ended."""
        then, share = self._world, _DONE_SHARE if self.done else 1.0
        moved = np.abs(world.object_pos[0] - then.object_pos[0])
        return bool(
            np.abs(world.base[0] - then.base[0]).max() < share * _OTHER_BASE
            and np.abs(world.arm[0] - then.arm[0]).max() < share * _OTHER_ARM_RAD
            and np.abs(world.joints[0] - then.joints[0]).max() < share * _OTHER_JOINT
            and moved.max(initial=0.0) < share * _OTHER_PLACE_M
            and world.held[0] == then.held[0]
            and world.held_joint[0] == then.held_joint[0]
        )


class ArmTracker:
    """Controller that moves the arm along waypoints."""

    def __init__(self, path: np.ndarray, through: bool = False) -> None:
        """Starts at the beginning of a path.

        Args:
            path: (k, 7) waypoints, rad.
            through: whether another motion follows, so that the end need not be reached exactly.
        """
        self._path = np.ascontiguousarray(path, dtype=np.float64)
        spans = np.abs(np.diff(self._path, axis=0)).max(axis=1)
        self._length = np.concatenate([[0.0], np.cumsum(spans)])
        self._near = _THROUGH_RAD if through else _ARRIVED_RAD
        self._at = self._best = 0.0
        self._stuck = 0

    @property
    def steps(self) -> float:
        """Control steps of the plan that the arm has completed."""
        return self._at / act.ARM_DELTA_RAD

    def step(self, world: WorldState, action: np.ndarray) -> bool:
        """Writes the arm's part of `action`; returns whether the path was still unfinished.

        Raises:
            OffPlan: the arm is too far from the path.
            Blocked: the arm has made no progress for too long.
        """
        arm = np.asarray(world.arm[0])
        self._at, off = _along(self._path, self._length, arm, self._at, _WINDOW_RAD)
        if off > _OFF_PATH_RAD:
            raise OffPlan("arm")
        end = self._path[-1] - arm
        if self._at >= self._length[-1] - self._near and np.abs(end).max() < 2 * self._near:
            return False
        delta = _point(self._path, self._length, self._at + _AHEAD_RAD) - arm
        span = float(np.abs(delta).max())
        action[act.ARM] = delta / max(span, act.ARM_DELTA_RAD)
        self._stuck = 0 if self._at > self._best + 0.005 else self._stuck + 1
        self._best = max(self._best, self._at)
        if self._stuck > _BLOCKED_STEPS and span < 3 * _ARRIVED_RAD:
            return False  # pressing against an obstacle, or as near as possible
        if self._stuck > patience(world):
            raise Blocked("arm")
        return True


class BaseTracker:
    """Controller that drives the base along legs; after a small displacement the base steers back.

    Args:
        legs: legs of the drive.
        base: (3,) base pose at the start.
        footprint: returns the present footprint, with which the path back is checked; without it
            that path is not checked.
    """

    def __init__(
        self,
        legs: list[Leg],
        base: np.ndarray,
        footprint: Callable[[], Footprint] | None = None,
    ) -> None:
        self._curve = drive_curve(base, legs)
        self._poses = np.vstack([np.asarray(base)[None], drive_poses(base, legs)])
        self._footprint = footprint
        self._row = self._slow = self._pushed = self._at = 0
        self._begun = False

    @property
    def steps(self) -> int:
        """Control steps of the plan that the base has completed."""
        return self._at

    def step(self, world: WorldState, action: np.ndarray) -> bool:
        """Writes the base's part of `action`; returns whether the drive was still unfinished.

        Raises:
            OffPlan: the base is too far from the path, or the path back is blocked.
            Blocked: the base has made no progress for too long, or pushes an obstacle.
        """
        base, velocity = np.asarray(world.base[0]), np.asarray(world.base_velocity[0])
        self._at = _nearest_pose(self._poses, base, self._at, _WINDOW_STEPS)
        linear, angular, row = command(self._curve, self._row, *base, velocity[2])
        self._check(row, base, velocity)
        self._row = row
        if row == len(self._curve):
            return False
        moving = abs(velocity[0]) + abs(velocity[1]) + abs(velocity[2]) > 0.05
        self._slow = 0 if moving else self._slow + 1
        self._pushed = self._pushed + 1 if world.force[0] > _PUSH_N else 0
        if self._slow > patience(world) or self._pushed > _PUSH_STEPS:
            raise Blocked("drive")
        action[act.BASE] = linear, angular
        return True

    def _check(self, row: int, base: np.ndarray, velocity: np.ndarray) -> None:
        if not len(self._curve):
            return
        away, turn = off_way(self._curve, row, base)
        most = _OFF_WAY_M if row < len(self._curve) else _OFF_END_M
        if away > most or turn > _OFF_WAY_RAD:
            raise OffPlan("base")
        near = away < _NEAR_WAY_M and turn < _NEAR_WAY_RAD
        self._begun = self._begun or near
        # A base that starts with another velocity cannot follow the path at first.
        if self._footprint is None or near or not self._begun:
            return
        footprint = self._footprint()
        poses = forecast(self._curve, row, base, velocity, _BACK_STEPS)
        least = min(footprint.margin(*base), 0.0) - 0.005
        if any(footprint.margin(*pose) < least for pose in poses):
            raise OffPlan("base")


def patience(world: WorldState) -> int:
    """Returns the number of control steps that a robot may stay without progress."""
    return _BLOCKED_STEPS if world.force[0] > _CONTACT_N else _IDLE_STEPS


@njit(cache=True)
def _nearest_pose(poses: np.ndarray, base: np.ndarray, at: int, window: int) -> int:
    """Returns the index of the pose of (n, 3), at or after `at`, that is nearest to a base (3,)."""
    best, found = np.inf, at
    for i in range(at, min(at + window, poses.shape[0])):
        away = math.hypot(base[0] - poses[i, 0], base[1] - poses[i, 1])
        off = away + _METRES_A_RAD * abs(wrap(base[2] - poses[i, 2]))
        if off <= best:
            best, found = off, i
    return found


@njit(cache=True)
def _along(
    path: np.ndarray, length: np.ndarray, arm: np.ndarray, at: float, window: float
) -> tuple[float, float]:
    """Returns the parameter of the nearest point of a path to an arm (7,), and its error (rad).

    The parameter is at least `at`. It is the length of the path in greatest joint differences. The
    nearest point is that of least squares.
    """
    best, found, off = np.inf, at, np.inf
    for i in range(path.shape[0] - 1):
        if length[i + 1] < at or length[i] > at + window:
            continue
        span = length[i + 1] - length[i]
        dot = square = 0.0
        for k in range(7):
            d = path[i + 1, k] - path[i, k]
            dot += d * (arm[k] - path[i, k])
            square += d * d
        t = min(max(dot / square, 0.0), 1.0) if square > 0.0 else 1.0
        if span > 0.0:
            t = max(t, (at - length[i]) / span)
        total = worst = 0.0
        for k in range(7):
            d = arm[k] - path[i, k] - t * (path[i + 1, k] - path[i, k])
            total += d * d
            worst = max(worst, abs(d))
        if total < best:
            best, found, off = total, length[i] + t * span, worst
    if best == np.inf:
        return at, np.max(np.abs(arm - path[-1]))
    return found, off


@njit(cache=True)
def _point(path: np.ndarray, length: np.ndarray, at: float) -> np.ndarray:
    """Returns the posture (7,) at a parameter of a path."""
    last = path.shape[0] - 1
    for i in range(last):
        span = length[i + 1] - length[i]
        if at <= length[i + 1] and span > 0.0:
            return path[i] + (path[i + 1] - path[i]) * ((at - length[i]) / span)
    return path[last].copy()
