"""Disturbances: what takes an expert off its way, so that its way back is in the demonstrations."""

import numpy as np

from tpsrl.world import action as act

SEGMENT_STEPS = (5, 30)
LAPSES = ("random", "push", "still")


class Disturbed:
    """Does with noise what it is told, but for some stretches in which it does something else.

    In such a lapse it acts at random, is pushed in one direction, or stands still. The noise gives
    states around the expert's own (Laskey et al., "DART: Noise injection for robust imitation
    learning", CoRL 2017), the lapses those farther off. Grip and stop are as it is told.

    Args:
        rng: of this episode
        noise: standard deviation of each entry
        lapses: share of the segments, of 5 to 30 steps, that are lapses
    """

    def __init__(self, rng: np.random.Generator, noise: float, lapses: float) -> None:
        self._rng, self._noise, self._lapses = rng, noise, lapses
        self._left, self._lapse = 0, ""
        self._push = np.zeros(act.SIZE)

    def __call__(self, told: np.ndarray) -> np.ndarray:
        """What is done (11,) where the expert says `told` (11,)."""
        rng = self._rng
        if self._left == 0:
            self._left = int(rng.integers(*SEGMENT_STEPS))
            self._lapse = str(rng.choice(LAPSES)) if rng.random() < self._lapses else ""
            self._push = rng.uniform(-1.0, 1.0, act.SIZE)
        self._left -= 1
        action = told + rng.normal(0.0, self._noise, act.SIZE)
        if self._lapse == "random":
            action = rng.uniform(-1.0, 1.0, act.SIZE)
        elif self._lapse == "push":
            action = told + self._push
        elif self._lapse == "still":
            action = np.zeros(act.SIZE)
        action[act.GRIP], action[act.STOP] = told[act.GRIP], told[act.STOP]
        return np.clip(action, -1.0, 1.0)


class Hesitant:
    """Turns a switch, grip or stop, only some steps after it was told to.

    The step in which a hand lets go, or stop is called, is one of a hundred, and the last of its
    kind. Who hesitates shows what is to be done for as long as it is to be done.

    Args:
        rng: of this episode
        most: steps that it hesitates at most
    """

    def __init__(self, rng: np.random.Generator, most: int) -> None:
        self._rng, self._most = rng, most
        self._now: dict[int, float] = {}
        self._left: dict[int, int] = {}

    def __call__(self, action: np.ndarray, told: np.ndarray) -> np.ndarray:
        """The action (11,), with the switches as they were or as is `told` (11,)."""
        action = action.copy()
        for part in (act.GRIP, act.STOP):
            wanted = 1.0 if told[part] > 0.0 else -1.0
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
