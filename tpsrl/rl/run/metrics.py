"""The records of a training's course: metrics.jsonl, and their numbers for loggers beside it."""

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
    """One JSON record a rollout, and its numbers over steps for loggers.

    Args:
        out: folder of the training
        updates: go on behind this record; later ones, of a training that was killed, are dropped
        steps: of experience up to this record
        logger: where numbers go besides, see `tpsrl.rl.run.loggers.parse`
        settings: of the training, for loggers that show them

    Raises:
        UserError: the folder cannot be written, or a logger is not there.
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
        """Appends a record; it has "update" and "steps"."""
        self._file.write(json.dumps(row, allow_nan=False) + "\n")
        self._file.flush()
        numbers = {k: v for k, v in _numbers(row).items() if k not in ("update", "steps")}
        for logger in self._loggers:
            logger.write(numbers, row["steps"])

    def close(self) -> None:
        """Writes what is left."""
        self._file.close()
        for logger in self._loggers:
            logger.close()


def read(folder: Path) -> Iterator[Json]:
    """The records of a training's folder, one by one: there may be more than fit into memory.

    A last line that was not written to its end is left out.

    Raises:
        UserError: the folder has none, or a line is none; the message names the line.
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
    """Refuses what is not a record.

    Raises:
        UserError: names the entry; the message begins with `where`.
    """
    records.decode(row, _Row, where)


def _numbers(row: Json, prefix: str = "") -> dict[str, float]:
    """The numbers in a record, those of its parts under `part/`."""
    found: dict[str, float] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            found |= _numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and math.isfinite(value):
            found[prefix + name] = float(value)
    return found
