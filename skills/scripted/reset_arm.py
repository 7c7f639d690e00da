"""Reset arm: back to the resting posture, as HAB's fixed plan has it after every skill."""

import numpy as np

from skills.scripted.folding import resting
from skills.scripted.grasps import posture_to_come
from skills.scripted.routine import Routine, Run
from tpsrl.world.action import ARM_DELTA_RAD

_STEPS = 45  # a plan gives it 50
_GAIN_RAD = 0.06  # an arm at rest moves on for no less


class ScriptedResetArm(Routine):
    """Moves the arm near its resting point on a collision-free path, unless it is well there.

    Of the postures at rest it takes one from which what comes next is soon done. The arm is all
    that it may move: where the robot could not drive off with the arm at rest, the arm is raised
    instead.
    """

    def run(self) -> Run:
        """See `Routine.run`."""
        scene = self.look()
        resting_now = self.at_rest()
        later, here = posture_to_come(scene, self.episode)
        if resting_now and later is None:
            return True
        checker = scene.checker(scene.base)
        most = _STEPS * ARM_DELTA_RAD if resting_now else np.inf
        for posture in resting(scene, checker, not here, later, weight=1.0, most=most):
            if resting_now and not _worth(scene.arm, posture, later):
                return True
            path = self.path_to(posture, checker)
            if path is not None:
                yield from self.follow(path)
                return True
        if not resting_now:
            yield from self.rise()
        return True


def _worth(arm: np.ndarray, posture: np.ndarray, later: np.ndarray | None) -> bool:
    """Whether an arm (7,) that is at rest should move on to another posture there."""
    if later is None:
        return False
    # The wrist's last joint is left out, which has no stops and turns beside the others.
    now, then = (float(np.abs(later - q)[:6].max()) for q in (arm, posture))
    return now - then > _GAIN_RAD
