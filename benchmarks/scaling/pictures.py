"""Figures of benchmarks with several ranks."""

from pathlib import Path

import numpy as np

from tpsrl.rl.envs.vec_env import Json
from tpsrl.runtime import files


def draw_scaling(report: Json, path: Path) -> None:
    """Draws the speed per GPU over the number of GPUs, one panel per workload.

    This is figure 4 of DD-PPO divided by the number of GPUs.
    """
    from matplotlib.figure import Figure

    papers = report["papers"]["ddppo"]
    panels = {f"DD-PPO's benchmark, {name}": papers[name] for name in papers if name != "paper"}
    growing = report.get("simulated", {}).get("growing")
    if growing:
        panels["ranks like those of this machine"] = growing
    figure = Figure(figsize=(4.4 * len(panels), 4.0), layout="constrained", dpi=110)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (title, rows) in zip(axes, panels.items(), strict=True):
        sizes = next(iter(rows.values()))["ranks"]
        for name, row in rows.items():
            part = {key: np.divide(row[key], sizes) for key in ("speedup", "low", "high")}
            (line,) = axis.plot(sizes, part["speedup"], marker="o", markersize=3, label=name)
            axis.fill_between(sizes, part["low"], part["high"], alpha=0.15, color=line.get_color())
        if title.endswith(" homogeneous"):
            paper = {int(size): speed for size, speed in papers["paper"].items()}
            shown = [size for size in paper if size <= max(sizes)]
            axis.plot(shown, [paper[size] / size for size in shown], "k*", label="the paper")
        axis.axhline(1.0, color="0.6", linestyle=":")
        axis.set_xscale("log", base=2)
        axis.set_xticks(sizes, [str(size) for size in sizes])
        axis.set_ylim(0.0, None)
        axis.set_xlabel("GPUs" if "DD-PPO" in title else "ranks")
        axis.set_title(title)
    axes[0].set_ylabel("steps a second of each, to one alone")
    axes[0].legend(loc="lower left")
    with files.atomic(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:])
