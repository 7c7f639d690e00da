"""The state of tasks in n homes: what they are about, and what is remembered between steps."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from skills.core.interface import SkillGoal
from skills.core.measures import Memory
from skills.core.structs import Struct
from tpsrl.errors import unknown
from tpsrl.world.state import JOINTS


@dataclasses.dataclass(frozen=True, slots=True)
class Goals:
    """What each home is about: arrays over n homes.

    Object index (n,) and index into JOINTS (n,), -1 for none; goal position (n, 3) in metres, zero
    for none.
    """

    object: Any
    joint: Any
    position: Any

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
class TaskState(Struct):
    """What a task remembers from step to step; arrays over n homes.

    The first three are the goal and stay. `memory` is the skill's own.
    """

    object: Any  # (n,) int, see Goals
    joint: Any  # (n,) int
    position: Any  # (n, 3)
    steps: Any  # (n,) int
    force_total: Any  # (n,) newton, the world's after the step before
    force_sum: Any  # (n,) newton, rises of force since the task began
    joints: Any  # (n, J) m or rad, of drawers and doors after the step before
    memory: Memory

    @property
    def goals(self) -> Goals:
        """The part that stays."""
        return Goals(self.object, self.joint, self.position)

    def goal(self, row: int) -> SkillGoal:
        """The goal of one home, as the executor has it."""
        joint = int(self.joint[row])
        x, y, z = (float(value) for value in self.position[row])
        return SkillGoal(int(self.object[row]), (x, y, z), JOINTS[joint] if joint >= 0 else "")
