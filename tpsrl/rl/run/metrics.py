"""The records of a training's course: metrics.jsonl, and their numbers for loggers beside it."""

import json
import math
from pathlib import Path

from tpsrl import files
from tpsrl.errors import UserError
from tpsrl.rl.envs.vec_env import Json
from tpsrl.rl.run import loggers

METRICS = "metrics.jsonl"
_COUNTS = ("update", "steps")  # that every record has


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
            rows = read(out) if self.path.exists() else []
            kept = [json.dumps(row) + "\n" for row in rows if row["update"] <= updates]
            with files.atomic(self.path) as temporary:
                temporary.write_text("".join(kept))
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


def read(folder: Path) -> list[Json]:
    """The records of a training's folder, up to the first line that is none.

    That is the last one, not written to its end, unless somebody else has changed the file.

    Raises:
        UserError: the folder has none.
    """
    path = folder / METRICS
    if not path.is_file():
        raise UserError(f"metrics: no file {path}")
    rows: list[Json] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = files.parse_json(line)
        except ValueError:
            break
        if not isinstance(row, dict) or not all(isinstance(row.get(k), int) for k in _COUNTS):
            break
        rows.append(row)
    return rows


def _numbers(row: Json, prefix: str = "") -> dict[str, float]:
    """The numbers in a record, those of its parts under `part/`."""
    found: dict[str, float] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            found |= _numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and math.isfinite(value):
            found[prefix + name] = float(value)
    return found
