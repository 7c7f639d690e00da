"""`tpsrl train`: trains a skill."""

from tpsrl.commands import Command, by_skill
from tpsrl.rl.policy.settings import ENCODER_NAMES
from tpsrl.training import loading
from tpsrl.training.settings import TrainingSettings

_DESCRIPTION = f"""Trains a skill by PPO in the apartments of the training split and validates it in
those of the validation split. Writes checkpoints/latest.safetensors (to resume),
checkpoints/best.safetensors (to evaluate), metrics.jsonl, curve.png, TensorBoard events and
config.yaml into the output folder.

init=CHECKPOINT starts from the weights of a policy of the same skill; see preset=fine_tune.
encoder=CHECKPOINT takes only the visual encoder, of a policy of any skill; frozen=true freezes it.

preset.policy.encoder=NAME selects the visual encoder:
{", ".join(ENCODER_NAMES)}.

SIGTERM and Ctrl-C save a checkpoint and stop, SIGUSR1 saves one and continues. `tpsrl train
resume=DIR` resumes a training with its own settings; further keys override them."""


def choose(word: str | None) -> Command:
    """Returns the command for a skill; the word may be missing with `resume`.

    Raises:
        UserError: there is no such skill; names the nearest.
    """
    command = Command(_DESCRIPTION, TrainingSettings, run, load=loading.training)
    return by_skill.of_skill(word, command)


def run(settings: TrainingSettings) -> int:
    """Trains; returns 0 when all steps are done, 128 + signal number when stopped."""
    from tpsrl.training.run import train

    return train(settings)
