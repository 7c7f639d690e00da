"""Discrete-event simulation of ranks that collect and learn together, without real learning.

The steps of each rank's environments take given times, and the rank chooses actions for all
environments that are ready, like the collectors `sync`, `nover` and `ver`. A preemption rule, with
the code of `tpsrl.rl.collection.preemption`, decides when a rank stops. Then all ranks learn; each
mini-batch waits for the slowest rank and for the averaging of gradients.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from tpsrl.errors import unknown
from tpsrl.rl.collection.preemption import Pace, best_steps, outweighs
from tpsrl.rl.collection.preemption_settings import PreemptionSettings
from tpsrl.runtime.compiled import njit

COLLECTORS = ("sync", "nover", "ver")
_SYNC, _NOVER, _VER = range(len(COLLECTORS))
_WAITS = -1.0  # environment without a step in flight
_NEVER = math.inf
_JITTER_STREAM = 11  # random stream separate from that of the steps

Durations = Callable[[int, int], np.ndarray]  # (rank, seed) -> (num_envs, k), s; repeats after k


@dataclasses.dataclass(frozen=True, slots=True)
class AllReduce:
    """Time to average gradients: latency of a tree plus bytes of a ring.

    A ring of n ranks sends 2 (n - 1) / n times the gradient through its slowest link (Patarasuk and
    Yuan, 2009).
    """

    latency_s: float = 0.0  # per message; 2 log2(n) messages are sequential
    gradient_bytes: float = 0.0
    bytes_per_s: float = math.inf  # link between two ranks of a machine
    ranks_of_machine: int = 8
    network_bytes_per_s: float = math.inf  # link between two machines

    def seconds(self, ranks: int) -> float:
        """Returns the time (s) for this number of ranks."""
        if ranks == 1:
            return 0.0
        link = self.bytes_per_s
        if ranks > self.ranks_of_machine:
            link = min(link, self.network_bytes_per_s)
        ring = 2.0 * (ranks - 1) / ranks * self.gradient_bytes / link
        return 2.0 * math.ceil(math.log2(ranks)) * self.latency_s + ring


@dataclasses.dataclass(frozen=True, slots=True)
class Workload:
    """Work of each rank.

    Attributes:
        durations: durations of the steps of a rank's environments
        collector: "sync", "nover" or "ver"
        num_envs: N, environments per rank
        num_steps: T; a complete rollout has N x T steps
        inference_s: time of one inference
        inference_each_s: additional time of an inference per environment
        minibatches: mini-batches of all epochs
        minibatch_s: time to learn from a mini-batch
        minibatch_sigma: standard deviation of its logarithm, drawn for each rank and mini-batch
        all_reduce: averaging of gradients, once per mini-batch
        refill: whether a preempted rollout is filled up to the size of a complete one for learning
    """

    durations: Durations
    collector: str = "ver"
    num_envs: int = 16
    num_steps: int = 128
    inference_s: float = 0.0
    inference_each_s: float = 0.0
    minibatches: int = 4
    minibatch_s: float = 0.0
    minibatch_sigma: float = 0.0
    all_reduce: AllReduce = AllReduce()
    refill: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Course:
    """Results of each iteration (k,): fresh steps of all ranks, and seconds."""

    steps: np.ndarray
    seconds: np.ndarray
    collecting_s: np.ndarray  # until the last rank was ready to learn
    learning_s: np.ndarray

    def rate(self, skip: int = 0) -> float:
        """Returns the steps per second, without the first `skip` iterations."""
        return float(self.steps[skip:].sum() / self.seconds[skip:].sum())


class Cluster:
    """Ranks with the same workload.

    Args:
        work: workload of each rank
        ranks: number of ranks
        rule: preemption rule of slow ranks
        seed: seed of the durations of steps and mini-batches; the first ranks of a larger cluster
            equal those of a smaller one

    Raises:
        UserError: the collector is not in `COLLECTORS`.
    """

    def __init__(self, work: Workload, ranks: int, rule: PreemptionSettings, seed: int = 0) -> None:
        if work.collector not in COLLECTORS:
            raise unknown("collector", work.collector, COLLECTORS)
        self._work, self._rule = work, rule
        self._mode = COLLECTORS.index(work.collector)
        self._size = work.num_envs * work.num_steps
        self._least = math.ceil(rule.least * self._size)
        self._ranks = [_Rank(work.durations(rank, seed)) for rank in range(ranks)]
        self._jitter = [
            np.random.default_rng((seed, rank, _JITTER_STREAM)) for rank in range(ranks)
        ]
        self._wanted: int | None = None
        self._learning_s: float | None = None

    def run(self, iterations: int) -> Course:
        """Simulates further rollouts."""
        rows = [self._iteration() for _ in range(iterations)]
        return Course(*(np.array(column) for column in zip(*rows, strict=True)))

    def _iteration(self) -> tuple[int, float, float, float]:
        """Returns steps, total seconds, seconds of collecting and of learning."""
        found = self._collect()
        collecting = max(each.end for each in found)
        learning = self._learn([each.count for each in found])
        for rank, each in zip(self._ranks, found, strict=True):
            rank.wait(collecting - each.end + learning)
        if self._rule.rule == "optimal" and len(found) > 1:
            paces = [
                Pace.of(each.env, each.took, each.ready, self._work.num_envs, self._size)
                for each in found
            ]
            self._wanted = best_steps(paces, learning, self._least)
        self._learning_s = learning
        return sum(each.count for each in found), collecting + learning, collecting, learning

    def _collect(self) -> list["_Collected"]:
        """Returns the steps that each rank collects until its rollout is complete or preempted."""
        tried = [rank.foresee(self._work, self._mode, self._size) for rank in self._ranks]
        stop = self._stop(tried)
        found = []
        for rank, whole in zip(self._ranks, tried, strict=True):
            enough = float(np.sort(whole.ready)[self._least - 1]) if self._least else 0.0
            if whole.end <= max(stop, enough):
                found.append(rank.keep(whole))
            else:
                again = rank.foresee(self._work, self._mode, self._size, stop, self._least)
                found.append(rank.keep(again))
        return found

    def _stop(self, tried: Sequence["_Collected"]) -> float:
        """Returns when ranks are preempted, given the complete rollouts that they would collect."""
        if len(tried) == 1 or self._rule.rule == "none":
            return _NEVER
        if self._rule.rule == "share":
            enough = math.ceil(self._rule.share * len(tried))
            return sorted(whole.end for whole in tried)[enough - 1]
        when = np.sort(np.concatenate([whole.ready for whole in tried]))
        if self._rule.rule == "marginal":
            return self._marginal(tried, when)
        if self._wanted is None:
            return _NEVER
        return float(when[min(self._wanted, len(when)) - 1])

    def _marginal(self, tried: Sequence["_Collected"], when: np.ndarray) -> float:
        """Returns when the rule `marginal` preempts, given the times (k,) at which steps end."""
        if self._learning_s is None:
            return _NEVER
        enough = max(float(np.sort(whole.ready)[self._least - 1]) for whole in tried)
        ends = np.sort([whole.end for whole in tried])
        of_whole = self._size * np.searchsorted(ends, when, side="right")
        steps = np.arange(1, len(when) + 1)
        stops = outweighs(steps, of_whole, when, self._learning_s) & (when >= enough)
        return float(when[np.argmax(stops)]) if stops.any() else _NEVER

    def _learn(self, counts: Sequence[int]) -> float:
        """Returns the seconds for which all ranks learn."""
        work = self._work
        share = np.ones(len(counts)) if work.refill else np.array(counts) / self._size
        jitter = [
            np.exp(work.minibatch_sigma * rng.standard_normal(work.minibatches))
            for rng in self._jitter
        ]
        slowest = (work.minibatch_s * share[:, None] * np.array(jitter)).max(axis=0)
        return float(slowest.sum() + work.minibatches * work.all_reduce.seconds(len(counts)))


@dataclasses.dataclass(frozen=True, slots=True)
class _Collected:
    """A rank's collected steps (n,) in order, and the state of its environments afterwards."""

    env: np.ndarray
    took: np.ndarray  # s
    ready: np.ndarray  # s from the beginning
    end: float
    steps: np.ndarray  # (num_envs,) steps of each environment so far
    left: np.ndarray  # (num_envs,) remaining time of the step in flight, s, or `_WAITS`
    whole: np.ndarray  # (num_envs,) total duration of that step, s

    @property
    def count(self) -> int:
        return len(self.env)


class _Rank:
    """A rank's environments between two rollouts."""

    def __init__(self, durations: np.ndarray) -> None:
        self._durations = np.ascontiguousarray(durations, np.float64)
        num_envs = len(durations)
        self._steps = np.zeros(num_envs, np.int64)
        self._left, self._whole = np.full(num_envs, _WAITS), np.zeros(num_envs)

    def foresee(
        self, work: Workload, mode: int, size: int, stop: float = _NEVER, least: int = 0
    ) -> _Collected:
        """Simulates a rollout that is preempted at `stop` but has at least `least` steps."""
        steps, left, whole = self._steps.copy(), self._left.copy(), self._whole.copy()
        env, took, ready = np.zeros(size, np.int64), np.zeros(size), np.zeros(size)
        count, end = _collect(
            mode, self._durations, steps, left, whole, env, took, ready,
            work.num_steps, work.inference_s, work.inference_each_s, stop, least,
        )  # fmt: skip
        return _Collected(env[:count], took[:count], ready[:count], end, steps, left, whole)

    def keep(self, collected: _Collected) -> _Collected:
        """Makes the state after a simulated rollout the current state."""
        self._steps, self._left, self._whole = collected.steps, collected.left, collected.whole
        return collected

    def wait(self, seconds: float) -> None:
        """Lets time pass; steps in flight continue."""
        under_way = self._left >= 0.0
        self._left[under_way] = np.maximum(self._left[under_way] - seconds, 0.0)


@njit(cache=True)
def _collect(
    mode: int,
    durations: np.ndarray,
    steps: np.ndarray,
    left: np.ndarray,
    whole: np.ndarray,
    env: np.ndarray,
    took: np.ndarray,
    ready: np.ndarray,
    num_steps: int,
    inference_s: float,
    inference_each_s: float,
    stop: float,
    least: int,
) -> tuple[int, float]:
    """Simulates one rollout of a rank; returns its number of steps and its end.

    `steps`, `left` and `whole` (num_envs,) are those of `_Collected` and are changed; `env`, `took`
    and `ready` (size,) are filled.
    """
    num_envs, drawn = durations.shape
    size = len(env)
    finish = np.full(num_envs, math.inf)  # end of a step in flight
    asks = np.zeros(num_envs, np.bool_)  # ready for an action
    chosen = np.zeros(num_envs, np.bool_)  # action is being chosen
    given = np.zeros(num_envs, np.int64)  # steps in this rollout
    for e in range(num_envs):
        if left[e] >= 0.0:
            finish[e] = left[e]
        else:
            asks[e] = True
    now, count, choosing = 0.0, 0, math.inf
    while count < size:
        asking, acting = 0, 0
        for e in range(num_envs):
            asking += asks[e]
            acting += chosen[e] or finish[e] < math.inf
        # In lock-step all environments act together; otherwise those that are ready.
        if choosing == math.inf and asking > 0 and (mode != 0 or acting == 0):
            if mode == 0 and count >= least and now >= stop:
                break
            for e in range(num_envs):
                chosen[e] = asks[e]
                asks[e] = False
            choosing = now + inference_s + asking * inference_each_s
        first = -1
        until = choosing
        for e in range(num_envs):
            if finish[e] < until:
                until = finish[e]
                first = e
        if until == math.inf:
            break  # no step is in flight, and each environment has its steps
        if mode != 0 and count >= least and until > stop:
            now = max(now, stop)
            break
        now = until
        if first < 0:
            for e in range(num_envs):
                if chosen[e]:
                    whole[e] = durations[e, steps[e] % drawn]
                    finish[e] = now + whole[e]
                    chosen[e] = False
            choosing = math.inf
        else:
            env[count] = first
            took[count] = whole[first]
            ready[count] = now
            count += 1
            steps[first] += 1
            given[first] += 1
            finish[first] = math.inf
            asks[first] = mode == 2 or given[first] < num_steps
    for e in range(num_envs):
        if chosen[e]:
            # Its action is about to be chosen, and its step continues during learning.
            whole[e] = durations[e, steps[e] % drawn]
            finish[e] = choosing + whole[e]
        left[e] = finish[e] - now if finish[e] < math.inf else -1.0
    return count, now
