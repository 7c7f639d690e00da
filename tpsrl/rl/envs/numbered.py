"""Environments that have higher numbers in the whole than in the process that steps them."""

import dataclasses
from collections.abc import Sequence

from tpsrl.rl.envs.vec_env import VecEnv, VecEnvFactory


@dataclasses.dataclass(frozen=True, slots=True)
class NumberedFactory:
    """Makes environment `first` + i for number i.

    The ranks of a training have environments 0 to N - 1 each; without this all of them would live
    through the same episodes.
    """

    factory: VecEnvFactory
    first: int

    def __call__(self, env_ids: Sequence[int]) -> VecEnv:
        """See `VecEnvFactory`."""
        return self.factory([self.first + env for env in env_ids])
