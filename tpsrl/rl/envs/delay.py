"""Delayed observations: a policy acts on the observation before the current one.

In VER's simulator the next observation is rendered while the physics of the following step already
runs, so an action responds to the state before the last: a_t is chosen from s_(t-1). The first
observation of an episode is shown twice. Here the delay changes what a policy learns, not the
speed.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from tpsrl.errors import UserError
from tpsrl.rl.envs.pictures import dtype_of
from tpsrl.rl.envs.vec_env import ANEW, Json, Observation, StepBatch, VecEnv, VecEnvFactory

_PREFIX = "shown/"


@dataclasses.dataclass(frozen=True, slots=True)
class DelayedVecEnvFactory:
    """Makes the environments of another factory with a delay."""

    factory: VecEnvFactory

    def __call__(self, env_ids: Sequence[int]) -> "DelayedVecEnv":
        """See `tpsrl.rl.envs.vec_env.VecEnvFactory`."""
        return DelayedVecEnv(self.factory(env_ids))


class DelayedVecEnv:
    """Environments whose observations are one step old."""

    def __init__(self, vec_env: VecEnv) -> None:
        self._vec_env = vec_env
        self.num_envs, self.spec = vec_env.num_envs, vec_env.spec
        # The observations shown now, and those to show after the next step.
        self._shown, self._seen = self._blank(), self._blank()

    @property
    def seconds(self) -> dict[str, float]:
        """See `tpsrl.rl.envs.vec_env.VecEnv.seconds`."""
        return self._vec_env.seconds

    def reset(self, env_ids: Sequence[int]) -> Observation:
        """See `tpsrl.rl.envs.vec_env.VecEnv.reset`."""
        rows, first = np.asarray(env_ids), self._vec_env.reset(env_ids)
        for name, values in first.items():
            self._shown[name][rows] = self._seen[name][rows] = values
        return first

    def step(self, env_ids: Sequence[int], actions: np.ndarray) -> StepBatch:
        """See `tpsrl.rl.envs.vec_env.VecEnv.step`.

        The final observation of a truncated episode is delayed like all others.
        """
        done, rows = self._vec_env.step(env_ids, actions), np.asarray(env_ids)
        fresh = done.terminated | done.truncated
        late = {name: values[rows] for name, values in self._seen.items()}
        if done.final is not None:
            done.final = {name: values[done.truncated] for name, values in late.items()}
        for name, values in done.observation.items():
            late[name][fresh] = values[fresh]
            self._seen[name][rows], self._shown[name][rows] = values, late[name]
        done.observation = late
        return done

    def observe(self, env_ids: Sequence[int]) -> Observation:
        """See `tpsrl.rl.envs.vec_env.VecEnv.observe`."""
        rows = np.asarray(env_ids)
        return {name: values[rows] for name, values in self._shown.items()}

    def start_index(self, env_id: int) -> int:
        """See `tpsrl.rl.envs.vec_env.VecEnv.start_index`."""
        return self._vec_env.start_index(env_id)

    def reseed(self, restarts: int) -> None:
        """See `tpsrl.rl.envs.vec_env.VecEnv.reseed`."""
        self._vec_env.reseed(restarts)

    def avoid(self, starts: Sequence[int]) -> None:
        """See `tpsrl.rl.envs.vec_env.VecEnv.avoid`."""
        self._vec_env.avoid(starts)

    def weigh(self, weights: np.ndarray) -> None:
        """See `tpsrl.rl.envs.vec_env.VecEnv.weigh`."""
        self._vec_env.weigh(weights)

    def snapshot(self, env_id: int) -> tuple[dict[str, np.ndarray], Json]:
        """See `tpsrl.rl.envs.vec_env.VecEnv.snapshot`."""
        arrays, note = self._vec_env.snapshot(env_id)
        shown = {_PREFIX + name: values[env_id].copy() for name, values in self._shown.items()}
        return arrays | shown, note

    def restore(self, env_id: int, arrays: dict[str, np.ndarray], note: Json) -> None:
        """See `tpsrl.rl.envs.vec_env.VecEnv.restore`."""
        rest = {key: values for key, values in arrays.items() if not key.startswith(_PREFIX)}
        self._vec_env.restore(env_id, rest, note)
        seen = self._vec_env.observe([env_id])
        for name, own in self._shown.items():
            if note.get(ANEW):
                own[env_id] = self._seen[name][env_id] = seen[name][0]
                continue
            if _PREFIX + name not in arrays:
                raise UserError("snapshot: not one of an environment that is shown with a delay")
            values, shape = arrays[_PREFIX + name], own.shape[1:]
            if values.dtype != own.dtype or values.shape != shape or not np.isfinite(values).all():
                raise UserError(f"snapshot: {_PREFIX}{name}: not {shape} finite {own.dtype}")
            own[env_id] = values
            self._seen[name][env_id] = seen[name][0]

    def close(self) -> None:
        """See `tpsrl.rl.envs.vec_env.VecEnv.close`."""
        self._vec_env.close()

    def _blank(self) -> Observation:
        shapes = self.spec.observations.items()
        n = self.num_envs
        return {name: np.zeros((n, *shape), dtype_of(name)) for name, shape in shapes}
