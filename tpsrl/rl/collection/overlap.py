"""The collector `overlap`: collects the next rollout while the last one is learned from.

As in HTS-RL (Liu et al. 2020) the policy that acts is the one of before the update under way, so
experience is one update old when it is learned from; its log-probabilities are of the policy that
acted. A thread acts with a copy of the policy: the learner's arithmetic and waiting for
environments both leave Python's lock to others.
"""

import copy
import sys
import threading
import time
from collections.abc import Sequence

import numpy as np

from tpsrl.rl.collection.collector import Collection, Collector, check_rollouts
from tpsrl.rl.collection.rollout import Rollout
from tpsrl.rl.envs.pool import EnvPool, PoolSnapshot
from tpsrl.rl.envs.vec_env import Json
from tpsrl.rl.policy.acting import ActingPolicy

_PATIENCE_S = 5.0  # for the thread to end
_SWITCH_S = 5e-4  # Python's own 5 ms are the sixth part of a slow step


class OverlapCollector:
    """Has another collector fill rollouts in a thread; to be used in the way of a `Collector`."""

    name = "overlap"
    rollouts = 2

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self.num_envs, self.spec = collector.num_envs, collector.spec
        self._actor: ActingPolicy | None = None
        self._last: Rollout | None = None
        self._thread: threading.Thread | None = None
        self._result: Collection | BaseException | None = None

    @property
    def pool(self) -> EnvPool:
        """All environments."""
        return self._collector.pool

    @property
    def running(self) -> bool:
        """See `Collector.running`."""
        return self._thread is not None

    def collect(
        self,
        policy: ActingPolicy,
        rollouts: Sequence[Rollout],
        version: int = 0,
        ahead: bool = True,
    ) -> Collection:
        """See `Collector.collect`."""
        check_rollouts(rollouts, self.rollouts, self.num_envs, self.name)
        begun = time.perf_counter()
        if self._thread is None:
            self._last = self._next(rollouts)
            found = self._collector.fill(policy, self._last, version)
        else:
            found = self._join()
            self._last = found.rollout
            # What the environments did meanwhile cost the calling process only this.
            waited = time.perf_counter() - begun
            found.seconds = dict.fromkeys(found.seconds, 0.0) | {"waiting": waited}
        if ahead:
            self._begin_ahead(policy, rollouts, version)
            found.seconds["copying"] += time.perf_counter() - begun - sum(found.seconds.values())
        return found

    def _next(self, rollouts: Sequence[Rollout]) -> Rollout:
        """The rollout that is filled next, begun."""
        if self._last is None:
            rollouts[0].begin()
            return rollouts[0]
        following = rollouts[1] if self._last is rollouts[0] else rollouts[0]
        following.begin(self._last)
        return following

    def _begin_ahead(self, policy: ActingPolicy, rollouts: Sequence[Rollout], version: int) -> None:
        """Begins to collect the next rollout with the policy as it is."""
        if type(self._actor) is not type(policy):
            self._actor = copy.deepcopy(policy)
            sys.setswitchinterval(_SWITCH_S)
        actor = self._actor
        assert actor is not None
        actor.load_state_dict(policy.state_dict())
        rollout = self._next(rollouts)

        def run() -> None:
            try:
                self._result = self._collector.fill(actor, rollout, version)
            except BaseException as error:
                self._result = error

        self._result = None
        self._thread = threading.Thread(target=run, name="tpsrl overlap", daemon=True)
        self._thread.start()

    def _join(self) -> Collection:
        assert self._thread is not None
        self._thread.join()
        self._thread = None
        if isinstance(self._result, BaseException):
            raise self._result
        assert self._result is not None
        return self._result

    def snapshot(self) -> PoolSnapshot:
        """See `Collector.snapshot`."""
        return self._collector.snapshot()

    def restore(self, arrays: dict[str, np.ndarray], note: Json) -> None:
        """See `Collector.restore`."""
        self._collector.restore(arrays, note)

    def close(self) -> None:
        """See `Collector.close`."""
        self._collector.interrupt()
        if self._thread is not None:
            self._thread.join(_PATIENCE_S)
            self._thread = None
        self._collector.close()
