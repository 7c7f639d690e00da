"""Pick: to the object along a collision-free path, touch, lift, back to rest."""

import numpy as np

from skills.scripted.grasps import APPROACH_M, LIFT_M, Reach, plan_pick
from skills.scripted.routine import Blocked, Routine, Steps
from tpsrl.world.kinematics import LOWER, UPPER, cup_pose
from tpsrl.world.reach import CUP_AXIS, NO_OFFSET, best_posture

_TRIES = 3
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
        scene = self.look()
        reach = plan_pick(scene, self.goal.object, self._destination())
        if reach is None:
            self.note("no_grasp")
            yield from self.to_rest()
            return
        if reach.legs:
            self.note("moved_base")
            yield from self.to_rest()
            yield from self.drive(reach.legs)
            reach = plan_pick(self.look(), self.goal.object, self._destination()) or reach
        scene = self.look()
        path = self.path_to(reach.ready, scene.checker(scene.base))
        if path is None:
            self.note("no_path_to_object")
            path = reach.ready[None]
        yield from self.follow(path)
        self.grip = 1.0
        yield from self.follow(self._contact_path(reach), until_held=True)
        if self.world.held[0] < 0:
            yield from self.wait(2)
        if self.world.held[0] < 0:
            self.note("missed")
            self.grip = -1.0
            yield from self.follow(reach.ready[None])
        self.resync()

    def _contact_path(self, reach: Reach) -> np.ndarray:
        """From ready through the planned contact straight on by `_PRESS_M`."""
        tip, turn = cup_pose(reach.there)
        axis = turn[:, 0]
        postures = [reach.ready + t * (reach.there - reach.ready) for t in (0.5, 1.0)]
        no_scene = self.look().checker(np.array([1e3, 1e3, 0.0])).arguments()
        beyond, q = best_posture(
            tip + _PRESS_M * axis, CUP_AXIS, axis, NO_OFFSET, reach.there[None], no_scene, -1,
            -1.0, reach.there,
        )  # fmt: skip
        if np.isfinite(beyond):
            postures.append(q)
        return np.clip(np.array(postures), LOWER, UPPER)

    def _lift(self) -> Steps:
        """Straight up from where the object stood, so that it drags along nothing."""
        self.resync()
        scene = self.look()
        tip, turn = cup_pose(scene.arm)
        checker = scene.checker(scene.base)
        for height in (LIFT_M, APPROACH_M / 2):
            cost, q = best_posture(
                tip + np.array([0.0, 0.0, height]), CUP_AXIS, turn[:, 0].copy(), NO_OFFSET,
                scene.arm[None], checker.arguments(), -1, 0.0, scene.arm,
            )  # fmt: skip
            if cost < 0.9:
                yield from self.follow(q[None])
                return
        self.note("no_lift")

    def _destination(self) -> np.ndarray | None:
        for target in self.episode.targets:
            if target.object == self.goal.object:
                return np.array(target.goal)
        return None
