"""Start states drawn from a dataset's episodes: the distributions of habitat-lab 0.3.3.

A start state is an episode of the skill's dataset, with the robot, the held object, and the door or
drawer placed as the skill's task requires. Start state `index` does not depend on the number of
start states drawn. habitat-lab accepts a colliding start after its last try; here every start state
is collision-free: the base's disc and the resting arm, with the held object, touch nothing.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from skills.core.interface import SkillGoal
from skills.spec import SkillSpec
from skills.starts.room import Draw
from skills.starts.start import Start
from tpsrl.errors import RunError, UserError
from tpsrl.sim import datasets
from tpsrl.world.episode import Episode
from tpsrl.world.generator import Source
from tpsrl.world.scenarios import load_scenario

BASE_EPISODES = 1008  # episodes of a dataset, 16 for each training layout; then they repeat
_TRIES = 200
_FEW, _BLOCK = 9, 63  # block sizes of generated episodes, the second if more than 63 are needed
_SEED = 20_000  # separates these draws from those of the datasets

_loaded: dict[tuple[Path, Source], list[Episode]] = {}


class NoPoseError(RunError):
    """Error of a start state: no collision-free pose of the robot was found near the goal."""


@dataclasses.dataclass(frozen=True, slots=True)
class DatasetStarts:
    """Start states on the episodes of a dataset; implements `skills.starts.source.StartStates`.

    Args:
        dataset: name of the scenario of the dataset
        draw: `draw(episode, rng)` prepares a start state and returns a `Draw`, which is called
            until it returns a collision-free one
        towards: `towards(episode, goal, rng)`, the same for a given goal, with doors, drawers and
            held object as in the episode
        draw_within: `draw_within(episode, rng, metres)`, as `draw` with the robot within this
            distance; None if the skill's start states do not depend on a distance
    """

    dataset: str
    draw: Callable[[Episode, np.random.Generator], Draw]
    towards: Callable[[Episode, SkillGoal, np.random.Generator], Draw] | None = None
    draw_within: Callable[[Episode, np.random.Generator, float], Draw] | None = None

    def within(self, metres: float) -> "DatasetStarts | None":
        """Returns a copy with the robot within `metres`, or None without `draw_within`."""
        draw = self.draw_within
        if draw is None:
            return None
        return dataclasses.replace(self, draw=lambda base, rng: draw(base, rng, metres))

    @property
    def num_objects(self) -> int:
        """Number of objects of the dataset's episodes."""
        return load_scenario(self.dataset).num_objects

    def prepare(
        self,
        skill: SkillSpec,
        count: int,
        split: str,
        seed: int = 0,
        num_objects: int | None = None,
        processes: int | None = None,
    ) -> None:
        """See `skills.starts.source.StartStates.prepare`."""
        self._base_episodes(self._source(split, seed, num_objects), count, processes)

    def obtain(
        self,
        skill: SkillSpec,
        indices: Iterable[int],
        split: str,
        seed: int = 0,
        num_objects: int | None = None,
        processes: int | None = None,
    ) -> list[Start]:
        """See `skills.starts.source.StartStates.obtain`."""
        indices = list(indices)
        if min(indices, default=0) < 0:
            raise UserError(f"index: must be at least 0, got {min(indices)}")
        source = self._source(split, seed, num_objects)
        rows = [index % BASE_EPISODES for index in indices]
        base = self._base_episodes(source, max(rows, default=-1) + 1, processes)
        pairs = zip(indices, rows, strict=True)
        return [self._start(skill, index, base[row]) for index, row in pairs]

    def _source(self, split: str, seed: int, num_objects: int | None) -> Source:
        count = self.num_objects if num_objects is None else num_objects
        return Source(load_scenario(self.dataset), split, seed, count)

    def _base_episodes(self, source: Source, count: int, processes: int | None) -> list[Episode]:
        """Returns at least the first `count` episodes, from memory or the cache, or generated."""
        source.check()
        key = (datasets.cache_folder(), source)
        if len(_loaded.get(key, ())) < count:
            size = _FEW if count <= _BLOCK else _BLOCK
            block = min(math.ceil(count / size) * size, BASE_EPISODES)
            _loaded[key] = datasets.load(
                source.scenario, source.split, block, source.seed, source.num_objects, processes
            )
        return _loaded.get(key, [])  # Nothing is loaded if `count` is 0.

    def _start(self, skill: SkillSpec, index: int, base: Episode) -> Start:
        # The base episode's id contains split, seed and number.
        words = (_SEED, skill.draw_seed, index, len(base.objects), *base.id.encode())
        draw = self.draw(base, np.random.default_rng(words))
        for attempt in range(_TRIES):
            start = draw(attempt)
            if start is not None:
                name = f"{skill.name}_{index:06d}_of_{base.id}"
                episode = dataclasses.replace(start.episode, id=name)
                return dataclasses.replace(start, episode=episode)
        raise NoPoseError(f"{skill.name}: start {index} on {base.id}: no free pose of the robot")
