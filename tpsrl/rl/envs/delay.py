"""Delayed observations: a policy acts on the observation before the current one.

In VER's simulator the next observation is rendered while the physics of the following step already
runs, so an action responds to the state before the last: a_t is chosen from s_(t-1). The first
observation of an episode is shown twice. Here the delay changes what a policy learns, not the
speed.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from tpsrl.rl.envs.vec_env import ANEW, Json, Observation, StepBatch, VecEnv, VecEnvFactory
from tpsrl.rl.envs.wrapper import WrappedVecEnv


@dataclasses.dataclass(frozen=True, slots=True)
class DelayedVecEnvFactory:
    """Makes the environments of another factory with a delay."""

    factory: VecEnvFactory

    def __call__(self, env_ids: Sequence[int]) -> "DelayedVecEnv":
        """See `tpsrl.rl.envs.vec_env.VecEnvFactory`."""
        return DelayedVecEnv(self.factory(env_ids))


class DelayedVecEnv(WrappedVecEnv):
    """Environments whose observations are one step old."""

    prefix = "shown/"

    def __init__(self, vec_env: VecEnv) -> None:
        super().__init__(vec_env)
        self._seen = self.blank()  # the observations to show after the next step

    def reset(self, env_ids: Sequence[int]) -> Observation:
        """See `tpsrl.rl.envs.vec_env.VecEnv.reset`."""
        rows, first = np.asarray(env_ids), self.vec_env.reset(env_ids)
        for name, values in first.items():
            self.shown[name][rows] = self._seen[name][rows] = values
        return first

    def step(self, env_ids: Sequence[int], actions: np.ndarray) -> StepBatch:
        """See `tpsrl.rl.envs.vec_env.VecEnv.step`.

        The final observation of a truncated episode is delayed like all others.
        """
        done, rows = self.vec_env.step(env_ids, actions), np.asarray(env_ids)
        fresh = done.terminated | done.truncated
        late = {name: values[rows] for name, values in self._seen.items()}
        if done.final is not None:
            done.final = {name: values[done.truncated] for name, values in late.items()}
        for name, values in done.observation.items():
            late[name][fresh] = values[fresh]
            self._seen[name][rows], self.shown[name][rows] = values, late[name]
        done.observation = late
        return done

    def restore(self, env_id: int, arrays: dict[str, np.ndarray], note: Json) -> None:
        """See `tpsrl.rl.envs.vec_env.VecEnv.restore`."""
        super().restore(env_id, arrays, note)
        for name, values in self.vec_env.observe([env_id]).items():
            self._seen[name][env_id] = values[0]
            if note.get(ANEW):
                self.shown[name][env_id] = values[0]
