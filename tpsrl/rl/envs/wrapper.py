"""Base class of environments that change what other environments show."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from tpsrl.errors import UserError
from tpsrl.rl.envs.pictures import dtype_of
from tpsrl.rl.envs.vec_env import ANEW, Json, Observation, VecEnv


class WrappedVecEnv:
    """Environments that show other observations than the environments they wrap.

    A subclass implements `reset` and `step`, and keeps the observations that it shows in `shown`.
    After `restore` with a note that says `ANEW` it also has to set them.

    Args:
        vec_env: the wrapped environments

    Attributes:
        shown: observations by name, (num_envs, ...) each
    """

    prefix: ClassVar[str]  # of the names of shown observations in a snapshot

    def __init__(self, vec_env: VecEnv) -> None:
        self.vec_env = vec_env
        self.num_envs, self.spec = vec_env.num_envs, vec_env.spec
        self.shown = self.blank()

    @property
    def seconds(self) -> dict[str, float]:
        """See `tpsrl.rl.envs.vec_env.VecEnv.seconds`."""
        return self.vec_env.seconds

    def observe(self, env_ids: Sequence[int]) -> Observation:
        """See `tpsrl.rl.envs.vec_env.VecEnv.observe`."""
        rows = np.asarray(env_ids)
        return {name: values[rows] for name, values in self.shown.items()}

    def start_index(self, env_id: int) -> int:
        """See `tpsrl.rl.envs.vec_env.VecEnv.start_index`."""
        return self.vec_env.start_index(env_id)

    def reseed(self, restarts: int) -> None:
        """See `tpsrl.rl.envs.vec_env.VecEnv.reseed`."""
        self.vec_env.reseed(restarts)

    def avoid(self, starts: Sequence[int]) -> None:
        """See `tpsrl.rl.envs.vec_env.VecEnv.avoid`."""
        self.vec_env.avoid(starts)

    def weigh(self, weights: np.ndarray) -> None:
        """See `tpsrl.rl.envs.vec_env.VecEnv.weigh`."""
        self.vec_env.weigh(weights)

    def snapshot(self, env_id: int) -> tuple[dict[str, np.ndarray], Json]:
        """See `tpsrl.rl.envs.vec_env.VecEnv.snapshot`."""
        arrays, note = self.vec_env.snapshot(env_id)
        shown = {self.prefix + name: values[env_id].copy() for name, values in self.shown.items()}
        return arrays | shown, note

    def restore(self, env_id: int, arrays: dict[str, np.ndarray], note: Json) -> None:
        """See `tpsrl.rl.envs.vec_env.VecEnv.restore`."""
        inner = {key: values for key, values in arrays.items() if not key.startswith(self.prefix)}
        self.vec_env.restore(env_id, inner, note)
        if note.get(ANEW):
            return
        for name, own in self.shown.items():
            if self.prefix + name not in arrays:
                raise UserError(
                    f"snapshot: {self.prefix}{name} is missing; the snapshot has other settings"
                )
            values, shape = arrays[self.prefix + name], own.shape[1:]
            if values.dtype != own.dtype or values.shape != shape or not np.isfinite(values).all():
                raise UserError(
                    f"snapshot: {self.prefix}{name}: must be {shape} finite {own.dtype}"
                )
            own[env_id] = values

    def close(self) -> None:
        """See `tpsrl.rl.envs.vec_env.VecEnv.close`."""
        self.vec_env.close()

    def blank(self) -> Observation:
        """Returns zeros for the observations of all environments."""
        shapes = self.spec.observations.items()
        return {name: np.zeros((self.num_envs, *shape), dtype_of(name)) for name, shape in shapes}
