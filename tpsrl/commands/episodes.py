"""`tpsrl episodes`: generates and checks a dataset of episodes, or imports one."""

import collections
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from tpsrl import config
from tpsrl.commands import Command
from tpsrl.errors import RunError, UserError, one_line
from tpsrl.runtime import files, progress
from tpsrl.world.scenarios import Scenario, check_name

if TYPE_CHECKING:
    from tpsrl.world.episode import Episode

DESCRIPTION = """Generates episodes of a scenario, lets each settle in the simulator, checks it, and
writes them as one .jsonl.gz file. The same seed gives the same file. With import=FILE, imports the
episodes of a rearrangement dataset of habitat-lab (.json or .json.gz) instead."""

_IMPORT = "dataset of habitat-lab to import instead (allowed with: scenario, seed, out)"


@dataclasses.dataclass(frozen=True, slots=True)
class EpisodesSettings:
    """Settings of `tpsrl episodes` to generate a dataset."""

    scenario: Scenario = config.preset(
        "scenario", Scenario, None, "name or file of the scenario", files=True
    )
    split: Literal["train", "val", "rearranged"] = config.option(
        "val", "split of the apartments: train, val, or rearranged (train with furniture moved)"
    )
    num: int = config.option(100, "number of episodes", minimum=1, maximum=config.MOST_EPISODES)
    seed: int = config.option(0, "seed of episode generation", minimum=0)
    num_objects: int | None = config.option(
        None, "number of objects, targets included (default: the scenario's)", minimum=1
    )
    processes: int | None = config.option(
        None, "number of processes (default: all cores)", minimum=1, maximum=config.MOST_PROCESSES
    )
    out: str | None = config.option(
        None, "output file (default: out/episodes/SCENARIO_SPLIT_SEED.jsonl.gz)"
    )
    import_: str | None = config.option(None, _IMPORT)


@dataclasses.dataclass(frozen=True, slots=True)
class ImportSettings:
    """Settings of `tpsrl episodes` to import a dataset."""

    import_: str = config.option("", _IMPORT)
    scenario: str | None = config.option(
        None, "scenario of the imported episodes (default: inferred from their targets)"
    )
    seed: int = config.option(0, "seed of robot start poses missing in the file", minimum=0)
    out: str | None = config.option(None, "output file (default: out/episodes/FILE.jsonl.gz)")


def run(settings: EpisodesSettings | ImportSettings) -> int:
    """Generates or imports episodes, checks them, and writes them."""
    if isinstance(settings, ImportSettings):
        return _import(settings)
    progress.say(f"generating {settings.num} episodes of {settings.scenario.title}")
    from rich.console import Console

    from tpsrl.sim import datasets
    from tpsrl.world.episode import save_episodes
    from tpsrl.world.generator import Source

    name = settings.scenario.name
    num_objects = settings.num_objects or settings.scenario.num_objects
    source = Source(settings.scenario, settings.split, settings.seed, num_objects)
    source.check()
    default = f"out/episodes/{name}_{settings.split}_{settings.seed}.jsonl.gz"
    path = files.output_file(settings.out or default)
    with progress.Bar(Console(), "episodes", settings.num) as bar:
        bar.update(0)
        episodes, reasons = datasets.generate(
            source, range(settings.num), settings.processes, bar.update
        )
    save_episodes(path, episodes)
    _print_counts("rejected draws:", reasons)
    print(f"{len(episodes)} episodes in {path}")
    return 0


def _import(settings: ImportSettings) -> int:
    """Imports episodes of habitat-lab, and prints which ones were changed or left out.

    Raises:
        RunError: no episode can be used.
    """
    progress.say(f"reading {settings.import_}")
    from rich.console import Console

    from tpsrl.sim import importing
    from tpsrl.world import habitat
    from tpsrl.world.episode import save_episodes

    if settings.scenario is not None:
        check_name(settings.scenario, "scenario")
    source = files.user_path(settings.import_, "import")
    default = f"out/episodes/{source.name.split('.')[0]}.jsonl.gz"
    path = files.output_file(settings.out or default)
    if path.exists() and source.exists() and path.samefile(source):
        raise UserError(f"out: '{path}' is the imported file; choose another out")
    found = habitat.read(source, settings.scenario)
    total = len(found.drafts) + len(found.refused)
    with progress.Bar(Console(), "episodes", len(found.drafts)) as bar:
        bar.update(0)
        episodes, found = importing.settled(found, settings.seed, bar.update)
    print(f"objects' own frames: {found.frame}")
    _print_counts("changed:", found.changed)
    if found.refused:
        print("left out:")
    for name, reason in found.refused.items():
        print(f"  {one_line(f'{name}: {reason}')}")
    if not episodes:
        raise RunError(f"import: none of the {total} episodes of {source} can be used")
    save_episodes(path, episodes)
    sets = sorted({_kind(episode) for episode in episodes})
    print(f"{len(episodes)} of {total} episodes ({'; '.join(sets)}) in {path}")
    return 0


def _kind(episode: "Episode") -> str:
    """Describes the scenario, split and targets that an evaluation of an episode needs."""
    count = len(episode.targets)
    targets = f"{count} target{'s' if count > 1 else ''}"
    return f"{episode.scenario}, split {episode.split}, {targets}"


def _print_counts(title: str, counts: collections.Counter[str]) -> None:
    if not counts:
        return
    print(title)
    for what, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        print(f"{count:7d}  {one_line(what)}")


def _load(values: Mapping[str, Any]) -> Any:
    return config.load(ImportSettings if "import" in values else EpisodesSettings, values)


COMMAND = Command(DESCRIPTION, EpisodesSettings, run, positional=("scenario",), load=_load)
