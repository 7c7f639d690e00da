"""Accounting of the time spent while a rollout is collected."""

import time
from collections.abc import Mapping

import numpy as np

from tpsrl.rl.collection.inference import Batch
from tpsrl.rl.envs.pool import CAUSES, EnvPool
from tpsrl.rl.envs.stopwatch import Stopwatch

WAITS = ("others", "inference", "learning")  # reasons why a ready environment waits


class Accounting:
    """Time accounting of the rollout that is being collected.

    `inference`, `copying` and `receiving` are stopwatches that the collector runs. `away` is the
    last interval (start, end) in which the learner used the process, by `time.monotonic`.

    Args:
        pool: the environments
        wait_cause: one of `WAITS`: the reason why an environment that is ready waits until it is
            chosen
    """

    def __init__(self, pool: EnvPool, wait_cause: str) -> None:
        self._pool, self._wait_cause = pool, wait_cause
        self.inference, self.copying, self.receiving = Stopwatch(), Stopwatch(), Stopwatch()
        self._left_at = time.monotonic()
        self.away = (self._left_at, self._left_at)
        self._waits = dict.fromkeys(WAITS, 0.0)
        self._begun, self._before = 0.0, dict[str, float]()

    def begin(self) -> None:
        """Begins a rollout."""
        self._begun, self._before = time.perf_counter(), self._so_far()
        self.away = (self._left_at, time.monotonic())
        self._waits = dict.fromkeys(WAITS, 0.0)

    def begin_lead(self) -> None:
        """Begins the steps that are sent ahead for the next rollout.

        These steps have not waited for learning, so `away` becomes an empty interval.
        """
        now = time.monotonic()
        self.away = (now, now)

    def note_sent(self, batch: Batch, now: float) -> None:
        """Adds the waiting times of a batch's environments, whose actions are sent at `now`."""
        away, count = batch.away, len(batch.envs)
        begun, end = np.maximum(batch.ready_at, away[0]), min(batch.chosen_at, away[1])
        learning = float(np.maximum(end - begun, 0.0).sum())
        until_chosen = float(np.maximum(batch.chosen_at - batch.ready_at, 0.0).sum())
        self._waits["learning"] += learning
        self._waits[self._wait_cause] += until_chosen - learning
        self._waits["inference"] += count * (now - batch.chosen_at)

    def end(self) -> tuple[dict[str, float], dict[str, float]]:
        """Ends the rollout; returns its `Collection.seconds` and `Collection.waits`."""
        self._left_at = time.monotonic()
        spent = {cause: s - self._before[cause] for cause, s in self._so_far().items()}
        waits = {cause: s / self._pool.num_envs for cause, s in self._waits.items()}
        return breakdown(spent, time.perf_counter() - self._begun), waits

    def _so_far(self) -> dict[str, float]:
        """Returns the seconds by cause, summed over all rollouts."""
        watched = {
            "inference": self.inference.seconds,
            "copying": self.copying.seconds,
            "receiving": self.receiving.seconds,
        }
        return watched | self._pool.seconds


def breakdown(spent: Mapping[str, float], total: float) -> dict[str, float]:
    """Splits `total` seconds by cause, as in `Collection.seconds`.

    The time that the collector waited (`spent["receiving"]`) is attributed to the environments up
    to the mean busy time of their processes. The rest of it is "waiting"; time that no stopwatch
    measured is "other".
    """
    spent = dict(spent)
    receiving = max(spent.pop("receiving"), 0.0)
    busy = sum(spent[cause] for cause in CAUSES)
    if busy > receiving:  # The rest overlapped with other work of the collector.
        spent |= {cause: spent[cause] * receiving / busy for cause in CAUSES}
    spent["waiting"] = max(receiving - busy, 0.0)
    return spent | {"other": total - sum(spent.values())}
