"""Starts that were recorded: exit states of the skill before, in a file."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from skills.core.interface import SkillGoal
from skills.starts.start import Start, check_goal, told_where
from tpsrl.errors import UserError
from tpsrl.runtime import records
from tpsrl.sim.base import Snapshot
from tpsrl.sim.snapshots import load_noted_snapshots, save_snapshots


def save_starts(path: str | os.PathLike[str], starts: Sequence[Start]) -> None:
    """Writes recorded starts as one `.npz` file of plain arrays. Atomic.

    Raises:
        UserError: a start has no snapshot, or the file cannot be written.
    """
    snapshots = {}
    for number, start in enumerate(starts):
        if start.snapshot is None:
            raise UserError(f"starts: number {number} has no snapshot; only recorded ones are kept")
        snapshots[number] = start.snapshot
    goals = {number: dataclasses.asdict(start.goal) for number, start in enumerate(starts)}
    save_snapshots(path, snapshots, goals)


def load_starts(path: str | os.PathLike[str]) -> list[Start]:
    """Reads what `save_starts` wrote.

    Raises:
        UserError: the file is absent or damaged, or it holds snapshots without goals.
    """
    found = load_noted_snapshots(path, "starts").items()
    return [
        read_start(snapshot, note, f"{path}: snapshot {number}")
        for number, (snapshot, note) in found
    ]


def read_start(snapshot: Snapshot, goal: Any, where: str, memory: Any = None) -> Start:
    """The start of a snapshot and of a goal of `dataclasses.asdict`, after JSON.

    `memory` is that of the task, lists by name, for a start within a run of the skill.

    Raises:
        UserError: one of them is damaged; says where they are from.
    """
    start = Start(snapshot.episode, SkillGoal(), snapshot, where=where)
    with told_where(start):
        of_skill = records.decode(goal, SkillGoal, "goal")
        start = dataclasses.replace(start, goal=of_skill, memory=_memory(memory))
        check_goal(start)
    return start


def _memory(record: Any) -> dict[str, np.ndarray] | None:
    if record is None:
        return None
    try:
        arrays = {name: np.array(values) for name, values in record.items()}
    except (AttributeError, TypeError, ValueError, OverflowError):
        raise UserError("memory: it is none of a task") from None
    for name, values in arrays.items():
        if values.dtype.kind not in "bif" or not np.isfinite(values).all():
            raise UserError(f"memory: {name} must be an array of finite numbers")
    return arrays
