"""Selection of the episodes of a run."""

import collections
import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence

from tpsrl.errors import UserError, unknown
from tpsrl.world.episode import Episode, read_episodes
from tpsrl.world.scenarios import Scenario

DEFAULT_COUNT = 20
_DIGITS = 8  # at most, of an episode number


@dataclasses.dataclass(frozen=True, slots=True)
class Selection:
    """Episodes of a run, and the episodes of the file that are not part of it.

    Attributes:
        episodes: to run
        left_out: number of episodes of each other scenario or split, by its name
        invalid: reason of each episode that cannot be run, by id or line
    """

    episodes: list[Episode]
    left_out: Mapping[str, int] = dataclasses.field(default_factory=dict)
    invalid: Mapping[str, str] = dataclasses.field(default_factory=dict)


def select(
    scenario: Scenario,
    split: str,
    seed: int,
    count: int | None,
    path: str | None,
    processes: int | None = None,
    one: str | None = None,
) -> Selection:
    """Selects the first episodes of a file or of the dataset generated from a seed.

    Args:
        scenario: of the episodes
        split: of the apartments
        seed: of the generated dataset
        count: number of episodes; None: the whole file, or the default number of generated ones
        path: file of episodes; None: generated ones
        processes: for the generation of episodes that are not cached; None: one per core
        one: id or number of a single episode to select

    Raises:
        UserError: the file is not readable, has no episode of the scenario and split, or has too
            few; or the single episode does not exist, or is combined with a `count` other than 1.
    """
    if one is not None:
        check_count_of_one(one, count)
        return Selection([_chosen(scenario, split, seed, path, one)])
    if path is None:
        from tpsrl.sim import datasets

        count = DEFAULT_COUNT if count is None else count
        return Selection(
            datasets.load(scenario, split, count, seed, scenario.num_objects, processes)
        )
    episodes, invalid = read_episodes(path)
    if not episodes and not invalid:
        raise UserError(f"episodes: {path} contains no episode")
    fitting, left_out = _fitting(episodes, scenario, split, path)
    if count is not None and len(fitting) < count:
        held = f"{len(fitting)} episodes" + (f" of split {split}" if left_out else "")
        raise UserError(f"episodes: {path} contains {held}, {count} requested")
    return Selection(fitting[:count], left_out, invalid)


def check_count_of_one(one: str, count: int | None) -> None:
    """Checks that no other number of episodes is requested together with a single episode.

    Raises:
        UserError: `count` is neither None nor 1.
    """
    if count not in (None, 1):
        raise UserError(f"num_episodes: episode={one} is one episode, {count} requested")


def obtain(
    scenario: Scenario,
    split: str,
    seed: int,
    count: int | None,
    path: str | None,
    processes: int | None = None,
    one: str | None = None,
) -> list[Episode]:
    """Returns the episodes of `select`, all of which must be valid.

    Raises:
        UserError: see `select`; or a record of the file is not an episode.
    """
    selection = select(scenario, split, seed, count, path, processes, one)
    for line, reason in selection.invalid.items():
        raise UserError(f"episodes: {path}, {line}: {reason}")
    return selection.episodes


def _fitting(
    episodes: Sequence[Episode], scenario: Scenario, split: str, path: str
) -> tuple[list[Episode], dict[str, int]]:
    """Returns the episodes of a scenario and split, and the number of others by scenario and split.

    Raises:
        UserError: there are only others.
    """
    fitting = [e for e in episodes if (e.scenario, e.split) == (scenario.name, split)]
    others = collections.Counter(f"{e.scenario}, split {e.split}" for e in episodes)
    del others[f"{scenario.name}, split {split}"]
    if episodes and not fitting:
        found = "; ".join(f"{count} of {what}" for what, count in sorted(others.items()))
        splits = sorted({e.split for e in episodes if e.scenario == scenario.name})
        advice = f"import it with scenario={scenario.name} to evaluate it under that scenario"
        if splits:
            advice = f"choose split={splits[0]}"
        raise UserError(
            f"episodes: {path} contains no episode of {scenario.name}, split {split}, but {found}"
            f"; {advice}"
        )
    return fitting, dict(sorted(others.items()))


def _chosen(scenario: Scenario, split: str, seed: int, path: str | None, one: str) -> Episode:
    """Returns the episode with an id or number."""
    if path is not None:
        episodes = obtain(scenario, split, seed, None, path)
        for number, episode in enumerate(episodes):
            if one in (episode.id, str(number)):
                return episode
        raise unknown("episode", one, [episode.id for episode in episodes])
    from tpsrl.sim import datasets
    from tpsrl.world.generator import Source

    source = Source(scenario, split, seed, scenario.num_objects)
    first = datasets.load(scenario, split, 1, seed, scenario.num_objects, 1)[0].id
    prefix = first.rstrip("0123456789")
    digits = one.removeprefix(prefix)
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS):
        raise UserError(f"episode: '{one}' is not in this dataset; its first is '{first}'")
    number = int(digits)
    return datasets.generate(source, range(number, number + 1), 1)[0][0]


def digest(episodes: Sequence[Episode]) -> str:
    """Returns twelve hex digits, equal for two runs if and only if they ran the same episodes."""
    text = json.dumps([episode.to_json() for episode in episodes], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
