"""`tpsrl episodes`: generates and checks a dataset."""

import collections
import dataclasses
import sys
from typing import Literal

from tpsrl import config, files
from tpsrl.commands import Command
from tpsrl.world.scenarios import Scenario

DESCRIPTION = """Generates episodes of a scenario, lets each settle in the simulator, checks it, and
writes them as one .jsonl.gz file. The same seed gives the same file."""


@dataclasses.dataclass(frozen=True, slots=True)
class EpisodesSettings:
    """Which episodes, how many, and where to."""

    scenario: Scenario = config.preset("scenario", Scenario, None, "what to do", files=True)
    split: Literal["train", "val"] = config.option("val", "apartments of training or validation")
    num: int = config.option(100, "how many episodes", minimum=1)
    seed: int = config.option(0, "of the generator", minimum=0)
    num_objects: int | None = config.option(
        None, "objects of an episode, targets included (default: the scenario's)", minimum=1
    )
    processes: int | None = config.option(None, "processes to use (default: all cores)", minimum=1)
    out: str | None = config.option(
        None, "file to write (default: out/episodes/SCENARIO_SPLIT_SEED.jsonl.gz)"
    )


def run(settings: EpisodesSettings) -> int:
    """Generates, checks and writes."""
    from pathlib import Path

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from tpsrl.sim import datasets
    from tpsrl.world.episode import save_episodes
    from tpsrl.world.generator import Source

    name = settings.scenario.name
    num_objects = settings.num_objects or settings.scenario.num_objects
    source = Source(settings.scenario, settings.split, settings.seed, num_objects)
    source.check()
    default = f"out/episodes/{name}_{settings.split}_{settings.seed}.jsonl.gz"
    path = Path(settings.out or default).expanduser()
    files.check_writable(path.parent)
    columns = (TextColumn("episodes"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, transient=True, disable=not sys.stdout.isatty()) as bar:
        task = bar.add_task("", total=settings.num)
        episodes, reasons = datasets.generate(
            source,
            range(settings.num),
            settings.processes,
            lambda done: bar.update(task, completed=done),
        )
    save_episodes(path, episodes)
    _print_reasons(reasons)
    print(f"{len(episodes)} episodes in {path}")
    return 0


def _print_reasons(reasons: collections.Counter[str]) -> None:
    if not reasons:
        return
    print("drawn again:")
    for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0])):
        print(f"{count:7d}  {reason}")


COMMAND = Command(DESCRIPTION, EpisodesSettings, run, positional=("scenario",))
