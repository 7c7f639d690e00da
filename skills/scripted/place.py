"""Place: over the goal along a collision-free path, down, let go upright, retreat, back to rest."""

import numpy as np

from skills.scripted.grasps import plan_place
from skills.scripted.routine import Blocked, Routine, Steps
from tpsrl.world.kinematics import cup_pose
from tpsrl.world.reach import CUP_AXIS, NO_OFFSET, best_posture

_TRIES = 3
_RETREAT_M = (0.08, 0.05, 0.03)


class ScriptedPlace(Routine):
    """TP-SPA's Place; plans anew when the arm is blocked."""

    def run(self) -> Steps:
        """See `Routine.run`."""
        for _ in range(_TRIES):
            try:
                if self.world.held[0] >= 0:
                    yield from self._put_down()
                if self.world.held[0] < 0:
                    yield from self._retreat()
                    yield from self.to_rest()
                    yield from self.settle()
                    return
            except Blocked as blocked:
                self.note(f"blocked_{blocked}")
                self.resync()

    def _put_down(self) -> Steps:
        goal = np.array(self.goal.position, dtype=np.float64)
        reach = yield from self.reach(lambda scene: plan_place(scene, goal))
        if reach is None:
            self.note("no_place")
            yield from self.to_rest()
            return
        self.phase = "lower"
        scene = self.look()
        checker = scene.checker(scene.base)
        cost, there = reach.target.posture(scene.base, 0.0, checker, -0.01, self._command)
        yield from self.follow((there if cost < 0.8 else reach.there)[None])
        yield from self.settle()
        yield from self.wait(2)
        self.grip, self.phase = -1.0, "release"
        yield from self.wait(3)

    def _retreat(self) -> Steps:
        """Back along the cup's axis, so that the object is left standing."""
        self.resync()
        self.phase = "retreat"
        scene = self.look()
        tip, turn = cup_pose(scene.arm)
        axis = turn[:, 0].copy()
        arguments = scene.checker(scene.base).arguments()
        for distance in _RETREAT_M:
            cost, q = best_posture(
                tip - distance * axis, CUP_AXIS, axis, NO_OFFSET, scene.arm[None], arguments, -1,
                0.0, scene.arm,
            )  # fmt: skip
            if cost < 0.9:
                yield from self.follow(q[None])
                return
        self.note("no_retreat")
