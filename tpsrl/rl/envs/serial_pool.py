"""Pool of environments in the calling process: the sequential twin of the worker pool."""

import time
from collections.abc import Mapping

import numpy as np

from tpsrl.errors import UserError
from tpsrl.rl.envs.pool import (
    SUPERVISED,
    LostEnvs,
    PoolSnapshot,
    begun_anew,
    by_cause,
    pack_snapshot,
    split_episodes,
    unpack_snapshot,
)
from tpsrl.rl.envs.step_buffers import (
    IDLE,
    READY,
    STEPPING,
    StepBuffers,
    check_finite,
    episodes_to_json,
)
from tpsrl.rl.envs.stopwatch import Stopwatch
from tpsrl.rl.envs.streams import Stream, generator
from tpsrl.rl.envs.vec_env import EpisodeStats, Json, StepBatch, VecEnvFactory

# Time between two polls on the scheduler's clock, on which the median duration of a step is 1.
_POLL = 0.1
_SPREAD = 0.5  # standard deviation of the logarithm of a step's duration


class SerialEnvPool:
    """`EnvPool` in the calling process.

    Environments step as soon as they are sent an action. A seeded scheduler decides when the steps
    become ready: each takes a log-normal duration on a virtual clock. A collector that does not
    wait for all environments thus sees an interleaving that is random but reproducible.
    """

    def __init__(self, factory: VecEnvFactory, num_envs: int, seed: int = 0) -> None:
        self._vec_env = factory(range(num_envs))
        self.num_envs, self.spec = num_envs, self._vec_env.spec
        self._buffers = StepBuffers.blank(self.spec, num_envs)
        self.observation = self._buffers.observation
        self._episodes: list[EpisodeStats] = []
        self._all = list(range(num_envs))
        self._rng = generator(Stream.SCHEDULE, seed, num_envs)
        self._clock = 0.0
        self._supervised: Json = {}  # of restored workers, for the next snapshot
        self._lost: list[LostEnvs] = []
        self._stepping = Stopwatch()

    @property
    def seconds(self) -> dict[str, float]:
        """See `EnvPool.seconds`."""
        return by_cause(self._stepping.seconds, self._vec_env.seconds)

    def reset(self) -> None:
        """See `EnvPool.reset`."""
        with self._stepping:
            shown = self._vec_env.reset(self._all)
        check_finite(self._all, [self._vec_env.start_index(env) for env in self._all], shown)
        self._buffers.show(slice(None), shown)

    def idle(self) -> np.ndarray:
        """See `EnvPool.idle`."""
        return self._buffers.idle()

    def send(self, envs: np.ndarray, actions: np.ndarray) -> None:
        """See `EnvPool.send`."""
        before = self._stepping.seconds
        done = self._step(envs.tolist(), actions)
        buffers = self._buffers
        buffers.put(envs, done)
        self._episodes += done.episodes
        buffers.took_s[envs] = self._stepping.seconds - before
        buffers.ready_at[envs] = self._clock + self._rng.lognormal(0.0, _SPREAD, len(envs))
        buffers.state[envs] = STEPPING

    def _step(self, envs: list[int], actions: np.ndarray) -> StepBatch:
        starts = [self._vec_env.start_index(env) for env in envs]
        with self._stepping:
            done = self._vec_env.step(envs, np.asarray(actions))
        check_finite(envs, starts, {**done.observation, "reward": done.reward})
        return done

    def step_whole(self, actions: np.ndarray) -> tuple[StepBatch, float]:
        """Steps all environments, which must be idle, under actions (num_envs, A).

        The new observations are not in `observation` before `show_whole`.

        Returns:
            results of the step, and its duration in seconds
        """
        before = self._stepping.seconds
        done = self._step(self._all, actions)
        return done, self._stepping.seconds - before

    def show_whole(self, done: StepBatch) -> None:
        """Writes the observations of the last `step_whole` into `observation`."""
        self._buffers.show(slice(None), done.observation)

    def wake(self) -> None:
        """See `EnvPool.wake`; no effect, since `poll` never waits here."""

    def poll(self, at_least: int = 0, held: int = 0) -> np.ndarray:
        """See `EnvPool.poll`."""
        buffers = self._buffers
        under_way = np.flatnonzero(buffers.state == STEPPING)
        if len(under_way):
            missing = at_least - int((buffers.state == READY).sum())
            due = np.sort(buffers.ready_at[under_way])
            self._clock += _POLL
            if missing > 0:
                self._clock = max(self._clock, due[min(missing, len(due)) - 1])
            come = under_way[buffers.ready_at[under_way] <= self._clock]
            buffers.state[come] = READY
        return buffers.ready()

    def recv(self, envs: np.ndarray) -> StepBatch:
        """See `EnvPool.recv`."""
        done = self._buffers.take(envs)
        self._buffers.state[envs] = IDLE
        over = envs[done.terminated | done.truncated]
        done.episodes, self._episodes = split_episodes(self._episodes, over)
        return done

    def took_s(self, envs: np.ndarray) -> np.ndarray:
        """See `EnvPool.took_s`."""
        return self._buffers.took_s[envs]

    def ready_at(self, envs: np.ndarray) -> np.ndarray:
        """See `EnvPool.ready_at`; steps count as ready at the time of the call."""
        return np.full(len(envs), time.monotonic())

    def weigh(self, weights: np.ndarray) -> None:
        """See `EnvPool.weigh`."""
        self._vec_env.weigh(weights)

    def lost(self) -> list[LostEnvs]:
        """Returns the environments that a snapshot could not restore; failures are raised."""
        found, self._lost = self._lost, []
        return found

    def snapshot(self) -> PoolSnapshot:
        """See `EnvPool.snapshot`."""
        environments = [self._vec_env.snapshot(env) for env in self._all]
        arrays, notes = pack_snapshot(self._buffers.to_arrays(), environments)
        note = {
            "environments": notes,
            "episodes": episodes_to_json(self._episodes),
            "lost": [],
            "starts": [self._vec_env.start_index(env) for env in self._all],
            "clock": self._clock,
            "scheduler": self._rng.bit_generator.state,
            **self._supervised,
        }
        return arrays, note

    def restore(self, arrays: Mapping[str, np.ndarray], note: Json) -> None:
        """See `EnvPool.restore`."""
        buffers, environments, episodes = unpack_snapshot(arrays, note, self.num_envs)
        if note.get("lost"):
            raise UserError(
                "snapshot: environments were being replaced; resume with worker processes"
            )
        for env, (parts, about) in enumerate(environments):
            self._vec_env.restore(env, parts, about)
        self._buffers.load(buffers)
        self._lost = begun_anew(environments)
        for lost in self._lost:
            self._buffers.state[lost.envs] = IDLE
        episodes = [e for e in episodes if not any(e.env in lost.envs for lost in self._lost)]
        self._buffers.show(slice(None), self._vec_env.observe(self._all))
        self._supervised = {name: note[name] for name in SUPERVISED if name in note}
        self._vec_env.avoid(note.get("quarantine", []))
        self._episodes = episodes
        self._clock = float(note.get("clock", self._buffers.ready_at.max()))
        if "scheduler" in note:
            self._rng.bit_generator.state = note["scheduler"]

    def close(self) -> None:
        """See `EnvPool.close`."""
        self._vec_env.close()
