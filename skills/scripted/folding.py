"""Bringing the arm back to rest, by the quickest free way."""

import dataclasses

import numpy as np

from skills.scripted.grasps import posture_to_come
from skills.scripted.motion import MARGINS_M, duration, edge_free
from skills.scripted.moves import Moves, Steps
from skills.scripted.navigation import STOP_STEPS, Leg
from skills.scripted.resting import rest_postures
from skills.scripted.scene import Scene
from skills.scripted.stances import ahead, drivable
from tpsrl.world import action as act
from tpsrl.world.collision import REST, ArmChecker
from tpsrl.world.kinematics import cup_pose, inverse
from tpsrl.world.reach import CUP_AXIS, NO_OFFSET

# What the way to the next thing counts beside the way to rest: steps of the skill that are gone at
# most, weight.
_LATER = ((90, 0.6), (115, 0.25), (140, 0.1))
AT_REST_M = 0.14  # the skills ask for 0.15 m
_BACK_OFFS_M = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.65)  # how far to back off before the arm is folded
_NARROW_M = 0.03  # spheres are a little fatter than what they stand for
_MAX_PATHS = 2  # around something, to postures at rest
_LEAST_FOLD_STEPS = 45.0
_RISES_M = tuple(0.04 * k for k in range(1, 9))


class Folding(Moves):
    """Moves that end with the arm at rest."""

    def at_rest(self) -> bool:
        """Whether the cup is near its resting point and the robot can drive off like this."""
        if self.rest_m >= AT_REST_M:
            return False
        scene = self.look()
        return drivable(scene.footprint(scene.arm), scene.base, 0.0)

    def to_rest(self) -> Steps:
        """Brings the cup near its resting point by the shortest free way.

        The skill asks for the end effector within 0.15 m of the point, in any posture, so the
        nearest one is looked for with which the robot can drive off. Where there is none, as over
        a sink with a tall box in the cup, it rises first.
        """
        self.phase = "rest"
        way = self._way_to_rest()
        if way is None:
            yield from self.rise()
            way = self._way_to_rest()
        if way is None:
            self.note("no_path_to_rest")
            yield from self.follow(REST[None])
            return
        backing, path = way
        if backing:
            self.note("backed_off")
            x, y, yaw = ahead(self.world.base[0], -backing)
            yield from self.drive_and_follow([Leg(x, y, yaw, -1)] * 2, path)
        else:
            yield from self.follow(path)

    def _way_to_rest(self) -> tuple[float, np.ndarray] | None:
        """How far to back off (m), and the arm's path (k, 7) from there; the quickest, or None.

        Backing off takes a few steps, and folding the arm between shelves many.
        """
        scene = self.look()
        footprint = scene.footprint(scene.arm)
        start = footprint.margin(*scene.base)
        least = min(start, 0.0) - _NARROW_M
        best, chosen = np.inf, None
        later, _ = posture_to_come(scene, self.episode)
        spent = sum(self._phases.values())
        weight = next((weight for most, weight in _LATER if spent < most), 0.0)
        for backing in _BACK_OFFS_M:
            steps = backing / act.STEP_M + STOP_STEPS if backing else 0.0
            if steps + _LEAST_FOLD_STEPS >= best:
                break
            base = ahead(scene.base, -backing)
            margin = footprint.margin(*base)
            if margin < least:
                break
            if margin < min(0.0, start):
                continue  # backing on through a narrow place may do
            there = dataclasses.replace(scene, base=base)
            checker = there.checker(base)
            path = self._fold(there, checker, backing < _BACK_OFFS_M[-2], later, weight)
            if path is not None:
                steps += duration(np.vstack([scene.arm[None], path]))
                if steps < best:
                    best, chosen = steps, (backing, path)
        return chosen

    def _fold(
        self,
        scene: Scene,
        checker: ArmChecker,
        only_drivable: bool,
        later: np.ndarray | None,
        weight: float,
    ) -> np.ndarray | None:
        """The arm's way (k, 7) to rest, straight if there is a straight one, or None."""
        postures = resting(scene, checker, only_drivable, later, weight)
        for posture in postures:
            if edge_free(checker, scene.arm, posture, MARGINS_M[1]):
                return posture[None]
        paths = (self.path_to(posture, checker) for posture in postures[:_MAX_PATHS])
        return min((p for p in paths if p is not None), key=duration, default=None)

    def rise(self) -> Steps:
        """Lifts the cup straight up until the robot could drive off."""
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


def resting(
    scene: Scene,
    checker: ArmChecker,
    only_drivable: bool,
    later: np.ndarray | None = None,
    weight: float = _LATER[-1][1],
    most: float = np.inf,
) -> list[np.ndarray]:
    """Free resting postures at a base pose, the best first; those that let the robot drive off.

    `later`, `weight` and `most` as in `rest_postures`.
    """
    found = rest_postures(scene, checker, MARGINS_M[1], later, weight, most)
    if not only_drivable:
        return found
    return [q for q in found if drivable(scene.footprint(q), scene.base, 0.0)]
