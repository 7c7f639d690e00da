"""Preemption of stragglers: ranks that collect slowly stop early, so that the others need not wait.

Gradients are averaged over ranks, so the slowest one holds up all. Three rules say when it stops:

- `share`, DD-PPO's (Wijmans et al., ICLR 2020, section 3): once so many of the ranks have a whole
  rollout, at least a quarter of one collected.
- `optimal`, VER's (section 2.3): once all ranks together have S steps, where S maximises
  S / (Time(S) + LT) for the times that steps took in the rollout before, and for the time that was
  then learned; the quarter of the slowest is waited for here too, and counts in Time(S).
- `marginal`, our own: as soon as waiting on brings fewer steps a second than all have had so far,
  learning included. After t seconds S steps have come, S' of them from ranks that have whole
  rollouts by now. The others go on with (S - S') / t, and the mean is S / (t + LT), so that is when
  S' / S exceeds LT / (t + LT). It has the same optimum as `optimal` where all keep their pace, and
  needs no forecast.

Ranks count by a store of torch.distributed's, apart from the group: nobody waits there.
"""

import dataclasses
import math
import os
import time
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from torch import distributed

from tpsrl.rl.collection.preemption_settings import PreemptionSettings
from tpsrl.rl.distributed import slurm
from tpsrl.rl.distributed.group import Group, reaching_others

_LOOK_S = 0.003  # between two looks at what the others have; one costs some 0.1 ms
_LOST = "lost rank 0, where they count"
_APART = 2**31  # two counts in one number of the store, so that they are read at once


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


def best_steps(paces: Sequence[Pace], learning_s: float, least: int = 0) -> int:
    """S, the steps of all ranks after which to stop: the argmax of S / (Time(S) + learning_s).

    Time(S) is at least what the slowest rank takes for the `least` steps that each collects: while
    all wait for it, the others may as well go on.
    """
    arrivals = [pace.arrivals() for pace in paces]
    soonest = max(when[least - 1] for when in arrivals) if least else 0.0
    when = np.maximum(np.sort(np.concatenate(arrivals)), soonest)
    speed = np.arange(1, len(when) + 1) / (when + learning_s)
    return len(when) - int(np.argmax(speed[::-1]))  # of equally good ones the most


def outweighs(steps: Any, of_whole: Any, elapsed_s: Any, learning_s: float) -> Any:
    """Whether time is better spent on a rollout anew than on waiting on; the rule `marginal`.

    Numbers, or arrays of them (k,), and so is the answer.

    Args:
        steps: of all ranks, S
        of_whole: of those that have whole rollouts, S'
        elapsed_s: since collecting began
        learning_s: LT
    """
    return of_whole * (elapsed_s + learning_s) > steps * learning_s


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
        self._learning_s: float | None = None  # of the last rollout
        self._rollout, self._told, self._looked = 0, 0, 0.0
        self._begun, self._has_least = 0.0, False

    def begin(self) -> None:
        """See `Preemption.begin`."""
        self._rollout += 1
        self._told, self._looked = 0, 0.0
        self._begun, self._has_least = time.monotonic(), False

    def stops(self, complete: int) -> bool:
        """See `Preemption.stops`."""
        whole = complete >= self._size
        now = time.monotonic()
        if not whole and now - self._looked < _LOOK_S:
            return False
        self._looked = now
        if self._settings.rule == "share":
            if whole:
                self._count(f"{self._rollout}/whole", 1)
                return False
            if complete < self._least:
                return False
            return self._count(f"{self._rollout}/whole", 0) >= self._enough
        if self._settings.rule == "marginal":
            return self._costs_more(complete, now - self._begun)
        if self._wanted is None:
            return False
        total = self._count(f"{self._rollout}/steps", complete - self._told)
        self._told = complete
        return not whole and complete >= self._least and total >= self._wanted

    def _costs_more(self, complete: int, elapsed_s: float) -> bool:
        """Whether to wait on costs more than it brings; see `marginal` above."""
        whole = complete >= self._size
        counted = (complete - self._told) + (self._size * _APART if whole else 0)
        both = self._count(f"{self._rollout}/steps", counted)
        self._told = complete
        if complete >= self._least and not self._has_least:
            self._has_least = True
            self._count(f"{self._rollout}/least", 1)
        if whole or not self._has_least or self._learning_s is None:
            return False
        of_whole, total = divmod(both, _APART)
        if not outweighs(total, of_whole, elapsed_s, self._learning_s):
            return False
        # All learn when the slowest has its least, until when the others may as well go on.
        return self._count(f"{self._rollout}/least", 0) == self._group.size

    def plan(self, pace: Pace, learning_s: float) -> None:
        """See `Preemption.plan`."""
        if self._settings.rule in ("optimal", "marginal"):
            told = self._group.gather((pace, learning_s))
            # Who is first to learn waits for the others then; the last one's time is all learning.
            last_s = min(s for _, s in told)
            self._learning_s = last_s
            if self._settings.rule == "optimal":
                self._wanted = best_steps([p for p, _ in told], last_s, self._least)
        if self._group.rank == 0:
            for name in ("whole", "steps", "least"):
                with reaching_others(_LOST):
                    self._store.delete_key(f"{self._rollout - 1}/{name}")

    def _count(self, name: str, more: int) -> int:
        """Adds to a number that all ranks see; what it is then."""
        with reaching_others(_LOST):
            return int(self._store.add(name, more))


def make(group: Group, settings: PreemptionSettings, size: int) -> Preemption:
    """What settings ask for, of a group that may be a single rank."""
    if group.size == 1 or settings.rule == "none":
        return NoPreemption()
    return Preempted(group, settings, size)


def _store(group: Group) -> distributed.Store:
    """A store of the group, at a port that is free on the machine of rank 0."""
    host = slurm.variables(os.environ)["MASTER_ADDR"]
    own = None
    if group.rank == 0:
        with reaching_others("no store for what they count"):
            own = distributed.TCPStore(host, 0, None, is_master=True, wait_for_workers=False)
    port = group.share(None if own is None else own.port)
    if own is not None:
        return own
    with reaching_others(_LOST):
        return distributed.TCPStore(host, port, None, is_master=False, wait_for_workers=False)
