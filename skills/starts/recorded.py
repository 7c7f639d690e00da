"""Starts that were recorded: exit states of the skill before, in a file."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

from skills.core.interface import SkillGoal
from skills.starts.start import Start
from tpsrl.errors import UserError
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
    starts = []
    for number, (snapshot, note) in load_noted_snapshots(path, "starts").items():
        try:
            goal = read_goal(note)
        except (KeyError, TypeError, ValueError):
            raise UserError(f"starts: {path} has no skill's goal for snapshot {number}") from None
        starts.append(Start(snapshot.episode, goal, snapshot))
    return starts


def read_goal(note: Any) -> SkillGoal:
    """The goal of `dataclasses.asdict`, after JSON.

    Raises:
        KeyError, TypeError, ValueError: it is none.
    """
    position = note["position"]
    if position is not None:
        x, y, z = (float(v) for v in position)
        position = (x, y, z)
    return SkillGoal(int(note["object"]), position, str(note["marker"]))
