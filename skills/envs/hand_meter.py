"""Progress of the suction cup of each home along the path to its goal, around furniture."""

from collections.abc import Mapping, Sequence

import numpy as np

from skills.envs.path_meter import check_array
from tpsrl.world.floor import rounded
from tpsrl.world.hand_path import HandFields, hand_field
from tpsrl.world.state import JOINTS, WorldState

_LEFT, _JOINTS = "hand_left", "hand_joints"  # names of the arrays


class HandMeter:
    """Paths of the cups of n homes (`tpsrl.world.hand_path`), each to its own goal.

    The map has doors and drawers in their positions at the start of the path.
    """

    def __init__(self, num_homes: int) -> None:
        self._fields = HandFields(num_homes)
        self._joints = np.zeros((num_homes, len(JOINTS)))
        self._left = np.zeros(num_homes)
        self._gained = np.zeros(num_homes)

    def begin(
        self, homes: Sequence[int], layouts: Sequence[str], goals: np.ndarray, world: WorldState
    ) -> None:
        """Starts the paths of homes from their current worlds.

        Args:
            homes: numbers of n homes
            layouts: layout of each home
            goals: (n, 3) in the world frame
            world: current state of these homes
        """
        rows = np.asarray(homes)
        self._joints[rows] = world.joints
        for home, layout, goal in zip(homes, layouts, goals, strict=True):
            self._map(home, layout, goal)
        self._left[rows], self._gained[rows] = self.ahead(homes, world)[:, 0], 0.0

    def drive(self, homes: Sequence[int], world: WorldState) -> None:
        """Updates the progress after the control step that led to `world`."""
        rows = np.asarray(homes)
        left = self.ahead(homes, world)[:, 0]
        self._gained[rows], self._left[rows] = self._left[rows] - left, left

    def gained(self, homes: Sequence[int]) -> np.ndarray:
        """Returns the decrease (n,) in metres of the length left in the last step."""
        return self._gained[np.asarray(homes)]

    def ahead(self, homes: Sequence[int], world: WorldState) -> np.ndarray:
        """Returns length left and next point of each path, (n, 4); see `HandFields.ahead`."""
        return self._fields.ahead(np.asarray(homes), world.ee_pos, world.base)

    def _map(self, home: int, layout: str, goal: np.ndarray) -> None:
        point = float(goal[0]), float(goal[1]), float(goal[2])
        self._fields.set(home, hand_field(layout, point, rounded(self._joints[home])))

    def to_arrays(self, home: int) -> dict[str, np.ndarray]:
        """Returns the progress of a home as numpy copies by name, for snapshots."""
        return {_LEFT: self._left[home].copy(), _JOINTS: self._joints[home].copy()}

    @staticmethod
    def names() -> tuple[str, ...]:
        """Returns the names of the arrays of `to_arrays`."""
        return _LEFT, _JOINTS

    def restore(
        self, home: int, arrays: Mapping[str, np.ndarray], layout: str, goal: np.ndarray
    ) -> None:
        """Restores the progress of a home from `to_arrays`, for a goal (3,).

        Raises:
            UserError: an array has another shape or type, or is not finite.
        """
        for name, values in ((_LEFT, self._left), (_JOINTS, self._joints)):
            check_array(name, arrays[name], values[home].shape)
            values[home] = arrays[name]
        self._map(home, layout, goal)
