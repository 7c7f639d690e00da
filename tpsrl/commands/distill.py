"""`tpsrl distill`: teaches a policy that sees what a teacher does that knows the true state."""

import dataclasses
from collections.abc import Sequence

from tpsrl import config
from tpsrl.commands import Command, by_skill, train
from tpsrl.rl.run.settings import TrainSettings

_DESCRIPTION = """Teaches a student, which senses what a robot can, what a teacher does that knows
the true state (`tpsrl train SKILL preset=teacher`). The student acts in training apartments, the
teacher labels every state that it gets into, and the distance of their actions is learned from,
whole sequences through the student's memory. Writes the same files as `tpsrl train`; resume=DIR
goes on.

preset=finish with init=DIR improves such a student by PPO, tied to its teacher by a weight that
falls to 0."""


@dataclasses.dataclass(frozen=True, slots=True)
class DistillSettings(train.TrainingSettings):
    """Everything that a distillation can be told."""

    preset: TrainSettings = config.preset(
        "train",
        TrainSettings,
        "distill",
        "rollouts, network and learner; preset.KEY=... changes an entry",
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
