"""habitat-baselines 0.3.3 on the synthetic environment; runs in that library's interpreter.

    python -m benchmarks.peers.run_habitat_baselines SETTINGS EXTRA

SETTINGS is JSON of `settings.Settings`. EXTRA is JSON with "trainer", "ver" or "ddppo", and further
entries of the configuration, by dotted name.
"""

# ruff: noqa: E402

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.peers import stand_ins

# Worker processes also import this module before any module of habitat.
stand_ins.install()

import gym
import habitat
import numpy as np
import torch
from gym import spaces
from habitat.config.default_structured_configs import DatasetConfig, HabitatConfig, TaskConfig
from habitat_baselines.common.baseline_registry import baseline_registry
from habitat_baselines.config.default_structured_configs import HabitatBaselinesRLConfig
from habitat_baselines.rl.models.rnn_state_encoder import build_rnn_state_encoder
from habitat_baselines.rl.ppo.policy import Net, NetPolicy
from habitat_baselines.rl.ppo.ppo_trainer import PPOTrainer
from habitat_baselines.rl.ver.ver_trainer import VERTrainer
from omegaconf import OmegaConf

from benchmarks.peers.network import LSTM, Features
from benchmarks.peers.settings import Marks, Settings, Tally
from tpsrl.rl.bench import synthetic_env as core

NAME = "Synthetic"


@habitat.registry.register_dataset(name=NAME)
class NoDataset(habitat.Dataset):
    """An empty dataset."""

    def __init__(self, config: Any = None) -> None:
        self.episodes: list[Any] = []


@habitat.registry.register_env(name=NAME)
class Environment(gym.Env):
    """`SyntheticEnv` with the gym interface of 2022, which habitat-lab uses."""

    observation_space = spaces.Dict(
        {
            "depth": spaces.Box(0.0, 1.0, core.DEPTH, np.float32),
            "state": spaces.Box(-1.0, 1.0, (core.STATE,), np.float32),
        }
    )
    action_space = spaces.Box(-1.0, 1.0, (core.ACTIONS,), np.float32)
    original_action_space = action_space
    number_of_episodes = -1

    def __init__(self, config: Any, dataset: Any = None) -> None:
        # habitat-lab adds each environment's number to the seed.
        settings = _settings(config)
        number = config.seed - settings.seed
        self._env = core.SyntheticEnv(number, settings.seed, settings.variant)
        self._tally = Tally(settings, number)

    def seed(self, seed: int | None = None) -> None:
        """Does nothing: the environment is seeded when it is created."""

    def reset(self, **kwargs: Any) -> dict[str, np.ndarray]:
        return self._env.reset()

    def step(self, action: np.ndarray) -> tuple[dict[str, np.ndarray], float, bool, dict[str, Any]]:
        observation, reward, terminated, truncated = self._env.step(action)
        self._tally.add(self._env.drawn_s)
        return observation, reward, terminated or truncated, {}


class SmallNet(Net):
    """The shared network before habitat-baselines' LSTM, with the previous action."""

    output_size = recurrent_hidden_size = LSTM
    perception_embedding_size = Features.width
    is_blind = False
    visual_encoder = None

    def __init__(self) -> None:
        super().__init__()
        self.features = Features(core.STATE + core.ACTIONS)
        self.state_encoder = build_rnn_state_encoder(Features.width, LSTM, "LSTM", 1)

    @property
    def num_recurrent_layers(self) -> int:
        return self.state_encoder.num_recurrent_layers

    def forward(
        self,
        observations: dict[str, torch.Tensor],
        rnn_hidden_states: torch.Tensor,
        prev_actions: torch.Tensor,
        masks: torch.Tensor,
        rnn_build_seq_info: Any = None,
    ) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
        vector = torch.cat([observations["state"], prev_actions * masks], dim=1)
        features = self.features(observations["depth"], vector)
        features, memory = self.state_encoder(
            features, rnn_hidden_states, masks, rnn_build_seq_info
        )
        return features, memory, {}


@baseline_registry.register_policy(name=NAME)
class SmallPolicy(NetPolicy):
    """The network with habitat-baselines' Gaussian and value heads."""

    @classmethod
    def from_config(
        cls, config: Any, observation_space: Any, action_space: Any, **kwargs: Any
    ) -> "SmallPolicy":
        policy = config.habitat_baselines.rl.policy.main_agent
        return cls(SmallNet(), action_space, policy, config.habitat_baselines.rl.auxiliary_losses)


class Timed:
    """Trainer that adds a mark after learning from each rollout."""

    marks: Marks

    def _update_agent(self) -> Any:
        losses = super()._update_agent()
        self.marks.add()
        return losses


class TimedVER(Timed, VERTrainer):
    """Timed trainer with variable experience rollouts."""


class TimedDDPPO(Timed, PPOTrainer):
    """Timed trainer of DD-PPO, with steps in lock-step."""


TRAINERS: dict[str, Any] = {"ver": TimedVER, "ddppo": TimedDDPPO}


def _settings(config: Any) -> Settings:
    """Returns the settings, passed in habitat-lab's entry for the name of a gym environment."""
    return Settings.from_text(config.env_task_gym_id)


def configuration(settings: Settings, trainer: str) -> Any:
    """Returns habitat-baselines' configuration, with its own defaults for other entries."""
    config = OmegaConf.create(
        {
            "habitat": OmegaConf.structured(HabitatConfig),
            "habitat_baselines": OmegaConf.structured(HabitatBaselinesRLConfig),
        }
    )
    home, base = config.habitat, config.habitat_baselines
    home.seed = settings.seed
    home.env_task, home.env_task_gym_id = NAME, settings.to_text()
    home.task = OmegaConf.structured(TaskConfig)
    home.dataset = OmegaConf.structured(DatasetConfig)
    home.dataset.type = NAME
    # habitat-baselines requires scenes to divide among the environments.
    home.dataset.content_scenes = [str(env) for env in range(settings.num_envs)]
    home.simulator.agents_order = ["main_agent"]
    base.trainer_name = trainer
    base.num_environments = settings.num_envs
    base.num_updates = settings.warm_up + settings.rollouts
    base.total_num_steps = -1.0
    # Only the log is written.
    base.num_checkpoints, base.checkpoint_interval = -1, 1_000_000
    base.rl.preemption.save_resume_state_interval = 1_000_000
    base.tensorboard_dir = ""
    base.checkpoint_folder = str(Path(settings.folder) / "checkpoints")
    base.log_file = str(Path(settings.folder) / "train.log")
    base.force_torch_single_threaded = True
    policy = base.rl.policy.main_agent
    policy.name, policy.action_distribution_type = NAME, "gaussian"
    policy.action_dist.use_std_param = True
    policy.action_dist.log_std_init = -1.0
    ppo = base.rl.ppo
    ppo.num_steps = settings.num_steps
    ppo.ppo_epoch, ppo.num_mini_batch = settings.epochs, settings.mini_batches
    ppo.lr, ppo.gamma, ppo.tau = settings.learning_rate, settings.gamma, settings.gae_lambda
    ppo.clip_param, ppo.value_loss_coef = settings.clip, settings.value_coef
    ppo.entropy_coef, ppo.max_grad_norm = settings.entropy_coef, settings.max_grad_norm
    ppo.hidden_size = LSTM
    return config


def main(settings: Settings, extra: dict[str, Any]) -> None:
    """Trains for the configured number of rollouts."""
    torch.set_num_threads(1)
    trainer = extra["trainer"]
    config = configuration(settings, trainer)
    for name, value in extra.items():
        if name != "trainer":
            OmegaConf.update(config, f"habitat_baselines.{name}", value)
    run = TRAINERS[trainer](config)
    run.marks = Marks(settings)
    run.train()


if __name__ == "__main__":
    main(Settings.from_text(sys.argv[1]), json.loads(sys.argv[2]))
