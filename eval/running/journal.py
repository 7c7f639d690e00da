"""Journal of an evaluation's finished jobs, from which a killed evaluation resumes."""

import contextlib
import dataclasses
import io
import json
import operator
import os
import shutil
import time
import zlib
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from rich.console import Console

from tpsrl.errors import UserError
from tpsrl.runtime import files, locks

CONFIG = "config.yaml"  # settings of an unfinished evaluation
_JOURNAL, _FILMS = "journal.jsonl", "videos"
OUTPUTS = (
    "config.yaml",
    "episodes.jsonl",
    "flow.graphml",
    "timing.json",
    "report.html",
    "report.json",
    "studies.jsonl",
)
_LONGEST = 2**28  # bytes of a line, which holds the result of one job
REEL = "reel"  # folder of clips of failures, beside the videos


class Journal:
    """Locks an output folder, and stores finished jobs in it until the evaluation is complete.

    A context manager. Inside the block this process holds the lock of `OUT/.running`
    (`tpsrl.runtime.locks`). The folder contains `journal.jsonl`: a header with a digest of all
    inputs, then one line for each finished job. Each line is synced to disk before the next one
    begins, and ends with a checksum; from the first damaged line on the file is ignored. Videos are
    in `.running/videos` until the end. If the block ends without `finish`, finished jobs stay for a
    later resume, unless there are none.

    Args:
        out: output folder
        console: for the message that an earlier journal is discarded
        keep: `finish` leaves the journal for a caller who runs several evaluations and calls
            `remove`

    Raises:
        UserError: another process holds the folder, or it cannot be written.
    """

    def __init__(self, out: Path, console: Console, keep: bool = False) -> None:
        self._out, self._console, self._keep = out, console, keep
        self._folder = out / locks.RUNNING
        self._path = self._folder / _JOURNAL
        self._lock = contextlib.ExitStack()
        self._file: IO[bytes] | None = None
        self._done: dict[str, dict[str, Any]] = {}
        self._earlier_s, self._began = 0.0, time.perf_counter()
        self.films = self._folder / _FILMS

    def __enter__(self) -> "Journal":
        self._lock.enter_context(locks.hold(self._out))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._tidy()
                if not any(self._done.values()):
                    _empty(self._folder)

    @property
    def seconds(self) -> float:
        """Duration of the work (s), including the time before an interruption."""
        return self._earlier_s + time.perf_counter() - self._began

    def resume(self, digest: str) -> None:
        """Reads the finished jobs of an evaluation with the same digest; discards those of another.

        Raises:
            UserError: the folder cannot be written.
        """
        self._began = time.perf_counter()
        files.check_replaceable(self._folder, [_JOURNAL])
        lines = _read(self._path)
        header = {"journal": 1, "digest": digest}
        try:
            if not lines or lines[0][1] != header:
                if len(lines) > 1:
                    self._say(f"{len(lines) - 1} finished jobs in {self._out}")
                _empty(self._folder)
                self._file = self._path.open("ab")
                self._append(header)
                return
            self._file = self._path.open("ab")
            self._file.truncate(lines[-1][0])  # removes a truncated last line
        except OSError as error:
            raise self._unwritable(error) from None
        self._tidy()
        for _, line in lines[1:]:
            self._done.setdefault(line["kind"], {})[line["key"]] = line["outcome"]
            self._earlier_s = line["seconds"]

    def describe(self, settings: str) -> None:
        """Writes the settings, as YAML, for those who look at an unfinished evaluation.

        Raises:
            UserError: the file cannot be written.
        """
        files.write_text(self._folder / CONFIG, settings)

    def done(self, kind: str) -> dict[str, Any]:
        """Returns the outcomes, as JSON, of the finished jobs of one kind, by key."""
        return dict(self._done.get(kind, {}))

    def add(self, kind: str, key: str, outcome: Any) -> Any:
        """Stores the outcome (a dataclass or JSON) of a finished job.

        Returns:
            The outcome as JSON, as `done` returns it.

        Raises:
            UserError: the journal cannot be written.
        """
        if dataclasses.is_dataclass(outcome) and not isinstance(outcome, type):
            outcome = dataclasses.asdict(outcome)
        line = {"kind": kind, "key": key, "seconds": self.seconds, "outcome": outcome}
        try:
            found = self._append(line)["outcome"]
        except OSError as error:
            raise self._unwritable(error) from None
        self._done.setdefault(kind, {})[key] = found
        return found

    def finish(self) -> None:
        """Discards the journal at the end of the block; call it when all files are written."""
        if not self._keep:
            self._done = {}

    def _append(self, line: dict[str, Any]) -> Any:
        """Writes a line to disk, and returns its content as read back."""
        # numpy scalars are written as numbers; NaN and infinity in the form that Python reads.
        text = json.dumps(line, default=operator.methodcaller("item"))
        assert self._file is not None
        self._file.write(_sealed(text))
        self._file.flush()
        os.fsync(self._file.fileno())
        return json.loads(text)

    def _tidy(self) -> None:
        """Removes temporary files of killed processes."""
        files.remove_strays(self._folder / CONFIG)
        for name in OUTPUTS:
            files.remove_strays(self._out / name)
        for films in (self.films, self.films / REEL, self._out / "videos", self._out / REEL):
            for kind in ("*.mp4", "*.png"):
                files.remove_strays(films / kind)

    def _say(self, what: str) -> None:
        text = f"starting from the beginning: {what} have other settings or another version"
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _unwritable(self, error: OSError) -> UserError:
        return UserError(f"out: cannot write '{self._path}' ({error.strerror})")


def remove(out: Path) -> None:
    """Removes a kept journal, unless another process has resumed the evaluation."""
    if (out / locks.RUNNING).is_dir():
        with contextlib.suppress(UserError), locks.hold(out) as folder:
            _empty(folder)


def _empty(folder: Path) -> None:
    """Removes journal, settings and videos, the journal first: without it the rest is ignored."""
    (folder / _JOURNAL).unlink(missing_ok=True)
    (folder / CONFIG).unlink(missing_ok=True)
    shutil.rmtree(folder / _FILMS, ignore_errors=True)


def _read(path: Path) -> list[tuple[int, Any]]:
    """Returns the intact lines of a journal, each with the offset (bytes) of its end."""
    lines: list[tuple[int, Any]] = []
    end = 0
    with path.open("rb") if path.is_file() else io.BytesIO() as file:
        while text := file.readline(_LONGEST):
            end += len(text)
            try:
                line = _unsealed(text)
            except ValueError:
                break
            known = {"kind", "key", "seconds", "outcome"} if lines else {"journal", "digest"}
            if line.keys() != known:
                break
            lines.append((end, line))
    return lines


def _sealed(text: str) -> bytes:
    """Returns the line of a JSON object, with a checksum as its last entry."""
    body = text.encode()
    return b'%s, "sum": %d}\n' % (body[:-1], zlib.crc32(body))


def _unsealed(line: bytes) -> dict[str, Any]:
    """Returns the JSON object of a line.

    Raises:
        ValueError: the line is truncated or damaged.
    """
    head, _, checksum = line.rpartition(b', "sum": ')
    body = head + b"}"
    if checksum != b"%d}\n" % zlib.crc32(body):
        raise ValueError("the checksum does not match the line")
    found: dict[str, Any] = json.loads(body)
    return found
