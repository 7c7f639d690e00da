"""Measures how the cup of each home comes nearer to its goal, around furniture."""

from collections.abc import Mapping, Sequence

import numpy as np

from skills.envs.path_meter import check_array
from tpsrl.world.floor import rounded
from tpsrl.world.hand_path import HandFields, hand_field
from tpsrl.world.state import JOINTS, WorldState

_LEFT, _JOINTS = "hand_left", "hand_joints"  # of the arrays


class HandMeter:
    """The ways of the cups of n homes (`tpsrl.world.hand_path`), each to a goal of its own.

    Doors and drawers are where they stand when the way begins.
    """

    def __init__(self, num_homes: int) -> None:
        self._fields = HandFields(num_homes)
        self._joints = np.zeros((num_homes, len(JOINTS)))
        self._left = np.zeros(num_homes)
        self._gained = np.zeros(num_homes)

    def begin(
        self, homes: Sequence[int], layouts: Sequence[str], goals: np.ndarray, world: WorldState
    ) -> None:
        """Starts to measure the ways of homes to goals (n, 3) from their present worlds."""
        rows = np.asarray(homes)
        self._joints[rows] = world.joints
        for home, layout, goal in zip(homes, layouts, goals, strict=True):
            self._map(home, layout, goal)
        self._left[rows], self._gained[rows] = self.ahead(homes, world)[:, 0], 0.0

    def drive(self, homes: Sequence[int], world: WorldState) -> None:
        """Adds the control step that led to these worlds."""
        rows = np.asarray(homes)
        left = self.ahead(homes, world)[:, 0]
        self._gained[rows], self._left[rows] = self._left[rows] - left, left

    def gained(self, homes: Sequence[int]) -> np.ndarray:
        """By how much (m) less the way of each home is than a step before, (n,)."""
        return self._gained[np.asarray(homes)]

    def ahead(self, homes: Sequence[int], world: WorldState) -> np.ndarray:
        """What is left, and where the way leads, see `HandFields.ahead`; (n, 4)."""
        return self._fields.ahead(np.asarray(homes), world.ee_pos, world.base)

    def _map(self, home: int, layout: str, goal: np.ndarray) -> None:
        point = float(goal[0]), float(goal[1]), float(goal[2])
        self._fields.set(home, hand_field(layout, point, rounded(self._joints[home])))

    def to_arrays(self, home: int) -> dict[str, np.ndarray]:
        """How far a home is, as numpy copies by name, for snapshots."""
        return {_LEFT: self._left[home].copy(), _JOINTS: self._joints[home].copy()}

    @staticmethod
    def names() -> tuple[str, ...]:
        """Of the arrays."""
        return _LEFT, _JOINTS

    def restore(
        self, home: int, arrays: Mapping[str, np.ndarray], layout: str, goal: np.ndarray
    ) -> None:
        """Puts a home to where `to_arrays` said it was on its way to a goal (3,).

        Raises:
            UserError: an array is of another shape, or not finite.
        """
        for name, values in ((_LEFT, self._left), (_JOINTS, self._joints)):
            check_array(name, arrays[name], values[home].shape)
            values[home] = arrays[name]
        self._map(home, layout, goal)
