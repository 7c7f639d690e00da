"""Search for the stance and arm motion with which the cup reaches a pose in fewest control steps.

For every stance (`tpsrl.motion.base.stances`) and every suitable cup pose, a table gives an
estimate of the arm's motion (`tpsrl.motion.arm.ik_table`). The candidates are checked exactly in
the order of their estimated cost, until no other candidate can be quicker.
"""

import collections
import copy
import dataclasses
import itertools
import math
from collections.abc import Callable

import numpy as np

from tpsrl.motion.arm.ik_table import estimates, reach_and_touch, table, up_angle_of
from tpsrl.motion.arm.rest_poses import HIDDEN_VIEW, blocked_view
from tpsrl.motion.arm.rrt import MARGINS_M, duration, edge_free, widest_path
from tpsrl.motion.base.driving import Leg, plan_drive
from tpsrl.motion.base.stances import ahead, find_stances
from tpsrl.motion.scene import Held, Scene
from tpsrl.motion.suction.cup_targets import CupTarget, CupTargets
from tpsrl.runtime.compiled import njit
from tpsrl.world.action import ARM_DELTA_RAD
from tpsrl.world.collision import ArmChecker
from tpsrl.world.fetch import REST_EE
from tpsrl.world.kinematics import inverse
from tpsrl.world.reach import CUP_AXIS, NO_OFFSET, SEEDS, point_to_base, static_bodies, to_base

# Margins (m) at the ready pose and at the touch, widest first. A stance that has to be driven to is
# missed by a centimetre or two; the present base pose is exact and needs only `_HERE`.
LEVELS = ((0.02, 0.004), (0.008, 0.0), (0.0, -0.004))
_HERE = (0.006, 0.0)
MOST_RAD = 2.0  # 160 steps; a longer arm motion leaves no time for the rest of the skill
_STRETCH_RAD = 12.0  # per metre of lift: largest joint motion between ready pose and touch
_HIGH_SHIFTS = ((0.08, 0.0, 0.08), (0.2, 0.0, 0.2), (0.15, 0.0, 0.3))  # from the rest point, m
_MISSED_M, _MISSED_RAD = 0.02, 0.03  # largest error of a base at its stance
_MAX_DRIVES = 4
_SAME_PLACE = 0.25  # m and rad: nearer poses than this are reachable or unreachable together
DETOUR_STEPS = 30.0  # estimated cost of an arm path around obstacles
_MAX_DETOURS = 6  # most arm paths around obstacles; planning each takes some milliseconds
_ROOM_M = 0.6
# Shares of an advance at which collisions are checked; between shelves no object may be missed.
_SHARES, _SHARES_INSIDE = (0.0, 0.34, 0.67), (0.0, 0.12, 0.25, 0.38, 0.5, 0.62, 0.75, 0.88)
# Candidates that are checked exactly, and how many of these after the first success, since the
# estimates err by some tens of steps. Solutions of one stance are much alike, so few are enough.
_LOOKS, _FEW_LOOKS, _ENOUGH_OF_A_STANCE = (300, 30), (150, 8), 3
# Cost of an arm that hides the camera's view: for a grasp; and for a release, or between shelves,
# where time is short.
_BLIND_STEPS = (60.0, 15.0)
_TOUCH_STEPS = 10.0  # estimated duration of the motion from the ready pose to the touch
# A skill has 200 steps; steps beyond `_COMFORTABLE_STEPS` cost `_HASTE` more.
_COMFORTABLE_STEPS, _HASTE = 125.0, 2.0


@dataclasses.dataclass(frozen=True, slots=True)
class Reach:
    """Plan that brings the cup to a target: drive, raise the arm, advance, lower the arm.

    `legs` lead to the base pose `first` (3,) with the present arm posture; None if the base is
    there. The advance is a straight drive of `advance` metres from `first` to `stance` (3,) with
    the arm in posture `via` (7,). `via` is the ready posture, or a high posture if the ready one
    would collide. Before the advance, `path` (k, 7) moves the arm from posture `arm` (7,) to `via`;
    the path is straight in joint space if `direct`. At the stance the arm moves to the posture
    `ready` (7,) and then `there` (7,), the touch. `steps` is the cost in control steps.
    """

    target: CupTarget
    legs: list[Leg] | None
    first: np.ndarray
    advance: float
    stance: np.ndarray
    via: np.ndarray
    path: np.ndarray
    ready: np.ndarray
    there: np.ndarray
    steps: float
    direct: bool
    arm: np.ndarray


class StanceSearch:
    """Search over stances around a point, which are found once and reused for all queries.

    `enclosed` is whether the point is between shelves, see `under_something`.

    Args:
        scene: present scene.
        point: (3,) point to reach.
        drive_weight: cost of a step of driving relative to a step of the arm.
    """

    def __init__(self, scene: Scene, point: np.ndarray, drive_weight: float = 1.0) -> None:
        self.scene = scene
        self._footprint = scene.footprint(scene.arm)
        self.enclosed = under_something(scene, np.asarray(point))
        self.stances = find_stances(scene, self._footprint, np.asarray(point), self.enclosed)
        self._drive, self._on = drive_weight * self.stances.drive, self.stances.on
        self._highs: tuple[np.ndarray, ...] | None = None
        self._walled: list[np.ndarray] = []
        self._any_roll = False
        self._seen: dict[tuple[int, float, int], ArmChecker] = {}

    def find(
        self,
        targets: CupTargets,
        margins: tuple[float, float],
        touching: int = -1,
        wanted: Callable[[int], float] | None = None,
        drive: bool = True,
        after: Callable[[Reach], float] | None = None,
        bound: float = math.inf,
    ) -> Reach | None:
        """Returns the cheapest plan for one of the targets, or None.

        Args:
            targets: cup poses at the stances of this search.
            margins: required clearances at the ready pose and at the touch, metres.
            touching: index of the object that the tool may touch.
            wanted: returns the later cost of target `i` in steps, inf to leave the target out.
            drive: whether to plan the drive too; without it the search is rougher.
            after: returns the cost in steps that follows from a plan.
            bound: upper bound of the cost; a finite bound makes the search rougher.
        """
        guess = self._guess(targets)
        found: list[Reach] = []
        thorough = drive and bound == math.inf
        best, (looks, more) = bound, _LOOKS if thorough else _FEW_LOOKS
        good: collections.Counter[int] = collections.Counter()
        order = np.argsort(guess, kind="stable")[: int(np.isfinite(guess).sum())]
        for _ in range(1 + thorough):
            left, gone = looks, 0
            for i in order:
                if guess[i] >= best or left == 0 or more == 0:
                    break
                gone += 1
                row = int(targets.row[i])
                if good[row] == _ENOUGH_OF_A_STANCE:
                    continue
                later = 0.0 if wanted is None else wanted(int(i))
                if not np.isfinite(later) or guess[i] + later >= best:
                    continue
                left -= 1
                more -= bool(good)
                reach = self._look(targets, int(i), margins, touching)
                if reach is not None:
                    later += 0.0 if after is None else after(reach)
                    found.append(dataclasses.replace(reach, steps=reach.steps + later))
                    if reach.direct:
                        good[row] += 1
                        best = min(best, found[-1].steps)
            if found or left > 0:
                break
            # One obstacle may block all of the best candidates, so others are sampled evenly.
            order = order[gone :: (len(order) - gone) // looks + 1]
        found.sort(key=lambda reach: reach.steps)
        if not drive:
            # Of a plan for later only the duration is needed.
            if self.enclosed and not self._any_roll:
                found = self._with_paths(found)
            return found[0] if found else None
        return self._first_drivable(self._with_paths(found))

    def least(self, targets: CupTargets) -> float:
        """Returns the estimated cost of the quickest target in control steps."""
        return float(self._guess(targets).min(initial=math.inf))

    def from_arm(self, arm: np.ndarray) -> "StanceSearch":
        """Returns a search with the same stances for another present arm posture (7,)."""
        other = copy.copy(self)
        other.scene, other._highs = dataclasses.replace(self.scene, arm=arm), None
        return other

    def carrying(self, held: Held) -> "StanceSearch":
        """Returns a search with the same stances for a robot that holds an object, at any roll."""
        other = copy.copy(self)
        other._any_roll = True
        other.scene = dataclasses.replace(self.scene, held=held)
        other._seen, other._highs = {}, None
        return other

    def _guess(self, targets: CupTargets) -> np.ndarray:
        """Returns the estimated cost (m,) of each target in control steps, inf if out of reach."""
        stances, arm = self.stances, self.scene.arm
        far = _arm_estimates(
            targets.row, stances.stance, targets.tip + targets.shift, targets.pointing, arm,
            targets.axis_cup, self._any_roll, *table().arguments(),
        )  # fmt: skip
        far[far > MOST_RAD + 0.2] = np.inf
        return self._steps(targets.row, far, targets.extra + _TOUCH_STEPS)

    def _steps(self, row: np.ndarray, far: np.ndarray, extra: np.ndarray) -> np.ndarray:
        """Returns control steps (m,) of driving and of an arm motion by `far` (m,) rad and back."""
        return self._drive[row] + hurried(self._on[row] + 2.0 * far / ARM_DELTA_RAD + extra)

    def _look(
        self, targets: CupTargets, i: int, margins: tuple[float, float], touching: int
    ) -> Reach | None:
        """Returns the plan for one target if it is free, with `steps` of drive and arm, or None."""
        scene, row = self.scene, int(targets.row[i])
        here = bool(self.stances.here[row])
        margin, touch_margin = np.minimum(_HERE, margins) if here else margins
        stance, advance = self.stances.stance[row], float(self.stances.advance[row])
        apart = self._checker(row, 1.0, -1)
        contact = self._checker(row, 1.0, touching)
        pointing, tip = to_base(stance, targets.pointing[i]), targets.tip[i]
        for share, cost in targets.shares:
            target = targets.at(i, share)
            shift = to_base(stance, target.shift)
            far, ready, there = reach_and_touch(
                point_to_base(stance, tip + target.shift),
                pointing,
                point_to_base(stance, target.point),
                target.axis_cup,
                to_base(stance, target.axis),
                target.offset,
                shift,
                scene.arm,
                apart.arguments(),
                margin,
                contact.arguments(),
                contact.target,
                touch_margin,
                MOST_RAD,
                # The last motion must be short in joint space too, or the cup leaves its line.
                _STRETCH_RAD * math.sqrt(float(shift @ shift)),
                *table().arguments(),
            )
            if np.isfinite(far):
                steps = cost + float(targets.extra[i])
                break
        else:
            return None
        if not here and not _steady(target, stance, ready, there):
            return None
        via = self._via(row, ready, margin)
        if via is None:
            return None
        steps += float(np.abs(there - ready).max()) / ARM_DELTA_RAD
        steps += float(np.abs(ready - via).max()) / ARM_DELTA_RAD
        direct = edge_free(self._checker(row, 0.0, -1), scene.arm, via, MARGINS_M[1])
        if not direct:
            steps += DETOUR_STEPS
        if blocked_view(there, scene.spheres) > HIDDEN_VIEW:
            steps += _BLIND_STEPS[self.enclosed or scene.held is not None]
        every = np.array([row])
        total = float(self._steps(every, np.array([far]), np.array([steps]))[0])
        first = scene.base if here else self.stances.first[row]
        path = via[None]
        return Reach(
            target, None, first, advance, stance, via, path, ready, there, total, direct, scene.arm
        )

    def _checker(self, row: int, share: float, touching: int) -> ArmChecker:
        """Returns the collision checker after a share of a stance's advance; cached."""
        key = (row, share if self.stances.advance[row] else 1.0, touching)
        if key not in self._seen:
            base = ahead(self.stances.first[row], share * float(self.stances.advance[row]))
            self._seen[key] = self.scene.checker(base, touching=touching)
        return self._seen[key]

    def _via(self, row: int, ready: np.ndarray, margin: float) -> np.ndarray | None:
        """Returns the arm posture (7,) for the advance to a stance, or None."""
        if not self.stances.advance[row]:
            return ready
        shares = _SHARES_INSIDE if self.enclosed else _SHARES
        way = [self._checker(row, share, -1) for share in shares]
        if all(checker.free(ready, margin) for checker in way):
            return ready
        if self._highs is None:
            self._highs = high_postures(self.scene)
        last = self._checker(row, 1.0, -1)
        for high in self._highs:
            if all(checker.free(high, margin) for checker in (*way, last)):
                return high
        return None

    def _with_paths(self, found: list[Reach]) -> list[Reach]:
        """Replaces estimated arm paths by planned ones; returns feasible plans sorted by cost."""
        arm = self.scene.arm
        better: list[Reach] = []
        best, detours = np.inf, 0
        for reach in found:
            if reach.steps >= best or detours == _MAX_DETOURS:
                break
            if reach.via is not reach.ready:
                # The high posture is above the furniture, so a path down is required.
                after = self.scene.checker(reach.stance)
                if not edge_free(after, reach.via, reach.ready, MARGINS_M[1]):
                    detours += 1
                    down = widest_path(after, reach.via, reach.ready)
                    if down is None:
                        continue
                    more = duration(down[0]) - duration(np.stack([reach.via, reach.ready]))
                    reach = dataclasses.replace(reach, steps=reach.steps + (1.0 + _HASTE) * more)
            if reach.direct:
                better.append(reach)
                best = min(best, reach.steps)
                continue
            detours += 1
            way = widest_path(self.scene.checker(reach.first), arm, reach.via)
            if way is None:
                continue
            more = duration(way[0]) - duration(np.stack([arm, reach.via])) - DETOUR_STEPS
            steps = reach.steps + (1.0 + _HASTE) * more
            better.append(dataclasses.replace(reach, path=way[0][1:], steps=steps))
            best = min(best, steps)
        return sorted(better, key=lambda reach: reach.steps)

    def _first_drivable(self, found: list[Reach]) -> Reach | None:
        tried = 0
        for reach in found:
            if reach.first is self.scene.base:
                return reach
            if any(np.abs(reach.first - pose).max() < _SAME_PLACE for pose in self._walled):
                continue
            legs = plan_drive(self._footprint, self.scene.base, reach.first)
            if legs is not None:
                return dataclasses.replace(reach, legs=legs)
            self._walled.append(reach.first)
            tried += 1
            if tried == _MAX_DRIVES:
                break
        return None


def _steady(target: CupTarget, stance: np.ndarray, ready: np.ndarray, there: np.ndarray) -> bool:
    """Returns whether a target can also be reached if the base misses its stance a little."""
    for turn in (_MISSED_RAD, -_MISSED_RAD):
        missed = ahead(stance + np.array([0.0, 0.0, turn]), -_MISSED_M)
        axis = to_base(missed, target.axis)
        for q, share in ((ready, 1.0), (there, 0.0)):
            point = point_to_base(missed, target.point + share * target.shift)
            if not inverse(q, point, target.axis_cup, axis, q, target.offset, 40, 0.3)[0]:
                return False
    return True


def hurried(steps: np.ndarray) -> np.ndarray:
    """Returns control steps (m,) with a penalty for those beyond `_COMFORTABLE_STEPS`."""
    return steps + _HASTE * np.maximum(steps - _COMFORTABLE_STEPS, 0.0)


@njit(cache=True)
def _arm_estimates(
    row: np.ndarray,
    stance: np.ndarray,
    tip: np.ndarray,
    pointing: np.ndarray,
    arm: np.ndarray,
    axis_cup: np.ndarray,
    any_roll: bool,
    count: np.ndarray,
    postures: np.ndarray,
    upward: np.ndarray,
) -> np.ndarray:
    """Estimates the arm's motion (m,), rad, to cup poses at their stances."""
    points, axes = np.empty((row.shape[0], 3)), np.empty((row.shape[0], 3))
    angles = np.full(row.shape[0], np.nan)
    for i in range(row.shape[0]):
        x, y, yaw = stance[row[i]]
        c, s = math.cos(yaw), math.sin(yaw)
        dx, dy = tip[i, 0] - x, tip[i, 1] - y
        points[i, 0], points[i, 1], points[i, 2] = c * dx + s * dy, c * dy - s * dx, tip[i, 2]
        dx, dy = pointing[i, 0], pointing[i, 1]
        axes[i, 0], axes[i, 1], axes[i, 2] = c * dx + s * dy, c * dy - s * dx, pointing[i, 2]
        if not any_roll:
            angles[i] = up_angle_of(axis_cup[i])
    return estimates(points, axes, arm, angles, count, postures, upward)


def under_something(scene: Scene, point: np.ndarray) -> bool:
    """Returns whether furniture is within `_ROOM_M` above a point (3,), as in a fridge."""
    bodies = static_bodies(scene.layout, scene.joints)
    delta = bodies.centre - point
    local = np.einsum("nji,nj->ni", bodies.rotation, delta)
    over = (np.abs(local[:, :2]) < bodies.half[:, :2]).all(axis=1)
    low = delta[:, 2] - bodies.half[:, 2]
    return bool((over & (low > 0.0) & (low < _ROOM_M)).any())


def high_postures(scene: Scene) -> tuple[np.ndarray, ...]:
    """Returns postures with the cup above the rest point, for advances over furniture."""
    found = (posture_at(np.add(REST_EE, shift), scene.arm) for shift in _HIGH_SHIFTS)
    return tuple(q for q in found if q is not None)


def posture_at(point: np.ndarray, near: np.ndarray) -> np.ndarray | None:
    """Returns the posture (7,) nearest to `near` with the cup at a point (3,), or None.

    The point is in the base frame. The cup may point in any direction.
    """
    best, chosen = MOST_RAD, None
    for seed in itertools.chain((near,), SEEDS):
        ok, q = inverse(seed, point, CUP_AXIS, CUP_AXIS, near, NO_OFFSET, 60, 0.0)
        cost = float(np.abs(q - near).max())
        if ok and cost < best:
            best, chosen = cost, q
    return chosen
