"""The records of a training's course: metrics.jsonl, and TensorBoard events beside it."""

import json
import math
from pathlib import Path
from typing import Any

from tpsrl import files
from tpsrl.errors import UserError
from tpsrl.rl.envs.vec_env import Json

METRICS = "metrics.jsonl"


class MetricsLog:
    """One JSON record a rollout, and its numbers as TensorBoard scalars over steps.

    Args:
        out: folder of the training
        updates: go on behind this record; later ones, of a training that was killed, are dropped

    Raises:
        UserError: the folder cannot be written.
    """

    def __init__(self, out: Path, updates: int = 0, steps: int = 0) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.path = out / METRICS
        try:
            out.mkdir(parents=True, exist_ok=True)
            rows = read(out) if self.path.exists() else []
            kept = [json.dumps(row) + "\n" for row in rows if row["update"] <= updates]
            with files.atomic(self.path) as temporary:
                temporary.write_text("".join(kept))
            self._file = self.path.open("a")
            purge = steps + 1 if updates else None
            self._board: Any = SummaryWriter(str(out / "tensorboard"), purge_step=purge)
        except OSError as error:
            raise UserError(f"out: cannot write into '{out}' ({error.strerror})") from None

    def write(self, row: Json) -> None:
        """Appends a record; it has "update" and "steps"."""
        self._file.write(json.dumps(row, allow_nan=False) + "\n")
        self._file.flush()
        for name, value in _numbers(row).items():
            if name not in ("update", "steps"):
                self._board.add_scalar(name, value, row["steps"])

    def close(self) -> None:
        """Writes what is left."""
        self._file.close()
        self._board.close()


def read(folder: Path) -> list[Json]:
    """The records of a training's folder, without a last line that was not written to its end.

    Raises:
        UserError: the folder has none.
    """
    path = folder / METRICS
    if not path.is_file():
        raise UserError(f"metrics: no file {path}")
    rows: list[Json] = []
    for line in path.read_text().splitlines():
        try:
            row = json.loads(line)
        except ValueError:
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
