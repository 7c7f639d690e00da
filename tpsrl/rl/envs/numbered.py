"""Environments whose numbers in a run are offset from those in their process."""

import dataclasses
from collections.abc import Sequence

from tpsrl.errors import UserError
from tpsrl.rl.envs.device_env import NO_TENSORS, DeviceEnv, DeviceEnvFactory
from tpsrl.rl.envs.vec_env import VecEnv, VecEnvFactory


@dataclasses.dataclass(frozen=True, slots=True)
class NumberedFactory:
    """Makes environment `first` + i for number i.

    Each rank of a training numbers its environments from 0 to N - 1; without the offset, all ranks
    would run the same episodes.
    """

    factory: VecEnvFactory
    first: int

    def __call__(self, env_ids: Sequence[int]) -> VecEnv:
        """See `VecEnvFactory`."""
        return self.factory([self.first + env for env in env_ids])

    def on_device(self, env_ids: Sequence[int]) -> DeviceEnv:
        """See `DeviceEnvFactory`.

        Raises:
            UserError: the factory's environments run on the processor only.
        """
        if not isinstance(self.factory, DeviceEnvFactory):
            raise UserError(NO_TENSORS)
        return self.factory.on_device([self.first + env for env in env_ids])
