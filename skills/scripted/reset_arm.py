"""Reset arm: back to the resting posture, as HAB's fixed plan has it after every skill."""

import functools
from typing import Any

import numpy as np

from skills.core.interface import SkillGoal
from skills.scripted.folding import resting
from skills.scripted.moves import Steps
from skills.scripted.routine import Routine, Run
from tpsrl.motion.arm.rest_poses import RESET_RAD, postures_about
from tpsrl.motion.arm.rrt import MARGINS_M, duration, edge_free, plan_path
from tpsrl.motion.body.reach_search import DETOUR_STEPS, Reach
from tpsrl.motion.scene import Scene
from tpsrl.motion.suction.grasps import reach_to_come
from tpsrl.world import action as act
from tpsrl.world.action import ARM_DELTA_RAD
from tpsrl.world.collision import REST, ArmChecker
from tpsrl.world.episode import Episode
from tpsrl.world.state import WorldState

_MOST_STEPS = 50
_ROOM_M = 0.03  # from everything, or what has just been put down is knocked over
_GAIN_RAD = 0.06  # an arm at rest moves on for no less
# The next skill's steps are scarce, and these are not; but of two postures that serve it equally
# well the nearer one is taken.
_LATER = 10.0
_THERE_RAD = 0.05  # as habitat-baselines has it


class StraightResetArm:
    """Turns all joints to the posture in which skills start, each by the shortest way.

    As `ResetArmSkill` of habitat-baselines, but a joint does not wait for the slowest one, as the
    protocol gives 50 steps. Trained policies were trained from this posture on.
    """

    depth_size = None

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """See `skills.core.interface.SkillPolicy.begin`."""

    def act(self, world: WorldState, depth: np.ndarray | None = None) -> np.ndarray:
        """See `skills.core.interface.SkillPolicy.act`; stops within 0.05 rad of the posture."""
        away = REST - np.asarray(world.arm[0])
        result = np.zeros(act.SIZE)
        result[act.ARM] = np.clip(away / ARM_DELTA_RAD, -1.0, 1.0)
        result[act.STOP] = 1.0 if np.abs(away).max() < _THERE_RAD else -1.0
        return result

    def diagnosis(self) -> dict[str, Any]:
        """Always {}: it fails by running out of steps alone."""
        return {}


class ScriptedResetArm(Routine):
    """Moves the arm near its resting point on a collision-free path, unless it is well there.

    Of the postures at rest it takes one from which what comes next is soon done. The arm is all
    that it may move: where the robot could not drive off with the arm at rest, the arm is raised
    instead.
    """

    def run(self) -> Run:
        """See `Routine.run`."""
        scene = self.look()
        checker = scene.checker(scene.base)
        arms = functools.partial(postures_about, scene, checker, MARGINS_M[0])
        reach = reach_to_come(scene, self.episode, arms)
        if self.at_rest():
            yield from self._move_on(scene, checker, reach)
        else:
            yield from self._come_to_rest(scene, checker, reach)
        return True

    def _move_on(self, scene: Scene, checker: ArmChecker, reach: Reach | None) -> Steps:
        """From rest to a better posture at rest, if there is one to which there is much room."""
        crowded = checker.clearance(scene.arm, _ROOM_M) < _ROOM_M
        if reach is None and not crowded:
            return
        for posture in _postures(scene, checker, reach, _ROOM_M, RESET_RAD):
            if reach is not None and not crowded:
                gain = _far(scene, reach, scene.arm) - _far(scene, reach, posture)
                if gain < _GAIN_RAD:
                    return
            path = plan_path(checker, scene.arm, posture, MARGINS_M[0])
            if path is not None:
                if duration(path) <= _MOST_STEPS:
                    yield from self.follow(path[1:])
                return

    def _come_to_rest(self, scene: Scene, checker: ArmChecker, reach: Reach | None) -> Steps:
        found: list[np.ndarray] = []
        for most in (RESET_RAD, np.inf):
            for margin in (_ROOM_M, MARGINS_M[1]):
                found = found or _postures(scene, checker, reach, margin, most)
        for posture in found:
            path = self.path_to(posture, checker)
            if path is not None:
                yield from self.follow(path)
                return
        yield from self.rise()


def _postures(
    scene: Scene, checker: ArmChecker, reach: Reach | None, margin: float, most: float
) -> list[np.ndarray]:
    """Where to bring the arm (7,), the best first."""
    stays = reach is not None and reach.first is scene.base
    later = None if reach is None else reach.via
    found = resting(scene, checker, not stays, later, _LATER, most, margin)
    if reach is not None:
        if reach.arm is not scene.arm and checker.free(reach.arm, margin):
            found.append(reach.arm)
        found.sort(key=lambda q: _far(scene, reach, q))
    return found


def _far(scene: Scene, reach: Reach, posture: np.ndarray) -> float:
    """About how far (rad) the arm will have to move from a posture (7,) for what comes next."""
    # The wrist's last joint is left out, which has no stops and turns beside the others.
    far = float(np.abs(reach.via - posture)[:6].max())
    free = edge_free(scene.checker(reach.first), posture, reach.via, MARGINS_M[1])
    return far if free else far + DETOUR_STEPS * ARM_DELTA_RAD
