"""Return of the arm to rest on the quickest collision-free path."""

import dataclasses

import numpy as np

from skills.scripted.moves import Moves, Steps
from tpsrl.motion.arm.rest_poses import hidden_share, rest_postures
from tpsrl.motion.arm.rrt import MARGINS_M, duration, edge_free
from tpsrl.motion.base.driving import STOP_STEPS, Leg
from tpsrl.motion.base.stances import ahead, drivable
from tpsrl.motion.base.tip_tracking import steps_of, ways_back
from tpsrl.motion.scene import Scene
from tpsrl.motion.suction.grasps import reach_to_come
from tpsrl.world import action as act
from tpsrl.world.collision import REST, ArmChecker
from tpsrl.world.kinematics import cup_pose, inverse
from tpsrl.world.reach import CUP_AXIS, NO_OFFSET

# Weight of the path to the next target relative to the path to rest, by the number of steps spent
# in the skill: (maximum steps, weight).
_LATER = ((90, 0.6), (115, 0.25), (140, 0.1))
AT_REST_M = 0.14  # the skills require 0.15 m
_BACK_OFFS_M = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.65)  # backward drives before folding
# Tolerated overlap of a backward drive. Spheres are slightly larger than the bodies that they stand
# for, so the larger value is tried if there is no path with the smaller one.
_GRAZED_M, _NARROW_M = 0.006, 0.03
_MAX_PATHS = 2  # planned paths around obstacles, to postures at rest
_LEAST_FOLD_STEPS = 45.0
# If the path to rest takes more than _SLOW_STEPS, leading the cup out from between obstacles is
# tried, and chosen if it saves at least _SAVING_STEPS.
_SLOW_STEPS, _SAVING_STEPS = 70.0, 8.0
# Additional costs of a step in which the held object hides most of the camera's view, and of a step
# beyond _SKILL_STEPS.
_HIDDEN, _LATE, _SKILL_STEPS = 1.0, 5.0, 195
_LITTLE = 0.4  # relative additional cost up to which the first free path is taken
_DEPTHS_M = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.65])
_RISES_M = tuple(0.04 * k for k in range(1, 9))


class Folding(Moves):
    """Moves that return the arm to rest."""

    def at_rest(self) -> bool:
        """Returns whether the cup is near its resting point and the robot can drive away."""
        if self.rest_m >= AT_REST_M:
            return False
        scene = self.look()
        return drivable(scene.footprint(scene.arm), scene.base, 0.0)

    def to_rest(self) -> Steps:
        """Brings the cup near its resting point on the quickest free path.

        Skills require the end effector within 0.15 m of the point in any posture, so the target is
        the nearest posture with which the robot can drive away. From between obstacles the cup is
        led out first. If there is no path, as over a sink with a tall box in the cup, the cup is
        raised first.
        """
        self.phase = "rest"
        later = self._to_come()
        way = self._way_to_rest(_GRAZED_M, later)
        if way is None or way.steps > _SLOW_STEPS:
            out = self._way_from_between(way)
            if out is not None:
                self.note("led_out")
                yield from self.lead(out)
                later = self._to_come()
            way = self._way_to_rest(_NARROW_M, later)
        if way is None:
            yield from self.rise()
            way = self._way_to_rest(_NARROW_M, self._to_come())
        if way is None:
            self.note("no_path_to_rest")
            yield from self.follow(REST[None])
        elif way.backing:
            self.note("backed_off")
            x, y, yaw = ahead(self.world.base[0], -way.backing)
            yield from self.drive_and_follow([Leg(x, y, yaw, -1)] * 2, way.path)
        else:
            yield from self.follow(way.path)

    def _way_to_rest(self, grazing: float, later: np.ndarray | None) -> "_Way | None":
        """Returns the quickest way to rest with a straight backward drive, or None.

        Backing off takes few steps, folding the arm between shelves many.

        Args:
            grazing: tolerated overlap with obstacles during the drive (m)
            later: (7,) posture needed next, see `_to_come`; None: unknown
        """
        scene = self.look()
        footprint = scene.footprint(scene.arm)
        start = footprint.margin(*scene.base)
        least = min(start, 0.0) - grazing
        best: _Way | None = None
        spent = sum(self._phases.values())
        weight = next((weight for most, weight in _LATER if spent < most), 0.0)
        left = _SKILL_STEPS - spent
        for backing in _BACK_OFFS_M:
            steps = backing / act.STEP_M + STOP_STEPS if backing else 0.0
            if best is not None and steps + _LEAST_FOLD_STEPS >= best.cost:
                break
            base = ahead(scene.base, -backing)
            margin = footprint.margin(*base)
            if margin < least:
                break
            if margin < min(0.0, start):
                continue  # a longer drive through the narrow place may be free
            there = dataclasses.replace(scene, base=base)
            checker = there.checker(base)
            postures = resting(there, checker, backing < _BACK_OFFS_M[-2], later, weight)
            path = _straight(there, checker, postures, left - steps)
            if path is None:
                found = (self.path_to(posture, checker) for posture in postures[:_MAX_PATHS])
                paths = [path for path in found if path is not None]
                path = min(paths, key=lambda path: _cost(scene, path, left), default=None)
            if path is not None:
                cost = steps + _cost(scene, path, left - steps)
                if best is None or cost < best.cost:
                    steps += duration(np.vstack([scene.arm[None], path]))
                    best = _Way(cost, steps, backing, path)
        return best

    def _to_come(self) -> np.ndarray | None:
        """Returns the posture (7,) needed by the next skill, or None if unknown."""
        reach = reach_to_come(self.look(), self.episode)
        return None if reach is None else reach.via

    def _way_from_between(self, straight: "_Way | None") -> np.ndarray | None:
        """Returns base poses (k, 3) that lead the cup out first, None unless this saves steps."""
        scene = self.look()
        tip, _ = cup_pose(scene.arm)
        best = np.inf if straight is None else straight.steps - _SAVING_STEPS
        chosen = None
        for way in ways_back(scene.footprint(scene.arm), scene.base, tip, _DEPTHS_M):
            steps = steps_of(way)
            if steps + _LEAST_FOLD_STEPS >= best:
                break
            there = dataclasses.replace(scene, base=way[-1])
            checker = there.checker(there.base)
            path = _straight(there, checker, resting(there, checker, True), 0.0)
            if path is not None:
                steps += duration(np.vstack([scene.arm[None], path]))
                if steps < best:
                    best, chosen = steps, way
        return chosen

    def rise(self) -> Steps:
        """Lifts the cup straight up until the robot can drive away."""
        self.phase = "rise"
        scene = self.look()
        checker = scene.checker(scene.base)
        least = min(0.0, checker.clearance(scene.arm)) - 0.005
        tip, _ = cup_pose(scene.arm)
        q, rising = scene.arm, []
        for height in _RISES_M:
            if drivable(scene.footprint(q), scene.base, -0.01):
                break
            point = tip + np.array([0.0, 0.0, height])
            ok, q = inverse(q, point, CUP_AXIS, CUP_AXIS, q, NO_OFFSET, 60, 0.0)
            if not ok or not checker.free(q, least):
                break
            rising.append(q)
        if rising:
            self.note("rose")
            yield from self.follow(np.array(rising), through=True)


@dataclasses.dataclass(frozen=True, slots=True)
class _Way:
    """Way to rest: cost (see `_cost`), control steps, backward drive (m), arm path (k, 7)."""

    cost: float
    steps: float
    backing: float
    path: np.ndarray


def _straight(
    scene: Scene, checker: ArmChecker, postures: list[np.ndarray], left: float
) -> np.ndarray | None:
    """Returns the free straight path (1, 7) to one of `postures`, or None.

    With an empty hand it is the first free one. Otherwise it is the first one whose cost (`_cost`)
    exceeds its steps by at most `_LITTLE`, or the cheapest one.
    """
    best, chosen = np.inf, None
    for posture in postures:
        if edge_free(checker, scene.arm, posture, MARGINS_M[1]):
            path = posture[None]
            cost, steps = _cost(scene, path, left), duration(np.stack([scene.arm, posture]))
            if cost <= (1.0 + _LITTLE) * steps or scene.held is None:
                return path
            if cost < best:
                best, chosen = cost, path
    return chosen


def _cost(scene: Scene, path: np.ndarray, left: float) -> float:
    """Returns the cost of an arm path (k, 7): its control steps, with two surcharges.

    Steps in which the held object hides the view, and steps beyond the `left` ones, cost more.
    """
    way = np.vstack([scene.arm[None], path])
    steps = duration(way)
    hidden = 0.0 if scene.held is None else hidden_share(scene, way)
    return steps * (1.0 + _HIDDEN * hidden) + _LATE * max(0.0, steps - left)


def resting(
    scene: Scene,
    checker: ArmChecker,
    only_drivable: bool,
    later: np.ndarray | None = None,
    weight: float = _LATER[-1][1],
    most: float = np.inf,
    margin: float = MARGINS_M[1],
) -> list[np.ndarray]:
    """Returns free resting postures (7,) at a base pose, the best first.

    Args:
        scene: with the base pose
        checker: of the base pose
        only_drivable: only postures with which the robot can drive away
        later: see `rest_postures`
        weight: see `rest_postures`
        most: see `rest_postures`
        margin: see `rest_postures`
    """
    found = rest_postures(scene, checker, margin, later, weight, most)
    if not only_drivable:
        return found
    return [q for q in found if drivable(scene.footprint(q), scene.base, 0.0)]
