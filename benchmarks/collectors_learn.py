"""Success curves of the collectors over the same number of steps, with several seeds.

    python -m benchmarks.collectors_learn [STEPS] [OUT] [PICTURE]

Trains Navigate (preset cpu_state) with `sync`, `nover` and `ver` and three seeds each, one after
another; completed trainings are not repeated. Prints and draws the mean success of the last
training episodes and the 95% interval of the mean over seeds (Student's t).
"""

import subprocess
import sys
from pathlib import Path

import numpy as np

from tpsrl.rl.run import metrics

COLLECTORS, SEEDS = ("sync", "nover", "ver"), (0, 1, 2)
STUDENT_T = 4.303  # 97.5% quantile at two degrees of freedom
POINTS = 100  # of a curve
WINDOW = 8  # points averaged per training, each of 100 episodes


def train(collector: str, seed: int, steps: int, out: Path) -> list[dict]:
    """Runs or resumes a training; returns its metrics."""
    folder = out / f"{collector}{seed}"
    started = (folder / metrics.METRICS).exists()
    if not started or [*metrics.read(folder)][-1]["steps"] < steps:
        command = ["tpsrl", "train", "navigate", "preset=cpu_state", f"preset.steps={steps}"]
        command += [f"preset.collector={collector}", f"seed={seed}", f"out={folder}"]
        command += ["validation_episodes=0", f"resume={folder}" if started else ""]
        subprocess.run([part for part in command if part], check=True, stdout=subprocess.DEVNULL)
    return list(metrics.read(folder))


def main(steps: str = "400000", out: str = "out/learn", picture: str = "out/learn/curves.png"):
    """Runs missing trainings, prints a table in Markdown and draws the curves."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, PercentFormatter

    grid = np.linspace(0, int(steps), POINTS)
    figure = Figure(figsize=(7.0, 4.0), layout="constrained", dpi=120)
    axes = figure.subplots()
    print("| collector | success of each seed at the end | mean | 95% interval |")
    print("|---|---|---|---|")
    for number, collector in enumerate(COLLECTORS):
        curves = []
        for seed in SEEDS:
            rows = [r for r in train(collector, seed, int(steps), Path(out)) if r["success"]]
            curves.append(np.interp(grid, [r["steps"] for r in rows], [r["success"] for r in rows]))
        smooth = np.array([np.convolve(c, np.ones(WINDOW) / WINDOW, "valid") for c in curves])
        mean = smooth.mean(axis=0)
        half = STUDENT_T * smooth.std(axis=0, ddof=1) / np.sqrt(len(SEEDS))
        at = grid[WINDOW - 1 :]
        axes.plot(at, mean, color=f"C{number}", label=collector)
        axes.fill_between(at, mean - half, mean + half, color=f"C{number}", alpha=0.15, linewidth=0)
        each = ", ".join(f"{curve[-1]:.0%}" for curve in smooth)
        interval = f"{max(mean[-1] - half[-1], 0):.0%} to {min(mean[-1] + half[-1], 1):.0%}"
        print(f"| {collector} | {each} | {mean[-1]:.0%} | {interval} |", flush=True)
    axes.set_xlim(0, int(steps))
    axes.set_ylim(0, 1)
    axes.set_xlabel("steps")
    axes.set_ylabel("success in training")
    axes.set_title("Navigate: mean and 95% interval of three seeds", fontsize=10)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.grid(alpha=0.3)
    axes.legend()
    Path(picture).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture)


if __name__ == "__main__":
    main(*sys.argv[1:])
