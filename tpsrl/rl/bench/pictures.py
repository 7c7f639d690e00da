"""Pictures of benchmarks of several ranks."""

from pathlib import Path

from tpsrl import files
from tpsrl.rl.envs.vec_env import Json


def draw_scaling(report: Json, path: Path) -> None:
    """Speed over GPUs, a panel for each workload, the counterpart of figure 4 of DD-PPO."""
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
        axis.plot(sizes, sizes, ":", color="0.6", label="linear")
        for name, row in rows.items():
            (line,) = axis.plot(sizes, row["speedup"], marker="o", markersize=3, label=name)
            axis.fill_between(sizes, row["low"], row["high"], alpha=0.2, color=line.get_color())
        if title.endswith("homogeneous") and not title.endswith("heterogeneous"):
            paper = {int(size): speed for size, speed in papers["paper"].items()}
            shown = [size for size in paper if size <= max(sizes)]
            axis.plot(shown, [paper[size] for size in shown], "k*", label="the paper")
        axis.set_xscale("log", base=2)
        axis.set_yscale("log", base=2)
        axis.set_xticks(sizes, [str(size) for size in sizes])
        axis.set_yticks(sizes, [str(size) for size in sizes])
        axis.set_xlabel("GPUs" if "DD-PPO" in title else "ranks")
        axis.set_title(title)
    axes[0].set_ylabel("times the steps a second of one")
    axes[0].legend()
    with files.atomic(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:])
