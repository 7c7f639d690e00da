"""Release from a hand at rest, for a policy that places.

A policy that releases while its hand still moves throws: a can or a bowl then rolls off its goal,
often after Place has succeeded. The robot stands still from the step in which its policy opens the
grip, releases when the hand is slow, and stands still until the object has landed.

A policy can also hold its object over the goal until its time is over, since a long object keeps
the hand higher than most, or another object is in the way. After some steps near the goal, in
which the hand has not come nearer, it releases.

Before the release, the robot can turn the object upright over its goal (`skills.policies.upright`).
"""

from collections.abc import Mapping

import numpy as np

from skills.policies.upright import GOAL, Upright
from tpsrl.world import action as act

HOLDING = "holding"  # sensor: whether the hand holds an object (1,)
LONGEST = 30  # steps of waiting for the hand, after which the object is released
LANDING = 5  # steps of standing still after a release
NEAR_M = 0.25  # of the goal, for a hand that holds an object near it
_NEARER_M = 0.01  # a hand that comes nearer by this is not late
MOST_NEAR = 300  # most steps of holding it there
_MOVES = np.r_[act.ARM, act.BASE]  # action dimensions that are 0 while the robot stands still


class SteadyRelease:
    """Changes the actions of homes whose policy releases an object.

    Args:
        speed: speed of the end effector relative to the goal, in m/s, below which it releases; 0
            for any
        near: steps within `NEAR_M` of the goal, without coming nearer, after which it releases; 0
            for none
        upright: most steps in which the object is turned upright over its goal; 0 for none
        layout: slice of each sensor in the state vector
        num_envs: number n of homes
    """

    def __init__(
        self, speed: float, near: int, upright: int, layout: Mapping[str, slice], num_envs: int
    ) -> None:
        self._speed = speed or np.inf
        self._upright = Upright(upright, layout, num_envs) if upright else None
        self._goal, self._holding = layout[GOAL], layout[HOLDING]
        self._last = np.full((num_envs, 3), np.nan)  # vectors of the previous step
        # Distances from the goal in the last steps, oldest first; infinite for an empty hand.
        self._away = np.full((near, num_envs), np.inf)
        self._waits = np.zeros(num_envs, int)  # steps since the grip is to open
        self._lands = np.zeros(num_envs, int)  # further steps after the release

    def begin(self, homes: np.ndarray) -> None:
        """Starts an episode in the homes of a mask (n,) bool."""
        self._last[homes] = np.nan
        self._away[:, homes] = np.inf
        self._waits[homes] = self._lands[homes] = 0
        if self._upright is not None:
            self._upright.begin(homes)

    def changed(self, actions: np.ndarray, state: np.ndarray) -> np.ndarray:
        """Returns actions (n, 11) for the policy's actions (n, 11) in states (n, k)."""
        goal, holds = state[:, self._goal], state[:, self._holding][:, 0] > 0.5
        # In the first step the speed is unknown, and the hand counts as fast.
        slow = act.CONTROL_HZ * np.linalg.norm(goal - self._last, axis=1) < self._speed
        self._last = goal.copy()
        released = ~holds & (self._waits > 0)
        self._lands[released] = LANDING
        late = self._late(np.where(holds, np.linalg.norm(goal, axis=1), np.inf))
        opens = holds & ((actions[:, act.GRIP] < 0.0) | late | (self._waits > 0))
        self._waits = np.where(opens, self._waits + 1, 0)
        lands = ~holds & (self._lands > 0)
        self._lands[lands] -= 1
        stands = opens | lands
        waits = opens & ~slow & (self._waits <= LONGEST)
        actions = actions.copy()
        actions[np.ix_(stands, _MOVES)] = 0.0
        if self._upright is not None:
            turns, arm = self._upright.moves(opens & ~waits, holds, state)
            actions[turns, act.ARM] = arm[turns]
            self._waits[turns] = 1  # for the hand that turned the object to be slow again
            waits |= turns
        actions[stands, act.GRIP] = np.where(waits, 1.0, -1.0)[stands]
        return actions

    def _late(self, away: np.ndarray) -> np.ndarray:
        """Returns whether hands at distances (n,) from the goal have been near it for too long."""
        if not len(self._away):
            return np.zeros(len(away), bool)
        self._away[:-1] = self._away[1:]
        self._away[-1] = away
        near = (self._away < NEAR_M).all(0)
        late = np.zeros(len(away), bool)
        late[near] = self._away[0, near] - away[near] < _NEARER_M
        return late
