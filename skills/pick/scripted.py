"""Scripted Pick: reach the object on a collision-free path, touch, lift, return to rest."""

import numpy as np

from skills.pick.gaps import gaps
from skills.pick.gripping import may_grip
from skills.scripted.folding import AT_REST_M
from skills.scripted.moves import Steps
from skills.scripted.routine import Routine, Run
from tpsrl.motion.body.reach_search import Reach, under_something
from tpsrl.motion.scene import Scene, look
from tpsrl.motion.suction.grasps import destination, plan_pick, steps_to_come_out
from tpsrl.world import action as act
from tpsrl.world.kinematics import cup_pose, inverse
from tpsrl.world.reach import CUP_AXIS, NO_OFFSET

_LIFTS_M = (0.05, 0.08, 0.03)
_LIFTS_INSIDE_M = (0.03, 0.015, 0.06, 0.1)  # between shelves
_LIFT_RAD = 0.35  # lifts that need more are left to the path to rest
_LIFTED_M = 0.03  # clearance from which the object drags nothing along
_PRESS_M = 0.025  # how far beyond the planned contact the cup may push
_ROLLS_M, _GONE_M = 0.002, 0.3  # per step, below which it lies still; from the planned position
_MOVED_M = 0.02  # motion of the object that invalidates the planned grasp


class ScriptedPick(Routine):
    """Pick of TP-SPA."""

    _place: np.ndarray  # (3,) of the object at the last check

    def run(self) -> Run:
        """See `Routine.run`."""
        index = self.goal.object
        if self.world.held[0] != index:
            yield from self._grasp()
        if self.world.held[0] != index:
            return False
        if self.rest_m > AT_REST_M:
            yield from self._lift()
            yield from self.to_rest()
        return self.rest_m < AT_REST_M and bool(self.world.held[0] == index)

    def still(self) -> np.ndarray:
        """See `Routine.still`; suction is on only where the cup cannot grasp another object."""
        if self.phase == "contact" and self.world.held[0] < 0:
            objects = look(self.episode, self.world).objects
            near = gaps(objects, self.goal.object, self.world)
            self.grip = 1.0 if may_grip(*near) else -1.0
        return super().still()

    def outdated(self) -> bool:
        """See `Routine.outdated`; the object has moved, or the held object has changed."""
        if self._planned_held != self.world.held[0]:
            return self.phase != "contact"
        if self.world.held[0] >= 0 or self._moved() < _MOVED_M:
            return False
        # The plan is revised only once a rolling object lies still or is far away.
        place = self._object()
        rolled = float(np.linalg.norm(place - self._place))
        self._place = place
        return rolled < _ROLLS_M or self._moved() > _GONE_M

    def _object(self) -> np.ndarray:
        return np.array(self.world.object_pos[0, self.goal.object])

    def _moved(self) -> float:
        return float(np.linalg.norm(self._object() - self._planned_place))

    def _remember(self) -> None:
        """Saves the state on which the plan depends."""
        self._planned_held = int(self.world.held[0])
        self._planned_place = self._place = self._object()

    def _grasp(self) -> Steps:
        self.grip = -1.0
        self._remember()
        index, goal = self.goal.object, destination(self.episode, self.goal.object)
        reach = yield from self.reach(lambda scene: plan_pick(scene, index, goal))
        if reach is None:
            self.note("no_grasp")
            return
        self.phase = "contact"
        yield from self.follow(self._contact_path(reach), until_held=True)
        if self.world.held[0] < 0:
            yield from self.wait(2)
        if self.world.held[0] < 0:
            self.note("missed")

    def _contact_path(self, reach: Reach) -> np.ndarray:
        """Returns postures (k, 7) to contact, from the actual base pose, and `_PRESS_M` beyond."""
        scene = self.look()
        contact = scene.checker(scene.base, touching=self.goal.object)
        there = reach.target.touch(scene.base, contact, 0.0, scene.arm)
        if there is None or float(np.abs(there - scene.arm).max()) > 0.8:
            there = reach.there
        tip, turn = cup_pose(there)
        axis = turn[:, 0].copy()
        ok, beyond = inverse(
            there, tip + _PRESS_M * axis, CUP_AXIS, axis, there, NO_OFFSET, 40, 0.3
        )
        half = (scene.arm + there) / 2
        return np.array([half, there, beyond] if ok else [half, there])

    def _lift(self) -> Steps:
        """Lifts the object straight up, so that it drags nothing along."""
        self._remember()
        scene = self.look()
        checker = scene.checker(scene.base)
        if checker.clearance(scene.arm, _LIFTED_M) >= _LIFTED_M:
            return
        self.phase = "lift"
        inside = under_something(scene, np.asarray(self.world.ee_pos[0]))
        tip, turn = cup_pose(scene.arm)
        found = []
        for height in _LIFTS_INSIDE_M if inside else _LIFTS_M:
            ok, q = inverse(
                scene.arm, tip + np.array([0.0, 0.0, height]), CUP_AXIS, turn[:, 0].copy(),
                scene.arm, NO_OFFSET, 60, 0.3,
            )  # fmt: skip
            if ok and checker.free(q, 0.0):
                found.append(q)
        if not found:
            self.note("no_lift")
            return
        lifted = _soonest_out(scene, found) if inside else _quickest(scene, found)
        yield from self.follow(lifted[None], through=True)
        if not inside:
            yield from self.rise()


def _quickest(scene: Scene, postures: list[np.ndarray]) -> np.ndarray:
    """Returns the first posture (7,) within `_LIFT_RAD`, or the nearest one."""
    cost = [float(np.abs(q - scene.arm).max()) for q in postures]
    quick = [q for q, far in zip(postures, cost, strict=True) if far < _LIFT_RAD]
    return quick[0] if quick else postures[int(np.argmin(cost))]


def _soonest_out(scene: Scene, postures: list[np.ndarray]) -> np.ndarray:
    """Returns the posture (7,) with which the robot leaves the space between shelves soonest.

    The steps to reach the posture are included: the arm moves by 0.7 degrees per step.
    """
    lost = [
        steps_to_come_out(scene.footprint(q), scene.base, q)
        + float(np.abs(q - scene.arm).max()) / act.ARM_DELTA_RAD
        for q in postures
    ]
    return postures[int(np.argmin(lost))]
