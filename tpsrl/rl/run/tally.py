"""What a training counts: episodes that ended, and where the time of an update went."""

import collections
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from tpsrl.rl.collection.collector import Collection
from tpsrl.rl.envs.vec_env import EpisodeStats, Json

_WINDOW = 100  # finished episodes that success and return are means of


@dataclasses.dataclass(frozen=True, slots=True)
class Collected:
    """What a rank tells the others of its rollout."""

    fresh: int
    episodes: list[EpisodeStats]
    lost: list[Json]

    @staticmethod
    def of(collection: Collection) -> "Collected":
        """That of a rollout."""
        lost = [
            {"envs": lost.envs.tolist(), "starts": list(lost.starts), "cause": lost.cause}
            for lost in collection.lost
        ]
        return Collected(collection.rollout.num_fresh, collection.episodes, lost)


class RecentEpisodes:
    """Success, return and length of the episodes that ended last."""

    def __init__(self) -> None:
        self._last: collections.deque[tuple[bool, float, int]] = collections.deque(maxlen=_WINDOW)

    def add(self, episodes: Iterable[EpisodeStats]) -> None:
        """Further ones."""
        self._last.extend((e.success, e.reward, e.steps) for e in episodes)

    def means(self) -> Json:
        """Means over them, None before the first."""
        if not self._last:
            return {"success": None, "return": None, "length": None}
        columns = [
            sum(map(float, column)) / len(self._last) for column in zip(*self._last, strict=True)
        ]
        return dict(zip(("success", "return", "length"), columns, strict=True))

    def state(self) -> list[tuple[bool, float, int]]:
        """What `restore` takes, as JSON types."""
        return list(self._last)

    def restore(self, state: Iterable[Sequence[Any]]) -> None:
        """Goes on from there."""
        self._last.extend((bool(s), float(r), int(n)) for s, r, n in state)


def ends(episodes: Sequence[EpisodeStats]) -> Json:
    """How the episodes of a rollout ended, and the mean sums of the reward's terms."""
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
    """Seconds of an update by what they went into."""
    rest = total - learning - sum(collection.seconds.values())
    seconds = {**collection.seconds, "learning": learning}
    seconds["other"] = seconds.get("other", 0.0) + rest
    return {name: round(value, 4) for name, value in seconds.items()}
