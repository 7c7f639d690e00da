"""Shards: files of many snapshots that are read one at a time.

A shard is an `.npz` of plain arrays, no pickle. Each snapshot is two members, a header and the
concatenated bytes of its arrays: with one member for each of its hundred arrays, finding one
snapshot would take longer than simulating an episode.
"""

import contextlib
import hashlib
import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from tpsrl.errors import UserError
from tpsrl.runtime import files, records
from tpsrl.sim.base import Snapshot
from tpsrl.sim.snapshots import Note, SnapshotHeader

_EPOCH = (1980, 1, 1, 0, 0, 0)  # fixed time stamp, so that equal snapshots give equal files


class ShardWriter:
    """Context manager that writes a shard, snapshot by snapshot; the file appears on exit.

    `count` is the number of snapshots written so far.

    Raises:
        UserError: the file cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path, self.count = Path(path), 0
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "ShardWriter":
        with self._told():
            temporary = self._stack.enter_context(files.atomic(self.path))
            archive = zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED)
            self._archive = self._stack.enter_context(archive)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._told():
            self._stack.__exit__(kind, error, trace)

    def add(self, snapshot: Snapshot, note: Note) -> bytes:
        """Adds a snapshot and a note of JSON types; returns the SHA-256 of both.

        Raises:
            UserError: the file cannot be written.
        """
        arrays = snapshot.arrays
        layout = [[name, value.dtype.str, list(value.shape)] for name, value in arrays.items()]
        header = {
            "engine": snapshot.engine,
            "episode": snapshot.episode.to_json(),
            "note": note,
            "arrays": layout,
        }
        text = json.dumps(header).encode()
        packed = b"".join(value.tobytes() for value in arrays.values())
        with self._told():
            self._write(f"{self.count}.header", text)
            self._write(f"{self.count}.arrays", packed)
        self.count += 1
        return hashlib.sha256(text + packed).digest()

    def _write(self, name: str, content: bytes) -> None:
        entry = zipfile.ZipInfo(f"{name}.npy", _EPOCH)
        entry.compress_type = zipfile.ZIP_DEFLATED
        with self._archive.open(entry, "w") as member:
            np.lib.format.write_array(member, np.frombuffer(content, np.uint8), allow_pickle=False)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(f"snapshots: cannot write {self.path}: {error.strerror}") from None


class Shard:
    """Open shard, from which snapshots are read one by one.

    Raises:
        UserError: the file is absent or not a shard.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        with self._told():
            self._file: Any = files.open_arrays(self.path, whole=False)
            self._size = len(self._file.files) // 2

    def __len__(self) -> int:
        return self._size

    def read(self, row: int) -> tuple[Snapshot, Note]:
        """Returns a snapshot and its note.

        Raises:
            UserError: the row does not exist, or the file is damaged.
        """
        with self._told():
            text = self._file[f"{row}.header"].tobytes()
            header = records.read(text, SnapshotHeader, f"state {row}")
            packed = self._file[f"{row}.arrays"]
            arrays, at = {}, 0
            for name, kind, shape in header.arrays:
                dtype = np.dtype(kind)
                end = at + dtype.itemsize * int(np.prod(shape, dtype=np.int64))
                arrays[name] = packed[at:end].view(dtype).reshape(shape).copy()
                at = end
            if at != len(packed):
                raise ValueError("more than the arrays")
            return header.snapshot(arrays), header.note or {}

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except UserError as error:
            raise UserError(f"snapshots: {self.path}: {error}") from None
        except OSError as error:
            why = error.strerror or error
            raise UserError(f"snapshots: cannot read {self.path}: {why}") from None
        except Exception as error:
            # A damaged archive surfaces as one of many exceptions of zipfile, zlib and numpy.
            name = type(error).__name__
            raise UserError(f"snapshots: {self.path} is damaged or not a shard ({name})") from None
