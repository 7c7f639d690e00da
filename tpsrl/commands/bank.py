"""`tpsrl bank`: keeps the exit states of every skill, for others to start in."""

from eval.settings import BankSettings
from tpsrl import progress
from tpsrl.commands import Command

_DESCRIPTION = """Runs the episodes of a scenario as an evaluation does and keeps the state at every
handoff: DIR/SKILL has those that SKILL has left behind, each with the skill that came next and what
it was to do. `tpsrl train pick start_states=bank:DIR/navigate` trains Pick where Navigate leaves
it, start_states=own:0.5,bank:DIR/navigate:0.5 half of the time; see docs/bank.md."""


def run(settings: BankSettings) -> int:
    """Makes the bank; 0 when all episodes were run, whether or not they succeeded."""
    from rich.console import Console

    with progress.loading():
        from eval.running.bank import make_bank
        from tpsrl.sim import datasets

    console = Console()
    with datasets.shown(console):
        make_bank(settings, console)
    return 0


COMMAND = Command(_DESCRIPTION, BankSettings, run, positional=("scenario",))
