"""Pick: to the object along a collision-free path, touch, lift, back to rest."""

import numpy as np

from skills.scripted.folding import AT_REST_M
from skills.scripted.moves import Steps
from skills.scripted.routine import Routine, Run
from tpsrl.motion.body.reach_search import Reach, under_something
from tpsrl.motion.scene import Scene, look
from tpsrl.motion.suction.grasps import destination, plan_pick, steps_to_come_out
from tpsrl.world import action as act
from tpsrl.world.collision import distances_to
from tpsrl.world.kinematics import cup_pose, inverse
from tpsrl.world.reach import CUP_AXIS, NO_OFFSET

_LIFTS_M = (0.05, 0.08, 0.03)
_LIFTS_INSIDE_M = (0.03, 0.015, 0.06, 0.1)  # between shelves
_LIFT_RAD = 0.35  # a lift that needs more is left to the way to rest
_LIFTED_M = 0.03  # from everything, and it drags along nothing
_PRESS_M = 0.025  # how far past the planned contact the cup may push before it gives up
_ROLLS_M, _GONE_M = 0.002, 0.3  # in a step; from where it was
# The rim of the cup may touch what is so near to its middle: it sucks from there on, but beside
# something else only when it has arrived.
_RIM_M, _CLEAR_M, _TOUCHING_M = 0.026, 0.036, 0.002
_MOVED_M = 0.02  # an object that has moved so far is to be grasped in another way


class ScriptedPick(Routine):
    """TP-SPA's Pick."""

    _place: np.ndarray  # (3,) of the object, when last looked at

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
        """See `Routine.still`; the cup sucks only where nothing but the object comes into it."""
        if self.phase == "contact" and self.world.held[0] < 0:
            own, other = self._gaps()
            alone = own < _RIM_M and other > _CLEAR_M
            self.grip = 1.0 if alone or own < _TOUCHING_M else -1.0
        return super().still()

    def _gaps(self) -> tuple[float, float]:
        """How far (m) the cup's tip is from the object's surface, and from the nearest other's."""
        bodies = look(self.episode, self.world).objects
        cup = np.asarray(self.world.ee_pos[0], dtype=np.float64)
        gaps = distances_to(bodies.kind, bodies.centre, bodies.rotation, bodies.half, cup)
        own = float(gaps[self.goal.object])
        gaps[self.goal.object] = np.inf
        return own, float(gaps.min())

    def outdated(self) -> bool:
        """See `Routine.outdated`; the object has moved, or is no longer held."""
        if self._planned_held != self.world.held[0]:
            return self.phase != "contact"
        if self.world.held[0] >= 0 or self._moved() < _MOVED_M:
            return False
        # Where a rolling object will lie is not known before it is there.
        place = self._object()
        rolled = float(np.linalg.norm(place - self._place))
        self._place = place
        return rolled < _ROLLS_M or self._moved() > _GONE_M

    def _object(self) -> np.ndarray:
        return np.array(self.world.object_pos[0, self.goal.object])

    def _moved(self) -> float:
        return float(np.linalg.norm(self._object() - self._planned_place))

    def _remember(self) -> None:
        """Notes what the plan rests on."""
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
    """The first posture (7,) that is quick to take, or the quickest."""
    cost = [float(np.abs(q - scene.arm).max()) for q in postures]
    quick = [q for q, far in zip(postures, cost, strict=True) if far < _LIFT_RAD]
    return quick[0] if quick else postures[int(np.argmin(cost))]


def _soonest_out(scene: Scene, postures: list[np.ndarray]) -> np.ndarray:
    """The first posture (7,) from which the robot comes out from between shelves the soonest.

    Taking it counts as well: the arm moves by 0.7 degrees a step.
    """
    lost = [
        steps_to_come_out(scene.footprint(q), scene.base, q)
        + float(np.abs(q - scene.arm).max()) / act.ARM_DELTA_RAD
        for q in postures
    ]
    return postures[int(np.argmin(lost))]
