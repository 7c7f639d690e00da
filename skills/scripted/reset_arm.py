"""Reset of the arm to rest, which HAB's fixed plan has after every skill."""

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
_ROOM_M = 0.03  # clearance, so that an object just placed is not knocked over
_GAIN_RAD = 0.06  # minimum gain for a further move of an arm at rest
# Weight of the distance to the next skill's posture. Steps of the reset are not scarce, unlike
# those of skills; among postures equally good for the next skill the nearer one is taken.
_LATER = 10.0
_THERE_RAD = 0.05  # as in habitat-baselines


class StraightResetArm:
    """Turns all joints straight to the posture in which skills start.

    This follows `ResetArmSkill` of habitat-baselines, except that joints do not wait for the
    slowest one, because the protocol allows 50 steps. Policies are trained with starts in this
    posture.
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
        """Returns {}: the only failure is a timeout."""
        return {}


class ScriptedResetArm(Routine):
    """Moves the arm near its resting point on a collision-free path.

    Among the postures at rest it prefers those from which the next skill is quick. Only the arm may
    move: if the robot cannot drive away with the arm at rest, the arm is raised instead.
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
        """Moves from rest to a better posture at rest, if a path has enough clearance."""
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
    """Returns candidate postures (7,) at rest, the best first."""
    stays = reach is not None and reach.first is scene.base
    later = None if reach is None else reach.via
    found = resting(scene, checker, not stays, later, _LATER, most, margin)
    if reach is not None:
        if reach.arm is not scene.arm and checker.free(reach.arm, margin):
            found.append(reach.arm)
        found.sort(key=lambda q: _far(scene, reach, q))
    return found


def _far(scene: Scene, reach: Reach, posture: np.ndarray) -> float:
    """Estimates the motion (rad) of the arm from a posture (7,) that the next skill needs."""
    # The last wrist joint is excluded: it has no limits and turns while the others move.
    far = float(np.abs(reach.via - posture)[:6].max())
    free = edge_free(scene.checker(reach.first), posture, reach.via, MARGINS_M[1])
    return far if free else far + DETOUR_STEPS * ARM_DELTA_RAD
