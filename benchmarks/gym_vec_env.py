"""Gymnasium environments as `tpsrl.rl.envs.vec_env.VecEnv`, for comparisons of libraries."""

import dataclasses
from collections.abc import Callable, Sequence

import gymnasium
import numpy as np

from tpsrl.rl.envs.vec_env import EnvSpec, EpisodeStats, Json, Observation, StepBatch


@dataclasses.dataclass(frozen=True, slots=True)
class GymVecEnvFactory:
    """Factory of environments with a vector observation and actions in [-1, 1].

    Environment i is seeded with `seed` + i, as in gymnasium's vector environments.
    """

    make: Callable[[], gymnasium.Env]
    seed: int = 0

    def __call__(self, env_ids: Sequence[int]) -> "GymVecEnv":
        return GymVecEnv(self, env_ids)


class GymVecEnv:
    """Gymnasium environments, stepped sequentially."""

    def __init__(self, factory: GymVecEnvFactory, env_ids: Sequence[int]) -> None:
        self._envs = [factory.make() for _ in env_ids]
        self._names, self.num_envs, self._seed = list(env_ids), len(env_ids), factory.seed
        self._seeds: list[int | None] = []
        self.reseed(0)
        observed, acted = self._envs[0].observation_space, self._envs[0].action_space
        self.spec = EnvSpec({"state": observed.shape}, (True,) * acted.shape[0])
        self._shown = np.zeros((self.num_envs, *observed.shape), np.float32)
        self._reward, self._steps = np.zeros(self.num_envs), np.zeros(self.num_envs, int)
        self._count = np.zeros(self.num_envs, int)

    @property
    def seconds(self) -> dict[str, float]:
        """See `tpsrl.rl.envs.vec_env.VecEnv.seconds`."""
        return {}

    def reset(self, env_ids: Sequence[int]) -> Observation:
        """See `tpsrl.rl.envs.vec_env.VecEnv.reset`."""
        for env in env_ids:
            self._shown[env], _ = self._envs[env].reset(seed=self._seeds[env])
            self._seeds[env] = None
            self._reward[env] = self._steps[env] = 0
        return self.observe(env_ids)

    def step(self, env_ids: Sequence[int], actions: np.ndarray) -> StepBatch:
        """See `tpsrl.rl.envs.vec_env.VecEnv.step`."""
        reward = np.zeros(len(env_ids), np.float32)
        terminated, truncated = np.zeros((2, len(env_ids)), bool)
        finals, episodes = [], []
        for row, env in enumerate(env_ids):
            action = np.clip(actions[row], -1.0, 1.0)
            done = self._envs[env].step(action)
            self._shown[env], reward[row], terminated[row], truncated[row] = done[:4]
            truncated[row] &= not terminated[row]
            self._reward[env] += reward[row]
            self._steps[env] += 1
            if terminated[row] or truncated[row]:
                episodes.append(self._episode(env))
                if truncated[row]:
                    finals.append(self._shown[env].copy())
                self.reset([env])
        final = {"state": np.array(finals)} if finals else None
        return StepBatch(self.observe(env_ids), reward, terminated, truncated, final, episodes)

    def observe(self, env_ids: Sequence[int]) -> Observation:
        """See `tpsrl.rl.envs.vec_env.VecEnv.observe`."""
        return {"state": self._shown[list(env_ids)]}

    def start_index(self, env_id: int) -> int:
        """Returns the number of the current episode, which is the number of episodes before it."""
        return int(self._count[env_id])

    def reseed(self, restarts: int) -> None:
        """Changes the seeds, by a million per restart."""
        self._seeds = [self._seed + env + restarts * 1_000_000 for env in self._names]

    def avoid(self, starts: Sequence[int]) -> None:
        """Does nothing: an environment's episodes cannot be chosen."""

    def snapshot(self, env_id: int) -> tuple[dict[str, np.ndarray], Json]:
        """Not supported."""
        raise NotImplementedError("gymnasium environments cannot be frozen")

    def restore(self, env_id: int, arrays: dict[str, np.ndarray], note: Json) -> None:
        """Not supported."""
        raise NotImplementedError("gymnasium environments cannot be frozen")

    def close(self) -> None:
        """See `tpsrl.rl.envs.vec_env.VecEnv.close`."""
        for env in self._envs:
            env.close()

    def _episode(self, env: int) -> EpisodeStats:
        """Returns the record of an episode that has ended."""
        self._count[env] += 1
        start, steps = int(self._count[env]), int(self._steps[env])
        return EpisodeStats(self._names[env], start, steps, float(self._reward[env]), False, "over")
