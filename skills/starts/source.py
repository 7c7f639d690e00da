"""Where an environment's episodes start: a skill's own distribution, a file, or a list."""

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from skills import registry
from skills.starts.dataset import BASE_EPISODES
from skills.starts.recorded import load_starts
from skills.starts.start import Start
from tpsrl.errors import UserError

if TYPE_CHECKING:
    from skills.spec import SkillSpec

_VARIANTS = 1000  # starts that are drawn of each base episode


class StartStates(Protocol):
    """A distribution of start states; start `index` is the same whatever others are drawn.

    Episodes have `num_objects` loose objects unless another number is asked for.
    """

    @property
    def num_objects(self) -> int:
        """Objects of an episode; 0: there are none, and asking for another number means nothing."""
        ...

    def prepare(
        self,
        skill: "SkillSpec",
        count: int,
        split: str,
        seed: int = 0,
        num_objects: int | None = None,
        processes: int | None = None,
    ) -> None:
        """Makes what the first `count` starts need and what takes long, by so many processes.

        Raises:
            UserError: an argument is out of range.
            RunError: an episode cannot be made.
        """
        ...

    def obtain(
        self,
        skill: "SkillSpec",
        indices: Iterable[int],
        split: str,
        seed: int = 0,
        num_objects: int | None = None,
        processes: int | None = None,
    ) -> list[Start]:
        """Starts of a skill, in the order of `indices`.

        Raises:
            UserError: an argument is out of range.
            RunError: no start and goal were good after many tries.
        """
        ...


def start_episodes(
    skill: str,
    indices: Iterable[int],
    split: str,
    seed: int = 0,
    num_objects: int | None = None,
    processes: int | None = None,
) -> list[Start]:
    """Starts of a skill by its name, see `StartStates.obtain`."""
    spec = registry.get(skill)
    return spec.start_states().obtain(spec, indices, split, seed, num_objects, processes)


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
        num_objects: int | None = None,
        num_episodes: int = 63,
    ) -> None:
        if not 1 <= num_episodes <= BASE_EPISODES:
            raise UserError(
                f"num_episodes: {num_episodes} is out of range, "
                f"must be between 1 and {BASE_EPISODES}"
            )
        self._skill = registry.get(skill)
        self._where = (split, seed, num_objects)
        self._num_episodes = num_episodes
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
            UserError, RunError: see `StartStates.prepare`.
        """
        if self._given is None:
            states = self._skill.start_states()
            states.prepare(self._skill, self._num_episodes, *self._where, processes)

    def __getitem__(self, index: int) -> Start:
        """Start number `index`.

        Raises:
            UserError: it is negative, or a file or list has not so many.
        """
        if self._given is None:
            # New processes cannot be started from every script that makes an environment.
            states = self._skill.start_states()
            return states.obtain(self._skill, [index], *self._where, processes=1)[0]
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
