"""Where an environment's episodes start: a skill's own distribution, a file, or a list."""

import os
from collections.abc import Sequence

import numpy as np

from skills.pointnav.starts import pointnav_start
from skills.registry import POINTNAV
from skills.starts.draw import BASE_EPISODES, Start, load_starts, start_episodes
from tpsrl.errors import UserError

_VARIANTS = 1000  # starts that are drawn of each base episode


class StartSource:
    """Starts by index, the same every time; with `starts` those of a file or list.

    Starts are made of `num_episodes` base episodes of the skill's dataset, which take a second each
    to make, once; beyond `BASE_EPISODES` indices draw other starts of the same ones.

    Raises:
        UserError: the file is absent, broken or empty, or a number is out of range.
    """

    def __init__(
        self,
        skill: str,
        starts: str | os.PathLike[str] | Sequence[Start] | None = None,
        *,
        split: str = "train",
        seed: int = 0,
        num_objects: int = 30,
        num_episodes: int = 63,
    ) -> None:
        if not 1 <= num_episodes <= BASE_EPISODES:
            raise UserError(
                f"num_episodes: {num_episodes} is out of range, "
                f"must be between 1 and {BASE_EPISODES}"
            )
        self._skill, self._split, self._seed = skill, split, seed
        self._num_objects, self._num_episodes = num_objects, num_episodes
        self._given: Sequence[Start] | None = None
        if isinstance(starts, str | os.PathLike):
            self._given = load_starts(starts)
        elif starts is not None:
            self._given = starts
        if self._given is not None and not self._given:
            raise UserError("starts: none given")

    def prepare(self, processes: int | None = None) -> None:
        """Makes the base episodes that are not in the cache yet, by so many processes (all cores).

        Raises:
            UserError, RunError: see `skills.starts.draw.start_episodes`.
        """
        if self._given is None and self._skill != POINTNAV:
            last = self._num_episodes - 1
            start_episodes(
                self._skill, [last], self._split, self._seed, self._num_objects, processes
            )

    def __getitem__(self, index: int) -> Start:
        """Start number `index`.

        Raises:
            UserError: it is negative, or a file or list has not so many.
        """
        if self._given is None and self._skill == POINTNAV:
            return pointnav_start(index, self._split, self._seed)
        if self._given is None:
            # New processes cannot be started from every script that makes an environment.
            return start_episodes(
                self._skill, [index], self._split, self._seed, self._num_objects, processes=1
            )[0]
        if not 0 <= index < len(self._given):
            raise UserError(
                f"start: {index} is out of range, must be between 0 and {len(self._given) - 1}"
            )
        return self._given[index]

    def draw(self, rng: np.random.Generator) -> tuple[int, Start]:
        """A start at random, after its index."""
        if self._given is not None:
            index = int(rng.integers(len(self._given)))
        else:
            base, variant = rng.integers([self._num_episodes, _VARIANTS])
            index = int(base + BASE_EPISODES * variant)
        return index, self[index]
