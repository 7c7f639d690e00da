"""Schedules: which environments may act when, and how many are waited for (VER, sections 2.1, 2.2).

- `sync`, DD-PPO's way: all environments step together, and no action is chosen before the last of
  them is ready.
- `nover`: an action is chosen as soon as an environment is ready, in batches of whoever is; each
  environment gives T steps to a rollout, and waits when it has.
- `ver`: the same, but a rollout has the first T x N steps, whoever they come from.

All but `sync` send every environment one more action before they hand over to the learner, so that
none stands still meanwhile; those steps, and all that are in flight when a rollout is full, belong
to the next one.
"""

from typing import Protocol

import numpy as np

from tpsrl.rl.collection.rollout import Rollout


class Schedule(Protocol):
    """Says whose next actions a collector chooses, and for whom it waits."""

    name: str
    wait_cause: str  # of `accounting.WAITS`: for what an environment that is ready waits

    def turn(self, rollout: Rollout, idle: np.ndarray, under_way: bool, free: int) -> np.ndarray:
        """Environments (m,) whose next actions are to be chosen now.

        Args:
            rollout: that is being filled
            idle: environments (k,) that could act, the longest idle first
            under_way: whether any environment is stepping, or its action being chosen elsewhere
            free: threads that could choose beside the collector's own
        """
        ...

    def wait_for(self, rollout: Rollout, idle: np.ndarray, sent: int) -> int:
        """How many steps to wait for, after `sent` environments had their turn."""
        ...

    def lead(self, idle: np.ndarray) -> np.ndarray:
        """Environments (m,) that act once more, for the next rollout, when this one is full."""
        ...


class SyncSchedule:
    """Lock-step: no environment acts before the last one is ready."""

    name = "sync"
    wait_cause = "others"

    def __init__(self, num_envs: int) -> None:
        self._all = np.arange(num_envs)

    def turn(self, rollout: Rollout, idle: np.ndarray, under_way: bool, free: int) -> np.ndarray:
        """All, or none."""
        return self._all if len(idle) == len(self._all) else self._all[:0]

    def wait_for(self, rollout: Rollout, idle: np.ndarray, sent: int) -> int:
        """For all."""
        return len(self._all)

    def lead(self, idle: np.ndarray) -> np.ndarray:
        """None: the next actions are chosen by the policy that has learned."""
        return idle[:0]


class VerSchedule:
    """Variable experience rollouts: whoever is ready acts again, no environment waits for others.

    Args:
        min_batch: of fewer, inference waits for more, while more can come
        max_batch: of more, so many are chosen for at once by each thread
    """

    name = "ver"
    wait_cause = "inference"

    def __init__(self, min_batch: int, max_batch: int) -> None:
        self._min, self._max = min_batch, max_batch

    def turn(self, rollout: Rollout, idle: np.ndarray, under_way: bool, free: int) -> np.ndarray:
        """Whoever is ready, within the bounds of batches."""
        waits = len(idle) < self._min and under_way
        return idle[: 0 if waits else self._max * (1 + free)]

    def wait_for(self, rollout: Rollout, idle: np.ndarray, sent: int) -> int:
        """For nobody if some had their turn, as others may act yet; else for a batch."""
        return 0 if sent else max(1, self._min - len(idle))

    def lead(self, idle: np.ndarray) -> np.ndarray:
        """Everyone who could act; the values that ends of sequences need come with it."""
        return idle


class NoVerSchedule:
    """VER without the variable experience rollouts: every environment gives T steps to each.

    Args:
        num_envs: how many there are
        min_batch, max_batch: see `VerSchedule`
    """

    name = "nover"
    wait_cause = "others"

    def __init__(self, num_envs: int, min_batch: int, max_batch: int) -> None:
        self._num_envs = num_envs
        self._ver = VerSchedule(min_batch, max_batch)

    def turn(self, rollout: Rollout, idle: np.ndarray, under_way: bool, free: int) -> np.ndarray:
        """Whoever is ready and has not given its steps yet, within the bounds of batches."""
        return self._ver.turn(rollout, self._due(rollout, idle), under_way, free)

    def wait_for(self, rollout: Rollout, idle: np.ndarray, sent: int) -> int:
        """As `VerSchedule`, of those who have not given their steps yet."""
        return self._ver.wait_for(rollout, self._due(rollout, idle), sent)

    def lead(self, idle: np.ndarray) -> np.ndarray:
        """As `VerSchedule`."""
        return self._ver.lead(idle)

    def _due(self, rollout: Rollout, idle: np.ndarray) -> np.ndarray:
        """Those of the environments that have given fewer than T steps."""
        has_room = rollout.taken() < rollout.size // self._num_envs
        return idle[has_room[idle]]
