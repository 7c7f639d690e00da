"""State of a batch of homes at one moment."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

# Order of the articulated joints in `WorldState.joints`. The cab names are HAB's markers:
# cab_push_point_7 is the left top drawer, 6 the middle top, 5 the right top, 4 the right bottom.
JOINTS = (
    "fridge_push_point",
    "cab_push_point_4",
    "cab_push_point_5",
    "cab_push_point_6",
    "cab_push_point_7",
)


@dataclasses.dataclass(frozen=True, slots=True)
class WorldState:
    """Struct of arrays with a leading batch axis n; numpy on CPU, torch on GPU.

    Positions are metres in the world frame (z up, floor at 0), angles radians, quaternions
    (w, x, y, z). Objects are in the order of `Episode.objects`; rows beyond an episode's last
    object are NaN.
    """

    base: Any  # (n, 3) x, y, yaw
    base_velocity: Any  # (n, 3) world frame, m/s and rad/s
    arm: Any  # (n, 7) joint positions, shoulder pan first
    ee_pos: Any  # (n, 3) tip of the suction cup
    ee_quat: Any  # (n, 4) x axis points out of the cup
    object_pos: Any  # (n, S, 3) centre of the primitive
    object_quat: Any  # (n, S, 4)
    held: Any  # (n,) index of the held object, -1 for none
    held_joint: Any  # (n,) index into JOINTS of the handle that the cup holds, -1 for none
    joints: Any  # (n, 5) fridge door (rad) and drawers (m), order of JOINTS
    marker_pos: Any  # (n, 5, 3) handle points of JOINTS
    force: Any  # (n,) newton, largest normal force of a contact during the last control step
    force_total: Any  # (n,) newton, sum since reset of all rises of `force` by more than 20 N
    violation: Any  # (n,) bool, the last step broke the hold constraint and dropped the object
    step: Any  # (n,) control steps since reset

    @staticmethod
    def joined(parts: "Sequence[WorldState]") -> "WorldState":
        """Returns the homes of several states of numpy arrays as one."""
        fields = (f.name for f in dataclasses.fields(WorldState))
        return WorldState(
            **{name: np.concatenate([getattr(part, name) for part in parts]) for name in fields}
        )

    def row(self, index: int) -> "WorldState":
        """Returns the state of home `index` as a batch of one."""
        fields = (f.name for f in dataclasses.fields(self))
        return WorldState(**{name: getattr(self, name)[index : index + 1] for name in fields})
