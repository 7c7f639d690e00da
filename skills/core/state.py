"""Goals and state of tasks in n homes."""

import dataclasses
from collections.abc import Sequence
from typing import Generic

import numpy as np

from skills.core.arrays import Array
from skills.core.interface import Grasp, SkillGoal
from skills.core.measures import MemoryT
from skills.core.structs import Struct
from tpsrl.errors import unknown
from tpsrl.world.state import JOINTS

_UNKNOWN = Grasp((0.0, 0.0, 0.0), (0.0, 0.0, 0.0))


@dataclasses.dataclass(slots=True)
class Goals(Struct):
    """Goals of n homes, as arrays."""

    object: Array  # (n,) int, index into `Episode.objects`, -1 for none
    joint: Array  # (n,) int, index into JOINTS, -1 for none
    position: Array  # (n, 3) m, where to go or to place; zeros for none
    grasp: Array  # (n, 2, 3) centre (m) and up of `SkillGoal.grasp`; zeros for none

    @staticmethod
    def of(goals: Sequence[SkillGoal]) -> "Goals":
        """Converts a list of goals to numpy arrays.

        Raises:
            UserError: a marker is unknown; the message names the nearest.
        """
        for goal in goals:
            if goal.marker and goal.marker not in JOINTS:
                raise unknown("marker", goal.marker, JOINTS)
        return Goals(
            object=np.array([goal.object for goal in goals]),
            joint=np.array([JOINTS.index(g.marker) if g.marker else -1 for g in goals]),
            position=np.array([goal.position or (0.0, 0.0, 0.0) for goal in goals]),
            grasp=np.array([_grasp(goal) for goal in goals]),
        )


@dataclasses.dataclass(slots=True)
class TaskState(Goals, Generic[MemoryT]):
    """State of tasks in n homes: the constant goals, and the memory between steps."""

    steps: Array  # (n,) int, control steps since the task began
    force_total: Array  # (n,) N, `WorldState.force_total` after the previous step
    force_sum: Array  # (n,) N, sum of the increases of force since the task began
    joints: Array  # (n, J) m or rad, drawers and doors after the previous step
    memory: MemoryT  # the skill's memory

    def goal(self, row: int) -> SkillGoal:
        """Returns the goal of the home at `row`."""
        joint = int(self.joint[row])
        x, y, z = (float(value) for value in self.position[row])
        marker = JOINTS[joint] if joint >= 0 else ""
        cx, cy, cz, ux, uy, uz = (float(value) for value in self.grasp[row].reshape(-1))
        grasp = Grasp((cx, cy, cz), (ux, uy, uz)) if ux or uy or uz else None
        return SkillGoal(int(self.object[row]), (x, y, z), marker, grasp)


def _grasp(goal: SkillGoal) -> tuple[tuple[float, float, float], ...]:
    grasp = goal.grasp or _UNKNOWN
    return grasp.centre, grasp.up
