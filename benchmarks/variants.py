"""Shared parts of benchmarks that train variants of a policy with several seeds."""

import json
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from tpsrl.errors import unknown


def chosen(text: str, names: Collection[str]) -> list[str]:
    """Parses a comma-separated list of variants.

    Raises:
        UserError: a variant is unknown; the message has the nearest name.
    """
    variants = text.split(",")
    for variant in variants:
        if variant not in names:
            raise unknown("variants", variant, names)
    return variants


def run_tpsrl(*words: str, processes: int) -> None:
    """Runs a tpsrl command without output; 0 processes means the command's default."""
    workers = [f"processes={processes}"] if processes else []
    command = [sys.executable, "-m", "tpsrl", *words, *workers]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def mean_success(skill: str, folder: Path, episodes: int, processes: int, blind: str = "") -> float:
    """Returns the success rate of the mean action of a training's last policy.

    Episodes start from validation starts. With `blind`, these sensors are taken from another run.
    Existing results are reused.
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
    """Returns a table cell: the rate of each seed, and their mean."""
    return f"{', '.join(f'{v:.0%}' for v in values)}; **{np.mean(values):.1%}**"
