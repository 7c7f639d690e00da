"""What benchmarks share that train variants of a policy with several seeds and print a table."""

import subprocess
import sys
from collections.abc import Collection, Sequence

import numpy as np

from tpsrl.errors import unknown


def chosen(text: str, names: Collection[str]) -> list[str]:
    """The variants that a text names, by commas.

    Raises:
        UserError: one is unknown; names the nearest.
    """
    variants = text.split(",")
    for variant in variants:
        if variant not in names:
            raise unknown("variants", variant, names)
    return variants


def run_tpsrl(*words: str, processes: int) -> None:
    """Runs a command of tpsrl without its output; 0 processes are its own default."""
    workers = [f"processes={processes}"] if processes else []
    command = [sys.executable, "-m", "tpsrl", *words, *workers]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def cells(values: Sequence[float]) -> str:
    """The rate of each seed, and their mean."""
    return f"{', '.join(f'{v:.0%}' for v in values)}; **{np.mean(values):.1%}**"
