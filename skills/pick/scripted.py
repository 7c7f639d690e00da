"""Pick: to the object along a collision-free path, touch, lift, back to rest."""

import numpy as np

from skills.scripted.grasps import destination, plan_pick
from skills.scripted.routine import AT_REST_M, Routine, Run, Steps
from skills.scripted.search import Reach
from tpsrl.world.collision import distance_to
from tpsrl.world.kinematics import cup_pose, inverse
from tpsrl.world.reach import CUP_AXIS, NO_OFFSET

_LIFTS_M = (0.05, 0.08, 0.03)
_LIFT_RAD = 0.35  # a lift that needs more is left to the way to rest
_LIFTED_M = 0.03  # from everything, and it drags along nothing
_PRESS_M = 0.025  # how far past the planned contact the cup may push before it gives up
_SUCK_M = 0.012  # from the object the cup begins to suck, or it would take a neighbour
_ROLLS_M, _GONE_M = 0.002, 0.3  # in a step; from where it was
_MOVED_M = 0.02  # an object that has moved so far is to be grasped in another way


class ScriptedPick(Routine):
    """TP-SPA's Pick."""

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
        """See `Routine.still`; the cup sucks only where nothing else can come into it."""
        if self.phase == "contact" and self.world.held[0] < 0:
            self.grip = 1.0 if self._gap() < _SUCK_M else -1.0
        return super().still()

    def _gap(self) -> float:
        """How far (m) the cup's tip is from the object's surface."""
        scene, index = self.look(), self.goal.object
        body = scene.objects
        cup = np.asarray(self.world.ee_pos[0], dtype=np.float64)
        return float(
            distance_to(
                body.kind[index], body.centre[index], body.rotation[index], body.half[index], cup
            )
        )

    def outdated(self) -> bool:
        """See `Routine.outdated`; the object has moved, or is no longer held."""
        if self._planned_held != self.world.held[0]:
            return self.phase != "contact"
        if self.world.held[0] >= 0 or self._moved() < _MOVED_M:
            return False
        # Where a rolling object will lie is not known before it is there.
        place = np.array(self.world.object_pos[0, self.goal.object])
        rolled = float(np.linalg.norm(place - self._place))
        self._place = place
        return rolled < _ROLLS_M or self._moved() > _GONE_M

    def _moved(self) -> float:
        place = np.asarray(self.world.object_pos[0, self.goal.object])
        return float(np.linalg.norm(place - self._planned_place))

    def _remember(self) -> None:
        """Notes what the plan rests on."""
        self._planned_held = int(self.world.held[0])
        self._planned_place = np.array(self.world.object_pos[0, self.goal.object])
        self._place: np.ndarray = self._planned_place

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
        """Through the planned contact, seen from where the base really is, and `_PRESS_M` on."""
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
        """Straight up from where the object stood, so that it drags along nothing."""
        self._remember()
        scene = self.look()
        checker = scene.checker(scene.base)
        if checker.clearance(scene.arm, _LIFTED_M) >= _LIFTED_M:
            return
        self.phase = "lift"
        tip, turn = cup_pose(scene.arm)
        found = []
        for height in _LIFTS_M:
            ok, q = inverse(
                scene.arm, tip + np.array([0.0, 0.0, height]), CUP_AXIS, turn[:, 0].copy(),
                scene.arm, NO_OFFSET, 60, 0.3,
            )  # fmt: skip
            if ok and checker.free(q, 0.0):
                found.append((float(np.abs(q - scene.arm).max()), q))
        if not found:
            self.note("no_lift")
            return
        # The first of the quick ones.
        quick = [q for cost, q in found if cost < _LIFT_RAD]
        lifted = quick[0] if quick else min(found, key=lambda f: f[0])[1]
        yield from self.follow(lifted[None], through=True)
        yield from self.rise()
