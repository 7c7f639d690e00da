"""Servoing: demonstrators whose action is a function of the state, so that a network can learn it.

The planning skills choose the quickest of thousands of plans and keep it, so similar states may
belong to very different plans. Here there are few candidates, all of one simple kind (`Way`): drive
to a stance, move the arm on a straight line in joint space to a posture before the target, and on a
second line to the target. At every step the choice of a candidate and the progress along it follow
from the state alone.
"""

import abc
import dataclasses
import math
from collections import Counter
from collections.abc import Iterator

import numpy as np

from skills.core.interface import SkillGoal
from tpsrl.motion.base.stances import Stances, ahead
from tpsrl.motion.scene import Scene, look
from tpsrl.motion.suction.cup_targets import CupTargets
from tpsrl.runtime.compiled import njit
from tpsrl.world import action as act
from tpsrl.world.collision import REST, ArmChecker
from tpsrl.world.episode import Episode
from tpsrl.world.fetch import BASE_RADIUS, REST_EE
from tpsrl.world.floor import CELL_M, clearance_gradient, floor_map, main_floor
from tpsrl.world.geodesic import DistanceField, distance_field, free_floor
from tpsrl.world.kinematics import cup_pose, inverse, wrapped
from tpsrl.world.reach import CUP_AXIS, NO_OFFSET, static_bodies
from tpsrl.world.state import WorldState

_STANDOFFS, _DIRECTIONS = (0.7, 0.62, 0.78, 0.54, 0.86, 0.95, 1.05, 1.15), 40
# With fewer stances than _FEW, as at a sink, a denser grid is searched.
_FEW, _CLOSE_STANDOFFS, _CLOSE_DIRECTIONS = 20, tuple(np.arange(0.54, 1.4, 0.04)), 128
_STAND_M = BASE_RADIUS + 0.015
_RAISED_M = 0.45  # distance before the stance at which the arm is raised, if not free at the stance
_SAMPLE_RAD = 0.12
_FREE_M, _NEAR_M = 0.015, -0.004  # arm's margins: on the path, and near the target
_FARTHEST_RAD = 1.3  # largest joint motion from rest: there and back takes 200 steps
_STAND_FREE_M = 0.01  # margin of the resting arm where it is raised
_RAISING_STEPS = 25.0
_MOST_STANCES = 60
_MOST_ALIKE, _ALIKE_RAD, _ASIDE_RAD = 2, 0.1, 0.4  # targets of a stance: per group, size of groups
_MOST_TOUCHES = 24
# If none is feasible, more targets are tried, with postures farther from rest.
_MORE_ALIKE, _MORE_TOUCHES, _FARTHER_RAD = 8, 120, 1.7
_USUAL_PITCH, _ODD_STEPS = math.radians(60.0), 25.0  # preferred pitch; steps per radian off it
_STEP_M, _STEP_RAD = 0.05, 0.06  # approximate drive per control step
_SHORT_CUT_RAD = 0.6
_OTHER_RAD = 0.3  # from the way: the arm may be in another posture for the same target
_STILL = 0.04  # action entries below this count as standing still
_TINY_RAD, _DAMPING = 1e-4, 1e-3
_SOFT_STEPS = 4.0  # control steps over which the arm slows down
_TURN_GAIN, _DRIVE_GAIN, _FASTEST = 4.0, 3.0, 2.0
ARRIVED_M, ARRIVED_RAD = 0.1, 0.08
_ALMOST = 1.6  # factor of ARRIVED_M, within which the arm can compensate


_MOVED_M = 0.02  # motion of the target after which ways are searched again
_NEAR_STANCE_M = 0.8  # distance to the stance within which the arm moves
_SAFE_M = 0.015  # margin of the moving arm
_TUBE_RAD, _RAISED_RAD = 0.07, 0.2  # tolerance of the line to the target; of the posture before it
_LIFT_M, _ASIDE_M, _BACK_M = 0.08, 0.12, 0.3
_BACKWARDS = -0.3
_OFF_M, _OUTWARDS = 0.015, -0.8  # on a shelf: rise by _OFF_M, then drive out
_COVER_M = 0.6  # furniture within this height above a point covers it
_LOOK_STEPS, _NO_LESS_M = 3.0, 0.0005  # steps of forecast of a move; required gain of clearance
_OUT_M, _HIGHEST_M = 0.03, 0.3  # clearance below which lifting continues; maximum lift
_DETOUR_STEPS, _CORNER_M = 30.0, 0.15  # cost of an obstructed stance; distance of a reached corner


class Mover(abc.ABC):
    """Base class of demonstrators that execute their labels with collision-free moves."""

    depth_size: tuple[int, int] | None = None
    _plans = 0

    @abc.abstractmethod
    def label(self, world: WorldState) -> tuple[np.ndarray, bool]:
        """See `skills.core.interface.Demonstrator.label`."""

    def diagnosis(self) -> dict[str, int]:
        """Returns the number of searches for ways ("plans")."""
        return {"plans": self._plans}

    def act(self, world: WorldState, depth: np.ndarray | None = None) -> np.ndarray:
        """See `skills.core.interface.SkillPolicy.act`."""
        return self.label(world)[0]

    def freest(
        self, scene: Scene, moves: list[tuple[np.ndarray, float, float]]
    ) -> tuple[np.ndarray, float, float]:
        """Returns the first free move (arm, forward, turn), or the one with most clearance."""
        now = scene.checker(scene.base).clearance(scene.arm, _SAFE_M)
        best, chosen = -math.inf, moves[0]
        for move in moves:
            arm, forward, turn = move
            base = ahead(scene.base, _LOOK_STEPS * act.STEP_M * forward)
            base[2] += _LOOK_STEPS * act.STEP_RAD * turn
            after = scene.arm + _LOOK_STEPS * act.ARM_DELTA_RAD * arm
            clearance = scene.checker(base).clearance(after, _SAFE_M)
            if clearance >= min(_SAFE_M, now + _NO_LESS_M):
                return move
            if clearance > best:
                best, chosen = clearance, move
        return chosen


class Servo(Mover):
    """Base class of demonstrators whose labels are a function of the state, see the module.

    The only memory is a cache of the ways to the target, and the position where lifting began.
    """

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """See `skills.core.interface.Demonstrator.begin`."""
        self.episode, self.goal = episode, goal
        self._aim: np.ndarray | None = None
        self._ways: list[Way] = []
        self._field: tuple[tuple[float, float], DistanceField] | None = None
        self._left: np.ndarray | None = None
        self._plans = 0

    def label(self, world: WorldState) -> tuple[np.ndarray, bool]:
        """See `skills.core.interface.Demonstrator.label`."""
        scene = look(self.episode, world)
        action = np.zeros(act.SIZE)
        action[act.GRIP], action[act.STOP] = self.grip(scene), -1.0
        if self.is_done(scene):
            self._go_back(scene, world, action)
            return action, True
        self._left = None
        if not self._look_for_ways(scene):
            return action, False
        self._reach(scene, world, action)
        # A label that stands still without progress must not be learned.
        moves = np.abs(np.append(action[act.ARM], action[act.BASE])).max() > _STILL
        return action, bool(moves or action[act.GRIP] != self.grip(scene))

    # -- defined by the skill ------------------------------------------------------------------

    @abc.abstractmethod
    def grip(self, scene: Scene) -> float:
        """Returns the grip entry before `finish`."""

    @abc.abstractmethod
    def is_done(self, scene: Scene) -> bool:
        """Returns whether only the return to rest is left."""

    @abc.abstractmethod
    def aim(self, scene: Scene) -> np.ndarray:
        """Returns the numbers on which ways depend; the first 3 are the point (world) to face."""

    @abc.abstractmethod
    def targets(self, scene: Scene, around: Stances) -> Iterator[CupTargets]:
        """Yields sets of cup poses at the target for stances around it, in order of preference."""

    @abc.abstractmethod
    def touching(self) -> int:
        """Returns the index of the object that the cup may touch, -1 for none."""

    @abc.abstractmethod
    def finish(
        self,
        scene: Scene,
        world: WorldState,
        tip: np.ndarray,
        there: np.ndarray,
        action: np.ndarray,
    ) -> np.ndarray:
        """Sets the grip at the end of a way, and returns the posture (7,) to move to.

        Args:
            scene: of the current state
            world: current state, a batch of one
            tip: (3,) position of the cup's tip at the target, world frame
            there: (7,) posture at the target
            action: (11,) action, whose grip entry may be set
        """

    # -- reaching ------------------------------------------------------------------------------

    def _look_for_ways(self, scene: Scene) -> bool:
        """Updates the ways to the target if it has moved; returns whether there are any."""
        aim = self.aim(scene)
        if self._aim is not None and float(np.abs(aim - self._aim).max()) < _MOVED_M:
            return len(self._ways) > 0
        self._aim = aim.copy()
        self._plans += 1
        poses = stances(scene, aim[:3])
        zero = np.zeros(len(poses))
        around = Stances(zero, poses, zero, poses, np.zeros(len(poses), bool))
        for targets in self.targets(scene, around):
            self._targets = targets
            self._ways = list(ways(scene, targets, poses, self.touching()))
            if not self._ways:
                self._ways = list(ways(scene, targets, poses, self.touching(), True))
            if self._ways:
                break
        self._stances = np.array([way.stance for way in self._ways]).reshape(-1, 3)
        self._theres = np.array([way.there for way in self._ways]).reshape(-1, 7)
        self._steps = np.array([way.steps for way in self._ways])
        self._steps -= np.abs(self._theres - REST).max(axis=1) / act.ARM_DELTA_RAD
        return len(self._ways) > 0

    def _choose(self, scene: Scene) -> "Way":
        """Returns the way with the lowest estimated number of steps from the current state."""
        offset = self._stances[:, :2] - scene.base[:2]
        far = np.linalg.norm(offset, axis=1)
        off = np.abs(_wrapped(np.arctan2(offset[:, 1], offset[:, 0]) - scene.base[2]))
        turn = np.abs(_wrapped(self._stances[:, 2] - scene.base[2]))
        back = np.pi - off + 0.5
        turn += np.where(far > ARRIVED_M, np.minimum(off, back), 0.0)
        steps = far / _STEP_M + turn / _STEP_RAD + self._steps
        steps += np.abs(self._theres - scene.arm).max(axis=1) / act.ARM_DELTA_RAD
        steps += np.where(self._sees(scene, self._stances), 0.0, _DETOUR_STEPS)
        return self._ways[int(np.argmin(steps))]

    def _reach(self, scene: Scene, world: WorldState, action: np.ndarray) -> None:
        way = self._choose(scene)
        assert self._aim is not None
        point = self._aim[:3]
        far = _apart(way.stance, scene.base)
        raised = float(np.abs(scene.arm - way.before).max()) < _RAISED_RAD
        end = way.stance if raised or far < ARRIVED_M else way.first
        if self._sees(scene, end[None])[0]:
            action[act.BASE] = drive(scene.base, end, point)
        else:
            corner = self._corner(scene, end)
            action[act.BASE] = drive(scene.base, corner, corner, _CORNER_M / 4)
        facing = math.atan2(point[1] - scene.base[1], point[0] - scene.base[0])
        turned = abs(wrap(facing - scene.base[2]))
        there, before = None, None
        if far < _ALMOST * ARRIVED_M and turned < 2.0 * ARRIVED_RAD:
            there, before = solve(self._targets, way.target, scene.base, way.before)
        if there is None or before is None:
            if far > ARRIVED_M or turned > 2.0 * ARRIVED_RAD:
                near = raised or min(far, _apart(way.first, scene.base)) < _NEAR_STANCE_M
                action[act.ARM] = self._safely(scene, way.before if near else REST)
                return
            there, before = way.there, way.before
        there, before = self._nearer(scene, way, there, before)
        if _from_line(scene.arm, before, there) < _TUBE_RAD or self._arrived(scene, there):
            action[act.ARM] = towards(
                scene.arm, self.finish(scene, world, self._targets.tip[way.target], there, action)
            )
        else:
            action[act.ARM] = towards(scene.arm, before)

    def _sees(self, scene: Scene, poses: np.ndarray) -> np.ndarray:
        """Returns whether the base's disc can drive straight to poses (n, 3), as bool (n,)."""
        floor = floor_map(scene.layout, joints=scene.joints)
        base = np.asarray(scene.base, np.float64)
        return _straight(floor.distance, *floor.origin, base, np.asarray(poses, np.float64))

    def _corner(self, scene: Scene, end: np.ndarray) -> np.ndarray:
        """Returns the next corner of the shortest path to a pose (3,), as a pose."""
        if self._field is None or self._field[0] != (end[0], end[1]):
            floor = free_floor(scene.layout, scene.joints)
            self._field = (end[0], end[1]), distance_field(floor, end[:2].tolist())
        path = self._field[1].path(scene.base[0], scene.base[1])
        ahead = [p for p in path if math.hypot(*(p - scene.base[:2])) > _CORNER_M]
        x, y = ahead[0] if ahead else end[:2]
        return np.array([x, y, end[2]])

    def _nearer(
        self, scene: Scene, way: "Way", there: np.ndarray, before: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the postures at the target and before it that are nearer to the arm.

        A cup pose has many postures of the arm. If the arm arrived with another posture than
        the demonstrator's, it continues from there, if that is free.
        """
        off = float(np.abs(scene.arm - before).max())
        if off < _OTHER_RAD or _from_line(scene.arm, before, there) < _OTHER_RAD:
            return there, before
        own_there, own_before = solve(self._targets, way.target, scene.base, scene.arm)
        if own_there is None or own_before is None:
            return there, before
        if float(np.abs(scene.arm - own_before).max()) > off - _OTHER_RAD:
            return there, before
        checker = scene.checker(scene.base, touching=self.touching())
        if not line_free(checker, scene.arm, own_before, _NEAR_M):
            return there, before
        if not line_free(checker, own_before, own_there, _NEAR_M):
            return there, before
        return own_there, own_before

    def _arrived(self, scene: Scene, there: np.ndarray) -> bool:
        """Returns whether the arm is near its target, or slightly beyond it."""
        return float(np.abs(scene.arm - there).max()) < 1.5 * _TUBE_RAD

    def _safely(self, scene: Scene, posture: np.ndarray) -> np.ndarray:
        """Returns the arm's action (7,) to a posture, 0 if clearance would become too small."""
        step = towards(scene.arm, posture)
        checker = scene.checker(scene.base, touching=self.touching())
        after = scene.arm + 3.0 * act.ARM_DELTA_RAD * step
        now = checker.clearance(scene.arm, _SAFE_M)
        return step if checker.clearance(after, _SAFE_M) >= min(_SAFE_M, now) else 0.0 * step

    # -- returning -----------------------------------------------------------------------------

    def _go_back(self, scene: Scene, world: WorldState, action: np.ndarray) -> None:
        """Writes the action of the return: lift, then the arm to rest while the base backs off."""
        cup = np.array(world.ee_pos[0])
        if self._left is None:
            self._left = cup
        self._aim = None
        risen = float(cup[2] - self._left[2])
        away = float(np.hypot(*(cup[:2] - self._left[:2])))
        tight = scene.checker(scene.base).clearance(scene.arm, _OUT_M) < _OUT_M
        lifting = (risen < _LIFT_M and away < _ASIDE_M) or (tight and risen < _HIGHEST_M)
        rest, still = towards(scene.arm, REST), np.zeros(7)
        inside = is_covered(scene, cup)
        lifting = lifting and not (inside and risen > _OFF_M)
        back = _BACKWARDS if away < _BACK_M else 0.0
        moves = [(rest, back, 0.0), (rest, 0.0, 0.0)]
        if float(np.abs(scene.arm - REST).max()) > _SHORT_CUT_RAD:
            moves.insert(0, (_home(scene.arm), back, 0.0))
        if inside:
            moves.insert(0, (still, _OUTWARDS, 0.0))
        lifted = self._higher(scene)
        if lifted is not None:
            moves.insert(0 if lifting else 2, (lifted, 0.0, 0.0))
            moves.append((lifted, _BACKWARDS, 0.0))
        moves.append((still, _BACKWARDS, 0.0))
        moves += [(still, 0.0, turn) for turn in (-_BACKWARDS, _BACKWARDS)]
        arm, action[act.BASE.start], action[act.BASE.start + 1] = self.freest(scene, moves)
        action[act.ARM] = arm

    def _higher(self, scene: Scene) -> np.ndarray | None:
        """Returns the arm's action (7,) that raises the cup, or None."""
        tip, turn = cup_pose(scene.arm)
        higher = tip + np.array([-0.01, 0.0, 0.05])
        axis = turn[:, 0].copy()
        ok, lifted = inverse(scene.arm, higher, CUP_AXIS, axis, scene.arm, NO_OFFSET, 60, 0.3)
        return towards(scene.arm, lifted) if ok else None


def is_covered(scene: Scene, point: np.ndarray) -> bool:
    """Returns whether furniture is above a point (3,) in the world, as in a fridge."""
    bodies = static_bodies(scene.layout, scene.joints)
    bottom = bodies.centre[:, 2] - bodies.half[:, 2]
    off = point[:2] - bodies.centre[:, :2]
    turned = np.einsum("nij,ni->nj", bodies.rotation[:, :2, :2], off)
    over = (np.abs(turned) < bodies.half[:, :2]).all(axis=1)
    return bool((over & (bottom > point[2]) & (bottom < point[2] + _COVER_M)).any())


@dataclasses.dataclass(frozen=True, slots=True)
class Way:
    """Candidate of a demonstrator: a stance, two postures, and the target.

    Attributes:
        stance: (3,) base pose
        first: (3,) base pose at which the arm is raised; the stance if it is free there
        before: (7,) posture before the target
        there: (7,) posture at the target
        target: row of the target
        steps: control steps of the arm from rest and back, with surcharges for unusual targets
    """

    stance: np.ndarray
    first: np.ndarray
    before: np.ndarray
    there: np.ndarray
    target: int
    steps: float


def stances(scene: Scene, point: np.ndarray) -> np.ndarray:
    """Returns base poses (n, 3) around a point (3,), facing it, where the base's disc is free."""
    found = _around(scene, point, _STANDOFFS, _DIRECTIONS)
    if len(found) < _FEW:
        found = _around(scene, point, _CLOSE_STANDOFFS, _CLOSE_DIRECTIONS)
    return found[:: math.ceil(len(found) / _MOST_STANCES)] if len(found) else found


def _around(
    scene: Scene, point: np.ndarray, apart: tuple[float, ...], directions: int
) -> np.ndarray:
    floor = floor_map(scene.layout, joints=scene.joints)
    free = main_floor(scene.layout, scene.joints)
    found = []
    for distance in apart:
        for k in range(directions):
            angle = 2 * math.pi * k / directions
            x, y = point[0] - distance * math.cos(angle), point[1] - distance * math.sin(angle)
            ix, iy = int((x - floor.origin[0]) / CELL_M), int((y - floor.origin[1]) / CELL_M)
            if not (0 <= ix < free.shape[1] and 0 <= iy < free.shape[0]) or not free[iy, ix]:
                continue
            if clearance_gradient(floor.distance, *floor.origin, x, y)[0] >= _STAND_M:
                found.append((x, y, wrap(angle)))
    return np.array(found).reshape(-1, 3)


def ways(
    scene: Scene, targets: CupTargets, poses: np.ndarray, touching: int, odd_ones: bool = False
) -> Iterator[Way]:
    """Yields the quickest way of each pose that has one.

    Args:
        scene: of the current state
        targets: cup poses by row of `poses`
        poses: (n, 3) stances
        touching: index of the object that the cup may touch, -1 for none
        odd_ones: try more unusual targets, and postures farther from rest
    """
    farthest = _FARTHER_RAD if odd_ones else _FARTHEST_RAD
    touches = (_MORE_ALIKE, _MORE_TOUCHES) if odd_ones else (_MOST_ALIKE, _MOST_TOUCHES)
    resting = scene.footprint(REST)
    for row, pose in enumerate(poses):
        checker = scene.checker(pose, touching=touching)
        first = pose
        if resting.margin(*pose) < _STAND_FREE_M:
            first = ahead(pose, -_RAISED_M)
            if resting.margin(*first) < _STAND_FREE_M:
                continue
        best: Way | None = None
        for i, odd in _most_usual(targets, row, pose, *touches):
            if best is not None and odd > best.steps:
                break
            way = _way(targets, i, pose, first, scene, checker, odd, farthest)
            if way is not None and (best is None or way.steps < best.steps):
                best = way
        if best is not None:
            yield best


def _most_usual(
    targets: CupTargets, row: int, pose: np.ndarray, most_alike: int, most: int
) -> list[tuple[int, float]]:
    """Returns targets of a stance, the most usual first, each with its oddness in steps.

    The usual cup pose points straight ahead and 60 degrees down, at the object's middle. While it
    is feasible, neighbouring stances have similar postures.

    Args:
        targets: of all stances
        row: of the stance
        pose: (3,) stance
        most_alike: maximum number of targets with about the same pitch and heading
        most: maximum number of targets
    """
    mine = np.flatnonzero(targets.row == row)
    x, y, z = targets.pointing[mine].T
    level = np.hypot(x, y)
    pitch = np.arctan2(-z, level) - _USUAL_PITCH
    aside = np.where(level > 0.2, np.abs(_wrapped(np.arctan2(y, x) - pose[2])), 0.0)
    odd = _ODD_STEPS * (np.abs(pitch) + aside) + targets.extra[mine]
    chosen: list[tuple[int, float]] = []
    alike: Counter[tuple[int, int]] = Counter()  # the limit keeps the variety needed on shelves
    for k in np.argsort(odd, kind="stable").tolist():
        group = round(float(pitch[k]) / _ALIKE_RAD), round(float(aside[k]) / _ASIDE_RAD)
        alike[group] += 1
        if alike[group] <= most_alike and len(chosen) < most:
            chosen.append((int(mine[k]), float(odd[k])))
    return chosen


def _way(
    targets: CupTargets,
    i: int,
    pose: np.ndarray,
    first: np.ndarray,
    scene: Scene,
    checker: ArmChecker,
    odd: float,
    farthest: float,
) -> Way | None:
    there, before = solve(targets, i, pose, REST)
    if there is None or before is None:
        return None
    if float(np.abs(before - REST).max()) > farthest:
        return None
    if not checker.free(there, _NEAR_M) or not checker.free(before, _FREE_M):
        return None
    raising = checker if first is pose else scene.checker(first)
    if not line_free(raising, REST, before, _FREE_M):
        return None
    if first is not pose:
        raised = scene.footprint(before)
        if any(raised.margin(*ahead(pose, -back)) < 0.0 for back in (0.0, 0.15, 0.3)):
            return None
    if not line_free(checker, before, there, _NEAR_M):
        return None
    # There and back.
    steps = 2.0 * (np.abs(before - REST).max() + np.abs(there - before).max()) / act.ARM_DELTA_RAD
    steps += odd + (0.0 if first is pose else _RAISING_STEPS)
    return Way(pose, first, before, there, i, float(steps))


def solve(
    targets: CupTargets, i: int, pose: np.ndarray, seed: np.ndarray
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Returns postures (7,) at target `i` and before it from a base pose (3,), or (None, None).

    The posture before the target is searched from `seed` (7,), that at the target from the former.
    """
    c, s = math.cos(pose[2]), math.sin(pose[2])
    turn = np.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]])
    origin = np.array([pose[0], pose[1], 0.0])
    point, axis = turn @ (targets.point[i] - origin), turn @ targets.axis[i]
    shift = turn @ targets.shift[i]
    cup = targets.axis_cup[i]
    ok, before = inverse(seed, point + shift, cup, axis, seed, targets.offset, 60)
    if not ok:
        return None, None
    wrapped(before, seed)
    ok, there = inverse(before, point, cup, axis, before, targets.offset, 40)
    if not ok:
        return None, None
    wrapped(there, before)
    return there, before


def line_free(checker: ArmChecker, start: np.ndarray, end: np.ndarray, margin: float) -> bool:
    """Returns whether a straight line in joint space keeps a clearance of `margin` metres."""
    count = max(1, math.ceil(float(np.abs(end - start).max()) / _SAMPLE_RAD))
    return all(
        checker.free(start + (end - start) * (k / count), margin) for k in range(1, count + 1)
    )


def towards(arm: np.ndarray, posture: np.ndarray, pace: float = 1.0) -> np.ndarray:
    """Returns the arm's action (7,) straight to a posture (7,), slower over the last steps."""
    off = posture - arm
    most = float(np.abs(off).max())
    return pace * off / max(most, _SOFT_STEPS * act.ARM_DELTA_RAD)


def _home(arm: np.ndarray) -> np.ndarray:
    """Returns the arm's action (7,) that brings the end effector to its resting point.

    Success requires this point, not the resting posture, which from far away takes twice as many
    steps. The joints approach the resting posture only in the null space of the end effector.
    """
    tip = cup_pose(arm)[0]
    away = np.array(REST_EE) - tip
    jacobian = np.empty((3, 7))
    for joint in range(7):
        moved = arm.copy()
        moved[joint] += _TINY_RAD
        jacobian[:, joint] = (cup_pose(moved)[0] - tip) / _TINY_RAD
    inverted = jacobian.T @ np.linalg.inv(jacobian @ jacobian.T + _DAMPING * np.eye(3))
    rest = REST - arm
    return towards(arm, arm + inverted @ away + rest - inverted @ (jacobian @ rest))


def drive(
    base: np.ndarray, stance: np.ndarray, point: np.ndarray, arrived: float = ARRIVED_M
) -> np.ndarray:
    """Returns the base's action (2,) to a stance (3,), where the base turns to face a point.

    Args:
        base: (3,) current base pose
        stance: (3,) base pose to reach
        point: (2 or more,) to face at the stance
        arrived: distance from the stance (m) within which the base only adjusts
    """
    dx, dy = stance[0] - base[0], stance[1] - base[1]
    far = math.hypot(dx, dy)
    off = wrap(math.atan2(dy, dx) - base[2])
    facing = wrap(math.atan2(point[1] - base[1], point[0] - base[0]) - base[2])
    if far < arrived:
        near = far / arrived
        speed = _DRIVE_GAIN * far * math.cos(off) * near
        return _limited(speed, _TURN_GAIN * facing)
    sign = 1.0
    if abs(off) > math.radians(100) and far < 0.7:
        sign, off = -1.0, wrap(off + math.pi)
    blend = float(np.clip((far - _ALMOST * arrived) / 0.15, 0.0, 1.0))
    turn = blend * off + (1.0 - blend) * facing
    speed = sign * min(_DRIVE_GAIN * far, _FASTEST) * max(math.cos(off), 0.0) ** 3
    return _limited(speed, _TURN_GAIN * turn)


def wrap(angle: float) -> float:
    """Wraps an angle to [-pi, pi)."""
    return (angle + math.pi) % (2 * math.pi) - math.pi


def _limited(speed: float, turn: float) -> np.ndarray:
    """Returns speeds in m/s and rad/s as an action (2,)."""
    return np.clip([speed / act.BASE_LINEAR_MPS, turn / act.BASE_ANGULAR_RPS], -1.0, 1.0)


def _apart(one: np.ndarray, other: np.ndarray) -> float:
    """Returns the distance (m) of two base poses (3,)."""
    return math.hypot(one[0] - other[0], one[1] - other[1])


def _wrapped(angle: np.ndarray) -> np.ndarray:
    return (angle + np.pi) % (2 * np.pi) - np.pi


def _from_line(q: np.ndarray, start: np.ndarray, end: np.ndarray) -> float:
    """Returns the largest joint distance (rad) of a posture (7,) from a line in joint space."""
    along = end - start
    t = float(np.clip((q - start) @ along / max(float(along @ along), 1e-9), 0.0, 1.0))
    return float(np.abs(q - start - t * along).max())


@njit(cache=True)
def _straight(
    distance: np.ndarray, x0: float, y0: float, base: np.ndarray, poses: np.ndarray
) -> np.ndarray:
    """Returns whether the disc can drive straight from a base pose (3,) to others (n, 3)."""
    out = np.ones(len(poses), np.bool_)
    for i in range(len(poses)):
        dx, dy = poses[i, 0] - base[0], poses[i, 1] - base[1]
        count = int(math.sqrt(dx * dx + dy * dy) / 0.05)
        for k in range(1, count):
            x, y = base[0] + dx * k / count, base[1] + dy * k / count
            if clearance_gradient(distance, x0, y0, x, y)[0] < BASE_RADIUS - 0.01:
                out[i] = False
                break
    return out
