"""Console output of a training: a progress bar on a terminal, otherwise lines at intervals."""

import contextlib
import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from tpsrl.rl.envs.vec_env import Json

_EVERY_S = 60.0  # between two lines during training
_PREPARING_EVERY_S = 10.0  # and during its preparation


class Watch(contextlib.AbstractContextManager["Watch"]):
    """Shows the progress of a training of `steps` steps, and of its preparation."""

    def __init__(self, title: str, steps: int, console: Console) -> None:
        self._console = console
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,} of {task.total:,} steps"),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=console, disable=not console.is_terminal)
        self._task: Any = self._progress.add_task(title, total=steps, note="starting")
        self._said = time.monotonic()

    def __enter__(self) -> "Watch":
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def prepare(self, what: str, done: int, count: int) -> None:
        """Shows the progress of a preparation, which begins with 0 `done`."""
        self._progress.update(self._task, note=f"{done} of {count} done")
        if done == 0:
            self._print(what)
        elif done == count or self._is_time(_PREPARING_EVERY_S):
            self._print(f"{done} of {count} done")
        else:
            return
        self._said = time.monotonic()

    def update(self, row: Json) -> None:
        """See `tpsrl.rl.run.records.Watcher.update`."""
        text = f"{row['samples_per_s']:,.0f}/s"
        if row["success"] is not None:
            text = f"success {100 * row['success']:.0f}%, return {row['return']:.2f}, {text}"
        self._progress.update(self._task, completed=row["steps"], note=text)
        if self._is_time(0.0 if row["update"] == 1 else _EVERY_S):
            self._said = time.monotonic()
            self._print(f"{row['steps']:,} steps: {text}")

    def say(self, text: str) -> None:
        """See `tpsrl.rl.run.records.Watcher.say`."""
        self._print(text)

    def _is_time(self, every_s: float) -> bool:
        """Returns whether a line is due; a terminal has the progress bar instead."""
        return not self._console.is_terminal and time.monotonic() - self._said > every_s

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)
