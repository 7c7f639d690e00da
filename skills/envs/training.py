"""A skill as training sees it: environments that start their next episode by themselves.

Home i of the whole draws its starts from a random generator that is seeded by the run's seed and i,
so what it goes through depends neither on other homes nor on which process has it.
"""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from skills.core import task
from skills.core.interface import SkillGoal
from skills.core.skill import Skill
from skills.core.state import Goals
from skills.envs.batch import BatchStep, SkillBatch, SkillSnapshot
from skills.envs.options import EnvOptions
from skills.starts.source import StartSource
from skills.starts.start import Start
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

SUCCESS, TIMEOUT = "success", "timeout"

# A new policy calls stop about once in 160 steps. Around the usual deviation of 0.37 it could never
# call it less than once in 300, since means end at -1: too often to drive through an apartment.
_START_STOP, _START_STOP_STD = -0.5, 0.2

# A policy that begins with something in the hand lets go of it as rarely: around 0 it did at every
# second step, and hardly an episode had a third.
_START_GRIP, _START_GRIP_STD = 0.5, 0.2

_DRAWS = 100  # that may fall on starts in quarantine

RETRIES = 16  # failed starts that a home remembers
_FAILS = 4  # after which a start is taken for hopeless

_PARTS = ("home", "task", "path")  # of the arrays of a snapshot
_LARGEST = 1e6  # metres, newtons: beyond it a task's state is damaged
# What reading a snapshot that somebody's file holds may come to.
_DAMAGE = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError)


@dataclasses.dataclass(frozen=True, slots=True)
class _HomeNote:
    """What a snapshot says of a home beside its arrays; earlier ones have no `failed` starts."""

    engine: str
    episode: Any
    rng: Any
    start: records.Count
    reward: float
    terms: dict[str, float]
    failed: tuple[tuple[records.Count, int], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class _AnewNote:
    """What a snapshot says of a home that its engine cannot freeze."""

    anew: bool
    rng: Any
    start: int
    failed: tuple[tuple[records.Count, int], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class TrainingVecEnvFactory:
    """Makes the homes in which a skill is trained; is sent to worker processes.

    With an `order` starts are taken by these indices and not at random: of n homes (`stride`) home
    i of the whole takes those at the places i, i + n, i + 2 n, ..., and after the last comes the
    first; of a file, list or bank those come round again that it has. With `limit_ends` the horizon
    ends an episode as a failure does, with no return behind it; without it the episode is cut off,
    as if it went on (Pardo et al., ICML 2018, have both). With `desynchronise` the first episode of
    each home begins with some of its steps gone, so that not all homes in lock-step end together.

    With `retry` that share of a home's episodes begins where one of its last `RETRIES` failed ones
    did, until that start succeeds or has failed `_FAILS` times (as success-guided resets,
    arXiv 2610.12465, replay failures). Groups of starts that are drawn by their success are too
    coarse for that: a policy that succeeds from 19 of 20 starts of an episode fails from one.
    """

    options: EnvOptions
    seed: int = 0
    order: Sequence[int] = ()
    stride: int = 1
    limit_ends: bool = False
    desynchronise: bool = False
    retry: float = 0.0

    def prepare(self, processes: int | None = None) -> None:
        """Makes the episodes that starts are drawn from, before several workers do it at once.

        It takes a second an episode and core, the first time; `processes` is all cores by default.

        Raises:
            UserError: starts cannot be read, or recorded ones do not fit into the homes.
            RunError: an episode cannot be made.
        """
        source = self.options.source()
        source.slots(self.options.engine)  # refuses banks of another engine
        if source.recorded:
            self._check(source)
        source.prepare(processes)

    def _check(self, source: StartSource) -> None:
        """Refuses recorded starts that do not fit into the homes."""
        simulator = self.options.simulator(1)
        try:
            source.check(simulator)
        finally:
            simulator.close()

    def __call__(self, env_ids: Sequence[int]) -> "TrainingVecEnv":
        """See `tpsrl.rl.envs.vec_env.VecEnvFactory`."""
        return TrainingVecEnv(self, env_ids)


class TrainingVecEnv:
    """One skill in the homes of a simulator, as `tpsrl.rl.envs.vec_env.VecEnv`.

    Raises:
        UserError: the homes do not fit into memory, or starts cannot be read.
    """

    def __init__(self, factory: TrainingVecEnvFactory, env_ids: Sequence[int]) -> None:
        options = factory.options
        self._batch = SkillBatch(options, options.simulator(len(env_ids)))
        self._source = options.source()
        self.num_envs = len(env_ids)
        mean, std = _first_actions(self._batch.skill)
        self.spec = EnvSpec(
            options.shapes(),
            options.mask,
            tuple(mean.tolist()),
            tuple(std.tolist()),
            options.inputs.rays,
            HEAD_CAMERA_FAR_M,
            () if factory.order else self._source.parts,
            (act.GRIP, act.STOP),
            len(CLASSES) if options.inputs.shows(SEMANTIC) else 0,
        )
        self._names, self._seed = list(env_ids), factory.seed
        self._order, self._stride = factory.order, factory.stride
        self._limit_ends, self._desynchronise = factory.limit_ends, factory.desynchronise
        self._avoided: frozenset[int] = frozenset()
        self._rngs = [generator(Stream.STARTS, factory.seed, env) for env in env_ids]
        self._start = np.full(self.num_envs, -1)
        self._retry = factory.retry
        self._failed: list[dict[int, int]] = [{} for _ in env_ids]  # start: times, oldest first
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
            UserError: an action is of the wrong shape or not finite, or a home was not reset.
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
        """What the next starts of a home depend on."""
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
            told = records.decode(note, _HomeNote, "snapshot")
            episode = Episode.from_json(told.episode)
            home = Snapshot(told.engine, episode, groups["home"])
            rng = np.random.default_rng()
            rng.bit_generator.state = told.rng
            self._batch.simulator.restore(env_id, home)
            self._check_task(env_id, groups["task"], len(episode.objects))
            self._batch.restore(env_id, SkillSnapshot(home, groups["task"], groups["path"]))
        except UserError as error:
            said = str(error)
            raise UserError(said if said.startswith("snapshot:") else f"snapshot: {said}") from None
        except _DAMAGE as error:
            raise UserError(f"snapshot: not one of a skill's home ({error!r})") from None
        self._rngs[env_id], self._failed[env_id] = rng, dict(told.failed)
        self._start[env_id], self._reward[env_id] = told.start, told.reward
        for name in told.terms.keys() | self._terms.keys():
            total = self._terms.setdefault(name, np.zeros(self.num_envs))
            total[env_id] = told.terms.get(name, 0.0)

    def _begin_anew(self, env_id: int, note: Json) -> None:
        """The next episode of a home that could not be frozen."""
        try:
            told = records.decode(note, _AnewNote, "snapshot")
            self._rngs[env_id].bit_generator.state = told.rng
        except _DAMAGE as error:
            raise UserError(f"snapshot: not one of a skill's home ({error!r})") from None
        self._failed[env_id] = dict(told.failed)
        if self._order:
            self._start[env_id] = told.start
        self.reset([env_id])

    def _check_task(self, env_id: int, arrays: Mapping[str, np.ndarray], num_objects: int) -> None:
        """Refuses what no task of the skill is like, in a home that was restored."""
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
        """The next start of a home, after its index."""
        if not self._order:
            again = self._retried(env_id)
            if again is not None:
                return again, self._source[again]
            for _ in range(_DRAWS):
                index, start = self._source.draw(self._rngs[env_id])
                if index not in self._avoided:
                    return index, start
            raise RunError(f"starts: {len(self._avoided)} are in quarantine, almost none are left")
        before = int(self._start[env_id])
        place = self._order.index(before) + self._stride if before >= 0 else self._names[env_id]
        index = self._order[place % len(self._order)]
        return index, self._source.in_turn(index)

    def _retried(self, env_id: int) -> int | None:
        """A start that failed, if it is a home's turn to begin there once more."""
        if not self._retry or self._rngs[env_id].random() >= self._retry:
            return None
        failed = [start for start in self._failed[env_id] if start not in self._avoided]
        return failed[int(self._rngs[env_id].integers(len(failed)))] if failed else None

    def _remember(self, env_id: int, success: bool) -> None:
        """Notes whether the episode failed that is over."""
        failed, start = self._failed[env_id], int(self._start[env_id])
        times = failed.pop(start, 0) + 1
        if not self._retry or success or times >= _FAILS:
            return
        failed[start] = times
        if len(failed) > RETRIES:
            del failed[next(iter(failed))]

    def _episode(self, env_id: int, done: BatchStep, row: int) -> EpisodeStats:
        """The record of an episode that is over."""
        outcome = done.outcome
        failure = self._batch.skill.failures[int(outcome.failure[row])]
        success = bool(outcome.success[row])
        self._remember(env_id, success)
        return EpisodeStats(
            env=self._names[env_id],
            start_index=int(self._start[env_id]),
            steps=self._batch.steps(env_id),
            reward=float(self._reward[env_id]),
            success=success,
            ended_by=SUCCESS if success else failure or TIMEOUT,
            terms={name: float(total[env_id]) for name, total in self._terms.items()},
            start_group=0 if self._order else self._source.group(int(self._start[env_id])),
        )


def _first_actions(skill: Skill) -> np.ndarray:
    """Mean and standard deviation (2, 11) of a new policy's actions, 0 for the policy's own."""
    mean, std = first = np.zeros((2, act.SIZE))
    mean[act.STOP], std[act.STOP] = _START_STOP, _START_STOP_STD
    if skill.begins_holding:
        mean[act.GRIP], std[act.GRIP] = _START_GRIP, _START_GRIP_STD
    return first
