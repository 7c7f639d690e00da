"""Episodes on demand: generated, checked in the simulator, and kept in a cache."""

import collections
import contextlib
import contextvars
import dataclasses
import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from rich.console import Console

import tpsrl.sim
from tpsrl.errors import UserError
from tpsrl.runtime import files, machine, notes, pool, temporaries
from tpsrl.runtime import progress as progress_of
from tpsrl.sim.settle import HABITAT, settle
from tpsrl.world.episode import Episode, load_episodes, save_episodes
from tpsrl.world.generator import VERSION, Source, make_episode
from tpsrl.world.scenarios import Scenario, load_scenario
from tpsrl.world.slots import capacity_for

_CACHE = "TPSRL_CACHE"  # the variable that says where generated episodes are kept
_WORTH_A_PROCESS = 12  # episodes; a process takes seconds to start

Progress = Callable[[int], None]
Tell = Callable[[str, int, int], None]  # what is made, how many are done, of how many
Made = tuple[Episode, collections.Counter[str]]  # and the reasons why drafts were thrown away


_tell: contextvars.ContextVar[Tell | None] = contextvars.ContextVar("tell", default=None)


@contextlib.contextmanager
def telling(tell: Tell) -> Iterator[None]:
    """Within, it is told how far `load` is with what it has to make, however deep it is called."""
    token = _tell.set(tell)
    try:
        yield
    finally:
        _tell.reset(token)


@contextlib.contextmanager
def shown(console: Console) -> Iterator[None]:
    """Within, `load` shows how far it is with what it has to make."""
    with contextlib.ExitStack() as shown_now:
        bars: list[progress_of.Bar] = []

        def tell(what: str, done: int, count: int) -> None:
            if done == 0:
                bars.append(shown_now.enter_context(progress_of.Bar(console, what, count)))
            bars[-1].update(done)
            if done == count:
                shown_now.pop_all().close()

        with telling(tell):
            yield


def load(
    scenario: Scenario | str,
    split: str,
    num_episodes: int,
    seed: int = 0,
    num_objects: int = 30,
    processes: int | None = None,
) -> list[Episode]:
    """The first `num_episodes` episodes of a seed, from the cache or else made now.

    `scenario` is a definition or the name of one of ours. The cache is a file a source in
    `cache_folder()`, which grows when more are asked for; another definition has another file.

    Raises:
        UserError: an argument is out of range, or the cache cannot be written.
    """
    drawn = load_scenario(scenario) if isinstance(scenario, str) else scenario
    source = Source(drawn, split, seed, num_objects)
    source.check()
    key = f"{drawn.name}_{drawn.digest}_{split}_{seed}_{num_objects}_v{VERSION}"
    path = _usual_folder() / f"{key}.jsonl.gz"
    episodes = _cached(path)
    if len(episodes) < num_episodes:
        path = _writable_folder() / path.name
        episodes = max(episodes, _cached(path), key=len)
    if len(episodes) < num_episodes:
        missing = range(len(episodes), num_episodes)
        more, _ = generate(source, missing, processes, _told(source, len(missing)))
        episodes += more
        with _named():
            save_episodes(path, episodes)
    return episodes[:num_episodes]


def _usual_folder() -> Path:
    """`cache_folder`, or without a home the one among the temporary files."""
    if os.environ.get(_CACHE):
        return cache_folder()
    try:
        return cache_folder()
    except UserError:
        return _writable_folder()


def _writable_folder() -> Path:
    """Where new episodes are kept: `cache_folder`, or one among the temporary files.

    Raises:
        UserError: the folder that `TPSRL_CACHE` names, or any other, cannot be written.
    """
    try:
        return files.check_writable(cache_folder(), _CACHE)
    except UserError as error:
        with _named():
            if os.environ.get(_CACHE):
                raise
            try:
                folder = temporaries.lasting("tpsrl_cache")
            except OSError:
                raise error from None
        _say_where(folder)
        return folder


@functools.cache
def _say_where(folder: Path) -> None:
    why = "the user's cache folder cannot be written"
    notes.say(f"episodes are kept in {folder}, since {why}; set {_CACHE} to another folder")


@contextlib.contextmanager
def _named() -> Iterator[None]:
    """Has errors inside, of writing into the cache, say what moves it."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{error}; set {_CACHE} to a folder that can be written") from None


def _told(source: Source, count: int) -> Progress | None:
    """What tells of so many episodes of a source, told that none is done; None if nobody asks."""
    tell = _tell.get()
    if tell is None:
        return None
    what = f"making {count} episodes of {source.scenario.name}, split {source.split}"
    tell(what, 0, count)
    return lambda done: tell(what, done, count)


def cache_folder() -> Path:
    """Where generated datasets are kept: $TPSRL_CACHE, or ~/.cache/tpsrl.

    Where the latter cannot be written, as in a container, new ones are among the temporary files.

    Raises:
        UserError: it is no path, or there is no such home.
    """
    return files.user_path(os.environ.get(_CACHE) or "~/.cache/tpsrl", _CACHE) / "episodes"


def _cached(path: Path) -> list[Episode]:
    try:
        if not path.exists():
            return []
    except OSError:  # of a folder that must not be looked into
        return []
    try:
        return load_episodes(path)
    except UserError as error:
        print(f"cache: made anew, since {error}", file=sys.stderr)
        return []


def generate(
    source: Source,
    indices: Iterable[int],
    processes: int | None = None,
    progress: Progress | None = None,
) -> tuple[list[Episode], collections.Counter[str]]:
    """Episodes of a source, and how many drafts were thrown away for which reason.

    The result does not depend on `processes` (all cores by default); `progress` is called with
    the number of episodes done.

    Raises:
        UserError: the source is out of range.
        RunError: an episode cannot be made, or a process died.
    """
    source.check()
    indices = list(indices)
    workers = machine.cores() if processes is None else processes
    workers = max(1, min(workers, len(indices) // _WORTH_A_PROCESS))
    names = [f"episode {index}" for index in indices]
    done: dict[int, Made] = {}
    with contextlib.closing(pool.run(_Maker(source), indices, workers, names)) as work:
        for number, made in work:
            done[number] = made
            if progress is not None:
                progress(len(done))
    episodes, reasons = [], collections.Counter[str]()
    for number in range(len(indices)):
        episode, discarded = done[number]
        episodes.append(episode)
        reasons.update(discarded)
    return episodes, reasons


@dataclasses.dataclass(frozen=True, slots=True)
class _Maker:
    """Makes a process ready to generate episodes of a source."""

    source: Source

    def __call__(self) -> Callable[[int], Made]:
        slots = capacity_for(self.source.num_objects)
        simulator = tpsrl.sim.make(slots=slots, layout_set=self.source.layout_set)
        return lambda index: make_episode(
            self.source, index, lambda draft: settle(simulator, draft, HABITAT)
        )
