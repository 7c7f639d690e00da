"""Reset arm: back to the resting posture, as HAB's fixed plan has it after every skill."""

import numpy as np

from skills.scripted.folding import resting
from skills.scripted.grasps import reach_to_come
from skills.scripted.motion import MARGINS_M, edge_free
from skills.scripted.routine import Routine, Run
from skills.scripted.scene import Scene
from skills.scripted.search import DETOUR_STEPS, Reach
from tpsrl.world.action import ARM_DELTA_RAD

_STEPS = 45  # a plan gives it 50
_GAIN_RAD = 0.06  # an arm at rest moves on for no less
# The next skill's steps are scarce, and these are not; but of two postures that serve it equally
# well the nearer one is taken.
_LATER = 10.0


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
        reach = reach_to_come(scene, self.episode)
        if resting_now and reach is None:
            return True
        checker = scene.checker(scene.base)
        stays = reach is not None and reach.first is scene.base
        later = None if reach is None else reach.via
        postures: list[np.ndarray] = []
        for most in (_STEPS * ARM_DELTA_RAD, np.inf):
            postures = postures or resting(scene, checker, not stays, later, _LATER, most)
        least = np.inf
        if reach is not None:
            postures.sort(key=lambda q: _far(scene, reach, q))
            if resting_now:
                least = _far(scene, reach, scene.arm) - _GAIN_RAD
        for posture in postures:
            if reach is not None and _far(scene, reach, posture) > least:
                return True
            path = self.path_to(posture, checker)
            if path is not None:
                yield from self.follow(path)
                return True
        if not resting_now:
            yield from self.rise()
        return True


def _far(scene: Scene, reach: Reach, posture: np.ndarray) -> float:
    """About how far (rad) the arm will have to move from a posture (7,) for what comes next."""
    # The wrist's last joint is left out, which has no stops and turns beside the others.
    far = float(np.abs(reach.via - posture)[:6].max())
    free = edge_free(scene.checker(reach.first), posture, reach.via, MARGINS_M[1])
    return far if free else far + DETOUR_STEPS * ARM_DELTA_RAD
