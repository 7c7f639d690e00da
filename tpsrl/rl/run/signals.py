"""Handling of signals that ask a training to save or to stop."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from tpsrl.runtime.processes import Terminated

_ENDING = ("SIGTERM", "SIGINT")
_NAMES = (*_ENDING, "SIGUSR1")


class SignalsNoted(contextlib.AbstractContextManager["SignalsNoted"]):
    """Records signals inside the block, for later handling; a second SIGINT interrupts at once.

    In a thread other than the main thread, which receives all signals, the class has no effect.
    """

    def __init__(self) -> None:
        self.noted = ""  # name of the latest signal, "" for none
        self._to_end = ""  # name of the latest signal to stop, taken or not
        self._interrupted = False
        self._raised: type[Exception] | None = None
        self._before: dict[str, Any] = {}

    def __enter__(self) -> "SignalsNoted":
        if threading.current_thread() is not threading.main_thread():
            return self
        names = [name for name in _NAMES if hasattr(signal, name)]
        self._before = {n: signal.signal(getattr(signal, n), self._note) for n in names}
        return self

    def __exit__(self, *error: object) -> None:
        for name, handler in self._before.items():
            signal.signal(getattr(signal, name), handler)

    @property
    def is_to_stop(self) -> bool:
        """Whether the latest signal asks to stop."""
        return self.noted in _ENDING

    @contextlib.contextmanager
    def raising(self, error: type[Exception]) -> Iterator[None]:
        """Raises `error` in the block on a signal to stop, for code that cannot poll signals."""
        self._raised = error
        try:
            if self.is_to_stop:
                raise error
            yield
        finally:
            self._raised = None

    def end(self) -> None:
        """Raises the exception of the latest signal to stop; has no effect if there was none.

        Raises:
            Terminated, KeyboardInterrupt: a signal to stop was received.
        """
        if self._to_end:
            raise Terminated if self._to_end == "SIGTERM" else KeyboardInterrupt

    def take(self) -> str:
        """Returns the name of the most recent signal since the last call, or ""."""
        name, self.noted = self.noted, ""
        return name

    def _note(self, number: int, frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if name == "SIGINT" and self._interrupted:
            raise KeyboardInterrupt
        self._interrupted |= name == "SIGINT"
        self.noted = name
        if self.is_to_stop:
            self._to_end = name
        if self._raised is not None and self.is_to_stop:
            error, self._raised = self._raised, None
            raise error
