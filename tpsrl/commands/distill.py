"""`tpsrl distill`: teaches a policy that sees what a teacher does that knows the true state."""

import dataclasses
from collections.abc import Sequence

from tpsrl import config
from tpsrl.commands import Command, by_skill, train
from tpsrl.rl.run.settings import TrainSettings

_DESCRIPTION = """Trains a student with on-board sensors on the actions of a teacher that knows the
true state (`tpsrl train SKILL preset=teacher`). The student acts in training apartments, and the
teacher labels every state it visits. Writes the same files as `tpsrl train`; resume=DIR continues.

preset=finish with init=DIR fine-tunes such a student by PPO, with a distillation loss whose weight
decays to 0."""


@dataclasses.dataclass(frozen=True, slots=True)
class DistillSettings(train.TrainingSettings):
    """Everything that a distillation can be told."""

    preset: TrainSettings = config.preset(
        "train",
        TrainSettings,
        "distill",
        "training preset: rollouts, network, learner; preset.KEY=... overrides an entry",
    )


def choose(word: str | None) -> Command:
    """The distillation of a skill; the word may be missing when another one is resumed.

    Raises:
        UserError: there is no such skill; names the nearest.
    """
    return by_skill.of_skill(word, Command(_DESCRIPTION, DistillSettings, train.run, load=load))


def load(overrides: Sequence[str]) -> train.TrainingSettings:
    """See `tpsrl.commands.train.load`.

    Raises:
        UserError: see there.
    """
    given = dict(o.split("=", 1) for o in overrides if "=" in o)
    if "out" not in given and "resume" not in given:
        overrides = [*overrides, f"out=out/distill/{given.get('skill', '')}"]
    return train.load(overrides, DistillSettings)
