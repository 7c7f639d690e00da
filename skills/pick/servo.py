"""Pick by servoing: the demonstrator that policies are cloned from."""

from collections.abc import Iterator

import numpy as np

from skills.pick.gaps import gaps
from skills.pick.gripping import may_grip
from skills.scripted.servoing import Servo
from tpsrl.motion.base.stances import Stances
from tpsrl.motion.scene import Scene
from tpsrl.motion.suction.cup_targets import CupTargets
from tpsrl.motion.suction.grasps import touch_targets
from tpsrl.world import action as act
from tpsrl.world.kinematics import cup_pose, inverse
from tpsrl.world.reach import CUP_AXIS, NO_OFFSET
from tpsrl.world.state import WorldState

_PRESS_M = 0.02  # how far beyond contact the cup may push


class ServoPick(Servo):
    """Demonstrator of Pick, see `skills.scripted.servoing`; `SkillGoal.object` is the object."""

    def grip(self, scene: Scene) -> float:
        """See `Servo.grip`."""
        return 1.0 if self.is_done(scene) else -1.0

    def is_done(self, scene: Scene) -> bool:
        """See `Servo.is_done`."""
        return scene.held is not None and scene.held.index == self.goal.object

    def aim(self, scene: Scene) -> np.ndarray:
        """See `Servo.aim`."""
        return scene.position[self.goal.object]

    def targets(self, scene: Scene, around: Stances) -> Iterator[CupTargets]:
        """See `Servo.targets`."""
        yield touch_targets(scene, self.goal.object, around)

    def touching(self) -> int:
        """See `Servo.touching`."""
        return self.goal.object

    def finish(
        self,
        scene: Scene,
        world: WorldState,
        tip: np.ndarray,
        there: np.ndarray,
        action: np.ndarray,
    ) -> np.ndarray:
        """See `Servo.finish`; pushes beyond contact, with suction unless another object is near."""
        if may_grip(*gaps(scene.objects, self.goal.object, world)):
            action[act.GRIP] = 1.0
        touch, turn = cup_pose(there)
        axis = turn[:, 0].copy()
        beyond = touch + _PRESS_M * axis
        ok, posture = inverse(there, beyond, CUP_AXIS, axis, there, NO_OFFSET, 40, 0.3)
        return posture if ok else there
