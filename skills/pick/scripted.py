"""Pick: to the object along a collision-free path, touch, lift, back to rest."""

import numpy as np

from skills.scripted.grasps import destination, plan_pick
from skills.scripted.routine import Blocked, Routine, Steps
from skills.scripted.search import Reach
from tpsrl.world.kinematics import cup_pose, inverse
from tpsrl.world.reach import CUP_AXIS, NO_OFFSET

_TRIES = 3
_LIFTS_M = (0.08, 0.05, 0.03)
_LIFT_RAD = 0.35  # a lift that needs more is left to the way to rest
_PRESS_M = 0.025  # how far past the planned contact the cup may push before it gives up


class ScriptedPick(Routine):
    """TP-SPA's Pick; plans anew when the arm is blocked or the touch missed."""

    def run(self) -> Steps:
        """See `Routine.run`."""
        for _ in range(_TRIES):
            try:
                if self.world.held[0] < 0:
                    yield from self._grasp()
                if self.world.held[0] >= 0:
                    yield from self._lift()
                    yield from self.to_rest()
                    return
            except Blocked as blocked:
                self.note(f"blocked_{blocked}")
                self.resync()

    def _grasp(self) -> Steps:
        self.grip = -1.0
        index, goal = self.goal.object, destination(self.episode, self.goal.object)
        reach = yield from self.reach(lambda scene: plan_pick(scene, index, goal))
        if reach is None:
            self.note("no_grasp")
            yield from self.to_rest()
            return
        self.grip, self.phase = 1.0, "contact"
        yield from self.follow(self._contact_path(reach), until_held=True)
        if self.world.held[0] < 0:
            yield from self.wait(2)
        if self.world.held[0] < 0:
            self.note("missed")
            self.grip = -1.0
            yield from self.follow(reach.ready[None])
        self.resync()

    def _contact_path(self, reach: Reach) -> np.ndarray:
        """Through the planned contact, seen from where the base really is, and `_PRESS_M` on."""
        scene = self.look()
        contact = scene.checker(scene.base, touching=self.goal.object)
        cost, there = reach.target.posture(scene.base, 0.0, contact, 0.0, self._command)
        if cost > 0.8:
            there = reach.there
        tip, turn = cup_pose(there)
        axis = turn[:, 0].copy()
        ok, beyond = inverse(
            there, tip + _PRESS_M * axis, CUP_AXIS, axis, there, NO_OFFSET, 40, 0.3
        )
        half = (self._command + there) / 2
        return np.array([half, there, beyond] if ok else [half, there])

    def _lift(self) -> Steps:
        """Straight up from where the object stood, so that it drags along nothing."""
        self.resync()
        self.phase = "lift"
        scene = self.look()
        tip, turn = cup_pose(scene.arm)
        checker = scene.checker(scene.base)
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
        # The highest of the quick ones.
        quick = [q for cost, q in found if cost < _LIFT_RAD]
        yield from self.follow((quick[0] if quick else min(found, key=lambda f: f[0])[1])[None])
        yield from self.rise()
