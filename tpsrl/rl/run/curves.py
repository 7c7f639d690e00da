"""Pictures of how trainings went."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tpsrl import files
from tpsrl.rl.envs.vec_env import Json


def draw(path: Path, trainings: Mapping[str, Sequence[Json]], title: str = "") -> None:
    """Success over steps, of training (lines) and validation (dots), as PNG or SVG by the name.

    Args:
        path: of the picture
        trainings: their records by the name in the legend
        title: above it
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, PercentFormatter

    figure = Figure(figsize=(7.0, 4.0), layout="constrained", dpi=120)
    axes = figure.subplots()
    for number, (name, rows) in enumerate(trainings.items()):
        color = f"C{number}"
        known = [row for row in rows if row["success"] is not None]
        steps = np.array([row["steps"] for row in known])
        axes.plot(steps, [row["success"] for row in known], color=color, alpha=0.5, linewidth=1.0)
        held = [(row["steps"], row["validation"]["success"]) for row in rows if "validation" in row]
        axes.plot(
            [step for step, _ in held],
            [success for _, success in held],
            color=color,
            marker="o",
            markersize=4,
            label=name,
        )
    axes.set_ylim(0.0, 1.0)
    axes.set_xlim(left=0)
    axes.set_xlabel("steps")
    axes.set_ylabel("success: training (thin), validation (dots)")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid(alpha=0.3)
    if title:
        axes.set_title(title)
    if len(trainings) > 1:
        axes.legend()
    with files.atomic(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:])
