"""Files of simulator snapshots: plain arrays, no pickle."""

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tpsrl.errors import UserError
from tpsrl.runtime import files, records
from tpsrl.runtime.records import Count
from tpsrl.sim.base import Snapshot
from tpsrl.world.episode import Episode

Note = dict[str, Any]  # JSON types


@dataclasses.dataclass(frozen=True, slots=True)
class SnapshotHeader:
    """Header of a snapshot in a file.

    In a shard, `arrays` are name, dtype and shape of each array; else `arrays` is empty.
    """

    engine: str
    episode: Any
    note: Note | None = None
    arrays: tuple[tuple[str, str, tuple[Count, ...]], ...] = ()

    def snapshot(self, arrays: dict[str, np.ndarray]) -> Snapshot:
        """Returns the snapshot with the given arrays.

        Raises:
            UserError: the episode in the header is damaged.
        """
        return Snapshot(self.engine, Episode.from_json(self.episode), arrays)


def save_snapshots(
    path: str | os.PathLike[str],
    snapshots: Mapping[int, Snapshot],
    notes: Mapping[int, Note] | None = None,
) -> None:
    """Writes snapshots, each with its note if it has one, to one `.npz` file, atomically.

    Raises:
        UserError: the file cannot be written.
    """
    path = Path(path)
    arrays: dict[str, np.ndarray] = {}
    for key, snapshot in snapshots.items():
        header = {"engine": snapshot.engine, "episode": snapshot.episode.to_json()}
        if notes and key in notes:
            header["note"] = notes[key]
        arrays[f"{key}|"] = np.array(json.dumps(header))
        arrays |= {f"{key}|{name}": value for name, value in snapshot.arrays.items()}
    try:
        with files.atomic(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
    except OSError as error:
        raise UserError(f"snapshots: cannot write {path}: {error.strerror}") from None


def load_noted_snapshots(
    path: str | os.PathLike[str], field: str = "snapshots"
) -> dict[int, tuple[Snapshot, Note | None]]:
    """Reads a file written by `save_snapshots`: each snapshot with its note or None, by key.

    `field` is the setting that names the file, for error messages.

    Raises:
        UserError: the file is absent or not a snapshot file.
    """
    headers: dict[int, SnapshotHeader] = {}
    arrays: dict[int, dict[str, np.ndarray]] = {}
    try:
        with files.open_arrays(path) as file:
            for entry in file.files:
                key, _, name = entry.partition("|")
                if name:
                    arrays.setdefault(int(key), {})[name] = file[entry]
                else:
                    text, where = str(file[entry]), f"snapshot {key}"
                    headers[int(key)] = records.read(text, SnapshotHeader, where)
        return {
            key: (header.snapshot(arrays.get(key, {})), header.note)
            for key, header in sorted(headers.items())
        }
    except UserError as error:
        raise UserError(f"{field}: {path}: {error}") from None
    except OSError as error:
        raise UserError(f"{field}: cannot read {path}: {error.strerror or error}") from None
    except Exception as error:
        # A damaged archive surfaces as one of many exception types of zipfile, zlib and numpy.
        raise UserError(
            f"{field}: {path} is not a snapshot file ({type(error).__name__})"
        ) from None
