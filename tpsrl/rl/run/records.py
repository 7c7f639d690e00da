"""What a training leaves for people: metrics.jsonl, loggers, curve.png, and what it shows."""

from pathlib import Path
from typing import Protocol

from tpsrl.rl.envs.vec_env import Json
from tpsrl.rl.run import curves, loggers, metrics
from tpsrl.rl.run.metrics import MetricsLog


class Watcher(Protocol):
    """Is told of a training's course: the progress bar, or lines of text."""

    def update(self, row: Json) -> None:
        """A record of the metrics."""
        ...

    def say(self, text: str) -> None:
        """Something that happens now and then."""
        ...


class Records:
    """The records of one training; see `MetricsLog` for the arguments.

    Raises:
        UserError: the folder cannot be written, or a logger is not there.
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
        """One more; `now`: the curve is drawn, whenever it was last."""
        self._log.write(row)
        self._watcher.update(row)
        self._curve.add(row, now=now)

    def close(self) -> None:
        """Writes what is left."""
        self._log.close()


class NoRecords:
    """Of a rank that leaves the records to rank 0."""

    def add(self, row: Json, now: bool) -> None:
        """See `Records.add`."""

    def close(self) -> None:
        """See `Records.close`."""
