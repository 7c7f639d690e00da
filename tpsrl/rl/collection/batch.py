"""The collector `batch`: steps all environments of one process in lock-step.

It gives the same rollouts as `sync` with `processes=0`, bit for bit. `sync` passes every
observation through the buffers of a pool and polls the pool for steps that are ready. Here a step
is one call of the policy, one of the rollout and one of the environments. An observation is copied
once, into the rollout on its device; only actions are copied from the device to the environments.
"""

import time

import numpy as np
import torch

from tpsrl.rl.collection.collector import NO_STEPS, Collection, Collector, add, check_actions
from tpsrl.rl.collection.inference import choose
from tpsrl.rl.collection.preemption import Preemption
from tpsrl.rl.collection.rollout import Rollout
from tpsrl.rl.collection.schedules import SyncSchedule
from tpsrl.rl.collection.settings import BATCH, CollectorSettings
from tpsrl.rl.collection.threads import one_thread
from tpsrl.rl.envs.serial_pool import SerialEnvPool
from tpsrl.rl.envs.vec_env import EpisodeStats, StepBatch
from tpsrl.rl.policy.acting import ActingPolicy


class BatchSchedule(SyncSchedule):
    """The schedule of `sync`, for rollouts that cannot be filled by whole steps."""

    name = BATCH


class BatchCollector(Collector):
    """Fills rollouts with whole steps of all environments.

    Args:
        pool: all environments, in the calling process
        settings: settings of the collector; every batch holds all environments
        preemption: decides when to stop before a rollout is full; None: never
    """

    def __init__(
        self, pool: SerialEnvPool, settings: CollectorSettings, preemption: Preemption | None = None
    ) -> None:
        super().__init__(pool, BatchSchedule(pool.num_envs), settings, preemption)
        self._serial = pool
        self._all = np.arange(pool.num_envs)

    def fill(self, policy: ActingPolicy, rollout: Rollout, version: int) -> Collection:
        """Fills a rollout; see `Collector.fill`.

        A rollout that begins with steps in flight, for example after `resume=` from a training with
        `ver`, has no room for whole steps at its end, and neither have the rollouts after it. These
        are filled as by `sync`.
        """
        if len(rollout.in_flight):
            return super().fill(policy, rollout, version)
        accounting, preemption = self._accounting, self._preemption
        accounting.begin()
        preemption.begin()
        self._begin()
        lost = self._drop_lost(rollout)
        episodes: list[EpisodeStats] = []
        steps, waiting_since = [NO_STEPS], time.monotonic()
        shown = self.pool.observation  # unchanged until `show_whole`
        done: StepBatch | None = None
        while not rollout.full and not preemption.stops(rollout.size - rollout.room):
            self._check_interrupted()
            # No copy is needed: no environment steps before the rollout has the observation.
            ready_at = np.full(self.num_envs, waiting_since)
            batch = self._batch(rollout, self._all, shown, slice(None), ready_at)
            with accounting.inference:
                choice = choose(policy, batch)
            check_actions(choice)
            with accounting.copying, one_thread(), torch.inference_mode():
                add(rollout, batch, choice, version)
            accounting.note_sent(batch, time.monotonic())
            with accounting.receiving:
                done, seconds = self._serial.step_whole(choice.array)
            with accounting.copying, one_thread():
                rollout.complete(
                    self._all, done.reward, done.terminated, done.truncated, done.final
                )
            episodes += done.episodes
            shown, waiting_since = done.observation, time.monotonic()
            took, when = (np.full(self.num_envs, s) for s in (seconds, waiting_since))
            steps.append((self._all, took, when))
        accounting.begin_lead()
        if done is not None:
            self._serial.show_whole(done)
        return self._finish(policy, rollout, steps, episodes, lost)
