"""Child processes and signals: start, orderly termination, exit reasons."""

import contextlib
import ctypes
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

STARTER = "TPSRL_STARTER"  # environment variable: id of the process whose end ends its child
_PATIENCE_S = 1.0  # time for processes to end after SIGTERM
_AGAIN_S = 0.05  # delay before a lost signal is raised again
_UNGUARDED = 79  # exit code that sysexits.h does not use
_GUARD = 'it ran the calling script again; call tpsrl under `if __name__ == "__main__":`'


class Terminated(BaseException):
    """SIGTERM was received; not an `Exception`, like KeyboardInterrupt."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C was pressed; a subclass, since KeyboardInterrupt cannot be weakly referenced."""


@contextlib.contextmanager
def ending_in_order() -> Iterator[None]:
    """Makes SIGTERM raise `Terminated` once, so that workers are ended and files are tidied up.

    Any other exception that follows from SIGTERM or Ctrl-C, such as the SystemError of interrupted
    compiled code, leaves the block as `Terminated` or KeyboardInterrupt too. If the exception is
    lost in a destructor or a bare `except:`, it is raised again. After a signal, Python's messages
    about exceptions in destructors of incomplete objects are suppressed.

    Nothing changes if the calling program has its own SIGTERM handler, or if this is not the main
    thread. A handler of its own for SIGINT alone is kept.
    """
    received: list[type[BaseException]] = []
    on_its_way: set[int] = set()
    left = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTERM and number in on_its_way:
            return
        on_its_way.add(number)
        received.append(Terminated if number == signal.SIGTERM else Interrupted)
        sys.unraisablehook = lambda unraisable: None
        error = received[-1]()
        weakref.finalize(error, lost, number).atexit = False
        try:
            raise error
        finally:
            del error  # otherwise this frame, part of its traceback, keeps the error alive

    def lost(number: int) -> None:
        on_its_way.discard(number)
        if left.is_set():
            return
        # This runs like a destructor, so an exception raised here would be lost as well.
        timer = threading.Timer(_AGAIN_S, remind, (number,))
        timer.daemon = True
        timer.start()

    def remind(number: int) -> None:
        if not left.is_set():
            signal.pthread_kill(threading.main_thread().ident or 0, number)

    usual: dict[signal.Signals, Any] = {
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGINT: signal.default_int_handler,
    }
    main = threading.current_thread() is threading.main_thread()
    ours = [number for number, usually in usual.items() if signal.getsignal(number) == usually]
    if not main or signal.SIGTERM not in ours:
        yield
        return
    for number in ours:
        signal.signal(number, end)
    try:
        yield
    except Exception:
        if received:
            raise received[0] from None
        raise
    finally:
        left.set()
        for number in ours:
            signal.signal(number, usual[number])


def launch(process: BaseProcess) -> None:
    """Starts a process with Ctrl-C blocked, left to the parent; see `end_if_unguarded`."""
    end_if_unguarded()
    with left_to_this_one(signal.SIGINT):
        process.start()


@contextlib.contextmanager
def left_to_this_one(*numbers: signal.Signals) -> Iterator[None]:
    """Blocks signals in processes that are started inside the block; here they are delayed.

    New processes inherit the signal mask, so they are protected before they can set handlers.
    """
    # Starting a process also starts the resource tracker if needed, which unblocks the signals.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end(started: Sequence[BaseProcess]) -> None:
    """Ends child processes, by SIGTERM and after a timeout by SIGKILL."""
    for process in started:
        process.terminate()
    until = time.monotonic() + _PATIENCE_S
    for process in started:
        process.join(max(until - time.monotonic(), 0.0))
        if process.exitcode is None:
            process.kill()
            process.join()


def end_with_parent() -> None:
    """Ends this process, started by `multiprocessing`, when its parent ends.

    A thread waits for the parent's end. On Linux the kernel also ends a process of a fork server
    with the server. Other processes do not use the kernel's signal, which is sent when the thread
    that forked them ends, possibly before the parent does.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    if sys.platform.startswith("linux") and os.getppid() != parent.pid:
        _signal_at_parents_end(signal.SIGKILL)

    def end() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()


def end_with_starter(number: signal.Signals) -> None:
    """Asks the kernel to send this process a signal when the process named by `STARTER` ends.

    For processes that `multiprocessing` has not started. On systems other than Linux, nothing
    happens.
    """
    starter = os.environ.pop(STARTER, "")
    if not sys.platform.startswith("linux") or not starter:
        return
    _signal_at_parents_end(number)
    if str(os.getppid()) != starter:  # the starter has already ended
        os.kill(os.getpid(), number)


def _signal_at_parents_end(number: signal.Signals) -> None:
    """Asks the Linux kernel to send this process a signal when the process that forked it ends."""
    set_death_signal = 1  # PR_SET_PDEATHSIG
    ctypes.CDLL(None).prctl(set_death_signal, number)


def end_if_unguarded() -> None:
    """Ends a child process that imports a script without a main guard.

    A new process first imports the script that was run. If the script calls tpsrl without a main
    guard, the import calls this function again in the child, which then exits with a code that
    `exit_reason` explains. Must be called before anything is prepared for new processes.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        # A fork server turns any exception, SystemExit too, into exit code 1.
        os._exit(_UNGUARDED)


def is_unguarded(process: BaseProcess) -> bool:
    """Returns whether a process ended because the script has no main guard; waits for its end."""
    process.join()
    return process.exitcode == _UNGUARDED


def exit_reason(process: BaseProcess) -> str:
    """Describes how a process ended: "signal SIGKILL; ..." or "exit code 1"; waits for its end."""
    if is_unguarded(process):
        return _GUARD
    code = process.exitcode or 0
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    hint = "; is there enough memory for so many processes?" if code == -signal.SIGKILL else ""
    return f"{how}{hint}"
