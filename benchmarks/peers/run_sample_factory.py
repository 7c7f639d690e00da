"""Sample Factory 2.1 on the synthetic environment; runs in that library's interpreter.

    python -m benchmarks.peers.run_sample_factory SETTINGS EXTRA

SETTINGS is JSON of `settings.Settings`, EXTRA is JSON of Sample Factory's own options.
"""

import functools
import json
import sys
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from sample_factory.algo.runners.runner import AlgoObserver, Runner
from sample_factory.algo.utils.context import global_model_factory
from sample_factory.algo.utils.misc import ExperimentStatus
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.model.encoder import Encoder
from sample_factory.train import make_runner

from benchmarks.peers.network import LSTM, Features
from benchmarks.peers.settings import Marks, Settings, Tally
from tpsrl.rl.bench import synthetic_env as core

ENV = "synthetic"


class Environment(gymnasium.Env):
    """`SyntheticEnv` with the gymnasium interface."""

    observation_space = spaces.Dict(
        {
            "depth": spaces.Box(0.0, 1.0, core.DEPTH, np.float32),
            "state": spaces.Box(-1.0, 1.0, (core.STATE,), np.float32),
        }
    )
    action_space = spaces.Box(-1.0, 1.0, (core.ACTIONS,), np.float32)
    render_mode = None

    def __init__(self, number: int, settings: Settings) -> None:
        self._env = core.SyntheticEnv(number, settings.seed, settings.variant)
        self._tally = Tally(settings, number)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self._env.reset(), {}

    def step(self, action: np.ndarray) -> Any:
        found = self._env.step(action)
        self._tally.add(self._env.drawn_s)
        return *found, {}


def make(
    settings: Settings, name: str, cfg: Any, env_config: Any, render_mode: str | None = None
) -> Environment:
    """Creates the environment of a worker; without `env_config`, number 0 for its spaces."""
    return Environment(0 if env_config is None else env_config.worker_index, settings)


class SmallEncoder(Encoder):
    """The shared network before Sample Factory's LSTM."""

    def __init__(self, cfg: Any, obs_space: spaces.Dict) -> None:
        super().__init__(cfg)
        self.features = Features(core.STATE)

    def forward(self, obs: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.features(obs["depth"], obs["state"])

    def get_out_size(self) -> int:
        return Features.width


class Stopwatch(AlgoObserver):
    """Adds a mark after each iteration of the learner: all epochs over one rollout of samples."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks

    def on_training_step(self, runner: Runner, training_iteration_since_resume: int) -> None:
        self._marks.add()


def options(settings: Settings) -> dict[str, Any]:
    """Returns the settings under Sample Factory's names."""
    return {
        "env": ENV,
        "experiment": "run",
        "train_dir": settings.folder,
        "restart_behavior": "overwrite",
        "device": "cpu",
        "seed": settings.seed,
        # One environment per process, so that double buffering is not possible.
        "num_workers": settings.num_envs,
        "num_envs_per_worker": 1,
        "worker_num_splits": 1,
        "rollout": settings.num_steps,
        "recurrence": settings.num_steps,
        "batch_size": settings.size // settings.mini_batches,
        "num_batches_per_epoch": settings.mini_batches,
        "num_epochs": settings.epochs,
        "train_for_env_steps": (settings.warm_up + settings.rollouts) * settings.size,
        "use_rnn": True,
        "rnn_type": "lstm",
        "rnn_size": LSTM,
        "rnn_num_layers": 1,
        "adaptive_stddev": False,
        "normalize_input": False,
        "normalize_returns": False,
        "learning_rate": settings.learning_rate,
        "gamma": settings.gamma,
        "gae_lambda": settings.gae_lambda,
        "ppo_clip_ratio": settings.clip,
        "value_loss_coeff": settings.value_coef,
        "exploration_loss_coeff": settings.entropy_coef,
        "max_grad_norm": settings.max_grad_norm,
        "save_every_sec": 1_000_000,
        "save_best_every_sec": 1_000_000,
        "experiment_summaries_interval": 1_000_000,
    }


def main(settings: Settings, extra: dict[str, Any]) -> None:
    """Trains for the configured number of rollouts.

    Raises:
        SystemExit: the training failed.
    """
    torch.set_num_threads(1)
    arguments = [f"--{name}={value}" for name, value in (options(settings) | extra).items()]
    parser, _ = parse_sf_args(arguments)
    _, runner = make_runner(parse_full_cfg(parser, arguments))

    register_env(ENV, functools.partial(make, settings))
    global_model_factory().register_encoder_factory(SmallEncoder)
    runner.register_observer(Stopwatch(Marks(settings)))
    status = runner.init()
    if status == ExperimentStatus.SUCCESS:
        status = runner.run()
    if status != ExperimentStatus.SUCCESS:
        sys.exit(f"status {status}")


if __name__ == "__main__":
    main(Settings.from_text(sys.argv[1]), json.loads(sys.argv[2]))
