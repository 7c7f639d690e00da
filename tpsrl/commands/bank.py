"""`tpsrl bank`: records the exit states of every skill, as start states for others."""

from eval.settings import BankSettings
from tpsrl.commands import Command
from tpsrl.runtime import progress

_DESCRIPTION = """Runs the episodes of a scenario like `tpsrl eval` and saves the state at every
handoff: DIR/SKILL holds the states that SKILL left, with the next skill and its goal. `tpsrl train
pick start_states=bank:DIR/navigate` trains Pick from the states in which Navigate ends;
start_states=own:0.5,bank:DIR/navigate:0.5 mixes both. See docs/bank.md."""


def run(settings: BankSettings) -> int:
    """Records the bank; returns 0 when all episodes were run, whether or not they succeeded."""
    from rich.console import Console

    with progress.loading():
        from eval.running.bank import make_bank
        from tpsrl.sim import datasets

    console = Console()
    with datasets.shown(console):
        make_bank(settings, console)
    return 0


COMMAND = Command(_DESCRIPTION, BankSettings, run, positional=("scenario",))
