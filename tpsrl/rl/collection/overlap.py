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
from typing import Any, ClassVar

from tpsrl.rl.collection.collector import Collection, Ver
from tpsrl.rl.collection.rollout import Rollout
from tpsrl.rl.policy.actor_critic import ActorCritic

_PATIENCE_S = 5.0  # for the thread to end
_SWITCH_S = 5e-4  # Python's own 5 ms are the sixth part of a slow step


class Overlap(Ver):
    """Variable experience rollouts, collected in a thread; the arguments are those of `Sync`."""

    name: ClassVar[str] = "overlap"
    rollouts = 2

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._actor: ActorCritic | None = None
        self._last: Rollout | None = None
        self._thread: threading.Thread | None = None
        self._result: Collection | BaseException | None = None
        self._stopping = False

    @property
    def running(self) -> bool:
        """See `tpsrl.rl.collection.collector.Collector.running`."""
        return self._thread is not None

    def collect(
        self, policy: ActorCritic, rollouts: Sequence[Rollout], version: int = 0, ahead: bool = True
    ) -> Collection:
        """See `tpsrl.rl.collection.collector.Collector.collect`."""
        self._check(rollouts)
        begun = time.perf_counter()
        if self._thread is None:
            self._last = self._next(rollouts)
            found = self._fill(policy, self._last, version)
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

    def _begin_ahead(self, policy: ActorCritic, rollouts: Sequence[Rollout], version: int) -> None:
        """Starts to collect the next rollout with the policy as it is."""
        if self._actor is None:
            self._actor = copy.deepcopy(policy)
            sys.setswitchinterval(_SWITCH_S)
        self._actor.load_state_dict(policy.state_dict())
        rollout, actor = self._next(rollouts), self._actor

        def run() -> None:
            try:
                self._result = self._fill(actor, rollout, version)
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

    def _poll(self, at_least: int) -> Any:
        if self._stopping:
            raise SystemExit
        return super()._poll(at_least)

    def close(self) -> None:
        """See `tpsrl.rl.collection.collector.Collector.close`."""
        self._stopping = True
        if self._thread is not None:
            self._thread.join(_PATIENCE_S)
            self._thread = None
        super().close()
