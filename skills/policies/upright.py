"""An object held upright over its goal before its release, for a policy that places.

A tilted object topples once it is released, and a can that lies on its side rolls. The robot knows
how its hand holds the object, if it has picked the object up itself: the sensor `carried` has the
vector to the goal, and what was up when the object was taken. From this, inverse kinematics moves
the arm, with a base at rest, until the object is upright over its goal.
"""

from collections.abc import Mapping

import numpy as np

from skills.core.sensors import CARRIED
from tpsrl.world import action as act
from tpsrl.world.kinematics import cup_pose, inverse

ARM = "arm"  # sensor: joint positions (7,), in rad
TO_REST = "to_rest"  # sensor: vector (3,) from the end effector to its resting point, m
GOAL = "goal_from_ee"  # sensor: vector (3,) from the end effector to the goal, in its frame, m
MOST = 300  # most steps of turning an object
_UPRIGHT_RAD, _OVER_M = 0.05, 0.015  # tilt and distance over the floor at which it is done
_AWAY_M = 0.13  # distance over the floor from the goal beyond which it ends
_ABOVE_M = 0.02  # height above the goal to which the object is lifted, at least
_TURN_RAD, _MOVE_M = 0.04, 0.01  # most that the object turns and moves in a step
_LEAST = 3  # steps, after which it can be done
_ASIDE_M, _NEAR_M = 0.02, 0.06  # it ends if the object has moved away by so much, and is not near
_PATIENCE = 8  # steps without progress, after which it ends
_PROGRESS = 0.5  # of tilt and distance, in units of those at which it is done
# It ends while the arm can still return in time: in a plan a run has 200 steps. Place's arm needs
# about 150 steps per metre of its distance from rest beyond 0.13 m.
_RUN, _SPARE, _RETURN_PER_M, _RESTS_M = 200, 20, 150.0, 0.13
_UP = np.array([0.0, 0.0, 1.0])
_ITERATIONS = 30


class Upright:
    """Moves the arms of homes until the objects in their hands are upright over their goals.

    Args:
        most: greatest number of steps for an object
        layout: slice of each sensor in the state vector
        num_envs: number n of homes
    """

    def __init__(self, most: int, layout: Mapping[str, slice], num_envs: int) -> None:
        self._most = most
        self._arm, self._to_rest = layout[ARM], layout[TO_REST]
        self._goal, self._carried = layout[GOAL], layout[CARRIED]
        self._run = np.zeros(num_envs, int)  # steps of the run
        self._steps = np.zeros(num_envs, int)  # of turning the object in the hand
        self._done = np.zeros(num_envs, bool)
        self._away = np.zeros(num_envs)  # distance from the goal over the floor at first, m
        self._best = np.zeros(num_envs)  # least tilt and distance so far
        self._since = np.zeros(num_envs, int)  # value of `_steps` at that time

    def begin(self, homes: np.ndarray) -> None:
        """Starts an episode in the homes of a mask (n,) bool."""
        self._run[homes] = self._steps[homes] = 0
        self._done[homes] = False

    def moves(
        self, homes: np.ndarray, holds: np.ndarray, state: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns which of the homes (n,) bool move their object, and the arms' actions (n, 7).

        Homes that have begun continue until they are done, whether in the mask `homes` or not.

        Args:
            homes: (n,) bool, homes whose object could be released now
            holds: (n,) bool, homes with an object in the hand
            state: (n, k) states
        """
        self._run += 1
        moving = (homes | (self._steps > 0)) & holds & ~self._done
        arm = np.zeros((len(state), 7))
        for row in np.flatnonzero(moving):
            self._steps[row] += 1
            found = self._action(int(row), state[row].astype(np.float64))
            if found is None:
                moving[row], self._done[row] = False, True
            else:
                arm[row] = found
        return moving, arm

    def _action(self, row: int, state: np.ndarray) -> np.ndarray | None:
        """Returns the arm's action (7,) in a state (k,), None if there is nothing more to do."""
        joints = state[self._arm]
        to_goal, up = np.split(state[self._carried], 2)
        away = float(np.hypot(*to_goal[:2]))
        if not up.any() or away > _AWAY_M:
            return None
        tilt = float(np.arccos(np.clip(up[2], -1.0, 1.0)))
        if self._ends(row, tilt, away, float(np.linalg.norm(state[self._to_rest]))):
            return None
        tip, turn = cup_pose(joints)
        centre = state[self._goal] - turn.T @ to_goal  # of the object, in the frame of the cup
        move = to_goal + np.array([0.0, 0.0, _ABOVE_M])
        move[2] = max(move[2], 0.0)  # It is not lowered, since it may stand on something.
        move *= min(1.0, _MOVE_M / max(float(np.linalg.norm(move)), 1e-9))
        wanted = _turned(up, min(tilt, _TURN_RAD))
        _, solved = inverse(
            joints, tip + turn @ centre + move, turn.T @ up, wanted, joints, centre, _ITERATIONS
        )
        action = (solved - joints) / act.ARM_DELTA_RAD
        return action / max(1.0, float(np.abs(action).max()))

    def _ends(self, row: int, tilt: float, away: float, from_rest: float) -> bool:
        """Returns whether to end, with a tilt in rad and distances from the goal and rest in m."""
        step = self._steps[row]
        if step == 1:
            self._away[row], self._best[row] = away, np.inf
        left = tilt / _UPRIGHT_RAD + away / _OVER_M
        if left < self._best[row] - _PROGRESS:
            self._best[row], self._since[row] = left, step
        back = _RETURN_PER_M * max(from_rest - _RESTS_M, 0.0)
        late = step > self._most or self._run[row] + back > _RUN - _SPARE
        stuck = step - self._since[row] >= _PATIENCE
        aside = away > max(self._away[row] + _ASIDE_M, _NEAR_M)
        ready = step > _LEAST and tilt < _UPRIGHT_RAD and away < _OVER_M
        return bool(late or stuck or aside or ready)


def _turned(up: np.ndarray, angle: float) -> np.ndarray:
    """Returns a unit vector (3,) turned upwards by an angle in rad."""
    aside = _UP - up * up[2]
    length = float(np.linalg.norm(aside))
    if length < 1e-6:
        return _UP
    return np.cos(angle) * up + np.sin(angle) * aside / length
