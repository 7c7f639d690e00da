"""Preemption of stragglers: ranks that collect slowly stop early, so that the others need not wait.

Gradients are averaged over ranks, so the slowest rank delays all. There are three rules of when a
rank stops:

- `share`, the rule of DD-PPO (Wijmans et al., ICLR 2020, section 3): once a given share of the
  ranks has a whole rollout, and the rank itself its minimum, by default a quarter of a rollout.
- `optimal`, the rule of VER (section 2.3): once all ranks together have S steps. S maximises
  S / (Time(S) + LT), with the durations of steps in the previous rollout and the learning time
  after it. Time(S) includes the time in which the slowest rank collects its minimum, as here too
  all wait for it.
- `marginal`, introduced here: as soon as further waiting gives fewer steps per second than the mean
  so far, learning included. After t seconds there are S steps, S' of them from ranks whose rollouts
  are whole. The other ranks continue with (S - S') / t, and the mean is S / (t + LT), so ranks stop
  when S' / S exceeds LT / (t + LT). The rule has the same optimum as `optimal` if all ranks keep
  their pace, and needs no forecast.

Ranks count in a store of torch.distributed, separate from the process group, so no rank waits.
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

_LOOK_S = 0.003  # between two reads of the shared counters; one takes about 0.1 ms
_LOST = "lost the counters of rank 0"
_APART = 2**31  # two counters in one number of the store, so that they are read together


class Preemption(Protocol):
    """Decides when a rank stops collecting; used by one thread, rollout after rollout."""

    def begin(self) -> None:
        """Begins a rollout."""
        ...

    def stops(self, complete: int) -> bool:
        """Returns whether to stop at `complete` steps; also called when the rollout is full."""
        ...

    def plan(self, pace: "Pace", learning_s: float) -> None:
        """Prepares the next rollout from the pace of the last one; all ranks call it together."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Pace:
    """Pace of a rank's environments: seconds (n,) per step of each."""

    seconds: np.ndarray
    most: int  # maximum number of steps that the rank collects

    @staticmethod
    def of(
        env: np.ndarray, took_s: np.ndarray, ready_at: np.ndarray, num_envs: int, most: int
    ) -> "Pace":
        """Computes the pace of a rollout from its steps (k,), in the order of their completion.

        A step's time is measured from the previous step of its environment, so it includes the wait
        for an action. The first step of a rollout may have begun long before the rollout, or have
        waited during learning, so it counts with its own duration. An environment without a
        complete step is assumed to take the whole duration for one step.

        Args:
            env: environment of each step
            took_s: duration of each step
            ready_at: when each step was complete
            num_envs: environments of the rank
            most: maximum number of steps that the rank collects
        """
        whole = float(ready_at.max() - (ready_at - took_s).min()) if len(env) else 1.0
        seconds = np.full(num_envs, max(whole, 1e-6))
        order = np.lexsort((ready_at, env))
        number, first, count = np.unique(env[order], return_index=True, return_counts=True)
        when = ready_at[order]
        took = when[first + count - 1] - when[first] + took_s[order][first]
        seconds[number] = np.maximum(took / count, 1e-6)
        return Pace(seconds, most)

    def arrivals(self) -> np.ndarray:
        """Returns when the rank's steps are complete (most,), in seconds from the beginning."""
        # By then at least `most` steps are complete, whatever the environments' paces.
        rate = float((1.0 / self.seconds).sum())
        until = (self.most + len(self.seconds)) / rate
        every = [s * np.arange(1, math.floor(until / s) + 1) for s in self.seconds]
        found: np.ndarray = np.sort(np.concatenate(every))[: self.most]
        return found


def best_steps(paces: Sequence[Pace], learning_s: float, least: int = 0) -> int:
    """Returns S, the steps of all ranks at which to stop: argmax of S / (Time(S) + learning_s).

    Time(S) is at least the time in which the slowest rank collects its `least` steps: while all
    wait for that rank, the others may as well continue.
    """
    arrivals = [pace.arrivals() for pace in paces]
    soonest = max(when[least - 1] for when in arrivals) if least else 0.0
    when = np.maximum(np.sort(np.concatenate(arrivals)), soonest)
    speed = np.arange(1, len(when) + 1) / (when + learning_s)
    return len(when) - int(np.argmax(speed[::-1]))  # the largest of equally good ones


def outweighs(steps: Any, of_whole: Any, elapsed_s: Any, learning_s: float) -> Any:
    """Returns whether a new rollout is a better use of time than further waiting (rule `marginal`).

    Arguments and result are numbers, or arrays (k,).

    Args:
        steps: steps of all ranks, S
        of_whole: steps of the ranks with whole rollouts, S'
        elapsed_s: seconds since collection began, t
        learning_s: seconds of learning, LT
    """
    return of_whole * (elapsed_s + learning_s) > steps * learning_s


class NoPreemption:
    """No preemption: all ranks collect whole rollouts."""

    def begin(self) -> None:
        """See `Preemption.begin`."""

    def stops(self, complete: int) -> bool:
        """See `Preemption.stops`."""
        return False

    def plan(self, pace: Pace, learning_s: float) -> None:
        """See `Preemption.plan`."""


class Preempted:
    """Preemption by a rule; all ranks must make it in the same call.

    Args:
        group: group of at least two ranks
        settings: settings with a rule other than "none"
        size: steps of a whole rollout of one rank
    """

    def __init__(self, group: Group, settings: PreemptionSettings, size: int) -> None:
        self._group, self._settings, self._size = group, settings, size
        self._store = _store(group)
        self._least = math.ceil(settings.least * size)
        self._enough = math.ceil(settings.share * group.size)
        self._wanted: int | None = None  # steps of all ranks at which to stop, once known
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
        """Returns whether further waiting costs more than it gains; see `marginal` above."""
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
        # Learning waits for the slowest rank's minimum, so the others continue until then.
        return self._count(f"{self._rollout}/least", 0) == self._group.size

    def plan(self, pace: Pace, learning_s: float) -> None:
        """See `Preemption.plan`."""
        if self._settings.rule in ("optimal", "marginal"):
            gathered = self._group.gather((pace, learning_s))
            # Ranks that begin to learn early wait for the others; the shortest time has no wait.
            last_s = min(s for _, s in gathered)
            self._learning_s = last_s
            if self._settings.rule == "optimal":
                self._wanted = best_steps([p for p, _ in gathered], last_s, self._least)
        if self._group.rank == 0:
            for name in ("whole", "steps", "least"):
                with reaching_others(_LOST):
                    self._store.delete_key(f"{self._rollout - 1}/{name}")

    def _count(self, name: str, more: int) -> int:
        """Adds to a counter that all ranks share; returns its new value."""
        with reaching_others(_LOST):
            return int(self._store.add(name, more))


def make(group: Group, settings: PreemptionSettings, size: int) -> Preemption:
    """Makes the preemption of the settings, for a group that may be a single rank."""
    if group.size == 1 or settings.rule == "none":
        return NoPreemption()
    return Preempted(group, settings, size)


def _store(group: Group) -> distributed.Store:
    """Opens a store for the group, at a free port on the machine of rank 0."""
    host = slurm.variables(os.environ)["MASTER_ADDR"]
    own = None
    if group.rank == 0:
        with reaching_others("could not open a store for the counters"):
            own = distributed.TCPStore(host, 0, None, is_master=True, wait_for_workers=False)
    port = group.share(None if own is None else own.port)
    if own is not None:
        return own
    with reaching_others(_LOST):
        return distributed.TCPStore(host, port, None, is_master=False, wait_for_workers=False)
