"""Following a path for a while, for a policy that drives and does not arrive.

A policy that turns between two obstacles, or is drawn to a goal behind a wall, moves too much to
count as stuck (`skills.policies.stuck`), and noise does not lead it out. The base then follows the
path on the robot's own map for a while: where it has stayed within a square of `SQUARE_M` for
`PATIENCE` steps, and where its path has not become shorter for `LATE` steps.

The base drives to the next corner, the slower the nearer the corner is and the more it is to the
side, and backwards if the corner is behind it. The corners of a narrow passage are 0.1 m apart, and
a fast base overshoots them. Where it stands against something, it turns instead of driving
backwards, so that the camera sees what is there, or the policy drives again.
"""

from collections.abc import Mapping

import numpy as np

from skills.policies.stuck import VELOCITY
from tpsrl.world import action as act

PATH = "explored_way"  # sensor: length of the path (1,), its next corner in the base frame (2,); m
LONGEST = 300  # most steps of following
PATIENCE = 40  # steps
SQUARE_M = 0.2
LATE = 45  # steps
_SHORTER_M = 0.3  # by which a path becomes shorter with progress
_DETOUR_M = 0.5  # by which it becomes longer in a step, when a new obstacle is seen
# Speeds of the base are actions in [-1, 1].
_SPEED_PER_M, _LEAST_SPEED = 2.0, 0.2  # by the distance of the corner
_TURN_PER_RAD = 2.5
_SLOWER = 1.5  # the base drives at cos(_SLOWER x angle) of its speed, and turns in place below 0
_BEHIND_RAD = 1.8  # the base drives backwards if the corner is farther off than this
_STILL = np.array([0.1, 0.1, 0.15])  # least velocity of a base that moves, in m/s and rad/s
_STANDS = 10  # steps of standing against something


class PathFollowing:
    """Detects robots that do not advance, and lets their bases follow a path.

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
        self._least = np.full(num_envs, np.inf)  # length of the path at the last progress, m
        self._length = np.full(num_envs, np.inf)  # of the path in the previous step, m
        self._late = np.zeros(num_envs, int)  # steps since the last progress
        self._still = np.zeros(num_envs, int)  # steps of standing still on the path
        self._forward = np.zeros(num_envs, bool)  # whether not to drive backwards

    def begin(self, homes: np.ndarray) -> None:
        """Starts an episode in the homes of a mask (n,) bool."""
        self._seen[homes] = self._left[homes] = self._late[homes] = self._still[homes] = 0
        self._forward[homes] = False
        self._least[homes] = self._length[homes] = np.inf

    def changed(self, actions: np.ndarray, state: np.ndarray) -> np.ndarray:
        """Returns actions (n, 11) for the policy's actions (n, 11) in states (n, k)."""
        length, ahead, aside = state[:, self._path].T
        self._move(state[:, self._velocity] / act.CONTROL_HZ)
        stays = (np.ptp(self._places, axis=0) < SQUARE_M).all(1) & (self._seen >= PATIENCE)
        late = self._is_late(length) & (self._left == 0) & (length > 0.0)
        begins = stays | late
        self._left[begins], self._late[begins] = self._steps, 0
        off = np.arctan2(aside, ahead)
        behind = (np.abs(off) > _BEHIND_RAD) & ~self._forward
        stands = self._stands(state[:, self._velocity])
        ends = stands & ~behind
        self._left[ends] = self._late[ends] = 0
        behind &= ~stands
        self._forward = (self._forward | stands) & (self._left > 0)
        self._seen[self._left > 0] = 0
        follows = (self._left > 0) & (length > 0.0)
        self._left = np.maximum(self._left - 1, 0)
        off = np.where(behind, np.arctan2(-aside, -ahead), off)
        speed = np.clip(_SPEED_PER_M * np.hypot(ahead, aside), _LEAST_SPEED, 1.0)
        speed *= np.maximum(np.cos(_SLOWER * off), 0.0)
        turn = np.clip(_TURN_PER_RAD * off, -1.0, 1.0)
        actions = actions.copy()
        drive = np.stack([np.where(behind, -speed, speed), turn], axis=1)
        actions[follows, act.BASE] = drive[follows]
        actions[follows, act.STOP] = -1.0
        return actions

    def _stands(self, velocity: np.ndarray) -> np.ndarray:
        """Returns which bases (n,) stand still on their paths, by velocities (n, 3)."""
        still = (np.abs(velocity) < _STILL).all(1) & (self._left > 0)
        self._still = np.where(still, self._still + 1, 0)
        stands = self._still >= _STANDS
        self._still[stands] = 0
        return stands

    def _is_late(self, length: np.ndarray) -> np.ndarray:
        """Returns which paths (n,) of a length in m have not become shorter for `LATE` steps."""
        shorter = length < self._least - _SHORTER_M
        progress = shorter | (length > self._length + _DETOUR_M)
        self._least = np.where(progress, length, self._least)
        self._length = length.copy()
        self._late = np.where(progress, 0, self._late + 1)
        return self._late >= LATE

    def _move(self, step: np.ndarray) -> None:
        """Updates poses and places by the motions (n, 3) of the bases in a step, m and rad."""
        yaw = self._pose[:, 2]
        self._pose[:, 0] += np.cos(yaw) * step[:, 0] - np.sin(yaw) * step[:, 1]
        self._pose[:, 1] += np.sin(yaw) * step[:, 0] + np.cos(yaw) * step[:, 1]
        self._pose[:, 2] += step[:, 2]
        self._places[self._seen % PATIENCE, np.arange(len(step))] = self._pose[:, :2]
        self._seen += 1
