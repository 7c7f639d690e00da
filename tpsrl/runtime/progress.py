"""What a command shows while it works: a bar on a terminal, else a line now and then."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

EVERY_S = 10.0  # between two lines
LONG_S = 2.0  # that a command may be silent
Clock = Callable[[], float]


def say(text: str) -> None:
    """A line at once, also where what is printed goes into a file or another program."""
    print(text, flush=True)


@contextlib.contextmanager
def if_long(text: str, after_s: float = LONG_S) -> Iterator[None]:
    """Says a line when what is done inside takes longer than that."""

    def late() -> None:
        with contextlib.suppress(OSError):  # whoever works will find out that nobody listens
            say(text)

    timer = threading.Timer(after_s, late)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def loading() -> contextlib.AbstractContextManager[Any]:
    """A spinner on a terminal while modules are imported, which takes seconds; else nothing.

    What is wrong with the settings is known only afterwards, and is to be the only thing said then.
    """
    return Console().status("loading")


class Bar(contextlib.AbstractContextManager["Bar"]):
    """How many of so many things are done.

    Where there is no terminal, one line says at first what is to be done, and others how far it is,
    so seldom that a log stays short.
    """

    def __init__(
        self, console: Console, title: str, total: int, clock: Clock = time.monotonic
    ) -> None:
        self._title, self._total = title, total
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[told]}"),
            TimeRemainingColumn(),
        )
        self._bar = Progress(
            *columns, console=console, transient=True, disable=not console.is_terminal
        )
        self._task: Any = self._bar.add_task(title, total=total, told="")
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

    def update(self, done: int, told: str = "") -> None:
        """So many are done; `told` is what else there is to say, such as how many were good."""
        self._bar.update(self._task, completed=done, told=told)
        more = f", {told}" if told else ""
        self._lines.add(f"{self._title}: {done} of {self._total}{more}")


@contextlib.contextmanager
def phases(
    console: Console, doing: str, clock: Clock = time.monotonic
) -> Iterator[Callable[[str], None]]:
    """Gives a function that is told which part of something is being done.

    A terminal shows each, and a spinner; else the first one is a line, and others now and then.
    """
    with console.status(doing) as status:
        lines = _lines(console, clock)
        lines.add(doing)

        def tell(part: str) -> None:
            status.update(f"{doing}: {part}")
            lines.add(f"{doing}: {part}")

        yield tell


class Lines:
    """Says of many lines the first, and then one every `EVERY_S`."""

    def __init__(self, say: Callable[[str], None], clock: Clock = time.monotonic) -> None:
        self._say, self._clock = say, clock
        self._said: float | None = None

    def add(self, text: str) -> None:
        """Says it, if it is time to."""
        now = self._clock()
        if self._said is None or now - self._said >= EVERY_S:
            self._said = now
            self._say(text)


def _lines(console: Console, clock: Clock) -> Lines:
    """On a terminal nothing is said: it has a bar."""

    def say(text: str) -> None:
        if not console.is_terminal:
            console.print(text, highlight=False, markup=False, soft_wrap=True)

    return Lines(say, clock)
