"""`tpsrl distill`: trains a student with on-board sensors on the labels of a teacher."""

from tpsrl.commands import Command, by_skill, train
from tpsrl.training import loading
from tpsrl.training.settings import DistillSettings

_DESCRIPTION = """Trains a student with on-board sensors on the actions of a teacher that knows the
true state (`tpsrl train SKILL preset=teacher`). The student acts in training apartments, and the
teacher labels every state it visits. Writes the same files as `tpsrl train`; resume=DIR continues.

preset=finish with init=DIR fine-tunes such a student by PPO, with a distillation loss whose weight
decays to 0."""


def choose(word: str | None) -> Command:
    """Returns the command for a skill; the word may be missing with `resume`.

    Raises:
        UserError: there is no such skill; names the nearest.
    """
    command = Command(_DESCRIPTION, DistillSettings, train.run, load=loading.distillation)
    return by_skill.of_skill(word, command)
