"""Memory of a student: LSTM, a map of heights around the base, or both.

    python -m benchmarks.memories [skill=pick] [teacher=pretrained] [steps=1000000] [seeds=0,1,2]
        [episodes=200] [variants=lstm,map,map_lstm] [processes=0] [threads=0] [out=out/memories]

Distils the teacher into a student of each kind with every seed, with the same number of steps, and
evaluates the mean action of each from held-out validation starts: once unchanged, and once with
depth and laser taken from another run. Existing results are not repeated. Prints the table in
Markdown; the minutes are those of one distillation with the given `processes` and `threads`.
"""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.variants import cells, chosen, mean_success, run_tpsrl
from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.rl.run import metrics

NAMES = {"lstm": "LSTM", "map": "map", "map_lstm": "map and LSTM"}
CHANGED = {
    "lstm": [],
    "map": ["height_map=true", "preset.policy.lstm_layers=0"],
    "map_lstm": ["height_map=true"],
}
BLINDS = ("", "depth,laser")


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the comparison."""

    skill: str = config.option("pick", "which one")
    teacher: str = config.option("pretrained", "who labels the states")
    steps: int = config.option(1_000_000, "samples of a distillation", minimum=1)
    seeds: str = config.option("0,1,2", "by commas")
    episodes: int = config.option(200, "of each evaluation", minimum=2)
    variants: str = config.option(",".join(NAMES), "by commas")
    processes: int = config.option(0, "workers; 0: one for each core", minimum=0)
    threads: int = config.option(0, "of the network's arithmetic; 0: all cores", minimum=0)
    out: str = config.option("out/memories", "folder of all runs")


@dataclasses.dataclass(frozen=True, slots=True)
class Student:
    """One kind of student with one seed, in its own folder."""

    variant: str
    seed: int
    folder: Path

    def distil(self, settings: Settings) -> None:
        """Starts or resumes the distillation, unless it is done."""
        rows = list(metrics.read(self.folder)) if self._begun else []
        if rows and rows[-1]["steps"] >= settings.steps:
            return
        words = ["distill", settings.skill, f"teacher={settings.teacher}", f"seed={self.seed}"]
        words += [f"preset.steps={settings.steps}", "validation_episodes=0", "sensors=fetch"]
        words += [*CHANGED[self.variant], f"threads={settings.threads}", f"out={self.folder}"]
        words += [f"resume={self.folder}"] if rows else []
        run_tpsrl(*words, processes=settings.processes)

    @property
    def _begun(self) -> bool:
        return (self.folder / metrics.METRICS).is_file()

    def minutes(self) -> float:
        return float([*metrics.read(self.folder)][-1]["seconds"]) / 60.0

    def success(self, blind: str, settings: Settings) -> float:
        """Returns the success rate, optionally with sensors of another run."""
        return mean_success(
            settings.skill, self.folder, settings.episodes, settings.processes, blind
        )


def main(words: Sequence[str]) -> None:
    """Makes missing runs and prints the table."""
    settings = config.load(Settings, config.parse(words))
    variants = chosen(settings.variants, NAMES)
    seeds = [int(word) for word in settings.seeds.split(",")]
    print("| remembers by | minutes | success | with depth and laser of another run |")
    print("|---|---|---|---|")
    for variant in variants:
        row = [Student(variant, seed, Path(settings.out) / f"{variant}_{seed}") for seed in seeds]
        for student in row:
            student.distil(settings)
        found = [cells([one.success(blind, settings) for one in row]) for blind in BLINDS]
        minutes = np.mean([one.minutes() for one in row])
        print(f"| {NAMES[variant]} | {minutes:.1f} | {' | '.join(found)} |", flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as error:
        print(f"memories: {error}", file=sys.stderr)
        sys.exit(2)
