"""The collector: moves experience from environments into a rollout.

One loop receives steps, writes them into the rollout and sends the next actions. A schedule
(`tpsrl.rl.collection.schedules`) decides which environments act next. The collector `overlap` runs
the loop in a thread (`tpsrl.rl.collection.overlap`).
"""

import dataclasses
import time
from collections.abc import Sequence

import numpy as np
import torch

from tpsrl.errors import RunError, UserError
from tpsrl.rl.collection.accounting import Accounting
from tpsrl.rl.collection.inference import Batch, Choice, InferenceThreads, choose
from tpsrl.rl.collection.noise import Noise
from tpsrl.rl.collection.preemption import NoPreemption, Preemption
from tpsrl.rl.collection.rollout import Rollout
from tpsrl.rl.collection.schedules import Schedule
from tpsrl.rl.collection.settings import CollectorSettings
from tpsrl.rl.collection.threads import one_thread
from tpsrl.rl.envs.pool import EnvPool, LostEnvs, PoolSnapshot, named
from tpsrl.rl.envs.vec_env import EpisodeStats, Json, Observation
from tpsrl.rl.policy.acting import ActingPolicy
from tpsrl.rl.policy.actor_critic import VISION

# Environment, duration and completion time of the steps of some rows, see `Collection`.
RowTimes = tuple[np.ndarray, np.ndarray, np.ndarray]
OTHER_COLLECTOR = (
    "preset.collector: this collector cannot continue the environments of the one that the "
    "training began with; use that one, or begin a training with init="
)
NOT_FINITE = "policy: an action is not finite; is the learning rate too high?"
NO_STEPS: RowTimes = (np.zeros(0, int), np.zeros(0), np.zeros(0))


@dataclasses.dataclass(slots=True)
class Collection:
    """A rollout, and statistics of its collection.

    `steps` is the number of fresh rows. `seconds` splits the duration of the collection by cause,
    as seen by the calling thread: simulation, rendering and resets, as far as the thread waited for
    them (mean over the environments' processes); inference; copying; waiting, for the slowest
    process beyond that mean and for other inference threads; other.

    `waits` are the seconds that a ready environment waited, by cause (`accounting.WAITS`), as the
    mean over environments. `env`, `took_s` and `ready_at` (k,) describe each step, in the order of
    the rollout: its environment, its duration, and when it was complete, by `time.monotonic`.
    """

    rollout: Rollout
    steps: int
    episodes: list[EpisodeStats]
    seconds: dict[str, float]
    waits: dict[str, float]
    env: np.ndarray
    took_s: np.ndarray
    ready_at: np.ndarray
    lost: list[LostEnvs]


class Collector:
    """Fills rollouts with steps of the environments that it owns.

    `rollouts` is the number of rollouts that `collect` needs, which it fills in turn.

    Args:
        pool: all environments
        schedule: decides which environments act next
        settings: batch sizes, threads, device and noise
        preemption: decides when to stop before a rollout is full; None: never
    """

    rollouts = 1
    rollout_type = Rollout

    def __init__(
        self,
        pool: EnvPool,
        schedule: Schedule,
        settings: CollectorSettings,
        preemption: Preemption | None = None,
    ) -> None:
        self.pool, self._schedule = pool, schedule
        self._preemption = preemption or NoPreemption()
        self._refill = settings.refill
        self.num_envs, self.spec = pool.num_envs, pool.spec
        self._device = torch.device(settings.device)
        self._noise = Noise(
            self.num_envs,
            self.spec.action_size,
            settings.seed,
            settings.first_env,
            settings.noise_correlation,
        )
        self._min, self._max = settings.min_batch, settings.max_batch or self.num_envs
        threads = settings.inference_workers - 1
        self._threads = InferenceThreads(threads, self.num_envs, pool.wake)
        self._accounting = Accounting(pool, schedule.wait_cause)
        self._begun = self._interrupted = False

    @property
    def running(self) -> bool:
        """Whether the next rollout is already being collected, so that no snapshot can be taken."""
        return False

    def collect(
        self,
        policy: ActingPolicy,
        rollouts: Sequence[Rollout],
        version: int = 0,
        ahead: bool = True,
    ) -> Collection:
        """Collects the next rollout, from `Rollout.begin` to `Rollout.finish`.

        Args:
            policy: policy that acts
            rollouts: the rollouts to fill, the same objects in every call
            version: version of the policy
            ahead: whether the collector may begin the following rollout before this one is learned
                from

        Raises:
            RunError: an environment failed for good, or an action is not finite; names the cause.
        """
        check_rollouts(rollouts, self.rollouts, self.num_envs, self._schedule.name)
        rollouts[0].begin()
        return self.fill(policy, rollouts[0], version)

    # -- filling a rollout ---------------------------------------------------------------------

    def fill(self, policy: ActingPolicy, rollout: Rollout, version: int) -> Collection:
        """Collects the steps of a rollout after `Rollout.begin`; see `collect`."""
        accounting, schedule = self._accounting, self._schedule
        accounting.begin()
        self._preemption.begin()
        self._begin()
        episodes: list[EpisodeStats] = []
        lost: list[LostEnvs] = []
        steps = [NO_STEPS]
        ready = self._poll(0)
        while True:
            lost += self._drop_lost(rollout)
            if len(ready) and not rollout.full:
                envs = np.sort(ready[: rollout.room])
                episodes += self._receive(rollout, envs)
                steps.append((envs, self.pool.took_s(envs), self.pool.ready_at(envs)))
            if self._preemption.stops(rollout.size - rollout.room) or rollout.full:
                break
            self._send_chosen(rollout, version)
            under_way = len(rollout.in_flight) > 0 or bool(self._threads.held.any())
            turn = schedule.turn(rollout, self._idle(), under_way, self._threads.free)
            self._advance(policy, rollout, version, turn)
            ready = self._poll(schedule.wait_for(rollout, self._idle(), len(turn)))
        accounting.begin_lead()
        self._advance(policy, rollout, version, schedule.lead(self._idle()))
        self._send_chosen(rollout, version, wait=True)
        return self._finish(policy, rollout, steps, episodes, lost)

    def _finish(
        self,
        policy: ActingPolicy,
        rollout: Rollout,
        steps: Sequence[RowTimes],
        episodes: list[EpisodeStats],
        lost: list[LostEnvs],
    ) -> Collection:
        """Finishes a rollout; returns it with the statistics of `steps`, in the rollout's order."""
        shown = self.pool.observation
        with self._accounting.inference:
            rollout.finish(
                policy, lambda envs: {name: v[envs] for name, v in shown.items()}, self._refill
            )
        seconds, waits = self._accounting.end()
        env, took, when = (np.concatenate(parts) for parts in zip(*steps, strict=True))
        return Collection(
            rollout, rollout.num_fresh, episodes, seconds, waits, env, took, when, lost
        )

    def _drop_lost(self, rollout: Rollout) -> list[LostEnvs]:
        """Removes lost environments from the rollout and from the inference threads."""
        found = self.pool.lost()
        for lost in found:
            rollout.drop(lost.envs)
            self._threads.drop(lost.envs)
        return found

    def _receive(self, rollout: Rollout, envs: np.ndarray) -> list[EpisodeStats]:
        """Writes the steps of environments (m,) into the rollout; returns the finished episodes."""
        with self._accounting.copying, one_thread():
            done = self.pool.recv(envs)
            rollout.complete(envs, done.reward, done.terminated, done.truncated, done.final)
        return done.episodes

    def _advance(
        self, policy: ActingPolicy, rollout: Rollout, version: int, envs: np.ndarray
    ) -> None:
        """Chooses the next actions of environments (m,) and sends them, now or later.

        The environments are divided among the free threads, within the limits on batch size. If no
        thread is free, the calling thread chooses the remaining actions.
        """
        even = -(-len(envs) // (1 + self._threads.free))
        share = min(self._max, max(self._min, even))
        for first in range(0, len(envs), share):
            some = envs[first : first + share]
            # Copies are needed: the environments step before the rollout stores the observation.
            shown, ready_at = self.pool.observation, self.pool.ready_at(some)
            batch = self._batch(rollout, some, shown, some, ready_at)
            if self._threads.free:
                self._threads.submit(policy, batch)
                continue
            with self._accounting.inference:
                choice = choose(policy, batch)
            self._send(rollout, version, batch, choice)
            self._send_chosen(rollout, version)

    def _batch(
        self,
        rollout: Rollout,
        envs: np.ndarray,
        observation: Observation,
        rows: np.ndarray | slice,
        ready_at: np.ndarray,
    ) -> Batch:
        """Gathers the inputs for the next actions of environments (m,).

        `rows` selects the environments in `observation`: an index array copies, a slice does not.
        `ready_at` (m,) is the time since which each environment has waited.
        """
        accounting, chosen_at = self._accounting, time.monotonic()
        with accounting.copying:
            shown = {
                name: torch.from_numpy(values[rows]).to(self._device)
                for name, values in observation.items()
            }
            noise = torch.from_numpy(self._noise.draw(envs)).to(self._device)
            inputs = rollout.inputs(envs)
        valid = np.ones(len(envs), bool)
        return Batch(envs, shown, inputs, noise, ready_at, chosen_at, accounting.away, valid)

    def _send_chosen(self, rollout: Rollout, version: int, wait: bool = False) -> None:
        """Sends the actions that other threads have chosen; with `wait`, waits for all of them."""
        with self._accounting.receiving:
            chosen = self._threads.collect(wait)
        for batch, choice in chosen:
            self._send(rollout, version, batch, choice)

    def _send(self, rollout: Rollout, version: int, batch: Batch, choice: Choice) -> None:
        """Starts the steps of a batch whose actions were chosen."""
        accounting = self._accounting
        check_actions(choice)
        if not batch.valid.all():
            batch, choice = batch.only(batch.valid), choice.only(batch.valid)
        # Actions are sent first, so that no environment waits for the bookkeeping below.
        with accounting.receiving:  # a worker that is woken may take over this core
            self.pool.send(batch.envs, choice.array)
        accounting.note_sent(batch, time.monotonic())
        with accounting.copying, one_thread(), torch.inference_mode():
            add(rollout, batch, choice, version)

    def _poll(self, at_least: int) -> np.ndarray:
        self._check_interrupted()
        with self._accounting.receiving:
            return self.pool.poll(at_least, int(self._threads.held.sum()))

    def _idle(self) -> np.ndarray:
        """Returns environments (m,) whose next action may be chosen now, longest idle first."""
        envs = self.pool.idle()
        return envs[~self._threads.held[envs]]

    def _begin(self) -> None:
        if not self._begun:
            with self._accounting.receiving:
                self.pool.reset()
            self._begun = True

    def weigh(self, weights: np.ndarray) -> None:
        """See `tpsrl.rl.envs.vec_env.VecEnv.weigh`."""
        self.pool.weigh(weights)

    # -- snapshots -----------------------------------------------------------------------------

    def snapshot(self) -> PoolSnapshot:
        """Returns the state that the next `collect` needs, apart from policy and rollout.

        To be called between two rollouts.

        Returns:
            arrays, and a note of JSON types
        """
        self._begin()
        arrays, about = self.pool.snapshot()
        noise, states = self._noise.snapshot()
        every = named("environments", arrays) | named("noise", noise)
        return every, {"environments": about, "noise": states}

    def restore(self, arrays: dict[str, np.ndarray], note: Json) -> None:
        """Continues exactly from a snapshot, also of another collector or number of processes.

        Raises:
            UserError: the snapshot is of other environments or of the collector `device`, or is
                damaged.
        """
        if "draws" in note:  # written by the collector `device`
            raise UserError(OTHER_COLLECTOR)
        groups: dict[str, dict[str, np.ndarray]] = {"environments": {}, "noise": {}}
        for key, values in arrays.items():
            group, _, name = key.partition("/")
            groups.setdefault(group, {})[name] = values
        self.pool.restore(groups["environments"], note.get("environments", {}))
        self._noise.restore(groups["noise"], note.get("noise", {}))
        self._begun = True

    # -- ending --------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """Ends a `fill` in another thread when it next polls the environments."""
        self._interrupted = True

    def _check_interrupted(self) -> None:
        if self._interrupted:
            raise SystemExit

    def close(self) -> None:
        """Ends processes and frees memory; safe to call twice."""
        self._threads.close()
        self.pool.close()


def check_actions(choice: Choice) -> None:
    """Checks that all actions are finite.

    Raises:
        RunError: an action is not finite.
    """
    if not np.isfinite(choice.array).all():
        raise RunError(NOT_FINITE)


def add(rollout: Rollout, batch: Batch, choice: Choice, version: int) -> None:
    """Adds a batch and the actions chosen for it to a rollout."""
    rollout.add(
        batch.envs,
        batch.shown if choice.vision is None else {**batch.shown, VISION: choice.vision},
        action=choice.action,
        log_prob=choice.policy.log_prob(choice.mean, choice.std, choice.action, batch.noise),
        value=choice.value,
        next_memory=choice.memory,
        version=version,
    )


def check_rollouts(rollouts: Sequence[Rollout], count: int, num_envs: int, name: str) -> None:
    """Checks that rollouts fit a collector.

    Raises:
        ValueError: the number of rollouts or their environments are wrong, or their size is not a
            multiple of the number of environments.
    """
    size = rollouts[0].size
    if size % num_envs or rollouts[0].num_envs != num_envs or len(rollouts) != count:
        raise ValueError(
            f"{len(rollouts)} rollouts of {size} steps of {rollouts[0].num_envs} environments, for "
            f"collector '{name}' of {num_envs}"
        )
