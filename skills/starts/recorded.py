"""Recorded start states: exit states of the previous skill, in a file."""

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
    """Writes recorded start states atomically to one `.npz` file of plain arrays.

    Raises:
        UserError: a start state has no snapshot, or the file cannot be written.
    """
    snapshots = {}
    for number, start in enumerate(starts):
        if start.snapshot is None:
            raise UserError(
                f"starts: number {number} has no snapshot; only recorded starts can be saved"
            )
        snapshots[number] = start.snapshot
    goals = {number: dataclasses.asdict(start.goal) for number, start in enumerate(starts)}
    save_snapshots(path, snapshots, goals)


def load_starts(path: str | os.PathLike[str]) -> list[Start]:
    """Reads the start states in a file of `save_starts`.

    Raises:
        UserError: the file is missing or damaged, or has snapshots without goals.
    """
    found = load_noted_snapshots(path, "starts").items()
    return [
        read_start(snapshot, note, f"{path}: snapshot {number}")
        for number, (snapshot, note) in found
    ]


def read_start(snapshot: Snapshot, goal: Any, where: str, memory: Any = None) -> Start:
    """Decodes a recorded start state.

    Args:
        snapshot: snapshot of the home
        goal: JSON record of the goal, written from `dataclasses.asdict`
        where: origin of the record, for error messages
        memory: memory of the task, lists by name, for a start state within a run of the skill

    Raises:
        UserError: goal or memory is damaged; the message contains `where`.
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
        raise UserError("memory: not the memory of a task") from None
    for name, values in arrays.items():
        if values.dtype.kind not in "bif" or not np.isfinite(values).all():
            raise UserError(f"memory: {name} must be an array of finite numbers")
    return arrays
