"""Collectors: how experience gets from environments into a rollout (VER paper, sections 2.1, 2.2).

- `sync`, DD-PPO's way: all environments step together, and no action is chosen before the last of
  them has answered.
- `nover`: an action is chosen as soon as an environment has answered, in batches of whoever has;
  each environment gives T steps to a rollout, and waits when it has.
- `ver`: the same, but a rollout has the first T x N steps, whoever they come from.
- `overlap`: as `ver`, while the rollout before is learned from (`tpsrl.rl.collection.overlap`).

All but `sync` ask every environment for one more step before they hand over to the learner, so that
none stands still meanwhile; those steps, and all that are in flight when a rollout is full, belong
to the next one.
"""

import dataclasses
import time
from collections.abc import Sequence
from typing import ClassVar, Protocol

import numpy as np
import torch

from tpsrl.errors import RunError
from tpsrl.rl.collection.inference import Batch, Choice, InferenceThreads, choose
from tpsrl.rl.collection.noise import Noise
from tpsrl.rl.collection.rollout import Rollout
from tpsrl.rl.envs.pool import CAUSES, EnvPool, LostEnvs, PoolSnapshot, named
from tpsrl.rl.envs.stopwatch import Stopwatch
from tpsrl.rl.envs.vec_env import EnvSpec, EpisodeStats, Json
from tpsrl.rl.policy import gaussian
from tpsrl.rl.policy.actor_critic import ActorCritic

WAITS = ("others", "inference", "learning")  # what environments wait for


@dataclasses.dataclass(slots=True)
class Collection:
    """A rollout, and what was seen while it was collected.

    `seconds` of the calling thread add up to the time that it took: simulation, rendering and
    resets, as far as it waited for them, by the mean of the environments' processes; inference;
    copying; waiting, for the slowest process beyond that mean and for other threads that choose
    actions; other.

    `waits` are seconds, of the environments' mean, that answers lay about by `WAITS`. `env`,
    `took_s` and `ready_at` (k,) are of each step in the order of answers: whose it was, how long
    it took, and when it was done, by `time.monotonic`.
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


class Collector(Protocol):
    """Fills rollouts with the steps of environments that it owns.

    `rollouts` is how many it has to be given, which it fills in turn.
    """

    num_envs: int
    spec: EnvSpec
    rollouts: int

    def collect(
        self, policy: ActorCritic, rollouts: Sequence[Rollout], version: int = 0, ahead: bool = True
    ) -> Collection:
        """The next rollout, from `begin` to `finish`.

        Args:
            policy: that acts
            rollouts: always the same ones
            version: of the policy
            ahead: whether the one after it may be begun already, before this one is learned from

        Raises:
            RunError: an environment failed for good, or an action is not finite; names the cause.
        """
        ...

    @property
    def running(self) -> bool:
        """Whether it is collecting ahead, so that no snapshot can be taken."""
        ...

    def snapshot(self) -> PoolSnapshot:
        """All that the next `collect` depends on beside policy and rollout: arrays, JSON types.

        To be taken between two rollouts.
        """
        ...

    def restore(self, arrays: dict[str, np.ndarray], note: Json) -> None:
        """Goes on exactly where a snapshot was taken, of whatever collector and processes.

        Raises:
            UserError: the snapshot is of other environments, or damaged.
        """
        ...

    def close(self) -> None:
        """Ends processes and frees memory; safe to call twice."""
        ...


class Sync:
    """Lock-step: no environment acts before the last one has answered.

    Args:
        pool: all environments
        seed: of the actions that are drawn
        device: of the policy
        min_batch: for how many answers inference waits, while so many can come
        max_batch: how many it takes at once, 0: all
        inference_workers: threads that choose actions, the one that collects among them
    """

    name: ClassVar[str] = "sync"
    holds_back: ClassVar[bool] = True  # environments wait for each other, not for inference alone
    holds_all: ClassVar[bool] = True  # and all of them for the last one
    rollouts = 1

    def __init__(
        self,
        pool: EnvPool,
        seed: int = 0,
        device: torch.device | str = "cpu",
        min_batch: int = 1,
        max_batch: int = 0,
        inference_workers: int = 1,
    ) -> None:
        self.pool = pool
        self.num_envs, self.spec = pool.num_envs, pool.spec
        self._all = np.arange(self.num_envs)
        self._device = torch.device(device)
        # For the log-probability, which is computed when the environments have been asked.
        self._mask = torch.tensor(self.spec.mask, device=self._device)
        self._noise = Noise(self.num_envs, self.spec.action_size, seed)
        self._min, self._max = min(min_batch, self.num_envs), max_batch or self.num_envs
        self._threads = InferenceThreads(inference_workers - 1, self.num_envs, pool.wake)
        self._begun = False
        self._left_at = time.monotonic()
        self._away = (self._left_at, self._left_at)  # when the learner last had this process
        self._watches = {name: Stopwatch() for name in ("inference", "copying", "receiving")}
        self._waits = dict.fromkeys(WAITS, 0.0)

    @property
    def running(self) -> bool:
        """See `Collector.running`."""
        return False

    def collect(
        self, policy: ActorCritic, rollouts: Sequence[Rollout], version: int = 0, ahead: bool = True
    ) -> Collection:
        """See `Collector.collect`."""
        self._check(rollouts)
        rollouts[0].begin()
        return self._fill(policy, rollouts[0], version)

    def _check(self, rollouts: Sequence[Rollout]) -> None:
        size, num_envs = rollouts[0].size, rollouts[0].num_envs
        if size % self.num_envs or num_envs != self.num_envs or len(rollouts) != self.rollouts:
            raise ValueError(
                f"{len(rollouts)} rollouts of {size} steps of {num_envs} environments, for "
                f"collector '{self.name}' of {self.num_envs}"
            )

    # -- what makes a collector ----------------------------------------------------------------

    def _turn(self, rollout: Rollout) -> np.ndarray:
        """Environments (m,) whose next actions are to be chosen now."""
        return self._all if len(self._idle()) == self.num_envs else self._all[:0]

    def _patience(self, rollout: Rollout) -> int:
        """How many answers to wait for, when it is nobody's turn."""
        return self.num_envs

    def _lead(self, policy: ActorCritic, rollout: Rollout, version: int) -> None:
        """What is begun for the next rollout before this one is learned from."""

    # -- filling a rollout ---------------------------------------------------------------------

    def _fill(self, policy: ActorCritic, rollout: Rollout, version: int) -> Collection:
        """Collects a rollout that was begun."""
        begun, before = time.perf_counter(), self._seconds()
        self._away = (self._left_at, time.monotonic())
        self._waits = dict.fromkeys(WAITS, 0.0)
        self._start()
        episodes: list[EpisodeStats] = []
        lost_envs: list[LostEnvs] = []
        steps: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        answered = self._poll(0)
        while True:
            for loss in self.pool.lost():
                rollout.drop(loss.envs)
                self._threads.drop(loss.envs)
                lost_envs.append(loss)
            if len(answered) and not rollout.full:
                chosen = np.sort(answered[: rollout.room])
                episodes += self._record(rollout, chosen)
                when = self.pool.ready_at(chosen)
                steps.append((chosen, self.pool.took_s(chosen), when))
            if rollout.full:
                break
            self._fetch(rollout, version)
            turn = self._turn(rollout)
            self._advance(policy, rollout, version, turn)
            # Whoever waits for nobody only looks who has come meanwhile, as others may act yet.
            looks = len(turn) > 0 and not self.holds_all
            answered = self._poll(0 if looks else self._patience(rollout))
        self._lead(policy, rollout, version)
        self._fetch(rollout, version, wait=True)
        with self._watches["inference"]:
            shown = self.pool.observation
            rollout.finish(policy, lambda envs: {name: v[envs] for name, v in shown.items()})
        self._left_at = time.monotonic()
        spent = {cause: s - before[cause] for cause, s in self._seconds().items()}
        env, took, when = (np.concatenate(parts) for parts in zip(*steps, strict=True))
        return Collection(
            rollout,
            rollout.num_fresh,
            episodes,
            _breakdown(spent, time.perf_counter() - begun),
            {cause: s / self.num_envs for cause, s in self._waits.items()},
            env,
            took,
            when,
            lost_envs,
        )

    def _advance(
        self,
        policy: ActorCritic,
        rollout: Rollout,
        version: int,
        envs: np.ndarray,
    ) -> None:
        """Chooses the next actions of environments (m,) and starts their steps, sooner or later.

        They are shared out to the threads that are free, within the bounds of batches; what is left
        when none is free this one does itself.
        """
        even = -(-len(envs) // (1 + self._threads.free))
        share = min(self._max, max(self._min, even))
        for first in range(0, len(envs), share):
            batch = self._batch(rollout, envs[first : first + share])
            if self._threads.free:
                self._threads.submit(policy, batch)
                continue
            with self._watches["inference"]:
                choice = choose(policy, batch)
            self._ask(rollout, version, batch, choice)
            self._fetch(rollout, version)

    def _fetch(self, rollout: Rollout, version: int, wait: bool = False) -> None:
        """Starts the steps whose actions other threads have chosen; with `wait` all of them."""
        with self._watches["receiving"]:
            chosen = self._threads.collect(wait)
        for batch, choice in chosen:
            self._ask(rollout, version, batch, choice)

    def _batch(self, rollout: Rollout, envs: np.ndarray) -> Batch:
        """What the next actions of environments (m,) depend on."""
        chosen_at, ready_at = time.monotonic(), self.pool.ready_at(envs)
        with self._watches["copying"]:
            # Copies: the environments will have moved on when the rollout takes them.
            shown = {
                name: torch.from_numpy(values[envs]).to(self._device)
                for name, values in self.pool.observation.items()
            }
            noise = torch.from_numpy(self._noise.draw(envs)).to(self._device)
            inputs = rollout.inputs(envs)
        valid = np.ones(len(envs), bool)
        return Batch(envs, shown, inputs, noise, ready_at, chosen_at, self._away, valid)

    def _ask(self, rollout: Rollout, version: int, batch: Batch, choice: Choice) -> None:
        """Starts the steps of a batch, for which actions were chosen."""
        if not np.isfinite(choice.array).all():
            raise RunError("policy: an action is not finite; is the learning rate too high?")
        if not batch.valid.all():
            batch, choice = batch.only(batch.valid), choice.only(batch.valid)
        # The environments first: what is left is no reason for them to wait.
        with self._watches["receiving"]:  # whom it wakes may take over this core
            self.pool.send(batch.envs, choice.array)
        self._note_waits(batch, time.monotonic())
        with self._watches["copying"], torch.inference_mode():
            rollout.add(
                batch.envs,
                batch.shown,
                action=choice.action,
                log_prob=gaussian.log_prob_of(choice.std, self._mask, batch.noise),
                value=choice.value,
                next_memory=choice.memory,
                version=version,
            )

    def _note_waits(self, batch: Batch, now: float) -> None:
        """Adds up what the environments of a batch have waited for until their steps began."""
        away, count = batch.away, len(batch.envs)
        begun, end = np.maximum(batch.ready_at, away[0]), min(batch.chosen_at, away[1])
        learning = float(np.maximum(end - begun, 0.0).sum())
        lay = float(np.maximum(batch.chosen_at - batch.ready_at, 0.0).sum())
        self._waits["learning"] += learning
        self._waits["others" if self.holds_back else "inference"] += lay - learning
        self._waits["inference"] += count * (now - batch.chosen_at)

    def _record(self, rollout: Rollout, envs: np.ndarray) -> list[EpisodeStats]:
        """Puts the answers of environments (m,) into the rollout; the episodes that ended."""
        with self._watches["copying"]:
            done = self.pool.recv(envs)
            rollout.complete(envs, done.reward, done.terminated, done.truncated, done.final)
        return done.episodes

    def _poll(self, at_least: int) -> np.ndarray:
        with self._watches["receiving"]:
            return self.pool.poll(at_least, int(self._threads.held.sum()))

    def _idle(self) -> np.ndarray:
        """Environments (m,) for which an action may be chosen now, longest idle first."""
        envs = self.pool.idle()
        return envs[~self._threads.held[envs]]

    def _start(self) -> None:
        if not self._begun:
            with self._watches["receiving"]:
                self.pool.reset()
            self._begun = True

    def _seconds(self) -> dict[str, float]:
        """So far, by cause."""
        watched = {name: watch.seconds for name, watch in self._watches.items()}
        return watched | self.pool.seconds

    # -- snapshots -----------------------------------------------------------------------------

    def snapshot(self) -> PoolSnapshot:
        """See `Collector.snapshot`."""
        self._start()
        arrays, about = self.pool.snapshot()
        noise, states = self._noise.snapshot()
        every = named("environments", arrays) | named("noise", noise)
        return every, {"environments": about, "noise": states}

    def restore(self, arrays: dict[str, np.ndarray], note: Json) -> None:
        """See `Collector.restore`."""
        groups: dict[str, dict[str, np.ndarray]] = {"environments": {}, "noise": {}}
        for key, values in arrays.items():
            group, _, name = key.partition("/")
            groups.setdefault(group, {})[name] = values
        self.pool.restore(groups["environments"], note.get("environments", {}))
        self._noise.restore(groups["noise"], note.get("noise", {}))
        self._begun = True

    def close(self) -> None:
        """See `Collector.close`."""
        self._threads.close()
        self.pool.close()


class Ver(Sync):
    """Variable experience rollouts: whoever has answered acts again, no environment waits.

    Inference takes whoever has answered, at most `max_batch`; of fewer than `min_batch` it waits
    for more, while more can come.
    """

    name: ClassVar[str] = "ver"
    holds_back: ClassVar[bool] = False
    holds_all: ClassVar[bool] = False

    def _turn(self, rollout: Rollout) -> np.ndarray:
        envs = self._ready(rollout)
        under_way = len(rollout.in_flight) > 0 or self._threads.held.any()
        waits = len(envs) < self._min and under_way
        return envs[: 0 if waits else self._max * (1 + self._threads.free)]

    def _patience(self, rollout: Rollout) -> int:
        return max(1, self._min - len(self._ready(rollout)))

    def _ready(self, rollout: Rollout) -> np.ndarray:
        """Environments (m,) that may act."""
        return self._idle()

    def _lead(self, policy: ActorCritic, rollout: Rollout, version: int) -> None:
        """Everyone who could act does; the values that ends of sequences need come with it."""
        self._away = (time.monotonic(), time.monotonic())
        self._advance(policy, rollout, version, self._idle())


class NoVer(Ver):
    """VER without the variable experience rollouts: every environment gives T steps to each."""

    name: ClassVar[str] = "nover"
    holds_back: ClassVar[bool] = True

    def _ready(self, rollout: Rollout) -> np.ndarray:
        envs = self._idle()
        open_ = rollout.taken() < rollout.size // self.num_envs
        return envs[open_[envs]]


def _breakdown(spent: dict[str, float], total: float) -> dict[str, float]:
    """`Collection.seconds` of the seconds by cause within a total."""
    spent = dict(spent)
    receiving = max(spent.pop("receiving"), 0.0)
    busy = sum(spent[cause] for cause in CAUSES)
    if busy > receiving:  # The rest of it went on behind other things.
        spent |= {cause: spent[cause] * receiving / busy for cause in CAUSES}
    spent["waiting"] = max(receiving - busy, 0.0)
    return spent | {"other": total - sum(spent.values())}
