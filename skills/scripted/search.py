"""Where to stand and how to move the arm so that the cup comes to a pose, in control steps.

A candidate is a base pose to drive to with the arm as it is, and how far to drive on from there
with the arm raised. The cheapest one counts whose postures are free and that can be driven to.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable

import numpy as np

from skills.scripted.navigation import Leg, drive_field, plan_drive
from skills.scripted.scene import Scene
from tpsrl.world.action import ARM_DELTA_RAD, STEP_M
from tpsrl.world.collision import ArmChecker
from tpsrl.world.fetch import BASE_RADIUS, REST_EE
from tpsrl.world.floor import floor_map
from tpsrl.world.footprint import Footprint
from tpsrl.world.geometry import wrap_angle
from tpsrl.world.kinematics import inverse
from tpsrl.world.reach import (
    CUP_AXIS,
    NO_OFFSET,
    SEEDS,
    STANDOFFS,
    best_posture,
    point_to_base,
    seeds_towards,
    stances,
    static_bodies,
    to_base,
    too_far,
)

# Margins (m) at the ready pose and at the touch, the wider ones tried first; a base pose that is
# yet to be driven to will be missed by a centimetre or two, the present one is exact.
LEVELS = ((0.02, 0.004), (0.008, 0.0))
_HERE = (0.006, 0.0)
FOOTPRINT_MARGIN_M = 0.025
MOST_RAD = 2.0  # a way of more than 160 steps leaves no time for the rest of the skill
_LINE_M, _LINE_RAD = 0.04, 0.5  # way-points of a straight line, and how far apart they may be
_STRETCH_RAD = 10.0  # per metre of lift: farther apart in joint space, two postures do not belong
_HIGH_SHIFTS = ((0.08, 0.0, 0.08), (0.2, 0.0, 0.2), (0.15, 0.0, 0.3))  # from the resting point, m
_MAX_CANDIDATES = 200
_MAX_DRIVES = 4
_SAME_PLACE = 0.25  # m and rad: if one pose there cannot be driven to, nor can the other
_LEAST_ARM_STEPS = 60.0  # no reach and return takes less
DRIVE_STEPS = 10.0  # a drive has to be worth its planning and starting
# How far the last stretch is driven with the arm already over the furniture (m).
_ADVANCES = (0.0, 0.15, 0.3, 0.45, 0.6)
FAR_STANDOFFS = (0.78, 0.86, 0.94, 1.02, 0.7, 1.1)
_FAR_ADVANCES = (0.3, 0.45, 0.6)  # into a fridge with the arm stretched out already
_DETOUR_STEPS = 60.0  # of the arm, around shelves and back
_ROOM_M, _ROUGH_M = 0.6, 0.01
_FACING = (0.0, 0.2, -0.2)  # within HAB's 15 degrees of the object (rad)

Targets = Callable[[np.ndarray], list["CupTarget"]]


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
            if cost > _LINE_RAD:
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
        seeds = np.vstack([near[None], seeds_towards(point)])
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


def ahead(pose: np.ndarray, distance: float) -> np.ndarray:
    """The base pose (3,) `distance` metres straight ahead."""
    step = distance * np.array([math.cos(pose[2]), math.sin(pose[2]), 0.0])
    return np.asarray(pose) + step


def drivable(footprint: Footprint, pose: np.ndarray, margin: float) -> bool:
    """Whether a base pose is free, and no pocket: one can back out of it, or turn in it."""
    if footprint.margin(*pose) < margin:
        return False
    turns = (pose + np.array([0.0, 0.0, turn]) for turn in (0.4, -0.4))
    backs = all(footprint.margin(*ahead(pose, -d)) >= 0.0 for d in (0.1, 0.2))
    return backs or all(footprint.margin(*turned) >= 0.0 for turned in turns)


class StanceSearch:
    """Candidates around a point, found once, for as many attempts as it takes."""

    def __init__(self, scene: Scene, point: np.ndarray, level: bool = False) -> None:
        """`level` says that the cup will point ahead rather than down, so from farther away."""
        self._scene = scene
        self._enclosed = _under_something(scene, np.asarray(point))
        self._standoffs = FAR_STANDOFFS if level or self._enclosed else STANDOFFS
        self._footprint = scene.footprint(scene.arm)
        self._candidates = self._find_candidates(np.asarray(point))[:_MAX_CANDIDATES]
        self._highs = high_postures(scene)
        self._walled: list[np.ndarray] = []

    def find(
        self, targets: Targets, margins: tuple[float, float], touching: int = -1
    ) -> Reach | None:
        """The cheapest way to one of `targets(stance)`, or None.

        Args:
            targets: cup poses to aim at from a base pose (3,).
            margins: metres to keep at the ready pose and at the touch.
            touching: index of the object that the tool may touch.
        """
        found: list[Reach] = []
        best = np.inf
        for drive, first, advance in self._candidates:
            if drive + _LEAST_ARM_STEPS >= best:
                break
            reach = self._reach(first, advance, targets, margins, touching)
            if reach is not None:
                found.append(dataclasses.replace(reach, steps=drive + reach.steps))
                best = min(best, drive + reach.steps)
        found.sort(key=lambda reach: reach.steps)
        return self._first_drivable(found)

    def _first_drivable(self, found: list[Reach]) -> Reach | None:
        tried = 0
        for reach in found:
            if reach.first is self._scene.base:
                return reach
            if any(np.abs(reach.first - pose).max() < _SAME_PLACE for pose in self._walled):
                continue
            legs = plan_drive(self._footprint, self._scene.base, reach.first)
            if legs is not None:
                return dataclasses.replace(reach, legs=legs)
            self._walled.append(reach.first)
            tried += 1
            if tried == _MAX_DRIVES:
                break
        return None

    def _find_candidates(self, point: np.ndarray) -> list[tuple[float, np.ndarray, float]]:
        """(steps to get there, base pose for the arm as it is, advance), cheapest first."""
        field = drive_field(self._footprint, self._scene.base)
        found = self._candidates_here(point)
        layout, joints = self._scene.layout, self._scene.joints
        directions = 64 if self._enclosed else 32
        for stance in stances(layout, point, self._standoffs, directions, joints):
            for advances in (_ADVANCES, _FAR_ADVANCES):
                best = (np.inf, stance, 0.0)
                for turn, advance in itertools.product(_FACING, advances):
                    first = ahead(stance + np.array([0.0, 0.0, turn]), -advance)
                    drive = field(first) + _advance_steps(advance) + DRIVE_STEPS
                    if drive < best[0] and drivable(self._footprint, first, FOOTPRINT_MARGIN_M):
                        best = (drive, first, advance)
                if np.isfinite(best[0]):
                    found.append(best)
                if not self._enclosed:
                    break
        found.sort(key=lambda candidate: candidate[0])
        return found

    def _candidates_here(self, point: np.ndarray) -> list[tuple[float, np.ndarray, float]]:
        """Staying, or only driving straight on from the present base pose."""
        base, floor = self._scene.base, floor_map(self._scene.layout, joints=self._scene.joints)
        found = []
        for advance in _ADVANCES:
            x, y, yaw = ahead(base, advance)
            off = abs(wrap_angle(math.atan2(point[1] - y, point[0] - x) - yaw))
            distance = math.hypot(point[0] - x, point[1] - y)
            clear = advance == 0.0 or floor.clearance(x, y) > BASE_RADIUS + 0.01
            if 0.4 < distance < max(self._standoffs) + 0.1 and off < 1.0 and clear:
                found.append((_advance_steps(advance), base, advance))
        return found

    def _reach(
        self,
        first: np.ndarray,
        advance: float,
        targets: Targets,
        margins: tuple[float, float],
        touching: int,
    ) -> Reach | None:
        """The quickest target at a stance; `steps` counts the arm alone, there and back."""
        scene = self._scene
        margin, touch_margin = _HERE if first is scene.base else margins
        stance = ahead(first, advance) if advance else first
        contact, apart = scene.checker(stance, touching=touching), scene.checker(stance)
        way = [scene.checker(ahead(first, t * advance)) for t in (0.0, 0.34, 0.67) if advance]
        best: Reach | None = None
        for target in targets(stance):
            cost, ready = target.posture(stance, 1.0, apart, margin, scene.arm)
            steps = 2 * cost / ARM_DELTA_RAD
            if cost > MOST_RAD or (best is not None and steps >= best.steps):
                continue
            via = self._via(way, apart, ready, margin)
            if via is None:
                continue
            if not _straight(way[0] if way else apart, scene.arm, via):
                steps += _DETOUR_STEPS
            cost, there = target.posture(stance, 0.0, contact, touch_margin, ready)
            steps += (2 * cost + float(np.abs(ready - via).max())) / ARM_DELTA_RAD
            # The last stretch must be short in joint space as well, or the cup leaves its line.
            short = cost < _STRETCH_RAD * np.linalg.norm(target.shift)
            if short and (best is None or steps < best.steps):
                best = Reach(target, None, first, advance, stance, via, ready, there, steps)
        return best

    def _via(
        self, way: list[ArmChecker], last: ArmChecker, ready: np.ndarray, margin: float
    ) -> np.ndarray | None:
        """The posture (7,) in which to advance past the checkers of `way` to `last`, or None."""
        if all(checker.free(ready, margin) for checker in way):
            return ready
        for high in self._highs:
            if all(checker.free(high, margin) for checker in (*way, last)):
                return high
        return None


def _under_something(scene: Scene, point: np.ndarray) -> bool:
    """Whether furniture is over a point (3,) within an arm's length, as in a fridge."""
    bodies = static_bodies(scene.layout, scene.joints)
    delta = bodies.centre - point
    local = np.einsum("nji,nj->ni", bodies.rotation, delta)
    over = (np.abs(local[:, :2]) < bodies.half[:, :2]).all(axis=1)
    low = delta[:, 2] - bodies.half[:, 2]
    return bool((over & (low > 0.0) & (low < _ROOM_M)).any())


def _straight(checker: ArmChecker, start: np.ndarray, end: np.ndarray) -> bool:
    """Whether the arm can move from one posture to another without a detour, at a rough look."""
    return all(
        checker.free(start + t * (end - start), -_ROUGH_M) for t in (0.2, 0.4, 0.6, 0.8, 1.0)
    )


def _advance_steps(advance: float) -> float:
    return 2.0 * (advance / STEP_M + 6.0) if advance else 0.0


def high_postures(scene: Scene) -> tuple[np.ndarray, ...]:
    """Postures with the cup above its resting point, for driving over furniture, lowest first."""
    found = (posture_at(np.add(REST_EE, shift), scene.arm) for shift in _HIGH_SHIFTS)
    return tuple(q for q in found if q is not None)


def posture_at(point: np.ndarray, near: np.ndarray) -> np.ndarray | None:
    """The posture (7,) nearest to `near` with the cup at a point (3,) of the base frame, or None.

    The cup may point anywhere.
    """
    best, chosen = MOST_RAD, None
    for seed in (near, *SEEDS):
        ok, q = inverse(seed, point, CUP_AXIS, CUP_AXIS, near, NO_OFFSET, 60, 0.0)
        cost = float(np.abs(q - near).max())
        if ok and cost < best:
            best, chosen = cost, q
    return chosen
