"""Preemption of stragglers: ranks that collect slowly stop early, so that the others need not wait.

Gradients are averaged over ranks, so the slowest one holds up all. Two rules say when it stops:

- `share`, DD-PPO's (Wijmans et al., ICLR 2020, section 3): once so many of the ranks have a whole
  rollout, at least a quarter of one collected.
- `optimal`, VER's (section 2.3): once all ranks together have S steps, where S maximises
  S / (Time(S) + LT) for the times that steps took in the rollout before, and for the time that was
  then learned.

Ranks count by a store of torch.distributed's, apart from the group: nobody waits there.
"""

import dataclasses
import math
import os
import time
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from torch import distributed

from tpsrl.rl.collection.preemption_settings import PreemptionSettings
from tpsrl.rl.group import Group

_LOOK_S = 0.003  # between two looks at what the others have; one costs some 0.1 ms


class Preemption(Protocol):
    """Says when a rank is to stop collecting. One rollout after the other, by one thread."""

    def begin(self) -> None:
        """A rollout begins."""
        ...

    def stops(self, complete: int) -> bool:
        """Whether to stop now, with so many steps complete; also called when all of them are."""
        ...

    def plan(self, pace: "Pace", learning_s: float) -> None:
        """What the rollout that was learned from tells of the next; all ranks call it together."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Pace:
    """How fast a rank's environments gave their steps: seconds (n,) for a step of each."""

    seconds: np.ndarray
    most: int  # steps that the rank collects at most

    @staticmethod
    def of(
        env: np.ndarray, took_s: np.ndarray, ready_at: np.ndarray, num_envs: int, most: int
    ) -> "Pace":
        """The pace of a rollout, from each of its steps (k,) in the order in which they came.

        A step's time goes from the one before of its environment, so that it has what it waited
        for an action. The first of a rollout may have begun long before it, or waited while there
        was learning: it counts by what it took. An environment of which no step was complete is
        taken to need as long as all of it.

        Args:
            env: whose step
            took_s: seconds that it took the environment
            ready_at: when it was done
            num_envs: of the rank
            most: steps that the rank collects at most
        """
        whole = float(ready_at.max() - (ready_at - took_s).min()) if len(env) else 1.0
        seconds = np.full(num_envs, max(whole, 1e-6))
        for number in np.unique(env):
            mine = env == number
            when = np.sort(ready_at[mine])
            first = float(took_s[mine][np.argmin(ready_at[mine])])
            seconds[number] = max((when[-1] - when[0] + first) / len(when), 1e-6)
        return Pace(seconds, most)

    def arrivals(self) -> np.ndarray:
        """When its steps come (most,), in seconds from the beginning, in order."""
        # Within so long there are enough of them, whoever they are from.
        rate = float((1.0 / self.seconds).sum())
        until = (self.most + len(self.seconds)) / rate
        every = [s * np.arange(1, math.floor(until / s) + 1) for s in self.seconds]
        found: np.ndarray = np.sort(np.concatenate(every))[: self.most]
        return found


def best_steps(paces: Sequence[Pace], learning_s: float) -> int:
    """S, the steps of all ranks after which to stop: the argmax of S / (Time(S) + learning_s)."""
    when = np.sort(np.concatenate([pace.arrivals() for pace in paces]))
    steps = np.arange(1, len(when) + 1)
    return int(steps[np.argmax(steps / (when + learning_s))])


class NoPreemption:
    """All ranks collect whole rollouts."""

    def begin(self) -> None:
        """See `Preemption.begin`."""

    def stops(self, complete: int) -> bool:
        """See `Preemption.stops`."""
        return False

    def plan(self, pace: Pace, learning_s: float) -> None:
        """See `Preemption.plan`."""


class Preempted:
    """Preemption by a rule; the same call on all ranks makes it.

    Args:
        group: of two ranks or more
        settings: the rule, not "none"
        size: steps of a whole rollout of a rank
    """

    def __init__(self, group: Group, settings: PreemptionSettings, size: int) -> None:
        self._group, self._settings, self._size = group, settings, size
        self._store = _store(group)
        self._least = math.ceil(settings.least * size)
        self._enough = math.ceil(settings.share * group.size)
        self._wanted: int | None = None  # steps of all ranks, once that is known
        self._rollout, self._told, self._looked = 0, 0, 0.0

    def begin(self) -> None:
        """See `Preemption.begin`."""
        self._rollout += 1
        self._told, self._looked = 0, 0.0

    def stops(self, complete: int) -> bool:
        """See `Preemption.stops`."""
        whole = complete >= self._size
        now = time.monotonic()
        if not whole and now - self._looked < _LOOK_S:
            return False
        self._looked = now
        if self._settings.rule == "share":
            if whole:
                self._store.add(f"{self._rollout}/whole", 1)
                return False
            if complete < self._least:
                return False
            return int(self._store.add(f"{self._rollout}/whole", 0)) >= self._enough
        if self._wanted is None:
            return False
        total = int(self._store.add(f"{self._rollout}/steps", complete - self._told))
        self._told = complete
        return not whole and complete >= self._least and total >= self._wanted

    def plan(self, pace: Pace, learning_s: float) -> None:
        """See `Preemption.plan`."""
        if self._settings.rule == "optimal":
            told = self._group.gather((pace, learning_s))
            self._wanted = best_steps([p for p, _ in told], max(s for _, s in told))
        if self._group.rank == 0:
            for name in ("whole", "steps"):
                self._store.delete_key(f"{self._rollout - 1}/{name}")


def make(group: Group, settings: PreemptionSettings, size: int) -> Preemption:
    """What settings ask for, of a group that may be a single rank."""
    if group.size == 1 or settings.rule == "none":
        return NoPreemption()
    return Preempted(group, settings, size)


def _store(group: Group) -> distributed.Store:
    """A store of the group, at a port that is free on the machine of rank 0."""
    host = os.environ["MASTER_ADDR"]
    own = None
    if group.rank == 0:
        own = distributed.TCPStore(host, 0, None, is_master=True, wait_for_workers=False)
    port = group.share(None if own is None else own.port)
    if own is not None:
        return own
    return distributed.TCPStore(host, port, None, is_master=False, wait_for_workers=False)
