"""SPL of PointNav over samples, on a logarithmic axis, beside the power law of DD-PPO's paper.

    python -m benchmarks.pointnav_curves runs=LABEL:DIR,LABEL:DIR [out=out/pointnav_curves.png]

DIR is the folder of a training of PointNav. SPL is the mean over the last 500 training episodes.

The paper (section 6) says that error over samples resembles a power law and that 90% of the peak
were reached after 100 million of 2.5 billion samples. The dotted line is the power law of the error
1 - SPL through these two points, with the paper's best SPL on Gibson (val), 0.969.

Prints the exponent of each training: that of a power law of the error, fitted to its second half.
"""

import collections
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.rl.run import metrics
from tpsrl.runtime import figures

EPISODES = 500  # over which SPL is averaged
PAPER = ((1e8, 0.9 * 0.969), (2.5e9, 0.969))  # samples and SPL

Curve = tuple[np.ndarray, np.ndarray]  # samples, SPL


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the figure."""

    runs: str = config.option("", "pairs LABEL:DIR, separated by commas")
    out: str = config.option("out/pointnav_curves.png", "the figure")


def read(folder: Path) -> Curve:
    """Returns the learning curve of a training.

    Raises:
        UserError: it has no SPL.
    """
    window: collections.deque[tuple[int, float]] = collections.deque()
    episodes, samples, spl = 0, [], []
    for row in metrics.read(folder):
        ended, found = sum(row["ended"].values()), row.get("metrics", {}).get("spl")
        if found is None:
            continue
        window.append((ended, found))
        episodes += ended
        while episodes - window[0][0] >= EPISODES:
            episodes -= window.popleft()[0]
        if episodes >= EPISODES:
            samples.append(row["steps"])
            spl.append(sum(n * each for n, each in window) / episodes)
    if len(samples) < 2:
        raise UserError(f"runs: {folder} has no SPL of {EPISODES} episodes")
    return np.array(samples, float), np.array(spl)


def exponent(curve: Curve) -> float:
    """Returns the exponent of a power law of 1 - SPL, fitted to a curve's second half."""
    samples, spl = (part[len(part) // 2 :] for part in curve)
    return float(np.polyfit(np.log(samples), np.log(np.maximum(1.0 - spl, 1e-6)), 1)[0])


def power_law(samples: np.ndarray) -> np.ndarray:
    """Returns the SPL of the paper's power law."""
    (first, low), (last, high) = PAPER
    power = np.log((1.0 - high) / (1.0 - low)) / np.log(last / first)
    return np.maximum(1.0 - (1.0 - low) * (samples / first) ** power, 0.0)


def draw(curves: dict[str, Curve], path: Path) -> None:
    """Draws the curves and the paper's power law."""
    figure = figures.figure(figsize=(7.6, 3.8), layout="constrained", dpi=110)
    axes = figure.subplots()
    for label, (samples, spl) in curves.items():
        axes.plot(samples, spl, label=label)
    samples = np.geomspace(3e6, PAPER[1][0], 100)
    label = "DD-PPO, RGB-D, Gibson: power law through two points"
    axes.plot(samples, power_law(samples), "k:", label=label)
    axes.plot(*np.transpose(PAPER), "ko", markersize=4)
    axes.set(xscale="log", xlabel="samples", ylabel=f"SPL, last {EPISODES} episodes", ylim=(0, 1))
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def main(words: Sequence[str]) -> int:
    """Draws the figure and prints the exponents."""
    try:
        settings = config.load(Settings, config.parse(words))
        pairs = [pair.partition(":") for pair in settings.runs.split(",")]
        if not all(label and folder for label, _, folder in pairs):
            raise UserError(f"runs: must be LABEL:DIR pairs, got '{settings.runs}'")
        curves = {label: read(Path(folder)) for label, _, folder in pairs}
    except UserError as error:
        print(f"benchmarks.pointnav_curves: {error}", file=sys.stderr)
        return 2
    draw(curves, Path(settings.out))
    for label, curve in curves.items():
        samples, spl = curve
        print(
            f"{label}: SPL {spl[-1]:.2f} after {samples[-1]:,.0f}, exponent {exponent(curve):.2f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
