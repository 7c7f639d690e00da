"""Scripted Place: reach above the goal, lower, release upright, retreat, return to rest."""

import itertools

import numpy as np

from skills.scripted.folding import AT_REST_M
from skills.scripted.moves import Steps
from skills.scripted.routine import Routine, Run
from tpsrl.motion.suction.grasps import plan_place
from tpsrl.world.kinematics import cup_pose, inverse
from tpsrl.world.reach import CUP_AXIS, NO_OFFSET

_RETREATS_M = (0.05, 0.03)
_RETREAT_RAD = 0.35  # retreats that need more are left to the path to rest
_UP = np.array([0.0, 0.0, 1.0])
_RETREATED_M = 0.05  # clearance from which the hand needs no retreat
_LOWER_MARGIN_M = -0.01  # negative: the object's spheres may overlap others while lowering


class ScriptedPlace(Routine):
    """Place of TP-SPA."""

    def run(self) -> Run:
        """See `Routine.run`."""
        if self.world.held[0] >= 0:
            yield from self._put_down()
        if self.world.held[0] >= 0:
            return False
        if self.rest_m > AT_REST_M:
            yield from self._retreat()
            yield from self.to_rest()
        return self.rest_m < AT_REST_M and bool(self.world.held[0] < 0)

    def outdated(self) -> bool:
        """See `Routine.outdated`; the object is no longer held."""
        return bool(self.world.held[0] < 0) and self.phase in ("drive", "ready", "advance")

    def _put_down(self) -> Steps:
        goal = np.array(self.goal.position, dtype=np.float64)
        reach = yield from self.reach(lambda scene: plan_place(scene, goal))
        if reach is None:
            self.note("no_place")
            return
        self.phase = "lower"
        scene = self.look()
        checker = scene.checker(scene.base)
        line = reach.target.line(scene.base, checker, _LOWER_MARGIN_M, scene.arm)
        yield from self.follow(reach.there[None] if line is None else line)
        yield from self.settle()
        self.grip, self.phase = -1.0, "release"
        yield from self.wait(2)

    def _retreat(self) -> Steps:
        """Retreats along the cup's axis, or upwards, so that the object stays upright."""
        scene = self.look()
        checker = scene.checker(scene.base)
        if checker.clearance(scene.arm, _RETREATED_M) >= _RETREATED_M:
            return
        self.phase = "retreat"
        tip, turn = cup_pose(scene.arm)
        axis = turn[:, 0].copy()
        best, chosen = _RETREAT_RAD, None
        for distance, direction in itertools.product(_RETREATS_M, (-axis, _UP)):
            ok, q = inverse(
                scene.arm, tip + distance * direction, CUP_AXIS, axis, scene.arm, NO_OFFSET, 60, 0.3
            )
            cost = float(np.abs(q - scene.arm).max())
            if ok and cost < best and checker.free(q, 0.0):
                best, chosen = cost, q
        if chosen is None:
            self.note("no_retreat")
        else:
            yield from self.follow(chosen[None], through=True)
