"""How a teacher learns from nothing: from its own starts alone, and from starts along the way.

    python -m benchmarks.teachers [skill=pick] [steps=4000000] [seeds=0,1,2] [runs=400]
        [episodes=200] [variants=along,own] [processes=0] [threads=0] [out=out/teachers]

Trains a policy of the true state (preset teacher) with every seed, without demonstrations: from the
skill's own starts, and from a mixture half of which are states within recorded runs of the scripted
robot, which are made once. What is there already is not repeated, and a training that was stopped
goes on. Prints a table in Markdown of success over samples, by drawn actions from validation
starts, and of the mean action's at the end; the minutes are those of one training with its
validations.
"""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.variants import cells, chosen, mean_success, run_tpsrl
from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.rl.run import metrics

NAMES = {"along": "half of the starts along the way", "own": "own starts"}
_COLUMNS = 4  # of the curve


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """How much of each."""

    skill: str = config.option("pick", "which one")
    steps: int = config.option(4_000_000, "samples of a training", minimum=1)
    seeds: str = config.option("0,1,2", "by commas")
    runs: int = config.option(400, "of the scripted robot, to start within", minimum=1)
    episodes: int = config.option(200, "of each validation and of the evaluation", minimum=2)
    variants: str = config.option(",".join(NAMES), "by commas")
    processes: int = config.option(0, "workers; 0: one for each core", minimum=0)
    threads: int = config.option(0, "of the network's arithmetic; 0: all cores", minimum=0)
    out: str = config.option("out/teachers", "folder of all runs")


@dataclasses.dataclass(frozen=True, slots=True)
class Teacher:
    """A training with one seed, in a folder of its own."""

    variant: str
    seed: int
    folder: Path

    def train(self, settings: Settings, recorded: Path) -> None:
        """Goes on with its training where that is not done."""
        rows = self.rows()
        if rows and rows[-1]["steps"] >= settings.steps:
            return
        if rows:
            run_tpsrl("train", f"resume={self.folder}", processes=settings.processes)
            return
        own = {"own": "own", "along": f"own:0.25,rearranged:0.25,along:{recorded}:0.5"}
        words = ["train", settings.skill, "preset=teacher", f"seed={self.seed}"]
        words += [f"start_states={own[self.variant]}", f"preset.steps={settings.steps}"]
        words += [f"validate_every={settings.steps // _COLUMNS}", f"threads={settings.threads}"]
        words += [f"validation_episodes={settings.episodes}", f"out={self.folder}"]
        run_tpsrl(*words, processes=settings.processes)

    def rows(self) -> list[Mapping[str, Any]]:
        """The training's metrics so far."""
        if not (self.folder / metrics.METRICS).is_file():
            return []
        return list(metrics.read(self.folder))

    def curve(self) -> list[float]:
        """The success of its validations, in their order."""
        return [row["validation"]["success"] for row in self.rows() if row.get("validation")]

    def minutes(self) -> float:
        return float(self.rows()[-1]["seconds"]) / 60.0

    def success(self, settings: Settings) -> float:
        """How often its mean action succeeds from starts that the training has not seen."""
        return mean_success(settings.skill, self.folder, settings.episodes, settings.processes)


def record(settings: Settings) -> Path:
    """The folder of the scripted robot's runs, which are made where they are missing."""
    folder = Path(settings.out).absolute() / "runs"
    if not folder.exists():
        words = ["demos", settings.skill, "agent=scripted", "states=12", "camera=false"]
        words += [f"num={settings.runs}", "disturbed=0.3", f"out={folder}"]
        run_tpsrl(*words, processes=settings.processes)
    return folder


def main(words: Sequence[str]) -> None:
    """Runs what is missing and prints the table."""
    settings = config.load(Settings, config.parse(words))
    variants = chosen(settings.variants, NAMES)
    seeds = [int(word) for word in settings.seeds.split(",")]
    recorded = record(settings) if "along" in variants else Path()
    at = [settings.steps * (column + 1) / _COLUMNS / 1e6 for column in range(_COLUMNS)]
    print(f"| starts | minutes | {' | '.join(f'{m:g} million' for m in at)} | mean action |")
    print("|---" * (_COLUMNS + 3) + "|")
    for variant in variants:
        row = [Teacher(variant, seed, Path(settings.out) / f"{variant}_{seed}") for seed in seeds]
        for teacher in row:
            teacher.train(settings, recorded)
        curves = zip(*(teacher.curve() for teacher in row), strict=False)
        found = [cells(list(values)) for values in curves]
        found.append(cells([teacher.success(settings) for teacher in row]))
        minutes = np.mean([teacher.minutes() for teacher in row])
        print(f"| {NAMES[variant]} | {minutes:.1f} | {' | '.join(found)} |", flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as error:
        print(f"teachers: {error}", file=sys.stderr)
        sys.exit(2)
