"""Processes that this one starts: how they begin, and how they ended."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from types import FrameType

_UNGUARDED = 79  # an exit code that sysexits.h leaves free
_GUARD = 'it ran the calling script again; call tpsrl under `if __name__ == "__main__":`'


class Terminated(BaseException):
    """SIGTERM has asked this process to end; no `Exception`, like KeyboardInterrupt."""


@contextlib.contextmanager
def ending_in_order() -> Iterator[None]:
    """Has SIGTERM raise `Terminated` once, so that workers end and files are tidied up.

    Where the calling program has a handler of its own, or this is not its main thread, nothing
    changes.
    """

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Terminated

    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def launch(process: BaseProcess) -> None:
    """Starts a process, see `end_if_unguarded`."""
    end_if_unguarded()
    process.start()


def end_if_unguarded() -> None:
    """To be called before anything is prepared for new processes.

    A new process first imports the script that was run. When that script calls tpsrl without a main
    guard, the import comes here again: the new process then ends, with an exit code that
    `exit_reason` explains.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        # A server of forks would turn any exception, that of an exit too, into exit code 1.
        os._exit(_UNGUARDED)


def exit_reason(process: BaseProcess) -> str:
    """How a process ended, for messages: "signal SIGKILL; ..." or "exit code 1"; waits for it."""
    process.join()
    code = process.exitcode or 0
    if code == _UNGUARDED:
        return _GUARD
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    hint = "; is there enough memory for so many processes?" if code == -signal.SIGKILL else ""
    return f"{how}{hint}"
