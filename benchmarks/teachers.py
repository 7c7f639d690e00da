"""Training of a teacher without demonstrations, from its own starts or also from scripted runs.

    python -m benchmarks.teachers [skill=pick] [steps=4000000] [seeds=0,1,2] [runs=400]
        [episodes=200] [variants=along,own] [processes=0] [threads=0] [out=out/teachers]

Trains a policy of the true state (preset teacher) with every seed: from the skill's own starts, and
from a mixture of starts, half of which are states within runs of the scripted robot, recorded once.
Existing results are not repeated, and stopped trainings are resumed. Prints a table in Markdown of
success over samples from validation starts, with sampled actions, and of the mean action's success
at the end; the minutes are those of one training with its validations.
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
_COLUMNS = 4  # points of the curve


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the comparison."""

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
    """A training with one seed, in its own folder."""

    variant: str
    seed: int
    folder: Path

    def train(self, settings: Settings, recorded: Path) -> None:
        """Starts or resumes the training, unless it is done."""
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


def record(settings: Settings) -> Path:
    """Returns the folder of the scripted robot's runs, which are recorded if missing."""
    folder = Path(settings.out).absolute() / "runs"
    if not folder.exists():
        words = ["demos", settings.skill, "agent=scripted", "states=12", "camera=false"]
        words += [f"num={settings.runs}", "disturbed=0.3", f"out={folder}"]
        run_tpsrl(*words, processes=settings.processes)
    return folder


def main(words: Sequence[str]) -> None:
    """Makes missing runs and prints the table."""
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
