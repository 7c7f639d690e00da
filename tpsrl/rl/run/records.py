"""Records of a training for users: metrics.jsonl, loggers, curve.png and console output."""

from pathlib import Path
from typing import Protocol

from tpsrl.rl.envs.vec_env import Json
from tpsrl.rl.run import curves, loggers, metrics
from tpsrl.rl.run.metrics import MetricsLog


class Watcher(Protocol):
    """Shows the progress of a training: a progress bar, or lines of text."""

    def update(self, row: Json) -> None:
        """Shows a record of the metrics."""
        ...

    def say(self, text: str) -> None:
        """Shows an occasional message."""
        ...


class Records:
    """The records of one training; see `MetricsLog` for the arguments.

    Raises:
        UserError: the folder cannot be written, or a logger is not available.
    """

    def __init__(
        self,
        out: Path,
        watcher: Watcher,
        updates: int = 0,
        steps: int = 0,
        logger: str = loggers.DEFAULT,
        settings: Json | None = None,
    ) -> None:
        self._watcher = watcher
        self._log = MetricsLog(out, updates, steps, logger, settings)
        self._curve = curves.Curve(out, metrics.read(out))

    def add(self, row: Json, now: bool) -> None:
        """Adds a record; with `now`, the curve is drawn regardless of when it was last drawn."""
        self._log.write(row)
        self._watcher.update(row)
        self._curve.add(row, now=now)

    def close(self) -> None:
        """Closes the metrics file and the loggers."""
        self._log.close()


class NoRecords:
    """Records of a rank other than 0, which writes none."""

    def add(self, row: Json, now: bool) -> None:
        """See `Records.add`."""

    def close(self) -> None:
        """See `Records.close`."""
