"""The state of tasks in n homes: what they are about, and what is remembered between steps."""

import dataclasses
from collections.abc import Sequence
from typing import Generic

import numpy as np

from skills.core.arrays import Array
from skills.core.interface import SkillGoal
from skills.core.measures import MemoryT
from skills.core.structs import Struct
from tpsrl.errors import unknown
from tpsrl.world.state import JOINTS


@dataclasses.dataclass(slots=True)
class Goals(Struct):
    """What each home is about: arrays over n homes."""

    object: Array  # (n,) int, index into `Episode.objects`, -1 for none
    joint: Array  # (n,) int, index into JOINTS, -1 for none
    position: Array  # (n, 3) m, where to go or to place, zero for none

    @staticmethod
    def of(goals: Sequence[SkillGoal]) -> "Goals":
        """The numpy arrays of a list of goals.

        Raises:
            UserError: a marker is unknown; names the nearest.
        """
        for goal in goals:
            if goal.marker and goal.marker not in JOINTS:
                raise unknown("marker", goal.marker, JOINTS)
        return Goals(
            object=np.array([goal.object for goal in goals]),
            joint=np.array([JOINTS.index(g.marker) if g.marker else -1 for g in goals]),
            position=np.array([goal.position or (0.0, 0.0, 0.0) for goal in goals]),
        )


@dataclasses.dataclass(slots=True)
class TaskState(Goals, Generic[MemoryT]):
    """The goals, which stay, and what tasks remember from step to step; arrays over n homes."""

    steps: Array  # (n,) int, control steps since the task began
    force_total: Array  # (n,) newton, the world's after the step before
    force_sum: Array  # (n,) newton, rises of force since the task began
    joints: Array  # (n, J) m or rad, of drawers and doors after the step before
    memory: MemoryT  # the skill's own

    def goal(self, row: int) -> SkillGoal:
        """The goal of one home, as the executor has it."""
        joint = int(self.joint[row])
        x, y, z = (float(value) for value in self.position[row])
        return SkillGoal(int(self.object[row]), (x, y, z), JOINTS[joint] if joint >= 0 else "")
