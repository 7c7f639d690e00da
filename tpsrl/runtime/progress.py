"""Progress of a command: a bar on a terminal, otherwise occasional lines."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

EVERY_S = 10.0  # time between two lines
LONG_S = 2.0  # time without output before a line is printed
Clock = Callable[[], float]


def say(text: str) -> None:
    """Prints a line and flushes it, also if the output is a file or a pipe."""
    print(text, flush=True)


@contextlib.contextmanager
def if_long(text: str, after_s: float = LONG_S) -> Iterator[None]:
    """Prints a line if the block takes longer than `after_s` seconds."""

    def late() -> None:
        with contextlib.suppress(OSError):  # the main thread reports a closed output
            say(text)

    timer = threading.Timer(after_s, late)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def loading() -> contextlib.AbstractContextManager[Any]:
    """Returns a spinner for a terminal, shown while modules are imported, which takes seconds.

    Without a terminal nothing is printed. Errors of the settings are found only after the imports,
    and the spinner leaves no output before them.
    """
    return Console().status("loading")


class Bar(contextlib.AbstractContextManager["Bar"]):
    """Progress bar of a known number of items.

    Without a terminal, a line is printed at the first update and further lines every `EVERY_S`
    seconds, so that a log stays short.
    """

    def __init__(
        self, console: Console, title: str, total: int, clock: Clock = time.monotonic
    ) -> None:
        self._title, self._total = title, total
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
        )
        self._bar = Progress(
            *columns, console=console, transient=True, disable=not console.is_terminal
        )
        self._task: Any = self._bar.add_task(title, total=total, note="")
        self._lines = _lines(console, clock)

    def __enter__(self) -> "Bar":
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def update(self, done: int, note: str = "") -> None:
        """Shows that `done` items are finished; `note` is additional text, such as a count."""
        self._bar.update(self._task, completed=done, note=note)
        more = f", {note}" if note else ""
        self._lines.add(f"{self._title}: {done} of {self._total}{more}")


@contextlib.contextmanager
def phases(
    console: Console, doing: str, clock: Clock = time.monotonic
) -> Iterator[Callable[[str], None]]:
    """Yields a function to report which part of some work is in progress.

    A terminal shows each part with a spinner; otherwise the first part and occasional later ones
    are printed as lines.
    """
    with console.status(doing) as status:
        lines = _lines(console, clock)
        lines.add(doing)

        def tell(part: str) -> None:
            status.update(f"{doing}: {part}")
            lines.add(f"{doing}: {part}")

        yield tell


class Lines:
    """Rate limit of lines: prints the first one, then at most one every `EVERY_S` seconds."""

    def __init__(self, say: Callable[[str], None], clock: Clock = time.monotonic) -> None:
        self._say, self._clock = say, clock
        self._said: float | None = None

    def add(self, text: str) -> None:
        """Prints the line if enough time has passed."""
        now = self._clock()
        if self._said is None or now - self._said >= EVERY_S:
            self._said = now
            self._say(text)


def _lines(console: Console, clock: Clock) -> Lines:
    """Returns `Lines` that print only if the console is not a terminal, which has a bar."""

    def say(text: str) -> None:
        if not console.is_terminal:
            console.print(text, highlight=False, markup=False, soft_wrap=True)

    return Lines(say, clock)
