"""Place by servoing: the teacher that policies are cloned from."""

import numpy as np

from skills.scripted.putting import standing
from skills.scripted.scene import Scene
from skills.scripted.servoing import Servo
from skills.scripted.stances import Stances
from skills.scripted.targets import CupTargets
from tpsrl.world import action as act
from tpsrl.world.state import WorldState

_THERE_RAD = 0.02  # from the posture in which the object is let go
_GOAL_M = 0.13  # from the goal it may be let go where the arm gets no further
_DROPS_M = (0.0, 0.05, 0.1)  # it is let fall, as into a sink


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

    def targets(self, scene: Scene, around: Stances) -> CupTargets:
        """See `Servo.targets`."""
        assert scene.held is not None
        goal = np.asarray(self.goal.position, np.float64)
        return standing(scene, scene.held, goal, around)

    def touching(self) -> int:
        """See `Servo.touching`."""
        return -1

    def finish(
        self, scene: Scene, world: WorldState, there: np.ndarray, action: np.ndarray
    ) -> np.ndarray:
        """See `Servo.finish`; lets go once it is there."""
        if float(np.abs(scene.arm - there).max()) < _THERE_RAD:
            action[act.GRIP] = -1.0
        return there
