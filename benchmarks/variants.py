"""What benchmarks share that train variants of a policy with several seeds and print a table."""

import json
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

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


def mean_success(skill: str, folder: Path, episodes: int, processes: int, blind: str = "") -> float:
    """How often the mean action of a training's last policy succeeds from validation starts.

    With `blind` it is shown these sensors of another run. What is in the folder already is not made
    again.
    """
    policy = folder / "mean" / f"{skill}.safetensors"
    out = folder / f"eval{blind.replace(',', '_')}"
    if not policy.is_file():
        latest = folder / "checkpoints/latest.safetensors"
        words = ["export", skill, f"agent={latest}", "sample=false", f"out={policy.parent}"]
        run_tpsrl(*words, processes=0)
    if not (out / "report.json").exists():
        words = ["eval", skill, f"agent={policy}", f"num_episodes={episodes}", "num_objects=12"]
        words += [f"out={out}", *([f"blind={blind}"] if blind else [])]
        run_tpsrl(*words, processes=processes)
    return float(json.loads((out / "report.json").read_text())["success"]["mean"])


def cells(values: Sequence[float]) -> str:
    """The rate of each seed, and their mean."""
    return f"{', '.join(f'{v:.0%}' for v in values)}; **{np.mean(values):.1%}**"
