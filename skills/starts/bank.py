"""Banks of exit states: states in which skills ended within plans, to start other skills from.

A bank is a folder with one subfolder for each skill, such as `navigate/` for the exit states of
Navigate. Each of these contains

    index.json      contents, and the run that recorded them
    states.jsonl    one record for each state: episode, stage, next skill, success of this skill
    states_NNNN.npz the states (`tpsrl.sim.shards`), up to 256 in a file

States are read from their files on access, so a bank takes no memory in the processes that draw
from it. The index is written last, so an unfinished bank is not readable.
"""

import collections
import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from skills.core.interface import SkillGoal
from skills.starts.recorded import read_start
from skills.starts.start import Start
from tpsrl.errors import UserError, renamed, unknown
from tpsrl.runtime import files, records
from tpsrl.runtime.records import Count
from tpsrl.sim.base import Snapshot
from tpsrl.sim.shards import Shard, ShardWriter
from tpsrl.world.slots import CAPACITIES

Only = Literal["all", "succeeded", "failed"]
ONLY: tuple[Only, ...] = ("all", "succeeded", "failed")
INDEX, STATES = "index.json", "states.jsonl"
ALONG = "along"  # subfolder of states within runs
FORMAT = 1

_MEMORY = "memory."  # prefix of the names of a task's arrays
_SHARD = 256  # states in a file
_OPEN = 8  # maximum number of files that a bank keeps open


@dataclasses.dataclass(frozen=True, slots=True)
class ExitState:
    """Exit state of a skill within a plan, after the reset of the arm, before the next skill.

    `stage` and `next_stage` are the names of the two steps of the plan. `succeeded` is whether the
    skill succeeded by its own conditions. `goal` is the goal of the next skill.
    """

    skill: str
    stage: str
    succeeded: bool
    next_skill: str
    next_stage: str
    goal: SkillGoal
    snapshot: Snapshot

    def note(self) -> dict[str, Any]:
        """Returns all fields but the snapshot, as JSON types."""
        return {
            "episode": self.snapshot.episode.id,
            "skill": self.skill,
            "stage": self.stage,
            "succeeded": self.succeeded,
            "next_skill": self.next_skill,
            "next_stage": self.next_stage,
            "goal": dataclasses.asdict(self.goal),
        }


@dataclasses.dataclass(frozen=True, slots=True)
class StateAlong:
    """State of a home during a run of a skill, with the task's memory.

    `memory` has the arrays of `skills.core.state.TaskState.memory` by name. `step` is the number of
    control steps since the start of the run, `succeeded` whether the run ended in success.
    """

    skill: str
    goal: SkillGoal
    snapshot: Snapshot
    memory: Mapping[str, np.ndarray]
    step: int
    succeeded: bool = False

    @staticmethod
    def of(
        skill: str, goal: SkillGoal, snapshot: Snapshot, task: Mapping[str, np.ndarray], step: int
    ) -> "StateAlong":
        """Creates a state from a snapshot and the result `task` of `TaskState.to_arrays`."""
        memory = {k.removeprefix(_MEMORY): v for k, v in task.items() if k.startswith(_MEMORY)}
        return StateAlong(skill, goal, snapshot, memory, step)

    def note(self) -> dict[str, Any]:
        """Returns all fields but the snapshot, as JSON types."""
        return {
            "episode": self.snapshot.episode.id,
            "skill": self.skill,
            "stage": f"step {self.step}",
            "succeeded": self.succeeded,
            "next_skill": self.skill,
            "next_stage": "",
            "goal": dataclasses.asdict(self.goal),
            "memory": {name: values.tolist() for name, values in self.memory.items()},
        }


class BankWriter:
    """Writes the exit states of skills to a folder, which is a valid bank only after `finish`.

    Raises:
        UserError: the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._skills: dict[str, StatesWriter] = {}
        self._along: dict[str, StatesWriter] = {}

    def add(self, snapshot: Snapshot, note: Mapping[str, Any]) -> None:
        """Adds a state.

        Args:
            snapshot: snapshot of the home
            note: result of `ExitState.note` or `StateAlong.note`

        Raises:
            UserError: the folder cannot be written.
        """
        skill = note["skill"]
        within = "memory" in note
        writers = self._along if within else self._skills
        if skill not in writers:
            folder = self.folder / skill
            writers[skill] = StatesWriter(folder / ALONG if within else folder)
        writers[skill].add(snapshot, note)

    def finish(self, header: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Writes the indices and returns those of exit states, by skill.

        Args:
            header: entries about the run, added to each index

        Raises:
            UserError: the folder cannot be written.
        """
        for name, writer in self._along.items():
            writer.finish({**header, "skill": name})
        return {
            name: writer.finish({**header, "skill": name}) for name, writer in self._skills.items()
        }

    def close(self) -> None:
        """Closes the files; may be called repeatedly."""
        for writer in (*self._skills.values(), *self._along.values()):
            writer.close()


class StatesWriter:
    """Writes the states of one skill to a folder, which is readable only after `finish`.

    Raises:
        UserError: the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._records: list[dict[str, Any]] = []
        self._paths: list[Path] = []
        self._digest, self._engine = hashlib.sha256(), ""
        self._open = contextlib.ExitStack()
        self._shard: ShardWriter | None = None

    def add(self, snapshot: Snapshot, note: Mapping[str, Any]) -> None:
        """Adds a state by its snapshot and its note, with at least the keys of `ExitState.note`."""
        if self._shard is None or self._shard.count == _SHARD:
            self.close()
            path = self.folder / f"states_{len(self._paths):04d}.npz"
            self._shard = self._open.enter_context(ShardWriter(path))
            self._paths.append(path)
        self._engine = snapshot.engine
        self._digest.update(self._shard.add(snapshot, dict(note)))
        kept = ("episode", "stage", "succeeded", "next_skill", "next_stage")
        self._records.append({key: note[key] for key in kept})

    def finish(self, header: Mapping[str, Any]) -> dict[str, Any]:
        """Writes the index, with the entries of `header`, and returns it."""
        self.close()
        sizes = [path.stat().st_size for path in self._paths]
        shards = [
            {"file": path.name, "bytes": size}
            for path, size in zip(self._paths, sizes, strict=True)
        ]
        index = {
            "format": FORMAT,
            **header,
            "engine": self._engine,
            "states": len(self._records),
            "next": counts((r["next_skill"], r["succeeded"]) for r in self._records),
            "digest": self._digest.hexdigest()[:12],
            "shard_states": _SHARD,
            "shards": shards,
        }
        files.write_jsonl(self.folder / STATES, self._records)
        files.write_json(self.folder / INDEX, index)
        return index

    def close(self) -> None:
        """Closes the file that is being written; may be called repeatedly."""
        self._open.close()


@dataclasses.dataclass(frozen=True, slots=True)
class _File:
    """Entry of an index for one file of states."""

    file: Annotated[str, msgspec.Meta(max_length=255)]
    bytes: Count


@dataclasses.dataclass(frozen=True, slots=True)
class _Index:
    """Index of the states of a skill."""

    slots: Count
    num_objects: Count
    engine: str
    digest: str
    states: Count
    shard_states: Annotated[int, msgspec.Meta(ge=1)]
    shards: tuple[_File, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class _State:
    """Record of one state in `states.jsonl`."""

    next_skill: str
    succeeded: bool


class Bank(Sequence[Start]):
    """Start states of a skill: the exit states of another skill before it.

    `slots` is the number of slots for objects of the homes that the states fit into, `num_objects`
    the number of objects of their episodes. `engine` identifies engine and version
    (`tpsrl.sim.stamp`), `digest` the contents.

    Args:
        folder: folder of the skill that left the exit states, DIR/SKILL
        skill: skill to start from the states
        only: "succeeded" or "failed" for exit states of successful or failed runs, or "all"

    Raises:
        UserError: the folder is missing, is not a complete bank, or has no such state.
    """

    def __init__(self, folder: str | os.PathLike[str], skill: str, only: Only = "all") -> None:
        self.folder, self.skill, self.only = files.user_path(folder, "starts"), skill, only
        if only not in ONLY:
            raise unknown(f"starts: bank:{folder}", only, ONLY)
        self._read(_index(self.folder))
        self._open: collections.OrderedDict[str, Shard] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: Any) -> Any:
        """Returns the start state at an index, or a list of start states for a slice.

        Raises:
            UserError: the file of the state is damaged.
        """
        if isinstance(number, slice):
            return [self[row] for row in range(*number.indices(len(self)))]
        shard, row = divmod(self._rows[number], self._shard_states)
        name, where = self._names[shard], f"bank:{self.folder}"
        with renamed("snapshots", f"starts: {where}"):
            snapshot, note = self._shard(name).read(row)
        where = f"{where}: {name}: state {row}"
        if snapshot.engine != self.engine:
            raise UserError(
                f"starts: {where} has engine '{snapshot.engine}', {INDEX} has '{self.engine}'"
            )
        return read_start(snapshot, note.get("goal"), where, note.get("memory"))

    def __getstate__(self) -> dict[str, Any]:
        """Returns the attributes without open files, to be sent to other processes."""
        return {**self.__dict__, "_open": collections.OrderedDict()}

    def check_engine(self, stamp: str) -> None:
        """Checks that the states are of an engine, given by `tpsrl.sim.stamp`.

        Raises:
            UserError: the states are of another engine or version.
        """
        if self.engine != stamp:
            raise _wrong(
                self.folder,
                f"was recorded with engine '{self.engine}', "
                f"this one is '{stamp}'; record the bank again",
            )

    def close(self) -> None:
        """Closes the files, which are reopened on demand."""
        while self._open:
            self._open.popitem()[1].close()

    def _read(self, index: _Index) -> None:
        if index.slots not in CAPACITIES:
            valid = " or ".join(map(str, CAPACITIES))
            raise _wrong(self.folder, f"{INDEX}: slots: must be {valid}, got {index.slots}")
        if index.num_objects > index.slots:
            problem = f"must be at most {index.slots}, got {index.num_objects}"
            raise _wrong(self.folder, f"{INDEX}: num_objects: {problem}")
        if len(index.shards) != -(-index.states // index.shard_states):
            raise _wrong(
                self.folder,
                f"{INDEX}: {len(index.shards)} shards cannot contain {index.states} states",
            )
        self.slots, self.num_objects = index.slots, index.num_objects
        self.engine, self.digest = index.engine, index.digest
        self._shard_states = index.shard_states
        self._names = [shard.file for shard in index.shards]
        for shard in index.shards:
            self._check(self.folder / shard.file, shard.bytes)
        lines = _text(self.folder, STATES).splitlines()
        if len(lines) != index.states:
            raise _wrong(self.folder, f"{STATES} has {len(lines)} states, must have {index.states}")
        found = [
            records.read(line, _State, f"starts: bank:{self.folder}: {STATES}, line {number}")
            for number, line in enumerate(lines, start=1)
        ]
        self._rows = [row for row, state in enumerate(found) if self._wanted(state)]
        if not self._rows:
            self._refuse(counts((state.next_skill, state.succeeded) for state in found))

    def _check(self, path: Path, size: int) -> None:
        if path.parent != self.folder:
            raise _wrong(self.folder, f"{INDEX}: {path} is not in the folder")
        found = path.stat().st_size if path.is_file() else 0
        if found != size:
            raise _wrong(self.folder, f"{path.name} is incomplete ({found:,} of {size:,} bytes)")

    def _wanted(self, state: _State) -> bool:
        outcome = "succeeded" if state.succeeded else "failed"
        return state.next_skill == self.skill and self.only in ("all", outcome)

    def _refuse(self, found: Mapping[str, Mapping[str, int]]) -> None:
        text = ", ".join(f"{sum(n.values())} before {skill}" for skill, n in found.items())
        if self.skill in found:
            [(outcome, count)] = [(k, n) for k, n in found[self.skill].items() if n]
            raise _wrong(
                self.folder,
                f"no {self.only} states before '{self.skill}'; all {count} {outcome}",
            )
        raise _wrong(self.folder, f"no states before '{self.skill}'; it has {text or 'none'}")

    def _shard(self, name: str) -> Shard:
        """Returns the open file of a name, and closes the least recently used beyond `_OPEN`."""
        if name not in self._open:
            while len(self._open) >= _OPEN:
                self._open.popitem(last=False)[1].close()
            self._open[name] = Shard(self.folder / name)
        self._open.move_to_end(name)
        return self._open[name]


def counts(states: Iterable[tuple[str, bool]]) -> dict[str, dict[str, int]]:
    """Counts states by next skill, and by whether the skill before succeeded or failed.

    Args:
        states: pairs of the next skill and whether the skill before succeeded
    """
    found: dict[str, dict[str, int]] = {}
    for skill, succeeded in states:
        row = found.setdefault(skill, {"succeeded": 0, "failed": 0})
        row["succeeded" if succeeded else "failed"] += 1
    return dict(sorted(found.items()))


def _index(folder: Path) -> _Index:
    """Reads the index of a skill's states.

    Raises:
        UserError: the index is missing or invalid; the message suggests folders of states nearby.
    """
    path = folder / INDEX
    if path.is_file():
        where = f"starts: bank:{folder}: {INDEX}"
        index = records.read(_text(folder, INDEX), dict, where)
        if index.get("format") != FORMAT:
            raise _wrong(
                folder,
                f"has format {index.get('format')}, written by tpsrl "
                f"{index.get('version')}; this version reads {FORMAT}",
            )
        return records.decode(index, _Index, where)
    inside = _skills(folder)
    if inside:
        raise _wrong(
            folder,
            "is a bank of several skills; choose one of them: "
            + ", ".join(f"bank:{folder / name}" for name in inside),
        )
    beside = _skills(folder.parent)
    if beside:
        raise unknown(f"starts: bank:{folder}: exit states of a skill", folder.name, beside)
    problem = f"not a complete bank (no {INDEX})" if folder.is_dir() else "no such folder"
    raise _wrong(folder, f"{problem}")


def _wrong(folder: Path, problem: str) -> UserError:
    """Creates an error about a bank, prefixed with the setting that names the bank."""
    return UserError(f"starts: bank:{folder}: {problem}")


def _text(folder: Path, name: str) -> str:
    """Reads a text file of a bank.

    Raises:
        UserError: the file cannot be read.
    """
    try:
        return files.read_text(folder / name, files.MOST_DATA)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise _wrong(folder, f"no {name} ({why})") from None


def _skills(folder: Path) -> list[str]:
    """Returns the skills that a folder has exit states of."""
    return sorted(path.parent.name for path in folder.glob(f"*/{INDEX}"))
