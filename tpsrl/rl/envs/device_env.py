"""Interface of environments that step together, with tensors that stay on their device."""

import dataclasses
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import torch

from tpsrl.errors import UserError
from tpsrl.rl.envs.vec_env import EnvSpec, EpisodeStats, Json

NO_TENSORS = (
    "preset.collector: 'device' needs environments with tensors on a device, without delay= and "
    "random colours; nearest: batch"
)
DeviceObservation = dict[str, torch.Tensor]


@dataclasses.dataclass(slots=True)
class DeviceStep:
    """Results of a step of n environments.

    `observation` is the current observation of each environment: if its episode is over
    (`terminated` or `truncated`), the first one of the next episode. `final` are the last
    observations of the episodes before that, from which the rest of a truncated return is
    estimated; None if episodes are never truncated.
    """

    observation: DeviceObservation
    reward: torch.Tensor  # (n,) float32
    terminated: torch.Tensor  # (n,) bool
    truncated: torch.Tensor  # (n,) bool
    final: DeviceObservation | None


class DeviceEnv(Protocol):
    """Environments on one device, all of which take every step.

    `reset` and `step` do not wait for the device.
    """

    num_envs: int
    spec: EnvSpec
    device: torch.device

    def reset(self) -> DeviceObservation:
        """Begins a new episode in each environment; returns the first observations."""
        ...

    def step(self, actions: torch.Tensor) -> DeviceStep:
        """Steps all environments under actions (n, A); a finished episode is followed by a new one.

        The result is valid until the next call.
        """
        ...

    def episodes(self) -> list[EpisodeStats]:
        """Waits for the device and returns the episodes finished since the last call.

        Raises:
            RunError: the engine failed; names the environment.
        """
        ...

    def weigh(self, weights: np.ndarray) -> None:
        """See `tpsrl.rl.envs.vec_env.VecEnv.weigh`."""
        ...

    def snapshot(self) -> tuple[dict[str, np.ndarray], Json]:
        """Returns the state that the next draws of start states depend on: arrays, JSON types."""
        ...

    def restore(self, arrays: dict[str, np.ndarray], note: Json) -> None:
        """Continues the draws from a snapshot; the next call must be `reset`.

        Raises:
            UserError: the snapshot does not fit.
        """
        ...

    def close(self) -> None:
        """Frees the resources of the environments."""
        ...


def random_on(device: torch.device, seed: int) -> torch.Generator:
    """Returns a random generator for tensors of a device."""
    return torch.Generator(device).manual_seed(seed)


def set_random(random: torch.Generator, state: np.ndarray | None) -> None:
    """Sets a random generator to a saved state.

    Raises:
        UserError: the state is missing, or of another kind of device.
    """
    try:
        assert state is not None
        random.set_state(torch.from_numpy(state))
    except (AssertionError, RuntimeError, TypeError):
        raise UserError(
            f"device: is {random.device.type}, but the training began on another device, whose "
            "random numbers it cannot continue; resume it there"
        ) from None


@runtime_checkable
class DeviceEnvFactory(Protocol):
    """A `tpsrl.rl.envs.vec_env.VecEnvFactory` that can also make environments on a device."""

    def on_device(self, env_ids: Sequence[int]) -> DeviceEnv:
        """Makes the environments of these numbers among all, which seed their generators."""
        ...
