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

_BESIDE_M, _ABOVE_M = 0.06, 0.03  # from the target pose, within which the object is released
_THERE_RAD, _STUCK_M = 0.04, 0.1  # at the final posture, the distance that is near enough
_LEANS_RAD = (0.35, 0.7, 1.05)  # tilts, tried where the object cannot be upright
_DROPS_M = (0.0, 0.05, 0.1)  # heights from which the object is dropped, as into a sink
_NEARER_M = 0.1  # displacement of the goal towards the free floor
# On a shelf the object is inserted from the front, tilted so that the arm is clear of the shelf
# above.
_BEFORE_M, _OVER_M, _LEANS_IN_RAD = 0.2, 0.02, (0.35, 0.0, 0.7, 1.05, 1.3)


class ServoPlace(Servo):
    """Demonstrator of Place, see `skills.scripted.servoing`; `SkillGoal.position` is the goal."""

    def grip(self, scene: Scene) -> float:
        """See `Servo.grip`."""
        return 1.0 if scene.held is not None else -1.0

    def is_done(self, scene: Scene) -> bool:
        """See `Servo.is_done`."""
        return scene.held is None

    def aim(self, scene: Scene) -> np.ndarray:
        """See `Servo.aim`; the additional numbers are the object's offset in the cup."""
        assert scene.held is not None
        return np.concatenate([np.asarray(self.goal.position, np.float64), scene.held.offset])

    def targets(self, scene: Scene, around: Stances) -> Iterator[CupTargets]:
        """See `Servo.targets`: upright, tilted, dropped from above, or nearer to the free floor."""
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
        """See `Servo.finish`; releases the object near the target pose and at low height."""
        off = np.asarray(world.ee_pos[0], np.float64) - tip
        beside, above = float(np.hypot(off[0], off[1])), float(off[2])
        there_now = float(np.abs(scene.arm - there).max()) < _THERE_RAD
        if (beside < _BESIDE_M and above < _ABOVE_M) or (
            there_now and math.hypot(beside, above) < _STUCK_M
        ):
            action[act.GRIP] = -1.0
        return there


def _from_before(targets: CupTargets, around: Stances) -> CupTargets:
    """Returns the targets with an approach from the robot's side instead of from above."""
    back = around.stance[targets.row, :2] - targets.point[:, :2]
    back *= _BEFORE_M / np.linalg.norm(back, axis=1, keepdims=True)
    shift = np.column_stack([back, np.full(len(back), _OVER_M)])
    return dataclasses.replace(targets, shift=shift)
