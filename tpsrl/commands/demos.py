"""`tpsrl demos`: records demonstrations of a skill, to clone a policy from."""

from tpsrl.commands import Command, by_skill
from tpsrl.training import demos

_DESCRIPTION = """Records demonstrations of a skill in training apartments. The skill's demonstrator
acts, with random perturbations in a fraction of the episodes, and every state is stored with the
demonstrator's action. `tpsrl clone SKILL demos=DIR` trains a policy on them. See
docs/imitation.md."""


def choose(word: str | None) -> Command:
    """Returns the command for a skill.

    Raises:
        UserError: there is no such skill; names the nearest.
    """
    return by_skill.of_skill(word, Command(_DESCRIPTION, demos.DemosSettings, run))


def run(settings: demos.DemosSettings) -> int:
    """Records the demonstrations; returns 0 when all episodes were recorded, however they ended."""
    demos.record(settings)
    return 0
