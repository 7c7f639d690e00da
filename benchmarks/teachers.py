"""Training of a teacher from nothing, with and without recorded runs of the scripted robot.

    python -m benchmarks.teachers [skill=pick] [steps=4000000] [seeds=0,1,2] [runs=400]
        [episodes=200] [variants=clone,along,own] [processes=0] [threads=0] [out=out/teachers]

Trains a policy of the true state (preset teacher) with every seed: from a clone of recorded runs,
half of the starts along them (the preset as it is); from random weights with these starts; from
random weights and the skill's own starts. Existing results are not repeated, and stopped trainings
are resumed. Prints a table in Markdown of success over samples from validation starts, with sampled
actions, and of the mean action's success at the end; the minutes are those of one training with its
validations, without the recording.
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

NAMES = {
    "clone": "clone of recorded runs, half of the starts along them",
    "along": "random weights, half of the starts along recorded runs",
    "own": "random weights, own starts",
}
_WORDS = {"clone": [], "along": ["preset.clone=0"], "own": ["preset.along=0"]}
_COLUMNS = 4  # points of the curve


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the comparison."""

    skill: str = config.option("pick", "which one")
    steps: int = config.option(4_000_000, "samples of a training", minimum=1)
    seeds: str = config.option("0,1,2", "by commas")
    runs: int = config.option(400, "of the scripted robot to record", minimum=1)
    episodes: int = config.option(200, "of each validation and of the evaluation", minimum=2)
    variants: str = config.option(",".join(NAMES), "by commas")
    processes: int = config.option(0, "workers; 0: one for each core", minimum=0)
    threads: int = config.option(0, "of the network's arithmetic; 0: all cores", minimum=0)
    out: str = config.option("out/teachers", "folder of all runs")


@dataclasses.dataclass(frozen=True, slots=True)
class Teacher:
    """A training with one seed, in its own folder."""

    variant: str
    seed: int
    folder: Path

    def train(self, settings: Settings) -> None:
        """Starts or resumes the training, unless it is done."""
        rows = self.rows()
        if rows and rows[-1]["steps"] >= settings.steps:
            return
        if rows:
            run_tpsrl("train", f"resume={self.folder}", processes=settings.processes)
            return
        words = ["train", settings.skill, "preset=teacher", f"seed={self.seed}"]
        words += [f"preset.along={settings.runs}", *_WORDS[self.variant]]
        words += [f"preset.steps={settings.steps}"]
        words += [f"validate_every={settings.steps // _COLUMNS}", f"threads={settings.threads}"]
        words += [f"validation_episodes={settings.episodes}", f"out={self.folder}"]
        run_tpsrl(*words, processes=settings.processes)

    def rows(self) -> list[Mapping[str, Any]]:
        """Returns the training's metrics so far."""
        if not (self.folder / metrics.METRICS).is_file():
            return []
        return list(metrics.read(self.folder))

    def curve(self) -> list[float]:
        """Returns the success of its validations, in order."""
        return [row["validation"]["success"] for row in self.rows() if row.get("validation")]

    def minutes(self) -> float:
        return float(self.rows()[-1]["seconds"]) / 60.0

    def success(self, settings: Settings) -> float:
        """Returns the success rate of the mean action from starts not seen in training."""
        return mean_success(settings.skill, self.folder, settings.episodes, settings.processes)


def main(words: Sequence[str]) -> None:
    """Makes missing runs and prints the table."""
    settings = config.load(Settings, config.parse(words))
    variants = chosen(settings.variants, NAMES)
    seeds = [int(word) for word in settings.seeds.split(",")]
    at = [settings.steps * (column + 1) / _COLUMNS / 1e6 for column in range(_COLUMNS)]
    print(f"| starts | minutes | {' | '.join(f'{m:g} million' for m in at)} | mean action |")
    print("|---" * (_COLUMNS + 3) + "|")
    for variant in variants:
        row = [Teacher(variant, seed, Path(settings.out) / f"{variant}_{seed}") for seed in seeds]
        for teacher in row:
            teacher.train(settings)
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
