"""tpsrl's own collectors, run and counted like the peers.

    python -m benchmarks.peers.run_tpsrl SETTINGS EXTRA

SETTINGS is JSON of `settings.Settings`, EXTRA is JSON of entries of the preset: "collector".
"""

import contextlib
import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from benchmarks.peers.settings import Marks, Settings, Tally
from tpsrl import config
from tpsrl.rl.bench.synthetic import SyntheticVecEnv, SyntheticVecEnvFactory
from tpsrl.rl.envs.vec_env import StepBatch
from tpsrl.rl.run.assembly import assemble
from tpsrl.rl.run.settings import TrainSettings
from tpsrl.runtime import machine


@dataclasses.dataclass(frozen=True, slots=True)
class TallyVecEnvFactory:
    """Factory of synthetic environments that count their steps."""

    settings: Settings

    def __call__(self, env_ids: Sequence[int]) -> "TallyVecEnv":
        """See `tpsrl.rl.envs.vec_env.VecEnvFactory`."""
        return TallyVecEnv(self.settings, env_ids)


class TallyVecEnv(SyntheticVecEnv):
    """Synthetic environments that count their steps."""

    def __init__(self, settings: Settings, env_ids: Sequence[int]) -> None:
        super().__init__(SyntheticVecEnvFactory(settings.variant, settings.seed), env_ids)
        self._tallies = [Tally(settings, env) for env in env_ids]

    def step(self, env_ids: Sequence[int], actions: np.ndarray) -> StepBatch:
        """See `tpsrl.rl.envs.vec_env.VecEnv.step`."""
        found = super().step(env_ids, actions)
        for env in env_ids:
            self._tallies[env].add(float(self.drawn_s[env]))
        return found


def preset_of(settings: Settings) -> TrainSettings:
    """Returns the preset "synthetic" with the settings shared by all peers."""
    preset = config.load_preset("train", "synthetic", TrainSettings)
    ppo = dataclasses.replace(
        preset.ppo,
        epochs=settings.epochs,
        minibatches=settings.mini_batches,
        learning_rate=settings.learning_rate,
        gamma=settings.gamma,
        gae_lambda=settings.gae_lambda,
        clip=settings.clip,
        value_coef=settings.value_coef,
        entropy_coef=settings.entropy_coef,
        max_grad_norm=settings.max_grad_norm,
    )
    envs, steps = settings.num_envs, settings.num_steps
    return dataclasses.replace(preset, num_envs=envs, num_steps=steps, ppo=ppo)


def main(settings: Settings, extra: dict[str, Any]) -> None:
    """Collects and learns for the configured number of rollouts."""
    torch.set_num_threads(1)
    machine.keep_memory()
    preset, marks = preset_of(settings), Marks(settings)
    preset = dataclasses.replace(preset, **extra)
    made = assemble(preset, TallyVecEnvFactory(settings), settings.num_envs, settings.seed)
    with contextlib.closing(made.collector):
        total = settings.warm_up + settings.rollouts
        for number in range(total):
            ahead = number + 1 < total
            collection = made.collector.collect(made.policy, made.rollouts, number, ahead)
            made.ppo.update(collection.rollout, version=number)
            marks.add()


if __name__ == "__main__":
    main(Settings.from_text(sys.argv[1]), json.loads(sys.argv[2]))
