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

_CACHE = "TPSRL_CACHE"  # environment variable with the cache folder
_WORTH_A_PROCESS = 12  # episodes; a process takes seconds to start

Progress = Callable[[int], None]
Tell = Callable[[str, int, int], None]  # task, number done, total number
Made = tuple[Episode, collections.Counter[str]]  # with the number of discarded drafts by reason


_tell: contextvars.ContextVar[Tell | None] = contextvars.ContextVar("tell", default=None)


@contextlib.contextmanager
def telling(tell: Tell) -> Iterator[None]:
    """Reports the progress of `load` to `tell` inside the block, at any call depth."""
    token = _tell.set(tell)
    try:
        yield
    finally:
        _tell.reset(token)


@contextlib.contextmanager
def shown(console: Console) -> Iterator[None]:
    """Shows a progress bar for each generation by `load` inside the block."""
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
    """Returns the first `num_episodes` episodes of a seed, from the cache or newly generated.

    The cache is one file per source (scenario, split, seed, number of objects) in
    `cache_folder()`. The file grows as more episodes are requested; a changed scenario has a new
    file.

    Args:
        scenario: a definition, or the name of a built-in scenario.
        split: "train", "val" or "rearranged".
        num_episodes: number of episodes to return.
        seed: at least 0.
        num_objects: objects in an episode.
        processes: worker processes for generation; all cores by default.

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
    """Returns `cache_folder()`, or a temporary folder if there is no home directory."""
    if os.environ.get(_CACHE):
        return cache_folder()
    try:
        return cache_folder()
    except UserError:
        return _writable_folder()


def _writable_folder() -> Path:
    """Returns the folder for new episodes: `cache_folder()`, else a temporary folder.

    Raises:
        UserError: the folder named by `TPSRL_CACHE` cannot be written, or, without this variable,
            neither the user's cache folder nor a temporary folder.
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
    why = "the user's cache folder is not writable"
    notes.say(f"episodes are cached in {folder}, since {why}; set {_CACHE} to another folder")


@contextlib.contextmanager
def _named() -> Iterator[None]:
    """Adds the advice to set `TPSRL_CACHE` to errors raised inside the block."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{error}; set {_CACHE} to a writable folder") from None


def _told(source: Source, count: int) -> Progress | None:
    """Reports the start of generation; returns the progress callback, None without a listener."""
    tell = _tell.get()
    if tell is None:
        return None
    what = f"generating {count} episodes of {source.scenario.name}, split {source.split}"
    tell(what, 0, count)
    return lambda done: tell(what, done, count)


def cache_folder() -> Path:
    """Returns the folder of generated episodes: `episodes` in $TPSRL_CACHE or ~/.cache/tpsrl.

    If the latter cannot be written, as in a container, new episodes go to a temporary folder.

    Raises:
        UserError: the path is invalid, or its home directory is unknown.
    """
    return files.user_path(os.environ.get(_CACHE) or "~/.cache/tpsrl", _CACHE) / "episodes"


def _cached(path: Path) -> list[Episode]:
    try:
        if not path.exists():
            return []
    except OSError:  # no permission to search the folder
        return []
    try:
        return load_episodes(path)
    except UserError as error:
        print(f"cache: generating the episodes again, since {error}", file=sys.stderr)
        return []


def generate(
    source: Source,
    indices: Iterable[int],
    processes: int | None = None,
    progress: Progress | None = None,
) -> tuple[list[Episode], collections.Counter[str]]:
    """Generates episodes of a source.

    Args:
        source: scenario, split, seed and number of objects.
        indices: the episodes of the source to generate.
        processes: worker processes, all cores by default; does not affect the result.
        progress: called with the number of episodes done.

    Returns:
        The episodes in the order of `indices`, and the number of discarded drafts by reason.

    Raises:
        UserError: a field of the source is out of range.
        RunError: an episode cannot be generated, or a process died.
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
    """Prepares a process; returns its function that generates one episode of the source."""

    source: Source

    def __call__(self) -> Callable[[int], Made]:
        slots = capacity_for(self.source.num_objects)
        simulator = tpsrl.sim.make(slots=slots, layout_set=self.source.layout_set)
        return lambda index: make_episode(
            self.source, index, lambda draft: settle(simulator, draft, HABITAT)
        )
