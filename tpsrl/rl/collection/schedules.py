"""Schedules: which environments act when, and how many steps are waited for (VER, 2.1 and 2.2).

- `sync`, as in DD-PPO: all environments step together, and no action is chosen before the last
  environment is ready.
- `nover`: an action is chosen as soon as an environment is ready, in batches of the ready ones.
  Each environment gives T steps to a rollout, and then waits.
- `ver`: as `nover`, but a rollout has the first T x N steps, whichever environments they are from.

All schedules but `sync` send every environment one more action before the learner takes over, so
that no environment is idle meanwhile. These steps, and all others in flight when a rollout is full,
belong to the next rollout.
"""

from typing import Protocol

import numpy as np

from tpsrl.rl.collection.rollout import Rollout


class Schedule(Protocol):
    """Decides which environments act next, and how many steps the collector waits for."""

    name: str
    wait_cause: str  # of `accounting.WAITS`: what a ready environment waits for

    def turn(self, rollout: Rollout, idle: np.ndarray, under_way: bool, free: int) -> np.ndarray:
        """Returns the environments (m,) whose next actions are to be chosen now.

        Args:
            rollout: rollout that is being filled
            idle: environments (k,) that could act, longest idle first
            under_way: whether any environment is stepping, or another thread is choosing its action
            free: number of idle inference threads beside the collector's own thread
        """
        ...

    def wait_for(self, rollout: Rollout, idle: np.ndarray, sent: int) -> int:
        """Returns the number of steps to wait for, after `sent` environments had their turn."""
        ...

    def lead(self, idle: np.ndarray) -> np.ndarray:
        """Returns the environments (m,) that act once more when a rollout is full, for the next."""
        ...


class SyncSchedule:
    """Lock-step: no environment acts before the last one is ready."""

    name = "sync"
    wait_cause = "others"

    def __init__(self, num_envs: int) -> None:
        self._all = np.arange(num_envs)

    def turn(self, rollout: Rollout, idle: np.ndarray, under_way: bool, free: int) -> np.ndarray:
        """Returns all environments if all are idle, otherwise none."""
        return self._all if len(idle) == len(self._all) else self._all[:0]

    def wait_for(self, rollout: Rollout, idle: np.ndarray, sent: int) -> int:
        """Returns the number of all environments."""
        return len(self._all)

    def lead(self, idle: np.ndarray) -> np.ndarray:
        """Returns no environment: the updated policy chooses the next actions."""
        return idle[:0]


class VerSchedule:
    """Variable experience rollouts: ready environments act again, without waiting for others.

    Args:
        min_batch: minimum batch size of inference, while further environments can become ready
        max_batch: maximum batch size of each thread
    """

    name = "ver"
    wait_cause = "inference"

    def __init__(self, min_batch: int, max_batch: int) -> None:
        self._min, self._max = min_batch, max_batch

    def turn(self, rollout: Rollout, idle: np.ndarray, under_way: bool, free: int) -> np.ndarray:
        """Returns the ready environments, within the limits on batch size."""
        waits = len(idle) < self._min and under_way
        return idle[: 0 if waits else self._max * (1 + free)]

    def wait_for(self, rollout: Rollout, idle: np.ndarray, sent: int) -> int:
        """Returns 0 after a turn, since others may act already; otherwise the rest of a batch."""
        return 0 if sent else max(1, self._min - len(idle))

    def lead(self, idle: np.ndarray) -> np.ndarray:
        """Returns all idle environments; the values of their actions also bootstrap returns."""
        return idle


class NoVerSchedule:
    """VER without variable experience rollouts: every environment gives T steps to each rollout.

    Args:
        num_envs: number of environments
        min_batch, max_batch: see `VerSchedule`
    """

    name = "nover"
    wait_cause = "others"

    def __init__(self, num_envs: int, min_batch: int, max_batch: int) -> None:
        self._num_envs = num_envs
        self._ver = VerSchedule(min_batch, max_batch)

    def turn(self, rollout: Rollout, idle: np.ndarray, under_way: bool, free: int) -> np.ndarray:
        """Returns ready environments with fewer than T steps, within the limits on batch size."""
        return self._ver.turn(rollout, self._due(rollout, idle), under_way, free)

    def wait_for(self, rollout: Rollout, idle: np.ndarray, sent: int) -> int:
        """See `VerSchedule.wait_for`; counts only environments with fewer than T steps."""
        return self._ver.wait_for(rollout, self._due(rollout, idle), sent)

    def lead(self, idle: np.ndarray) -> np.ndarray:
        """See `VerSchedule.lead`."""
        return self._ver.lead(idle)

    def _due(self, rollout: Rollout, idle: np.ndarray) -> np.ndarray:
        """Returns the environments that have given fewer than T steps."""
        has_room = rollout.taken() < rollout.size // self._num_envs
        return idle[has_room[idle]]
