"""Settings shared by all peers, and measurement of their speed. Needs no other package."""

import dataclasses
import itertools
import json
import mmap
import struct
import time
from pathlib import Path
from typing import Any

_TALLY, _ENTRY = "tally-", struct.Struct("qd")


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Rollouts of `num_envs` x `num_steps` steps; a rollout counts once it was learned from.

    The learner's values are tpsrl's wherever all peers support them. `folder` is for a peer's
    files.
    """

    folder: str = ""
    variant: str = "waiting"
    seed: int = 0
    num_envs: int = 16
    num_steps: int = 64
    epochs: int = 2
    mini_batches: int = 2
    steps: int = 40_000
    warm_up: int = 4  # rollouts before the timed ones
    learning_rate: float = 2.5e-4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    value_coef: float = 0.5
    entropy_coef: float = 0.01
    max_grad_norm: float = 0.5

    @property
    def size(self) -> int:
        """Steps per rollout."""
        return self.num_envs * self.num_steps

    @property
    def rollouts(self) -> int:
        """Number of timed rollouts."""
        return -(-self.steps // self.size)

    def to_text(self) -> str:
        """Returns the settings as JSON, for a command line."""
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def from_text(text: str) -> "Settings":
        """Restores the settings of `to_text`."""
        return Settings(**json.loads(text))


class Tally:
    """Step counter of one environment, in a file that other processes read while it runs.

    Libraries count samples in different ways; this class counts the steps actually made.
    """

    def __init__(self, settings: Settings, number: int) -> None:
        path = Path(settings.folder) / f"{_TALLY}{number}"
        path.write_bytes(_ENTRY.pack(0, 0.0))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _ENTRY.size)
        self._steps = 0

    def add(self, drawn_s: float) -> None:
        """Counts one step.

        Args:
            drawn_s: planned total duration of all steps and resets so far, in seconds
        """
        self._steps += 1
        self._memory[:] = _ENTRY.pack(self._steps, drawn_s)


class Marks:
    """Times at which a peer had learned from a rollout, in a file that another process reads.

    Each entry also has the tally of every environment at that time.
    """

    def __init__(self, settings: Settings) -> None:
        self._path, self._settings = marks_path(settings), settings
        self._path.write_text("")

    def add(self) -> None:
        """Adds an entry for a rollout that was learned from."""
        folder = Path(self._settings.folder)
        entries = [
            _ENTRY.unpack((folder / f"{_TALLY}{number}").read_bytes())
            for number in range(self._settings.num_envs)
        ]
        with self._path.open("a") as file:
            file.write(json.dumps([time.perf_counter(), entries]) + "\n")


def marks_path(settings: Settings) -> Path:
    """Returns the path of a run's marks."""
    return Path(settings.folder) / "marks.jsonl"


def rates(settings: Settings) -> dict[str, Any]:
    """Returns a run's samples per second after its warm-up, learning included: JSON types.

    "mean" is over all timed rollouts, "max" is that of the fastest one. If learning overlaps with
    collection, "max" can exceed the environments' speed, since the learner may have fallen behind
    before. "env_steps_per_s" is the environments' own count in that time, whether learned from or
    not, "env_steps" is the count of each environment, and "ceiling" the steps per second that they
    would have made if they had never waited.

    Raises:
        ValueError: the run ended too early.
    """
    path = marks_path(settings)
    marks = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    needed = settings.warm_up + settings.rollouts
    if len(marks) < needed:
        raise ValueError(f"learned from {len(marks)} rollouts of {needed}")
    marks = marks[settings.warm_up - 1 : needed]
    times = [at for at, _ in marks]
    pairs = itertools.pairwise(times)
    each = [settings.size / (after - before) for before, after in pairs]
    seconds = times[-1] - times[0]
    gone = [
        (after[0] - before[0], after[1] - before[1])
        for before, after in zip(marks[0][1], marks[-1][1], strict=True)
    ]
    made = sum(steps for steps, _ in gone) / seconds
    return {
        "samples_per_s": {"mean": settings.size * len(each) / seconds, "max": max(each)},
        "samples": settings.size * len(each),
        "rollouts": each,
        "env_steps_per_s": made,
        "ceiling": sum(steps / drawn_s for steps, drawn_s in gone if steps),
        "env_steps": [steps for steps, _ in gone],
    }
