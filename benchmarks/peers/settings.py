"""What every peer is run with, and how it says how fast it went. Needs no other package."""

import dataclasses
import itertools
import json
import time
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Rollouts of `num_envs` x `num_steps` steps, each learned from before it counts.

    The learner's values are tpsrl's where all peers have them. `folder` is where a peer may leave
    its files.
    """

    folder: str = ""
    variant: str = "waiting"
    seed: int = 0
    num_envs: int = 16
    num_steps: int = 64
    epochs: int = 2
    mini_batches: int = 2
    steps: int = 40_000
    warm_up: int = 4  # rollouts before those that are timed
    learning_rate: float = 2.5e-4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    value_coef: float = 0.5
    entropy_coef: float = 0.01
    max_grad_norm: float = 0.5

    @property
    def size(self) -> int:
        """Steps of a rollout."""
        return self.num_envs * self.num_steps

    @property
    def rollouts(self) -> int:
        """How many are timed."""
        return -(-self.steps // self.size)

    def to_text(self) -> str:
        """JSON, for a command line."""
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def from_text(text: str) -> "Settings":
        """The settings of `to_text`."""
        return Settings(**json.loads(text))


class Marks:
    """The times at which a peer had learned from a rollout, in a file that is read by another."""

    def __init__(self, settings: Settings) -> None:
        self._path = marks_path(settings)
        self._path.write_text("")

    def add(self) -> None:
        """One more rollout was learned from."""
        with self._path.open("a") as file:
            file.write(f"{time.perf_counter()}\n")


def marks_path(settings: Settings) -> Path:
    """Where the marks of a run are."""
    return Path(settings.folder) / "marks.txt"


def rates(settings: Settings) -> dict[str, Any]:
    """Samples per second of a run after its warm-up, learning included: JSON types.

    "mean" is over all timed rollouts, "max" that of the best one, which may be above what the
    environments give where learning goes on at the same time: it can have fallen behind before.

    Raises:
        ValueError: the run ended too early.
    """
    path = marks_path(settings)
    times = [float(line) for line in path.read_text().split()] if path.exists() else []
    needed = settings.warm_up + settings.rollouts
    if len(times) < needed:
        raise ValueError(f"learned from {len(times)} rollouts of {needed}")
    times = times[settings.warm_up - 1 : needed]
    pairs = itertools.pairwise(times)
    each = [settings.size / (after - before) for before, after in pairs]
    mean = settings.size * len(each) / (times[-1] - times[0])
    return {
        "samples_per_s": {"mean": mean, "max": max(each)},
        "samples": settings.size * len(each),
        "rollouts": each,
    }
