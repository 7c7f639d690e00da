"""Where the cup and the base of each home have just been: a short memory for policies without one.

A policy without memory that stands still cannot know that it does. Moving averages of its positions
tell it: of a robot at rest they arrive where it is, of one that goes to and fro they stay between.
"""

from collections.abc import Sequence

import numpy as np

from skills.envs.path_meter import check_array
from tpsrl.world.state import WorldState

TRAIL_STEPS = (15, 60, 60)  # of the averages: the cup's position twice, the base's pose
TRAIL_ARRAY = "trail"
_KEPT = np.exp(-1.0 / np.array(TRAIL_STEPS))[:, None]


class Trail:
    """Exponential moving averages of the cups and bases of n homes, in the world's frame.

    They begin where the robot is when the skill begins.
    """

    def __init__(self, num_homes: int) -> None:
        # Cup (x, y, z) over half a second and over two, base (x, y, yaw) over two.
        self._means = np.zeros((num_homes, 3, 3))

    def begin(self, homes: Sequence[int], world: WorldState) -> None:
        """The skill begins in homes with these worlds."""
        self._means[np.asarray(homes)] = _points(world)

    def drive(self, homes: Sequence[int], world: WorldState) -> None:
        """Adds the control step that led to these worlds."""
        rows = np.asarray(homes)
        away = self.away(homes, world)
        self._means[rows] = _points(world) - _KEPT * away

    def away(self, homes: Sequence[int], world: WorldState) -> np.ndarray:
        """How far cup, cup and base are from their averages, (n, 3, 3); metres, the yaw radians."""
        away = _points(world) - self._means[np.asarray(homes)]
        yaw = away[:, 2, 2]
        away[:, 2, 2] = np.arctan2(np.sin(yaw), np.cos(yaw))
        return away

    def to_arrays(self, home: int) -> dict[str, np.ndarray]:
        """The averages of a home, as a numpy copy by name, for snapshots."""
        return {TRAIL_ARRAY: self._means[home].copy()}

    def restore(self, home: int, means: np.ndarray) -> None:
        """Puts a home's averages to where `to_arrays` said.

        Raises:
            UserError: the array is of another shape, or not finite.
        """
        check_array(TRAIL_ARRAY, means, self._means[home].shape)
        self._means[home] = means


def _points(world: WorldState) -> np.ndarray:
    """Cup, cup and base pose (n, 3, 3)."""
    cup = np.asarray(world.ee_pos)
    return np.stack((cup, cup, np.asarray(world.base)), axis=1)
