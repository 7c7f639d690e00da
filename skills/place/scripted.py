"""Place: over the goal along a collision-free path, down, let go upright, retreat, back to rest."""

import numpy as np

from skills.scripted.grasps import plan_place
from skills.scripted.routine import Blocked, Routine, Steps
from tpsrl.world.kinematics import cup_pose, inverse
from tpsrl.world.reach import CUP_AXIS, NO_OFFSET

_TRIES = 3
_RETREAT_M = (0.08, 0.05, 0.03)
_LOWER_MARGIN_M = -0.01  # on the way down the object may brush what its spheres overlap


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
        line = reach.target.line(scene.base, checker, _LOWER_MARGIN_M, self._command)
        yield from self.follow(reach.there[None] if line is None else line)
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
        checker = scene.checker(scene.base)
        for distance in _RETREAT_M:
            ok, q = inverse(
                scene.arm, tip - distance * axis, CUP_AXIS, axis, scene.arm, NO_OFFSET, 60, 0.3
            )
            if ok and checker.free(q, 0.0) and float(np.abs(q - scene.arm).max()) < 0.5:
                yield from self.follow(q[None])
                return
        self.note("no_retreat")
