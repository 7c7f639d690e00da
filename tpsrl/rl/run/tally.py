"""Statistics of a training: finished episodes, and the time of an update by cause."""

import collections
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from tpsrl.rl.collection.collector import Collection
from tpsrl.rl.envs.vec_env import EpisodeStats, Json

_WINDOW = 100  # number of finished episodes over which means are taken


@dataclasses.dataclass(frozen=True, slots=True)
class Collected:
    """Statistics of a rank's rollout, for all ranks."""

    fresh: int
    episodes: list[EpisodeStats]
    lost: list[Json]

    @staticmethod
    def of(collection: Collection) -> "Collected":
        """Extracts the statistics of a collection."""
        lost = [
            {"envs": lost.envs.tolist(), "starts": list(lost.starts), "cause": lost.cause}
            for lost in collection.lost
        ]
        return Collected(collection.rollout.num_fresh, collection.episodes, lost)


class RecentEpisodes:
    """Success, return and length of the latest episodes."""

    def __init__(self) -> None:
        self._last: collections.deque[tuple[bool, float, int]] = collections.deque(maxlen=_WINDOW)

    def add(self, episodes: Iterable[EpisodeStats]) -> None:
        """Adds episodes."""
        self._last.extend((e.success, e.reward, e.steps) for e in episodes)

    def means(self) -> Json:
        """Returns the means over the episodes, None before the first."""
        if not self._last:
            return {"success": None, "return": None, "length": None}
        columns = [
            sum(map(float, column)) / len(self._last) for column in zip(*self._last, strict=True)
        ]
        return dict(zip(("success", "return", "length"), columns, strict=True))

    def state(self) -> list[tuple[bool, float, int]]:
        """Returns the state that `restore` takes, as JSON types."""
        return list(self._last)

    def restore(self, state: Iterable[Sequence[Any]]) -> None:
        """Continues from a `state`."""
        self._last.extend((bool(s), float(r), int(n)) for s, r, n in state)


def ends(episodes: Sequence[EpisodeStats]) -> Json:
    """Returns how the episodes of a rollout ended, and the mean sums of the reward terms."""
    if not episodes:
        return {"ended": {}, "terms": {}}
    ended = collections.Counter(episode.ended_by for episode in episodes)
    terms: collections.Counter[str] = collections.Counter()
    for episode in episodes:
        terms.update(episode.terms)
    return {
        "ended": dict(sorted(ended.items())),
        "terms": {name: value / len(episodes) for name, value in terms.items()},
    }


def spent(collection: Collection, learning: float, total: float) -> Json:
    """Returns the seconds of an update by cause."""
    rest = total - learning - sum(collection.seconds.values())
    seconds = {**collection.seconds, "learning": learning}
    seconds["other"] = seconds.get("other", 0.0) + rest
    return {name: round(value, 4) for name, value in seconds.items()}
