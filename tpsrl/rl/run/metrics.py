"""Records of a training's progress: metrics.jsonl, and the same numbers for loggers."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import NotRequired, TypedDict

from tpsrl.errors import UserError
from tpsrl.rl.envs.vec_env import Json
from tpsrl.rl.run import loggers
from tpsrl.runtime import files, records

METRICS = "metrics.jsonl"
_Number = float | None
_Validation = TypedDict(
    "_Validation", {"success": _Number, "return": _Number, "seconds": NotRequired[_Number]}
)
_Row = TypedDict(
    "_Row",
    {
        "update": records.Count,
        "steps": records.Count,
        "success": NotRequired[_Number],
        "return": NotRequired[_Number],
        "seconds": NotRequired[_Number],
        "validation": NotRequired[_Validation],
    },
)


class MetricsLog:
    """Writes one JSON record per rollout, and its numbers over steps to loggers.

    Args:
        out: folder of the training
        updates: number of the last record to keep; later ones, of a training that was killed, are
            dropped
        steps: steps of experience up to this record
        logger: names of loggers, see `tpsrl.rl.run.loggers.parse`
        settings: settings of the training, for loggers that show them

    Raises:
        UserError: the folder cannot be written, or a logger is not available.
    """

    def __init__(
        self,
        out: Path,
        updates: int = 0,
        steps: int = 0,
        logger: str = loggers.DEFAULT,
        settings: Json | None = None,
    ) -> None:
        self.path = out / METRICS
        try:
            out.mkdir(parents=True, exist_ok=True)
            with files.atomic(self.path) as temporary, temporary.open("w") as kept:
                for row in read(out) if self.path.exists() else ():
                    if row["update"] <= updates:
                        kept.write(json.dumps(row) + "\n")
            run = loggers.LoggedRun(out, steps if updates else 0, settings or {})
            self._loggers = loggers.make(logger, run)
            self._file = self.path.open("a")
        except OSError as error:
            raise UserError(f"out: cannot write into '{out}' ({error.strerror})") from None

    def write(self, row: Json) -> None:
        """Appends a record, which must have "update" and "steps"."""
        self._file.write(json.dumps(row, allow_nan=False) + "\n")
        self._file.flush()
        numbers = {k: v for k, v in _numbers(row).items() if k not in ("update", "steps")}
        for logger in self._loggers:
            logger.write(numbers, row["steps"])

    def close(self) -> None:
        """Closes the file and the loggers."""
        self._file.close()
        for logger in self._loggers:
            logger.close()


def read(folder: Path) -> Iterator[Json]:
    """Iterates over the records of a training's folder, which may exceed the memory.

    A last line that was not written completely is left out.

    Raises:
        UserError: the folder has no records, or a line is not a record; names the line.
    """
    path = folder / METRICS
    if not path.is_file():
        raise UserError(f"metrics: no file {path}")
    return _records(path)


def _records(path: Path) -> Iterator[Json]:
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        for number, line in enumerate(file, 1):
            where = f"metrics: {path}, line {number}"
            try:
                row: Json = records.read(line, dict, where)
                check(row, where)
            except UserError:
                if not line.endswith("\n"):
                    return
                raise
            yield row


def check(row: Json, where: str) -> None:
    """Checks that a row is a record.

    Raises:
        UserError: names the entry; the message begins with `where`.
    """
    records.decode(row, _Row, where)


def _numbers(row: Json, prefix: str = "") -> dict[str, float]:
    """Returns the finite numbers in a record, those of its parts under `part/`."""
    found: dict[str, float] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            found |= _numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and math.isfinite(value):
            found[prefix + name] = float(value)
    return found
