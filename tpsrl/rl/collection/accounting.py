"""What time goes into while a rollout is collected."""

import time
from collections.abc import Mapping

import numpy as np

from tpsrl.rl.collection.inference import Batch
from tpsrl.rl.envs.pool import CAUSES, EnvPool
from tpsrl.rl.envs.stopwatch import Stopwatch

WAITS = ("others", "inference", "learning")  # what environments wait for


class Accounting:
    """Where the time of the rollout that is being collected goes.

    `inference`, `copying` and `receiving` are stopwatches for the collector to run; `away` is from
    when to when the learner last had the process, by `time.monotonic`.

    Args:
        pool: the environments
        wait_cause: of `WAITS`, for what an environment that is ready waits until it is chosen
    """

    def __init__(self, pool: EnvPool, wait_cause: str) -> None:
        self._pool, self._wait_cause = pool, wait_cause
        self.inference, self.copying, self.receiving = Stopwatch(), Stopwatch(), Stopwatch()
        self._left_at = time.monotonic()
        self.away = (self._left_at, self._left_at)
        self._waits = dict.fromkeys(WAITS, 0.0)
        self._begun, self._before = 0.0, dict[str, float]()

    def begin(self) -> None:
        """A rollout begins."""
        self._begun, self._before = time.perf_counter(), self._so_far()
        self.away = (self._left_at, time.monotonic())
        self._waits = dict.fromkeys(WAITS, 0.0)

    def begin_lead(self) -> None:
        """From here on steps are sent for the next rollout, before the learner has the process."""
        now = time.monotonic()
        self.away = (now, now)

    def note_sent(self, batch: Batch, now: float) -> None:
        """Adds up what the environments of a batch have waited for until they are sent, now."""
        away, count = batch.away, len(batch.envs)
        begun, end = np.maximum(batch.ready_at, away[0]), min(batch.chosen_at, away[1])
        learning = float(np.maximum(end - begun, 0.0).sum())
        until_chosen = float(np.maximum(batch.chosen_at - batch.ready_at, 0.0).sum())
        self._waits["learning"] += learning
        self._waits[self._wait_cause] += until_chosen - learning
        self._waits["inference"] += count * (now - batch.chosen_at)

    def end(self) -> tuple[dict[str, float], dict[str, float]]:
        """The rollout is handed over: its `Collection.seconds` and `Collection.waits`."""
        self._left_at = time.monotonic()
        spent = {cause: s - self._before[cause] for cause, s in self._so_far().items()}
        waits = {cause: s / self._pool.num_envs for cause, s in self._waits.items()}
        return breakdown(spent, time.perf_counter() - self._begun), waits

    def _so_far(self) -> dict[str, float]:
        """Seconds by cause, of all rollouts."""
        watched = {
            "inference": self.inference.seconds,
            "copying": self.copying.seconds,
            "receiving": self.receiving.seconds,
        }
        return watched | self._pool.seconds


def breakdown(spent: Mapping[str, float], total: float) -> dict[str, float]:
    """`Collection.seconds` of the seconds by cause within a total.

    What the collector has waited is put down to the environments, as far as they were busy by the
    mean of their processes; the rest is "waiting", and what nobody has accounted for "other".
    """
    spent = dict(spent)
    receiving = max(spent.pop("receiving"), 0.0)
    busy = sum(spent[cause] for cause in CAUSES)
    if busy > receiving:  # The rest of it went on behind other things.
        spent |= {cause: spent[cause] * receiving / busy for cause in CAUSES}
    spent["waiting"] = max(receiving - busy, 0.0)
    return spent | {"other": total - sum(spent.values())}
