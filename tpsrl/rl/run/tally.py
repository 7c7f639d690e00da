"""Statistics of a training: finished episodes, and the time of an update by cause."""

import collections
import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
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
    """Returns how the episodes of a rollout ended, and means of reward terms and metrics."""
    ended = collections.Counter(episode.ended_by for episode in episodes)
    found: Json = {
        "ended": dict(sorted(ended.items())),
        "terms": means(episode.terms for episode in episodes),
    }
    metrics = means(episode.metrics for episode in episodes)
    return found | ({"metrics": metrics} if metrics else {})


def means(numbers: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Returns the means of numbers by name, over the rows in which they are there and finite."""
    found: dict[str, list[float]] = {}
    for row in numbers:
        for name, value in row.items():
            if math.isfinite(value):  # The SPL of a goal that cannot be reached is not.
                found.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in found.items()}


def spent(collection: Collection, learning: float, total: float) -> Json:
    """Returns the seconds of an update by cause."""
    rest = total - learning - sum(collection.seconds.values())
    seconds = {**collection.seconds, "learning": learning}
    seconds["other"] = seconds.get("other", 0.0) + rest
    return {name: round(value, 4) for name, value in seconds.items()}
