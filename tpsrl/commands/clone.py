"""`tpsrl clone`: trains a policy on demonstrations of a skill."""

from tpsrl.commands import Command, by_skill
from tpsrl.training import cloning

_DESCRIPTION = """Trains a policy on demonstrations (behaviour cloning). With rounds=N the policy
acts N times in between and the demonstrator labels the states it visits (DAgger). Writes
checkpoints/best.safetensors, metrics.jsonl, curve.png and config.yaml into the output folder.
`tpsrl train SKILL init=DIR` continues from the result by PPO. See docs/imitation.md."""


def choose(word: str | None) -> Command:
    """Returns the command for a skill.

    Raises:
        UserError: there is no such skill; names the nearest.
    """
    return by_skill.of_skill(word, Command(_DESCRIPTION, cloning.CloneSettings, run))


def run(settings: cloning.CloneSettings) -> int:
    """Trains on demonstrations; returns 0 after all frames."""
    cloning.clone(settings)
    return 0
