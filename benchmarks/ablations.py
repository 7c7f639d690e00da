"""Ablation of Pick: base movement, collector, demonstrations and start distance.

    python -m benchmarks.ablations [steps=700000] [demos=700] [frames=1000000] [seeds=0,1,2]
        [episodes=100] [variants=rl,rl_still,rl_sync,warm] [processes=0] [threads=0]
        [out=out/ablations]

The variants, each trained with every seed on the training apartments alone:

- rl: `steps` samples of PPO by VER, preset cpu_fast, sensors=fetch;
- rl_still: the same without base movement (`base_movement=false`), the VER paper's ablation;
- rl_sync: the same with lock-step rollouts;
- warm: a policy cloned from `demos` demonstrations in `frames` frames.

Existing runs are not repeated. Each policy is then evaluated from held-out validation starts within
2 m of the object, as in training, and within 4 and 6 m. Prints the table in Markdown; the minutes
are those of one run without validations.
"""

import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.variants import cells, chosen, run_tpsrl
from skills import registry
from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.rl.run import metrics
from tpsrl.runtime import files

DISTANCES = (2, 4, 6)  # metres
HORIZON = 200
NAMES = {
    "rl": "PPO by VER",
    "rl_still": "PPO by VER, base held still",
    "rl_sync": "PPO by lock-step",
    "warm": "demonstrations, cloned",
}
CHANGED = {
    "rl": ["preset.collector=ver"],
    "rl_still": ["preset.collector=ver", "base_movement=false"],
    "rl_sync": ["preset.collector=sync"],
}


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the ablation."""

    steps: int = config.option(700_000, "samples of a training", minimum=1)
    demos: int = config.option(700, "demonstrations", minimum=1)
    frames: int = config.option(1_000_000, "that cloning goes through", minimum=1)
    seeds: str = config.option("0,1,2", "by commas")
    variants: str = config.option(",".join(NAMES), "by commas")
    episodes: int = config.option(100, "of each evaluation", minimum=1)
    processes: int = config.option(0, "workers; 0: one for each core", minimum=0)
    threads: int = config.option(0, "of the network's arithmetic; 0: all cores", minimum=0)
    out: str = config.option("out/ablations", "folder of all runs")


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """One variant with one seed; its files are in `folder`."""

    variant: str
    seed: int
    folder: Path

    @property
    def policy(self) -> Path:
        """Folder of the resulting policy."""
        return self.folder / "policy"

    def make(self, settings: Settings) -> None:
        """Trains or clones, and records the time taken."""
        note = self.folder / "minutes.json"
        if note.exists():
            return
        begun = time.perf_counter()
        for words in self._commands(settings):
            run_tpsrl(*words, f"seed={self.seed}", processes=settings.processes)
        minutes = (time.perf_counter() - begun) / 60.0
        files.write_json(note, {"minutes": minutes})

    def _commands(self, settings: Settings) -> list[list[str]]:
        if self.variant != "warm":
            words = ["train", "pick", "preset=cpu_fast", "sensors=fetch", f"task.horizon={HORIZON}"]
            words += [f"preset.steps={settings.steps}", "validation_episodes=0", "num_episodes=126"]
            words += [f"threads={settings.threads}"]
            return [[*words, *CHANGED[self.variant], f"out={self.policy}"]]
        demos = self.folder / "demos"
        record = ["demos", "pick", f"num={settings.demos}", f"horizon={HORIZON}", f"out={demos}"]
        clone = ["clone", "pick", f"demos={demos}", "sensors=fetch", f"frames={settings.frames}"]
        clone += ["validation_episodes=0", f"threads={settings.threads}", f"out={self.policy}"]
        return [record, clone]

    def minutes(self) -> float:
        return float(json.loads((self.folder / "minutes.json").read_text())["minutes"])

    def rate(self) -> float | None:
        """Returns the samples per second, learning included; None for a cloned policy."""
        if self.variant == "warm":
            return None
        return float(np.median([row["samples_per_s"] for row in metrics.read(self.policy)]))

    def picked(self) -> float | None:
        """Returns the share of episodes that pick the object, in a training's last quarter."""
        if self.variant == "warm":
            return None
        rows = [row for row in metrics.read(self.policy) if row["terms"]]
        once = registry.get("pick").load_settings().pick
        return float(np.mean([row["terms"]["pick"] / once for row in rows[-len(rows) // 4 :]]))

    def success(self, metres: int, settings: Settings) -> float:
        """Returns the success rate from starts within `metres` of the object."""
        out = self.folder / f"within_{metres}"
        if not (out / "report.json").exists():
            where = "own" if metres == DISTANCES[0] else f"near:{metres}"
            words = ["eval", "pick", f"agent={self.policy}", f"starts={where}", "num_objects=12"]
            run_tpsrl(
                *words,
                f"num_episodes={settings.episodes}",
                f"out={out}",
                processes=settings.processes,
            )
        return float(json.loads((out / "report.json").read_text())["success"]["mean"])


def main(words: Sequence[str]) -> None:
    """Makes missing runs and prints the table."""
    settings = config.load(Settings, config.parse(words))
    variants = chosen(settings.variants, NAMES)
    seeds = [int(word) for word in settings.seeds.split(",")]
    out = Path(settings.out)
    runs = {v: [Run(v, s, out / f"{v}_{s}") for s in seeds] for v in variants}
    for row in runs.values():
        for run in row:
            run.folder.mkdir(parents=True, exist_ok=True)
            run.make(settings)
    within = " | ".join(f"within {metres} m" for metres in DISTANCES)
    print(f"| | minutes | samples/s | picks it up, last quarter | {within} |")
    print("|---|---|---|---|" + "---|" * len(DISTANCES))
    for variant, row in runs.items():
        rates = [run.rate() for run in row]
        speed = "" if None in rates else f"{np.mean([r for r in rates if r is not None]):,.0f}"
        found = [cells([run.success(m, settings) for run in row]) for m in DISTANCES]
        minutes = np.mean([run.minutes() for run in row])
        picked = [share for share in (run.picked() for run in row) if share is not None]
        shown = [NAMES[variant], f"{minutes:.1f}", speed, cells(picked) if picked else "", *found]
        print(f"| {' | '.join(shown)} |", flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as error:
        print(f"ablations: {error}", file=sys.stderr)
        sys.exit(2)
