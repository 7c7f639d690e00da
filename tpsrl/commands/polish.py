"""`tpsrl polish`: trains the skills of a chain from the states at their handoffs."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from tpsrl import config
from tpsrl.commands import Command
from tpsrl.training import polishing
from tpsrl.training.polishing import PolishSettings

_DESCRIPTION = """Improves a chain of learned skills in rounds. A round evaluates the scenarios with
a handoff analysis, records the states in which each skill begins (`tpsrl bank`), distils a skill
from its teacher with these among its start states, and keeps the new policy if it succeeds more
often from such states in validation apartments. At the end the chain is evaluated again, and the
predicted and measured gains are printed. Every command is printed; the same call continues after an
interruption. Writes polish.json, which names the policies. See docs/bank.md#rounds."""


def load(values: Mapping[str, Any]) -> PolishSettings:
    """Loads the settings, with all given scenarios in `scenario`, in their order.

    Raises:
        UserError: a setting is not valid.
    """
    rest = {key: value for key, value in values.items() if key != "scenario"}
    named = tuple(dict.fromkeys(filter(None, values.get("scenario", ()))))
    settings = dataclasses.replace(config.load(PolishSettings, rest), scenario=named)
    polishing.check(settings)
    return settings


def run(settings: PolishSettings) -> int:
    """Runs the rounds and prints their tables."""
    rounds = polishing.polish(settings)
    print(polishing.table(rounds))
    return 0


COMMAND = Command(_DESCRIPTION, PolishSettings, run, load=load, repeated="scenario")
