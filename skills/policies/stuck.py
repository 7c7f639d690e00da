"""Noise on the actions of a policy whose robot is stuck.

A policy that uses mean actions can stand before an obstacle until its time is over: what it
observes does not change, so its actions do not either. Noise that is correlated in time moves the
robot away, which then goes on from another state. Independent noise averages out.
"""

from collections.abc import Mapping

import numpy as np

from tpsrl.world import action as act

VELOCITY = "velocity"  # sensor: velocity of the base (3,) in m/s and rad/s
ARM = "arm"  # sensor: angles of the joints (7,) in rad; policies that leave the arm may lack it
MOST = 5.0  # largest standard deviation
WINDOW = 20  # steps without motion after which a robot counts as stuck
LENGTH = 25  # steps with noise
CORRELATION = 0.9  # of the noise of one step with that of the next
_SLOW = 0.15  # m/s, with turning at _TURN metres from the axis, on average over the window
_TURN = 0.3
_ARM_RAD = 0.1  # range of every joint over the window
_MOVES = np.r_[act.ARM, act.BASE]  # action dimensions with noise


class StuckNoise:
    """Detects homes whose robot is stuck, and adds noise to their actions for `LENGTH` steps.

    Args:
        std: standard deviation of the noise, where actions are in [-1, 1]
        layout: slice of each sensor in the state vector
        num_envs: number n of homes
        seed: seed of the random generator
    """

    def __init__(self, std: float, layout: Mapping[str, slice], num_envs: int, seed: int) -> None:
        self._std, self._velocity, self._arm = std, layout[VELOCITY], layout.get(ARM, slice(0, 0))
        self._random = np.random.default_rng(seed)
        self._arms = np.zeros((WINDOW, num_envs, self._arm.stop - self._arm.start))
        self._speeds = np.zeros((WINDOW, num_envs))
        self._seen = np.zeros(num_envs, int)  # steps since the start or the last noise
        self._left = np.zeros(num_envs, int)  # further steps with noise
        self._noise = np.zeros((num_envs, len(_MOVES)))

    def begin(self, homes: np.ndarray) -> None:
        """Starts an episode in the homes of a mask (n,) bool."""
        self._seen[homes] = self._left[homes] = 0
        self._noise[homes] = 0.0

    def draw(self, state: np.ndarray) -> np.ndarray:
        """Returns the noise (n, 11) of the actions for states (n, k); 0 where a robot moves."""
        arm, velocity = state[:, self._arm], state[:, self._velocity]
        row = self._seen % WINDOW
        homes = np.arange(len(state))
        self._arms[row, homes] = arm
        self._speeds[row, homes] = np.abs(velocity[:, :2]).sum(1) + _TURN * np.abs(velocity[:, 2])
        self._seen += 1
        still = (self._speeds.mean(0) < _SLOW) & (np.ptp(self._arms, axis=0) < _ARM_RAD).all(1)
        stuck = still & (self._seen >= WINDOW) & (self._left == 0)
        self._left[stuck] = LENGTH
        fresh = self._random.standard_normal(self._noise.shape)
        self._noise = CORRELATION * self._noise + np.sqrt(1.0 - CORRELATION**2) * fresh
        self._noise[self._left == 0] = 0.0
        noise = np.zeros((len(state), act.SIZE))
        noise[:, _MOVES] = self._std * self._noise
        self._seen[self._left > 0] = 0  # the window begins after the noise
        self._left = np.maximum(self._left - 1, 0)
        return noise
