"""Sources of start states: a skill's own distribution, banks, a file, a list, or a mixture."""

import contextlib
import functools
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from skills import registry
from skills.starts import mixture
from skills.starts.bank import ALONG, Bank
from skills.starts.dataset import BASE_EPISODES, DatasetStarts, NoPoseError
from skills.starts.recorded import load_starts
from skills.starts.start import Start, check_sought, receptacle, told_where
from tpsrl import sim
from tpsrl.errors import UserError, unknown
from tpsrl.sim.base import Simulator
from tpsrl.world import rearranging

if TYPE_CHECKING:
    from skills.spec import SkillSpec

COUNT = 20  # default number of start states
_VARIANTS = 1000  # start states drawn from each base episode
_DRAWS = 10  # maximum number of draws until one has room for the robot


class StartStates(Protocol):
    """Distribution of start states; start state `index` does not depend on other draws.

    Episodes have `num_objects` loose objects by default.
    """

    @property
    def num_objects(self) -> int:
        """Default number of objects; 0 if episodes have none, whatever number is requested."""
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
        """Generates and caches the base episodes of the first `count` start states.

        Args:
            skill: spec of the skill
            count: number of start states
            split: split of the dataset
            seed: seed of the dataset
            num_objects: number of objects; None for the default
            processes: number of processes; None for all cores

        Raises:
            UserError: an argument is out of range.
            RunError: an episode cannot be generated.
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
        """Returns start states of a skill in the order of `indices`.

        See `prepare` for the other arguments.

        Raises:
            UserError: an argument is out of range.
            RunError: no valid start state was found after many tries.
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
    """Returns start states of a skill by its name; see `StartStates.obtain`."""
    spec = registry.get(skill)
    return spec.start_states().obtain(spec, indices, split, seed, num_objects, processes)


class StartSource:
    """Start states by index, reproducible.

    The skill's own start states are based on `num_episodes` base episodes of its dataset, which are
    generated once, in about a second each. Indices from `BASE_EPISODES` on give other start states
    of the same base episodes. In a mixture of k parts (`skills.starts.mixture`), start state i of
    part p has the index k i + p. `banks` are the banks of the parts.

    Args:
        skill: name of the skill
        starts: path of a file of `skills.starts.recorded.save_starts`, list of start states, or
            text of a mixture; None for the skill's own distribution
        split: split of the dataset
        seed: seed of the dataset
        num_objects: number of objects; None for the skill's default
        num_episodes: number of base episodes

    Raises:
        UserError: the file is missing, damaged or empty, a number is out of range, or the parts of
            a mixture do not fit into the same homes.
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
        self._states = self._skill.start_states()
        self._where = (split, seed, num_objects)
        self._num_episodes = num_episodes
        self._given: Sequence[Start] | None = None
        self._weights: np.ndarray | None = None  # cumulative weights of groups
        self._receptacle = ""
        self._parts: list[StartSource] = []
        self._labels = [mixture.OWN if starts is None else "given"]  # labels of the parts
        self.banks: list[Bank] = []
        if mixture.is_mixture(starts):
            starts = self._mix(mixture.parse(str(starts)))
        if isinstance(starts, str | os.PathLike):
            self._given = load_starts(starts)
        elif starts is not None:
            self._given = starts
        if self._given is not None and not self._given:
            raise UserError("starts: none given")

    def _mix(self, shares: Sequence[mixture.StartShare]) -> Sequence[Start] | None:
        """Sets up the parts of a mixture; returns the bank of a single part, or None."""
        name = self._skill.name
        if self._states.num_objects == 0 and any(share.rearranged for share in shares):
            raise UserError(f"start_states: {name} has no {mixture.REARRANGED} ones; nearest: own")
        banks = [_bank(share, name) for share in shares]
        self.banks = [bank for bank in banks if bank is not None]
        _check_homes(self.banks, self._own_objects() if None in banks else 0)
        self._labels = [mixture.label(share) for share in shares]
        states = [
            bank if bank is None or not share.receptacle else _About(bank, share.receptacle)
            for share, bank in zip(shares, banks, strict=True)
        ]
        if len(shares) == 1:
            if shares[0].within is not None:
                self._states = _within(self._skill, shares[0].within)
            if shares[0].rearranged:
                self._where = (rearranging.SPLIT, *self._where[1:])
            self._receptacle = shares[0].receptacle
            return states[0]
        self._proportions = mixture.proportions(shares)
        self._edges = np.cumsum(self._proportions[:-1])
        split, seed, num_objects = self._where
        self._parts = [
            StartSource(
                name,
                mixture.text_of(share) if given is None else given,
                split=split,
                seed=seed,
                num_objects=num_objects,
                num_episodes=self._num_episodes,
            )
            for share, given in zip(shares, states, strict=True)
        ]
        return None

    def _own_objects(self) -> int:
        own, wanted = self._states.num_objects, self._where[2]
        return own if own == 0 or wanted is None else wanted

    def slots(self, engine: str) -> int | None:
        """Returns the number of slots of the banks' homes, None without banks.

        Raises:
            UserError: the banks are not of this engine.
        """
        for bank in self.banks:
            bank.check_engine(sim.stamp(engine))
        return self.banks[0].slots if self.banks else None

    def prepare(self, processes: int | None = None) -> None:
        """Generates the base episodes that are not in the cache yet.

        Args:
            processes: number of processes; None for all cores

        Raises:
            UserError, RunError: see `StartStates.prepare`.
        """
        for part in self._parts:
            part.prepare(processes)
        if self._given is None and not self._parts:
            self._states.prepare(self._skill, self._num_episodes, *self._where, processes)

    @property
    def recorded(self) -> bool:
        """Whether any start state is a recorded snapshot."""
        return bool(self.banks) or any(start.snapshot for start in self._given or ())

    def check(self, simulator: Simulator) -> None:
        """Checks that recorded start states fit, by restoring them in the simulator's first home.

        Only the first state of a bank is checked.

        Raises:
            UserError: a start state does not fit.
        """
        for part in self._parts:
            part.check(simulator)
        if self._given is None:
            return
        lazy = isinstance(self._given, Bank | _About)  # States are read from files on access.
        for number in range(1 if lazy else len(self._given)):
            start = self[number]
            if start.snapshot is not None:
                with told_where(start):
                    simulator.restore(0, start.snapshot)

    def __getitem__(self, index: int) -> Start:
        """Returns start state `index`.

        Raises:
            UserError: `index` is out of range, or a recorded start state is damaged or lacks a goal
                that the skill needs.
        """
        if self._parts:
            row, part = divmod(index, len(self._parts))
            return self._parts[part][row]
        if self._given is None:
            # One process: scripts without a main guard cannot start new processes.
            return self._obtain([index], processes=1)[0]
        if not 0 <= index < len(self._given):
            raise UserError(
                f"start: {index} is out of range, must be between 0 and {len(self._given) - 1}"
            )
        start = self._given[index]
        with told_where(start):
            _check_needs(self._skill, start)
        return start

    def in_turn(self, index: int) -> Start:
        """Returns start state `index`; for a file, list or bank modulo its length."""
        return self[index if self._given is None else index % len(self._given)]

    @property
    def parts(self) -> tuple[tuple[str, int], ...]:
        """Labels of a mixture's parts, as text without weights, and their numbers of `groups`."""
        counts = [part.groups for part in self._parts or [self]]
        return tuple(zip(self._labels, counts, strict=True))

    @property
    def groups(self) -> int:
        """Number of groups of start states, each of which has a weight in `weigh`.

        The start states of one base episode form a group. In a file, list or bank, each start state
        is a group.
        """
        if self._parts:
            return sum(part.groups for part in self._parts)
        if self._given is not None:
            return len(self._given)
        return len(self._rows) if self._receptacle else self._num_episodes

    def group(self, index: int) -> int:
        """Returns the group of start state `index`."""
        if self._parts:
            row, part = divmod(index, len(self._parts))
            return sum(before.groups for before in self._parts[:part]) + self._parts[part].group(
                row
            )
        if self._given is not None:
            return index
        return index % (len(self._rows) if self._receptacle else BASE_EPISODES)

    def weigh(self, weights: np.ndarray) -> None:
        """Sets the weights (groups,) by which the groups of each part are drawn."""
        if self._parts:
            ends = np.cumsum([part.groups for part in self._parts])
            for part, own in zip(self._parts, np.split(weights, ends[:-1]), strict=True):
                part.weigh(own)
        else:
            self._weights = np.cumsum(weights)

    def draw(self, rng: np.random.Generator) -> tuple[int, Start]:
        """Draws a random start state and returns its index and the start state.

        If a start state has no room for the robot, another one is drawn.

        Raises:
            RunError: `_DRAWS` start states had no room for the robot.
        """
        for _ in range(_DRAWS - 1):
            with contextlib.suppress(NoPoseError):
                return self._draw(rng)
        return self._draw(rng)

    def _draw(self, rng: np.random.Generator) -> tuple[int, Start]:
        if self._parts:
            part = int(np.searchsorted(self._edges, rng.random(), "right"))
            row, start = self._parts[part]._draw(rng)
            return row * len(self._parts) + part, start
        if self._given is not None:
            index = self._draw_group(rng, 1)[0]
        else:
            period = len(self._rows) if self._receptacle else BASE_EPISODES
            base, variant = self._draw_group(rng, _VARIANTS)
            index = base + period * variant
        return index, self[index]

    def _draw_group(self, rng: np.random.Generator, variants: int) -> tuple[int, int]:
        """Draws a group by the weights, and one of `variants` variants."""
        if self._weights is None:
            if variants == 1:
                return int(rng.integers(self.groups)), 0
            base, variant = rng.integers([self.groups, variants])
            return int(base), int(variant)
        place = np.searchsorted(self._weights, rng.random() * self._weights[-1], "right")
        return min(int(place), self.groups - 1), int(rng.integers(variants))

    def first(self, count: int | None, processes: int | None = None) -> list[Start]:
        """Returns the first start states; for a mixture, the share of each part, part by part.

        Args:
            count: number of start states; None for all of a file, list or bank, and for `COUNT` of
                the skill's own distribution or a mixture
            processes: number of processes; None for all cores

        Raises:
            UserError: a file, list or bank has fewer start states.
            RunError: see `StartStates.obtain`.
        """
        if self._given is not None:
            count = len(self._given) if count is None else count
            if count > len(self._given):
                raise UserError(f"starts: {len(self._given)} given, {count} requested")
            return [self[number] for number in range(count)]
        count = COUNT if count is None else count
        if not self._parts:
            return self._obtain(range(count), processes)
        numbers = mixture.split(count, self._proportions)
        shares = zip(self._parts, numbers, strict=True)
        return [start for part, number in shares for start in part.first(number, processes)]

    @functools.cached_property
    def _rows(self) -> list[int]:
        """Indices of the base episodes whose start states are about the chosen receptacle."""
        self._states.prepare(self._skill, self._num_episodes, *self._where, processes=1)
        starts = {}
        for row in range(self._num_episodes):
            with contextlib.suppress(NoPoseError):
                (starts[row],) = self._states.obtain(self._skill, [row], *self._where, processes=1)
        rows = list(starts)
        return [rows[at] for at in _rows_about(list(starts.values()), self._receptacle)]

    def _obtain(self, indices: Iterable[int], processes: int | None) -> list[Start]:
        """Returns start states of the skill's own distribution.

        Indices count only start states about the chosen receptacle, if there is one.
        """
        if self._receptacle:
            # All start states of a base episode are about the same receptacle.
            pairs = [divmod(index, len(self._rows)) for index in indices]
            indices = [self._rows[row] + BASE_EPISODES * variant for variant, row in pairs]
        return self._states.obtain(self._skill, indices, *self._where, processes=processes)


def _bank(share: mixture.StartShare, skill: str) -> Bank | None:
    """Returns the bank of a part, None for the skill's own distribution."""
    if share.folder is None:
        return None
    folder = share.folder / ALONG if share.along else share.folder
    return Bank(folder, skill, share.only)


class _About(Sequence[Start]):
    """Start states of a bank that are about a receptacle."""

    def __init__(self, bank: Bank, about: str) -> None:
        self._bank, self._rows = bank, _rows_about(bank, about)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return [self._bank[row] for row in self._rows[number]]
        return self._bank[self._rows[number]]


def _rows_about(starts: Sequence[Start], about: str) -> list[int]:
    """Returns the indices of the start states that are about a receptacle.

    Raises:
        UserError: there are none.
    """
    found = [receptacle(start) for start in starts]
    if about not in found:
        raise unknown("start_states: starts about a receptacle", about, sorted({*found} - {""}))
    return [row for row, name in enumerate(found) if name == about]


def _check_needs(skill: "SkillSpec", start: Start) -> None:
    """Raises an error if a start state lacks a goal that the skill needs."""
    goal = start.goal
    has = {
        "object": goal.object >= 0,
        "position": goal.position is not None,
        "marker": bool(goal.marker),
    }
    for field, given in has.items():
        if field in skill.definition.needs and not given:
            raise UserError(f"goal.{field}: missing; {skill.name} needs it")
    check_sought(skill, start.episode)


def _within(skill: "SkillSpec", metres: float) -> StartStates:
    """Returns the skill's own start states with the robot within `metres`."""
    states = skill.start_states()
    near = states.within(metres) if isinstance(states, DatasetStarts) else None
    if near is None:
        raise UserError(f"starts: near:{metres:g} is not available for {skill.name}")
    return near


def _check_homes(banks: Sequence[Bank], own_objects: int) -> None:
    """Raises an error if banks and own start states need homes with different slots or engines.

    A snapshot fits only into homes with the same slots and engine.
    """
    for bank in banks:
        first = banks[0]
        if (bank.slots, bank.engine) != (first.slots, first.engine):
            raise UserError(
                f"starts: bank:{bank.folder} has homes of {bank.slots} objects in engine "
                f"{bank.engine}, {first.folder} of {first.slots} in engine {first.engine}"
            )
        if own_objects > bank.slots:
            raise UserError(
                f"num_objects: {own_objects} is out of range, must be at most {bank.slots} as in "
                f"the homes of {bank.folder}"
            )
