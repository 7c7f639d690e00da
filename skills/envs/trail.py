"""Recent positions of cup and base of each home: a short memory for policies without one.

A policy without memory cannot detect that the robot is stuck. Moving averages of positions show
this: they converge to the position of a robot at rest, and stay between the extremes of one that
moves to and fro.
"""

from collections.abc import Sequence

import numpy as np

from skills.envs.path_meter import check_array
from tpsrl.world.state import WorldState

TRAIL_STEPS = (15, 60, 60)  # time constants in steps: the cup's position twice, the base's pose
TRAIL_ARRAY = "trail"
KEPT = np.exp(-1.0 / np.array(TRAIL_STEPS))[:, None]


class Trail:
    """Exponential moving averages of the positions of cups and bases of n homes, world frame.

    The averages start at the robot's position at the start of the skill.
    """

    def __init__(self, num_homes: int) -> None:
        # Cup (x, y, z) over half a second and over two seconds, base (x, y, yaw) over two.
        self._means = np.zeros((num_homes, 3, 3))

    def begin(self, homes: Sequence[int], world: WorldState) -> None:
        """Starts the averages of homes at their current worlds."""
        self._means[np.asarray(homes)] = _points(world)

    def drive(self, homes: Sequence[int], world: WorldState) -> None:
        """Updates the averages after the control step that led to `world`."""
        rows = np.asarray(homes)
        away = self.away(homes, world)
        self._means[rows] = _points(world) - KEPT * away

    def away(self, homes: Sequence[int], world: WorldState) -> np.ndarray:
        """Returns cup, cup and base minus their averages, (n, 3, 3), in metres, the yaw in rad."""
        away = _points(world) - self._means[np.asarray(homes)]
        yaw = away[:, 2, 2]
        away[:, 2, 2] = np.arctan2(np.sin(yaw), np.cos(yaw))
        return away

    def to_arrays(self, home: int) -> dict[str, np.ndarray]:
        """Returns the averages of a home as a numpy copy by name, for snapshots."""
        return {TRAIL_ARRAY: self._means[home].copy()}

    def restore(self, home: int, means: np.ndarray) -> None:
        """Restores the averages of a home from `to_arrays`.

        Raises:
            UserError: the array has another shape, or is not finite.
        """
        check_array(TRAIL_ARRAY, means, self._means[home].shape)
        self._means[home] = means


def _points(world: WorldState) -> np.ndarray:
    """Returns cup, cup and base pose (n, 3, 3) in the world frame."""
    cup = np.asarray(world.ee_pos)
    return np.stack((cup, cup, np.asarray(world.base)), axis=1)
