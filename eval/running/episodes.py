"""The episodes that a run is about."""

import hashlib
import json
from collections.abc import Sequence

from tpsrl.errors import UserError, unknown
from tpsrl.world.episode import Episode, load_episodes
from tpsrl.world.scenarios import Scenario

DEFAULT_COUNT = 20
_DIGITS = 8  # of the number of an episode


def obtain(
    scenario: Scenario,
    split: str,
    seed: int,
    count: int | None,
    path: str | None,
    processes: int | None = None,
    one: str | None = None,
) -> list[Episode]:
    """The first `count` episodes: of a file (default: all), or of the set generated from the seed.

    Those that are not in the cache yet are made by so many `processes` (default: all cores). `one`
    is the id or the number of the only one that is wanted.

    Raises:
        UserError: the file is not readable, of another scenario or split, or holds too few; or
            there is no such episode, or more than the one are asked for.
    """
    if one is not None:
        if count not in (None, 1):
            raise UserError(f"num_episodes: episode={one} is one episode, {count} requested")
        return [_chosen(scenario, split, seed, path, one)]
    if path is None:
        from tpsrl.sim import datasets

        count = DEFAULT_COUNT if count is None else count
        return datasets.load(scenario, split, count, seed, scenario.num_objects, processes)
    episodes = load_episodes(path)
    if not episodes:
        raise UserError(f"episodes: {path} holds no episode")
    if count is not None and len(episodes) < count:
        raise UserError(f"episodes: {path} holds {len(episodes)} episodes, {count} requested")
    for episode in episodes[:count]:
        if (episode.scenario, episode.split) != (scenario.name, split):
            found = f"{episode.scenario}, split {episode.split}"
            raise UserError(
                f"episodes: {path}: {episode.id} is of {found}, not {scenario.name}, {split}"
            )
    return episodes[:count]


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
