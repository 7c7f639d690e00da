"""The toy environments of `toy_vec_env` with tensors, for tests of the collector `device`."""

from collections.abc import Sequence

import numpy as np
import torch
from toy_vec_env import SPEC, ToyVecEnv, ToyVecEnvFactory

from tpsrl.rl.envs.device_env import DeviceObservation, DeviceStep
from tpsrl.rl.envs.vec_env import EpisodeStats, Json, Observation


def tensors(shown: Observation) -> DeviceObservation:
    return {name: torch.from_numpy(values) for name, values in shown.items()}


class ToyDeviceEnv:
    """`ToyVecEnv` with tensors."""

    def __init__(self, inner: ToyVecEnv) -> None:
        self._inner, self._all = inner, range(inner.num_envs)
        self.num_envs, self.spec, self.device = inner.num_envs, SPEC, torch.device("cpu")
        self._episodes: list[EpisodeStats] = []

    def reset(self) -> DeviceObservation:
        return tensors(self._inner.reset(self._all))

    def step(self, actions: torch.Tensor) -> DeviceStep:
        done = self._inner.step(self._all, actions.numpy())
        self._episodes += done.episodes
        shown = tensors(done.observation)
        final = {name: values.clone() for name, values in shown.items()}
        for name, values in (done.final or {}).items():
            final[name][torch.from_numpy(done.truncated)] = torch.from_numpy(values)
        ends = (torch.from_numpy(ended) for ended in (done.terminated, done.truncated))
        return DeviceStep(shown, torch.from_numpy(done.reward), *ends, final)

    def episodes(self) -> list[EpisodeStats]:
        found, self._episodes = self._episodes, []
        return found

    def weigh(self, weights: np.ndarray) -> None:
        self._inner.weigh(weights)

    def snapshot(self) -> tuple[dict[str, np.ndarray], Json]:
        return {}, {"toy": True}

    def restore(self, arrays: dict[str, np.ndarray], note: Json) -> None:
        assert not arrays and note == {"toy": True}

    def close(self) -> None:
        pass


class ToyDeviceFactory(ToyVecEnvFactory):
    def on_device(self, env_ids: Sequence[int]) -> ToyDeviceEnv:
        return ToyDeviceEnv(self(env_ids))
