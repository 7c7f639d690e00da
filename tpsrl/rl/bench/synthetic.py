"""Synthetic environments for benchmarks of collectors: only the duration of their steps matters.

`tpsrl.rl.bench.synthetic_env` has the environment itself.
"""

import dataclasses
import time
from collections.abc import Sequence

import numpy as np

from tpsrl.errors import UserError, unknown
from tpsrl.rl.bench import synthetic_env as core
from tpsrl.rl.envs.vec_env import EnvSpec, EpisodeStats, Json, Observation, StepBatch

SPEC = EnvSpec({"state": (core.STATE,), "depth": core.DEPTH}, (True,) * core.ACTIONS)

_MOST_ENVS = 10_000  # with distinct numbers of start states


@dataclasses.dataclass(frozen=True, slots=True)
class SyntheticVecEnvFactory:
    """Makes environments whose durations and content follow from `seed` and their numbers.

    `variant` is "waiting", "busy" or "none", and all durations are multiplied by `slowness`, see
    `tpsrl.rl.bench.synthetic_env.SyntheticEnv`.
    """

    variant: str = "waiting"
    seed: int = 0
    slowness: float = 1.0

    def __call__(self, env_ids: Sequence[int]) -> "SyntheticVecEnv":
        """See `tpsrl.rl.envs.vec_env.VecEnvFactory`."""
        return SyntheticVecEnv(self, env_ids)


class SyntheticVecEnv:
    """Environments of one process, stepped one after the other.

    Raises:
        UserError: the variant is unknown.
    """

    def __init__(self, factory: SyntheticVecEnvFactory, env_ids: Sequence[int]) -> None:
        if factory.variant not in core.VARIANTS:
            raise unknown("variant", factory.variant, core.VARIANTS)
        self._factory, self._names = factory, list(env_ids)
        self.num_envs, self.spec = len(env_ids), SPEC
        self._avoided: frozenset[int] = frozenset()
        self.reseed(0)
        self._reward = np.zeros(self.num_envs)
        self._resets_s = 0.0

    @property
    def seconds(self) -> dict[str, float]:
        """See `tpsrl.rl.envs.vec_env.VecEnv.seconds`."""
        return {"rendering": 0.0, "resets": self._resets_s}

    @property
    def drawn_s(self) -> np.ndarray:
        """Nominal seconds (num_envs,) of all steps and resets of each environment so far."""
        return np.array([env.drawn_s for env in self._envs])

    def reset(self, env_ids: Sequence[int]) -> Observation:
        """See `tpsrl.rl.envs.vec_env.VecEnv.reset`."""
        begun = time.perf_counter()
        shown = _stack([self._begin(env) for env in env_ids])
        self._resets_s += time.perf_counter() - begun
        return shown

    def step(self, env_ids: Sequence[int], actions: np.ndarray) -> StepBatch:
        """See `tpsrl.rl.envs.vec_env.VecEnv.step`."""
        reward = np.zeros(len(env_ids), np.float32)
        terminated, truncated = np.zeros((2, len(env_ids)), bool)
        shown, finals, episodes = [], [], []
        for row, env in enumerate(env_ids):
            done = self._envs[env].step(actions[row])
            observation, reward[row], terminated[row], truncated[row] = done
            self._reward[env] += done[1]
            if truncated[row]:
                finals.append(observation)
            if terminated[row] or truncated[row]:
                episodes.append(self._episode(env, bool(truncated[row])))
                begun = time.perf_counter()
                observation = self._begin(env)
                self._resets_s += time.perf_counter() - begun
            shown.append(observation)
        final = _stack(finals) if finals else None
        return StepBatch(_stack(shown), reward, terminated, truncated, final, episodes)

    def observe(self, env_ids: Sequence[int]) -> Observation:
        """See `tpsrl.rl.envs.vec_env.VecEnv.observe`."""
        return _stack([self._envs[env].observe() for env in env_ids])

    def start_index(self, env_id: int) -> int:
        """See `VecEnv.start_index`; numbers of start states are unique across environments."""
        return self._number(env_id, self._envs[env_id].episode)

    def reseed(self, restarts: int) -> None:
        """See `tpsrl.rl.envs.vec_env.VecEnv.reseed`."""
        own = self._factory
        self._envs = [
            core.SyntheticEnv(env, own.seed, own.variant, restarts, own.slowness)
            for env in self._names
        ]

    def avoid(self, starts: Sequence[int]) -> None:
        """See `tpsrl.rl.envs.vec_env.VecEnv.avoid`."""
        self._avoided = frozenset(starts)

    def weigh(self, weights: np.ndarray) -> None:
        """See `tpsrl.rl.envs.vec_env.VecEnv.weigh`; no effect, since starts have no groups."""

    def snapshot(self, env_id: int) -> tuple[dict[str, np.ndarray], Json]:
        """See `tpsrl.rl.envs.vec_env.VecEnv.snapshot`."""
        arrays, note = self._envs[env_id].snapshot()
        return arrays, {**note, "reward": float(self._reward[env_id])}

    def restore(self, env_id: int, arrays: dict[str, np.ndarray], note: Json) -> None:
        """See `tpsrl.rl.envs.vec_env.VecEnv.restore`."""
        try:
            reward = float(note["reward"])
            self._envs[env_id].restore(arrays, note)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(
                f"snapshot: not a snapshot of a synthetic environment ({error!r})"
            ) from None
        self._reward[env_id] = reward

    def close(self) -> None:
        """See `tpsrl.rl.envs.vec_env.VecEnv.close`."""

    def _begin(self, env_id: int) -> dict[str, np.ndarray]:
        """Begins the next episode whose start state is not excluded."""
        env = self._envs[env_id]
        while self._number(env_id, env.episode + 1) in self._avoided:
            env.skip()
        self._reward[env_id] = 0.0
        return env.reset()

    def _number(self, env_id: int, episode: int) -> int:
        """Returns the number of an episode among those of all environments."""
        return episode * _MOST_ENVS + self._names[env_id]

    def _episode(self, env_id: int, truncated: bool) -> EpisodeStats:
        """Returns the record of a finished episode."""
        env = self._envs[env_id]
        return EpisodeStats(
            env=self._names[env_id],
            start_index=self.start_index(env_id),
            steps=env.steps,
            reward=float(self._reward[env_id]),
            success=not truncated,
            ended_by="timeout" if truncated else "success",
        )


def _stack(shown: list[dict[str, np.ndarray]]) -> Observation:
    """Stacks the observations of several environments."""
    return {name: np.stack([each[name] for each in shown]) for name in SPEC.observations}
