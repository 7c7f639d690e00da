"""The collector `overlap`: collects the next rollout while the last one is learned from.

As in HTS-RL (Liu et al. 2020), the acting policy is the one before the update under way.
Experience is thus one update old when it is learned from; its log-probabilities are those of the
policy that acted. A thread acts with a copy of the policy: both the learner's arithmetic and the
waiting for environments release Python's global interpreter lock.
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

_PATIENCE_S = 5.0  # maximum wait for the thread to end
_SWITCH_S = 5e-4  # Python's default, 5 ms, is a sixth of a slow step


class OverlapCollector:
    """Runs another collector in a thread; has the interface of `Collector`."""

    name = "overlap"
    rollouts = 2
    rollout_type = Rollout

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

    def weigh(self, weights: np.ndarray) -> None:
        """See `Collector.weigh`."""
        self._collector.weigh(weights)

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
            # The steps ran in the background, so the calling process spent only this time.
            waited = time.perf_counter() - begun
            found.seconds = dict.fromkeys(found.seconds, 0.0) | {"waiting": waited}
        if ahead:
            self._begin_ahead(policy, rollouts, version)
            found.seconds["copying"] += time.perf_counter() - begun - sum(found.seconds.values())
        return found

    def _next(self, rollouts: Sequence[Rollout]) -> Rollout:
        """Returns the rollout to fill next, after `Rollout.begin`."""
        if self._last is None:
            rollouts[0].begin()
            return rollouts[0]
        following = rollouts[1] if self._last is rollouts[0] else rollouts[0]
        following.begin(self._last)
        return following

    def _begin_ahead(self, policy: ActingPolicy, rollouts: Sequence[Rollout], version: int) -> None:
        """Begins to collect the next rollout with a copy of the policy's current weights."""
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
