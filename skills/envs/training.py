"""Environments for training a skill, which start the next episode automatically.

Home i of all homes draws its start states from a random generator seeded by the run's seed and i,
so its episodes depend neither on the other homes nor on the process that it runs in.
"""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from skills import registry
from skills.core import task
from skills.core.interface import SkillGoal
from skills.core.skill import Skill
from skills.core.state import Goals
from skills.envs import device
from skills.envs.batch import BatchStep, SkillBatch, SkillSnapshot
from skills.envs.device import DeviceSkillEnv
from skills.envs.options import EnvOptions
from skills.starts.source import StartSource
from skills.starts.start import Start
from tpsrl import sim
from tpsrl.errors import RunError, UserError
from tpsrl.rl.envs.streams import Stream, generator
from tpsrl.rl.envs.vec_env import ANEW, EnvSpec, EpisodeStats, Json, Observation, StepBatch
from tpsrl.runtime import records
from tpsrl.sim import frozen
from tpsrl.sim.base import Snapshot
from tpsrl.world import action as act
from tpsrl.world.cameras import CLASSES, SEMANTIC
from tpsrl.world.episode import Episode
from tpsrl.world.fetch import HEAD_CAMERA_FAR_M
from tpsrl.world.state import JOINTS

# With these, a new policy calls stop about once in 160 steps. With the usual deviation of 0.37 the
# rate could not fall below once in 300 steps, since means are at least -1: too often to drive
# through an apartment.
_START_STOP, _START_STOP_STD = -0.5, 0.2

# A policy that starts with an object in the hand should release it as rarely. With a mean of 0 it
# did so in every second step, and hardly any episode had a third step.
_START_GRIP, _START_GRIP_STD = 0.5, 0.2

_DRAWS = 100  # maximum number of draws that fall on start states in quarantine

RETRIES = 16  # failed start states that a home remembers
_FAILS = 4  # failures after which a start state is not retried

_PARTS = ("home", "task", "path")  # groups of arrays in a snapshot
_LARGEST = 1e6  # metres, newtons: larger values mean that a task's state is damaged
# Errors that reading a damaged snapshot may raise.
_DAMAGE = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError)


@dataclasses.dataclass(frozen=True, slots=True)
class _HomeNote:
    """Note of a home's snapshot, beside the arrays; notes of old files have no `failed` starts."""

    engine: str
    episode: Any
    rng: Any
    start: records.Count
    reward: float
    terms: dict[str, float]
    failed: tuple[tuple[records.Count, int], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class _AnewNote:
    """Note of the snapshot of a home whose engine has no exact snapshots."""

    anew: bool
    rng: Any
    start: int
    failed: tuple[tuple[records.Count, int], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class TrainingVecEnvFactory:
    """Creates the environments in which a skill is trained, in this or a worker process.

    Args:
        options: options of the environments
        seed: seed of the run
        order: indices of start states to use in this order instead of random ones. Home i of n
            takes those at i, i + n, i + 2 n, ..., and continues at the first after the last. For a
            file, list or bank the indices are modulo its length.
        stride: number n of homes for `order`
        limit_ends: whether reaching the horizon terminates an episode, as a failure does, without
            return beyond it; otherwise the episode is truncated (Pardo et al., ICML 2018, describe
            both)
        desynchronise: whether the first episode of each home starts with a random number of steps
            counted as taken, so that episodes do not end at the same time in all homes
        retry: share of a home's episodes that start at one of its last `RETRIES` failed start
            states, until that start state succeeds or has failed `_FAILS` times (as success-guided
            resets, arXiv 2610.12465, replay failures). Weights of groups of start states are too
            coarse for this: a policy that succeeds from 19 of 20 start states of a group fails from
            one.
        device_starts: number of start states that `on_device` draws from
    """

    options: EnvOptions
    seed: int = 0
    order: Sequence[int] = ()
    stride: int = 1
    limit_ends: bool = False
    desynchronise: bool = False
    retry: float = 0.0
    device_starts: int = 1024

    def prepare(self, processes: int | None = None) -> None:
        """Generates the episodes of the start states, so that workers do not do so concurrently.

        Each episode that is not in the cache takes about a second on one core.

        Args:
            processes: number of processes; None for all cores

        Raises:
            UserError: start states cannot be read, or recorded ones do not fit into the homes.
            RunError: an episode cannot be generated.
        """
        source = self.options.source()
        source.slots(self.options.engine)  # Raises an error for banks of another engine.
        if source.recorded:
            self._check(source)
        source.prepare(processes)

    def _check(self, source: StartSource) -> None:
        """Raises an error if recorded start states do not fit into the homes."""
        simulator = self.options.simulator(1)
        try:
            source.check(simulator)
        finally:
            simulator.close()

    def __call__(self, env_ids: Sequence[int]) -> "TrainingVecEnv":
        """See `tpsrl.rl.envs.vec_env.VecEnvFactory`."""
        return TrainingVecEnv(self, env_ids)

    def on_device(self, env_ids: Sequence[int]) -> DeviceSkillEnv:
        """See `tpsrl.rl.envs.device_env.DeviceEnvFactory`.

        Raises:
            UserError: the options need something that the device does not have.
        """
        options, source = self.options, self.options.source()
        device.check(options)
        batch = sim.make_batch(
            options.engine, len(env_ids), options.capacity(), filter_base=options.filter_base
        )
        rng = generator(Stream.STARTS, self.seed, env_ids[0])
        starts = device.draw(source, self.device_starts, rng)
        return DeviceSkillEnv(
            options,
            spec_of(options, source),
            batch,
            starts,
            source,
            env_ids,
            int(rng.integers(2**62)),
            self.limit_ends,
            self.desynchronise,
        )


class TrainingVecEnv:
    """One skill in the homes of a simulator; implements `tpsrl.rl.envs.vec_env.VecEnv`.

    Raises:
        UserError: the homes do not fit into memory, or start states cannot be read.
    """

    def __init__(self, factory: TrainingVecEnvFactory, env_ids: Sequence[int]) -> None:
        options = factory.options
        self._batch = SkillBatch(options, options.simulator(len(env_ids)))
        self._source = options.source()
        self.num_envs = len(env_ids)
        self.spec = spec_of(options, None if factory.order else self._source)
        self._names, self._seed = list(env_ids), factory.seed
        self._order, self._stride = factory.order, factory.stride
        self._limit_ends, self._desynchronise = factory.limit_ends, factory.desynchronise
        self._avoided: frozenset[int] = frozenset()
        self._rngs = [generator(Stream.STARTS, factory.seed, env) for env in env_ids]
        self._start = np.full(self.num_envs, -1)
        self._retry = factory.retry
        # Numbers of failures by start state, oldest start first.
        self._failed: list[dict[int, int]] = [{} for _ in env_ids]
        self._reward = np.zeros(self.num_envs)
        self._terms: dict[str, np.ndarray] = {}
        self._resets_s = 0.0

    @property
    def seconds(self) -> dict[str, float]:
        """See `tpsrl.rl.envs.vec_env.VecEnv.seconds`."""
        return {"rendering": self._batch.depth_s, "resets": self._resets_s}

    def reset(self, env_ids: Sequence[int]) -> Observation:
        """See `tpsrl.rl.envs.vec_env.VecEnv.reset`."""
        begun, rendering_s = time.perf_counter(), self._batch.depth_s
        starts, gone = [], {}
        for env in env_ids:
            if self._desynchronise and self._start[env] < 0:
                gone[env] = int(self._rngs[env].integers(self._batch.settings.horizon))
            self._start[env], start = self._next(env)
            starts.append(start)
        shown = self._batch.reset(env_ids, starts, gone)
        rows = np.asarray(env_ids)
        self._reward[rows] = 0.0
        for total in self._terms.values():
            total[rows] = 0.0
        self._resets_s += time.perf_counter() - begun - (self._batch.depth_s - rendering_s)
        return shown

    def step(self, env_ids: Sequence[int], actions: np.ndarray) -> StepBatch:
        """See `tpsrl.rl.envs.vec_env.VecEnv.step`.

        Raises:
            UserError: actions have the wrong type or shape or are not finite, or a home was not
                reset.
        """
        done = self._batch.step(env_ids, actions)
        shown, outcome = done.observation, done.outcome
        reward = np.asarray(outcome.reward)
        rows = np.asarray(env_ids)
        self._reward[rows] += reward
        for name, term in outcome.reward_terms.items():
            if name not in self._terms:
                self._terms[name] = np.zeros(self.num_envs)
            self._terms[name][rows] += term
        terminated, truncated = np.asarray(outcome.terminated), np.asarray(outcome.truncated)
        if self._limit_ends:
            terminated, truncated = terminated | truncated, np.zeros_like(truncated)
        result = StepBatch(shown, reward.astype(np.float32), terminated, truncated)
        over = np.flatnonzero(terminated | truncated)
        if len(over):
            cut = np.flatnonzero(truncated)
            if len(cut):
                result.final = {name: values[cut] for name, values in shown.items()}
            result.episodes = [self._episode(env_ids[row], done, row) for row in over.tolist()]
            for name, values in self.reset([env_ids[row] for row in over.tolist()]).items():
                shown[name][over] = values
        return result

    def observe(self, env_ids: Sequence[int]) -> Observation:
        """See `tpsrl.rl.envs.vec_env.VecEnv.observe`."""
        return self._batch.observe(env_ids)

    def start_index(self, env_id: int) -> int:
        """See `tpsrl.rl.envs.vec_env.VecEnv.start_index`."""
        return int(self._start[env_id])

    def reseed(self, restarts: int) -> None:
        """See `tpsrl.rl.envs.vec_env.VecEnv.reseed`."""
        self._rngs = [generator(Stream.STARTS, self._seed, env, restarts) for env in self._names]

    def avoid(self, starts: Sequence[int]) -> None:
        """See `tpsrl.rl.envs.vec_env.VecEnv.avoid`."""
        self._avoided = frozenset(starts)

    def weigh(self, weights: np.ndarray) -> None:
        """See `tpsrl.rl.envs.vec_env.VecEnv.weigh`."""
        self._source.weigh(weights)

    def snapshot(self, env_id: int) -> tuple[dict[str, np.ndarray], Json]:
        """See `tpsrl.rl.envs.vec_env.VecEnv.snapshot`."""
        if not self._batch.simulator.capabilities.exact_snapshots:
            return {}, self._drawing(env_id) | {ANEW: True}
        found = self._batch.snapshot(env_id)
        parts = (found.home.arrays, found.task, found.path)
        arrays = {
            f"{part}/{name}": values
            for part, group in zip(_PARTS, parts, strict=True)
            for name, values in group.items()
        }
        note = {
            "engine": found.home.engine,
            "episode": found.home.episode.to_json(),
            **self._drawing(env_id),
            "reward": float(self._reward[env_id]),
            "terms": {name: float(total[env_id]) for name, total in self._terms.items()},
        }
        return arrays, note

    def _drawing(self, env_id: int) -> Json:
        """Returns the state that a home's next start states depend on."""
        return {
            "rng": self._rngs[env_id].bit_generator.state,
            "start": int(self._start[env_id]),
            "failed": list(self._failed[env_id].items()),
        }

    def restore(self, env_id: int, arrays: dict[str, np.ndarray], note: Json) -> None:
        """See `tpsrl.rl.envs.vec_env.VecEnv.restore`."""
        if note.get(ANEW):
            self._begin_anew(env_id, note)
            return
        groups: dict[str, dict[str, np.ndarray]] = {part: {} for part in _PARTS}
        try:
            for key, values in arrays.items():
                part, _, name = key.partition("/")
                groups[part][name] = values
            record = records.decode(note, _HomeNote, "snapshot")
            episode = Episode.from_json(record.episode)
            home = Snapshot(record.engine, episode, groups["home"])
            rng = np.random.default_rng()
            rng.bit_generator.state = record.rng
            self._batch.simulator.restore(env_id, home)
            self._check_task(env_id, groups["task"], len(episode.objects))
            self._batch.restore(env_id, SkillSnapshot(home, groups["task"], groups["path"]))
        except UserError as error:
            text = str(error)
            raise UserError(text if text.startswith("snapshot:") else f"snapshot: {text}") from None
        except _DAMAGE as error:
            raise UserError(f"snapshot: not a snapshot of a skill's home ({error!r})") from None
        self._rngs[env_id], self._failed[env_id] = rng, dict(record.failed)
        self._start[env_id], self._reward[env_id] = record.start, record.reward
        for name in record.terms.keys() | self._terms.keys():
            total = self._terms.setdefault(name, np.zeros(self.num_envs))
            total[env_id] = record.terms.get(name, 0.0)

    def _begin_anew(self, env_id: int, note: Json) -> None:
        """Starts the next episode of a home whose engine has no exact snapshots."""
        try:
            record = records.decode(note, _AnewNote, "snapshot")
            self._rngs[env_id].bit_generator.state = record.rng
        except _DAMAGE as error:
            raise UserError(f"snapshot: not a snapshot of a skill's home ({error!r})") from None
        self._failed[env_id] = dict(record.failed)
        if self._order:
            self._start[env_id] = record.start
        self.reset([env_id])

    def _check_task(self, env_id: int, arrays: Mapping[str, np.ndarray], num_objects: int) -> None:
        """Raises an error if arrays are not a valid task state, in a home that was restored."""
        batch = self._batch
        world = batch.simulator.state([env_id])
        blank = task.begin(batch.skill, Goals.of([SkillGoal()]), world, batch.thresholds)
        own = blank.to_arrays()
        frozen.check_kinds(
            {f"task/{name}": values for name, values in arrays.items()},
            frozen.kinds({f"task/{name}": values for name, values in own.items()}),
        )
        for name in ("position", "force_total", "force_sum"):
            if not (np.abs(arrays[name]) <= _LARGEST).all():
                raise UserError(f"snapshot: task/{name}: not finite, or beyond {_LARGEST:g}")
        ranges = {"object": (-1, num_objects), "joint": (-1, len(JOINTS)), "steps": (0, 2**31)}
        for name, (least, end) in ranges.items():
            if not least <= arrays[name].item() < end:
                raise UserError(
                    f"snapshot: task/{name}: is {arrays[name].item()}, "
                    f"must be between {least} and {end - 1}"
                )

    def close(self) -> None:
        """See `tpsrl.rl.envs.vec_env.VecEnv.close`."""
        self._batch.simulator.close()

    def _next(self, env_id: int) -> tuple[int, Start]:
        """Returns index and start state of a home's next episode."""
        if not self._order:
            again = self._retried(env_id)
            if again is not None:
                return again, self._source[again]
            for _ in range(_DRAWS):
                index, start = self._source.draw(self._rngs[env_id])
                if index not in self._avoided:
                    return index, start
            raise RunError(f"starts: {len(self._avoided)} are quarantined, almost none are left")
        before = int(self._start[env_id])
        place = self._order.index(before) + self._stride if before >= 0 else self._names[env_id]
        index = self._order[place % len(self._order)]
        return index, self._source.in_turn(index)

    def _retried(self, env_id: int) -> int | None:
        """Returns a failed start state to retry, with probability `retry`, or None."""
        if not self._retry or self._rngs[env_id].random() >= self._retry:
            return None
        failed = [start for start in self._failed[env_id] if start not in self._avoided]
        return failed[int(self._rngs[env_id].integers(len(failed)))] if failed else None

    def _remember(self, env_id: int, success: bool) -> None:
        """Updates the failed start states of a home after an episode."""
        failed, start = self._failed[env_id], int(self._start[env_id])
        times = failed.pop(start, 0) + 1
        if not self._retry or success or times >= _FAILS:
            return
        failed[start] = times
        if len(failed) > RETRIES:
            del failed[next(iter(failed))]

    def _episode(self, env_id: int, done: BatchStep, row: int) -> EpisodeStats:
        """Returns the statistics of an episode that has ended."""
        outcome = done.outcome
        success = bool(outcome.success[row])
        self._remember(env_id, success)
        return EpisodeStats(
            env=self._names[env_id],
            start_index=int(self._start[env_id]),
            steps=self._batch.steps(env_id),
            reward=float(self._reward[env_id]),
            success=success,
            ended_by=device.ending(self._batch.skill, success, int(outcome.failure[row])),
            terms={name: float(total[env_id]) for name, total in self._terms.items()},
            start_group=0 if self._order else self._source.group(int(self._start[env_id])),
            metrics=self._batch.path_metrics(env_id, success) or {},
        )


def spec_of(options: EnvOptions, source: StartSource | None) -> EnvSpec:
    """Returns the specification of a skill's environments.

    Args:
        options: options of the environments
        source: source of start states that can be weighted, None if they cannot
    """
    mean, std = _first_actions(registry.get(options.skill).definition)
    return EnvSpec(
        options.shapes(),
        options.mask,
        tuple(mean.tolist()),
        tuple(std.tolist()),
        options.inputs.rays,
        HEAD_CAMERA_FAR_M,
        () if source is None else source.parts,
        (act.GRIP, act.STOP),
        len(CLASSES) if options.inputs.shows(SEMANTIC) else 0,
        options.inputs.gaze,
        options.inputs.grip_rule,
    )


def _first_actions(skill: Skill) -> np.ndarray:
    """Returns mean and standard deviation (2, 11) of a new policy's actions, 0 for its defaults."""
    mean, std = first = np.zeros((2, act.SIZE))
    mean[act.STOP], std[act.STOP] = _START_STOP, _START_STOP_STD
    if skill.begins_holding:
        mean[act.GRIP], std[act.GRIP] = _START_GRIP, _START_GRIP_STD
    return first
