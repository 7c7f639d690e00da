"""A training in toy environments."""

from pathlib import Path
from typing import Any

import torch
from toy_vec_env import ToyVecEnvFactory

from tpsrl.rl.learning.settings import PPOSettings
from tpsrl.rl.policy.settings import PolicySettings
from tpsrl.rl.run import metrics
from tpsrl.rl.run.settings import TrainSettings
from tpsrl.rl.run.trainer import Trainer, TrainSchedule, TrainTask

STEPS, ENVS = 8, 3
SETTINGS = TrainSettings(
    name="tiny",
    steps=10 * STEPS * ENVS,
    num_envs=ENVS,
    num_steps=STEPS,
    policy=PolicySettings(encoder="state", state_width=8, lstm_layers=1, lstm_width=8),
    ppo=PPOSettings(epochs=2, minibatches=2),
)
TIMES = ("seconds", "samples_per_s", "time", "waits")  # differ between runs


class Silent:
    """Watcher that stores messages, and calls `do` at update `at`."""

    def __init__(self, at: int = -1, do: Any = None) -> None:
        self.at, self.do = at, do
        self.messages: list[str] = []

    def update(self, row: dict[str, Any]) -> None:
        if row["update"] == self.at:
            self.do()

    def say(self, text: str) -> None:
        self.messages.append(text)


def trainer(out: Path, watcher: Silent | None = None, **changes: Any) -> Trainer:
    options: dict[str, Any] = {
        "settings": SETTINGS,
        "schedule": TrainSchedule(validation_episodes=0),
        "out": out,
        "task": TrainTask(ToyVecEnvFactory()),
        "watcher": watcher or Silent(),
    }
    torch.set_num_threads(1)
    return Trainer(**(options | changes))


def rows(out: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k not in TIMES} for row in metrics.read(out)]
