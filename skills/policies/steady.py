"""Release from a hand at rest, for a policy that places.

A policy that releases while its hand still moves throws: a can or a bowl then rolls off its goal,
often after Place has succeeded. The robot stands still from the step in which its policy opens the
grip, releases when the hand is slow, and stands still until the object has landed.
"""

from collections.abc import Mapping

import numpy as np

from tpsrl.world import action as act

GOAL = "goal_from_ee"  # sensor: vector (3,) from the end effector to the goal, in m
HOLDING = "holding"  # sensor: whether the hand holds an object (1,)
LONGEST = 30  # steps of waiting for the hand, after which the object is released
LANDING = 5  # steps of standing still after a release
_MOVES = np.r_[act.ARM, act.BASE]  # action dimensions that are 0 while the robot stands still


class SteadyRelease:
    """Changes the actions of homes whose policy releases an object.

    Args:
        speed: speed of the end effector relative to the goal, in m/s, below which it releases
        layout: slice of each sensor in the state vector
        num_envs: number n of homes
    """

    def __init__(self, speed: float, layout: Mapping[str, slice], num_envs: int) -> None:
        self._speed, self._goal, self._holding = speed, layout[GOAL], layout[HOLDING]
        self._last = np.full((num_envs, 3), np.nan)  # vectors of the previous step
        self._waits = np.zeros(num_envs, int)  # steps since the policy opened the grip
        self._lands = np.zeros(num_envs, int)  # further steps after the release

    def begin(self, homes: np.ndarray) -> None:
        """Starts an episode in the homes of a mask (n,) bool."""
        self._last[homes] = np.nan
        self._waits[homes] = self._lands[homes] = 0

    def changed(self, actions: np.ndarray, state: np.ndarray) -> np.ndarray:
        """Returns actions (n, 11) for the policy's actions (n, 11) in states (n, k)."""
        goal, holds = state[:, self._goal], state[:, self._holding][:, 0] > 0.5
        # In the first step the speed is unknown, and the hand counts as fast.
        slow = act.CONTROL_HZ * np.linalg.norm(goal - self._last, axis=1) < self._speed
        self._last = goal.copy()
        released = ~holds & (self._waits > 0)
        self._lands[released] = LANDING
        opens = holds & ((actions[:, act.GRIP] < 0.0) | (self._waits > 0))
        self._waits = np.where(opens, self._waits + 1, 0)
        lands = ~holds & (self._lands > 0)
        self._lands[lands] -= 1
        stands = opens | lands
        waits = opens & ~slow & (self._waits <= LONGEST)
        actions = actions.copy()
        actions[np.ix_(stands, _MOVES)] = 0.0
        actions[stands, act.GRIP] = np.where(waits, 1.0, -1.0)[stands]
        return actions
