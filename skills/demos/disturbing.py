"""Disturbances of a demonstrator, so that demonstrations include recovery from deviations."""

import numpy as np

from tpsrl.world import action as act

SEGMENT_STEPS = (5, 30)
LAPSES = ("random", "push", "still")


class Disturbed:
    """Disturbance of actions by noise and, in some segments, by lapses.

    In a lapse the action is random, shifted by a constant, or zero. Noise leads to states near
    those of the expert (Laskey et al., "DART: Noise injection for robust imitation learning", CoRL
    2017), lapses to more distant ones. Grip and stop are never disturbed.

    Args:
        rng: of this episode
        noise: standard deviation of each entry
        lapses: share of lapses among segments; a segment is 5 to 29 steps long
    """

    def __init__(self, rng: np.random.Generator, noise: float, lapses: float) -> None:
        self._rng, self._noise, self._lapses = rng, noise, lapses
        self._left, self._lapse = 0, ""
        self._push = np.zeros(act.SIZE)

    def __call__(self, expert: np.ndarray) -> np.ndarray:
        """Returns the disturbed action (11,) for the expert's action (11,)."""
        rng = self._rng
        if self._left == 0:
            self._left = int(rng.integers(*SEGMENT_STEPS))
            self._lapse = str(rng.choice(LAPSES)) if rng.random() < self._lapses else ""
            self._push = rng.uniform(-1.0, 1.0, act.SIZE)
        self._left -= 1
        action = expert + rng.normal(0.0, self._noise, act.SIZE)
        if self._lapse == "random":
            action = rng.uniform(-1.0, 1.0, act.SIZE)
        elif self._lapse == "push":
            action = expert + self._push
        elif self._lapse == "still":
            action = np.zeros(act.SIZE)
        action[act.GRIP], action[act.STOP] = expert[act.GRIP], expert[act.STOP]
        return np.clip(action, -1.0, 1.0)


class Hesitant:
    """Random delay of the switches, grip and stop.

    A release or a stop is the label of only one step in a hundred, because the state changes
    immediately afterwards. The delay yields more steps with this label.

    Args:
        rng: of this episode
        most: maximum delay in steps
    """

    def __init__(self, rng: np.random.Generator, most: int) -> None:
        self._rng, self._most = rng, most
        self._now: dict[int, float] = {}
        self._left: dict[int, int] = {}

    def __call__(self, action: np.ndarray, expert: np.ndarray) -> np.ndarray:
        """Returns `action` (11,) with the previous value of each switch that is being delayed.

        Args:
            action: (11,) action with the switches of the expert
            expert: (11,) action of the expert
        """
        action = action.copy()
        for part in (act.GRIP, act.STOP):
            wanted = 1.0 if expert[part] > 0.0 else -1.0
            now = self._now.setdefault(part, -1.0 if part == act.STOP else wanted)
            if wanted == now:
                self._left.pop(part, None)
                continue
            left = self._left.setdefault(part, int(self._rng.integers(self._most + 1)))
            if left == 0:
                self._now[part] = wanted
                self._left.pop(part)
            else:
                self._left[part] = left - 1
                action[part] = now
        return action
