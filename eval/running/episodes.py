"""The episodes that a run is about."""

import hashlib
import json
from collections.abc import Sequence

from tpsrl.errors import UserError
from tpsrl.world.episode import Episode, load_episodes
from tpsrl.world.scenarios import Scenario

DEFAULT_COUNT = 20


def obtain(
    scenario: Scenario,
    split: str,
    seed: int,
    count: int | None,
    path: str | None,
    processes: int | None = None,
) -> list[Episode]:
    """The first `count` episodes: of a file (default: all), or of the set generated from the seed.

    Those that are not in the cache yet are made by so many `processes` (default: all cores).

    Raises:
        UserError: the file is not readable, of another scenario or split, or holds too few.
    """
    if path is None:
        from tpsrl.sim import datasets

        count = DEFAULT_COUNT if count is None else count
        return datasets.load(scenario, split, count, seed, scenario.num_objects, processes)
    episodes = load_episodes(path)
    if not episodes:
        raise UserError(f"episodes: {path} holds no episode")
    if count is not None and len(episodes) < count:
        raise UserError(f"episodes: {path} holds {len(episodes)} episodes, {count} were asked for")
    for episode in episodes[:count]:
        if (episode.scenario, episode.split) != (scenario.name, split):
            found = f"{episode.scenario}, split {episode.split}"
            raise UserError(
                f"episodes: {path}: {episode.id} is of {found}, not {scenario.name}, {split}"
            )
    return episodes[:count]


def digest(episodes: Sequence[Episode]) -> str:
    """Twelve hex digits that two runs share if, and only if, they ran the same episodes."""
    text = json.dumps([episode.to_json() for episode in episodes], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
