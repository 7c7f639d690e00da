"""The records of a training's course: metrics.jsonl, and their numbers for loggers beside it."""

import json
import math
from collections.abc import Iterator
from pathlib import Path

from tpsrl.errors import UserError
from tpsrl.rl.envs.vec_env import Json
from tpsrl.rl.run import loggers
from tpsrl.runtime import files

METRICS = "metrics.jsonl"
_COUNTS = ("update", "steps")  # that every record has
_NUMBERS = ("success", "return", "seconds")  # that a record may have, or null


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
            try:
                row = files.parse_json(line.rstrip())
                check(row)
            except ValueError as error:
                if not line.endswith("\n"):
                    return
                raise UserError(f"metrics: {path}, line {number}: {error}") from None
            yield row


def check(row: object) -> None:
    """Refuses what is not a record.

    Raises:
        ValueError: says what is wrong with it.
    """
    if not isinstance(row, dict):
        raise ValueError("it is not a record")
    for key in _COUNTS:
        count = row.get(key)
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise ValueError(f"'{key}' is not a count")
    validation = row.get("validation", {"success": None, "return": None})
    if not isinstance(validation, dict) or not {"success", "return"} <= {*validation}:
        raise ValueError("'validation' is none")
    for part in (row, validation):
        for key in _NUMBERS:
            number = part.get(key)
            if number is not None and not (type(number) in (int, float) and math.isfinite(number)):
                raise ValueError(f"'{key}' is not a number")


def _numbers(row: Json, prefix: str = "") -> dict[str, float]:
    """The numbers in a record, those of its parts under `part/`."""
    found: dict[str, float] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            found |= _numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and math.isfinite(value):
            found[prefix + name] = float(value)
    return found
