"""Following a path for a while, for a policy that drives and stays in place.

A policy that turns between two obstacles, or is drawn to a goal behind a wall, moves too much to
count as stuck (`skills.policies.stuck`), and noise does not lead it out. Where the robot has stayed
within a square of `SQUARE_M` for `PATIENCE` steps, its base follows the path on its own map for a
while: it turns to the next corner and drives, backwards if the corner is behind it.
"""

from collections.abc import Mapping

import numpy as np

from skills.policies.stuck import VELOCITY
from tpsrl.world import action as act

PATH = "explored_way"  # sensor: length of the path (1,), its next corner in the base frame (2,); m
LONGEST = 300  # most steps of following
PATIENCE = 40  # steps
SQUARE_M = 0.2
_SPEED = 0.7  # of the base, where actions are in [-1, 1]
_TURN = 0.6  # the same for turning; also the greatest per radian off the corner
_AHEAD_RAD = 0.5  # the base drives if the corner is this far off at most
_BEHIND_RAD = 1.8  # the base drives backwards if the corner is farther off than this


class PathFollowing:
    """Detects robots that stay in place, and lets their bases follow a path.

    Args:
        steps: steps for which a base follows its path
        layout: slice of each sensor in the state vector
        num_envs: number n of homes
    """

    def __init__(self, steps: int, layout: Mapping[str, slice], num_envs: int) -> None:
        self._steps, self._velocity, self._path = steps, layout[VELOCITY], layout[PATH]
        self._pose = np.zeros((num_envs, 3))  # by odometry, m and rad
        self._places = np.zeros((PATIENCE, num_envs, 2))
        self._seen = np.zeros(num_envs, int)  # steps since the start or the last path
        self._left = np.zeros(num_envs, int)  # further steps on the path

    def begin(self, homes: np.ndarray) -> None:
        """Starts an episode in the homes of a mask (n,) bool."""
        self._seen[homes] = self._left[homes] = 0

    def changed(self, actions: np.ndarray, state: np.ndarray) -> np.ndarray:
        """Returns actions (n, 11) for the policy's actions (n, 11) in states (n, k)."""
        self._move(state[:, self._velocity] / act.CONTROL_HZ)
        stays = (np.ptp(self._places, axis=0) < SQUARE_M).all(1) & (self._seen >= PATIENCE)
        self._left[stays] = self._steps
        self._seen[self._left > 0] = 0
        length, ahead, aside = state[:, self._path].T
        follows = (self._left > 0) & (length > 0.0)
        self._left = np.maximum(self._left - 1, 0)
        off = np.arctan2(aside, ahead)
        behind = np.abs(off) > _BEHIND_RAD
        off = np.where(behind, np.arctan2(-aside, -ahead), off)
        speed = np.where(np.abs(off) < _AHEAD_RAD, np.where(behind, -_SPEED, _SPEED), 0.0)
        turn = np.clip(off, -_TURN, _TURN)
        actions = actions.copy()
        actions[follows, act.BASE] = np.stack([speed, turn], axis=1)[follows]
        actions[follows, act.STOP] = -1.0
        return actions

    def _move(self, step: np.ndarray) -> None:
        """Updates poses and places by the motions (n, 3) of the bases in a step, m and rad."""
        yaw = self._pose[:, 2]
        self._pose[:, 0] += np.cos(yaw) * step[:, 0] - np.sin(yaw) * step[:, 1]
        self._pose[:, 1] += np.sin(yaw) * step[:, 0] + np.cos(yaw) * step[:, 1]
        self._pose[:, 2] += step[:, 2]
        self._places[self._seen % PATIENCE, np.arange(len(step))] = self._pose[:, :2]
        self._seen += 1
