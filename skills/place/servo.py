"""Place by servoing: the demonstrator that policies are cloned from."""

import dataclasses
import math
from collections.abc import Iterator

import numpy as np

from skills.scripted.servoing import Servo, is_covered
from tpsrl.motion.base.stances import Stances, nearest_floor
from tpsrl.motion.scene import Scene
from tpsrl.motion.suction.cup_targets import CupTargets
from tpsrl.motion.suction.placements import standing
from tpsrl.world import action as act
from tpsrl.world.state import WorldState

_BESIDE_M, _ABOVE_M = 0.06, 0.03  # from where it stands best, an object may be let go
_THERE_RAD, _STUCK_M = 0.04, 0.1  # where the arm gets no farther: so near is near enough
_LEANS_RAD = (0.35, 0.7, 1.05)  # it is put down leaning where it cannot be upright
_DROPS_M = (0.0, 0.05, 0.1)  # it is let fall, as into a sink
_NEARER_M = 0.1  # than the goal, towards where the robot can stand
# On a shelf it is brought in from before it, leaning so that the arm stays clear of what is above.
_BEFORE_M, _OVER_M, _LEANS_IN_RAD = 0.2, 0.02, (0.35, 0.0, 0.7, 1.05, 1.3)


class ServoPlace(Servo):
    """See `skills.scripted.servoing`; `SkillGoal.position` is where the held object is to go."""

    def grip(self, scene: Scene) -> float:
        """See `Servo.grip`."""
        return 1.0 if scene.held is not None else -1.0

    def is_done(self, scene: Scene) -> bool:
        """See `Servo.is_done`."""
        return scene.held is None

    def aim(self, scene: Scene) -> np.ndarray:
        """See `Servo.aim`; how the object hangs in the cup counts as well."""
        assert scene.held is not None
        return np.concatenate([np.asarray(self.goal.position, np.float64), scene.held.offset])

    def targets(self, scene: Scene, around: Stances) -> Iterator[CupTargets]:
        """See `Servo.targets`; upright, leaning, let fall from a little above, or nearer."""
        assert scene.held is not None
        goal = np.asarray(self.goal.position, np.float64)
        if is_covered(scene, goal):
            for lean in _LEANS_IN_RAD:
                yield _from_before(standing(scene, scene.held, goal, around, lean), around)
        yield standing(scene, scene.held, goal, around)
        for lean in _LEANS_RAD:
            yield standing(scene, scene.held, goal, around, lean)
        for drop in _DROPS_M[1:]:
            yield standing(scene, scene.held, goal, around, drop=drop)
        away = nearest_floor(scene, goal) - goal[:2]
        goal[:2] += _NEARER_M * away / max(float(np.linalg.norm(away)), 1e-9)
        for drop in _DROPS_M:
            yield standing(scene, scene.held, goal, around, drop=drop)

    def touching(self) -> int:
        """See `Servo.touching`."""
        return -1

    def finish(
        self,
        scene: Scene,
        world: WorldState,
        tip: np.ndarray,
        there: np.ndarray,
        action: np.ndarray,
    ) -> np.ndarray:
        """See `Servo.finish`; lets go once it is about there and low enough."""
        off = np.asarray(world.ee_pos[0], np.float64) - tip
        beside, above = float(np.hypot(off[0], off[1])), float(off[2])
        there_now = float(np.abs(scene.arm - there).max()) < _THERE_RAD
        if (beside < _BESIDE_M and above < _ABOVE_M) or (
            there_now and math.hypot(beside, above) < _STUCK_M
        ):
            action[act.GRIP] = -1.0
        return there


def _from_before(targets: CupTargets, around: Stances) -> CupTargets:
    """The same places, come to from where the robot stands, not from above."""
    back = around.stance[targets.row, :2] - targets.point[:, :2]
    back *= _BEFORE_M / np.linalg.norm(back, axis=1, keepdims=True)
    shift = np.column_stack([back, np.full(len(back), _OVER_M)])
    return dataclasses.replace(targets, shift=shift)
