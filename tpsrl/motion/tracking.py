"""Following a planned way from wherever the robot is, as long as that is near it.

Nobody but the plan need move the robot for this: what comes next follows from where base and arm
are, not from what was told them before. A learner may act, and be told what the plan would do.
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

_AHEAD_RAD = 0.03  # the arm aims at this far on along its path, which cuts corners by less
_ARRIVED_RAD, _THROUGH_RAD = 0.004, 0.015
_OFF_PATH_RAD = 0.12
_WINDOW_RAD = 0.3  # of the path, in which the arm is looked for
_OFF_WAY_M, _OFF_WAY_RAD, _WINDOW_STEPS = 0.2, 0.6, 20
_OFF_END_M = 0.1  # where it has come to
# Farther off its way than this, the base looks whether it can steer back in so many steps.
_NEAR_WAY_M, _NEAR_WAY_RAD, _BACK_STEPS = 0.06, 0.25, 15
_METRES_A_RAD = 0.3  # a heading that is off counts so much
_BLOCKED_STEPS = 12
# Without a contact nothing is in the way: somebody else acts. The plan is still good, but for
# what no force is measured of.
_IDLE_STEPS, _CONTACT_N = 60, 1.0
# What may make the impossible possible: m or rad of the base, rad of the arm, m or rad of a door or
# drawer, m of an object. What was done is looked at again after this share of it.
_OTHER_BASE, _OTHER_ARM_RAD, _OTHER_JOINT, _OTHER_PLACE_M = 0.25, 0.4, 0.1, 0.05
_DONE_SHARE = 0.05
_PUSH_N, _PUSH_STEPS = 100.0, 4  # pushing harder and longer than this is no brush


class Blocked(Exception):
    """The arm or base does not get on; the routine plans anew."""


class OffPlan(Exception):
    """The robot is not where the plan has it; the routine plans anew."""


class End:
    """How a plan ended: with the skill `done`, or with no way found, until something changes."""

    def __init__(self, world: WorldState, done: bool) -> None:
        self.done = done
        self._world = world

    def holds(self, world: WorldState) -> bool:
        """Whether a world is as good as the one in which the plan ended."""
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
    """The arm's part of an action, step by step, along way-points (k, 7).

    Raises:
        OffPlan: the arm is too far from the path.
        Blocked: it has not got on for a while.
    """

    def __init__(self, path: np.ndarray, through: bool = False) -> None:
        """`through`: something follows, for which the end need not be met exactly."""
        self._path = np.ascontiguousarray(path, dtype=np.float64)
        spans = np.abs(np.diff(self._path, axis=0)).max(axis=1)
        self._length = np.concatenate([[0.0], np.cumsum(spans)])
        self._near = _THROUGH_RAD if through else _ARRIVED_RAD
        self._at = self._best = 0.0
        self._stuck = 0

    @property
    def steps(self) -> float:
        """How many control steps of the plan lie behind the arm."""
        return self._at / act.ARM_DELTA_RAD

    def step(self, world: WorldState, action: np.ndarray) -> bool:
        """Writes the arm's entries; whether anything was left to do."""
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
            return False  # pressing against something, or as near as it gets
        if self._stuck > patience(world):
            raise Blocked("arm")
        return True


class BaseTracker:
    """The base's part of an action, step by step, along legs from a base pose (3,).

    Put off its way a little, the base steers back on to it.

    Args:
        legs: the way.
        base: (3,) the pose that it starts from.
        footprint: what the robot takes up at the moment; what it has to steer back through is
            checked against that. Without it nothing is checked.

    Raises:
        OffPlan: the base is too far from its way, or something is in between.
        Blocked: it has not got on for a while, or pushes something.
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
        """How many control steps of the plan lie behind the base."""
        return self._at

    def step(self, world: WorldState, action: np.ndarray) -> bool:
        """Writes the base's entries; whether there was still something to do."""
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
        # A base that still moves otherwise at the beginning cannot do better than this way.
        if self._footprint is None or near or not self._begun:
            return
        footprint = self._footprint()
        poses = forecast(self._curve, row, base, velocity, _BACK_STEPS)
        least = min(footprint.margin(*base), 0.0) - 0.005
        if any(footprint.margin(*pose) < least for pose in poses):
            raise OffPlan("base")


def patience(world: WorldState) -> int:
    """For how many steps a robot may get no further."""
    return _BLOCKED_STEPS if world.force[0] > _CONTACT_N else _IDLE_STEPS


@njit(cache=True)
def _nearest_pose(poses: np.ndarray, base: np.ndarray, at: int, window: int) -> int:
    """The pose (n, 3), not before `at`, to which a base (3,) is nearest."""
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
    """Where on a path an arm (7,) is, not before `at`, and how far off it (rad).

    The path's parameter is its length in greatest joint differences; the nearest point is that
    of least squares.
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
    """The posture (7,) at a parameter of a path."""
    last = path.shape[0] - 1
    for i in range(last):
        span = length[i + 1] - length[i]
        if at <= length[i + 1] and span > 0.0:
            return path[i] + (path[i + 1] - path[i]) * ((at - length[i]) / span)
    return path[last].copy()
