"""The episodes that a run is about."""

import collections
import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence

from tpsrl.errors import UserError, unknown
from tpsrl.world.episode import Episode, read_episodes
from tpsrl.world.scenarios import Scenario

DEFAULT_COUNT = 20
_DIGITS = 8  # of the number of an episode


@dataclasses.dataclass(frozen=True, slots=True)
class Selection:
    """The episodes of a run.

    Of those of a file that have no part in it, `left_out` counts the ones of other scenarios or
    splits, by what they are of. `invalid` has the reason of each that cannot be run, by its id or
    line.
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
    """The first `count` episodes: of a file (default: all), or of the set generated from the seed.

    Those that are not in the cache yet are made by so many `processes` (default: all cores). `one`
    is the id or the number of the only one that is wanted.

    Raises:
        UserError: the file is not readable, has no episode of the scenario and split, or too few;
            or there is no such episode, or more than the one are asked for.
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
        raise UserError(f"episodes: {path} holds no episode")
    fitting, left_out = _fitting(episodes, scenario, split, path)
    if count is not None and len(fitting) < count:
        held = f"{len(fitting)} episodes" + (f" of split {split}" if left_out else "")
        raise UserError(f"episodes: {path} holds {held}, {count} requested")
    return Selection(fitting[:count], left_out, invalid)


def check_count_of_one(one: str, count: int | None) -> None:
    """Refuses a number of episodes beside `episode=ONE`, which is one.

    Raises:
        UserError: more or fewer than one are asked for.
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
    """The episodes of `select`, of which all must be valid.

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
    """The episodes of a scenario and split, and how many of the others are of what.

    Raises:
        UserError: all are of others.
    """
    fitting = [e for e in episodes if (e.scenario, e.split) == (scenario.name, split)]
    others = collections.Counter(f"{e.scenario}, split {e.split}" for e in episodes)
    del others[f"{scenario.name}, split {split}"]
    if episodes and not fitting:
        found = "; ".join(f"{count} of {what}" for what, count in sorted(others.items()))
        splits = sorted({e.split for e in episodes if e.scenario == scenario.name})
        advice = f"choose split={splits[0]}"
        if not splits:
            advice = f"import it with scenario={scenario.name} to evaluate it as that"
        raise UserError(
            f"episodes: {path} holds no episode of {scenario.name}, split {split}, but {found}"
            f"; {advice}"
        )
    return fitting, dict(sorted(others.items()))


def _chosen(scenario: Scenario, split: str, seed: int, path: str | None, one: str) -> Episode:
    """The episode of an id or number."""
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
        raise UserError(f"episode: '{one}' is none of this dataset; its first is '{first}'")
    number = int(digits)
    return datasets.generate(source, range(number, number + 1), 1)[0][0]


def digest(episodes: Sequence[Episode]) -> str:
    """Twelve hex digits that two runs share if, and only if, they ran the same episodes."""
    text = json.dumps([episode.to_json() for episode in episodes], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
