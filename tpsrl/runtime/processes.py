"""Processes that this one starts: how they begin, and how they ended."""

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

STARTER = "TPSRL_STARTER"  # variable: the process with which one that it has started ends
_PATIENCE_S = 1.0  # that processes have to end when they are told to
_AGAIN_S = 0.05  # after which a signal is raised again that got lost
_UNGUARDED = 79  # an exit code that sysexits.h leaves free
_GUARD = 'it ran the calling script again; call tpsrl under `if __name__ == "__main__":`'


class Terminated(BaseException):
    """SIGTERM has asked this process to end; no `Exception`, like KeyboardInterrupt."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C has; a class of its own, since a KeyboardInterrupt cannot be referred to weakly."""


@contextlib.contextmanager
def ending_in_order() -> Iterator[None]:
    """Has SIGTERM raise `Terminated` once, so that workers end and files are tidied up.

    Whatever else comes of SIGTERM or Ctrl-C, such as the SystemError of compiled code in which they
    were raised, leaves the block as `Terminated` or KeyboardInterrupt too. Where it got lost on its
    way, in a destructor or somebody's `except:`, it is raised again. From then on Python does not
    complain of objects that are gone before they were whole.

    Where the calling program has a handler of its own, or this is not its main thread, nothing
    changes.
    """
    asked: list[type[BaseException]] = []
    on_its_way: set[int] = set()
    left = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTERM and number in on_its_way:
            return
        on_its_way.add(number)
        asked.append(Terminated if number == signal.SIGTERM else Interrupted)
        sys.unraisablehook = lambda unraisable: None
        error = asked[-1]()
        weakref.finalize(error, lost, number).atexit = False
        try:
            raise error
        finally:
            del error  # its traceback has this frame, which would keep it

    def lost(number: int) -> None:
        on_its_way.discard(number)
        if left.is_set():
            return
        # This is called as a destructor is: what is raised in here would be lost as well.
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
        if asked:
            raise asked[0] from None
        raise
    finally:
        left.set()
        for number in ours:
            signal.signal(number, usual[number])


def launch(process: BaseProcess) -> None:
    """Starts a process that leaves Ctrl-C to this one from its start on; see `end_if_unguarded`."""
    end_if_unguarded()
    with left_to_this_one(signal.SIGINT):
        process.start()


@contextlib.contextmanager
def left_to_this_one(*numbers: signal.Signals) -> Iterator[None]:
    """Signals that do not reach the processes which are started inside; here they wait.

    New processes inherit that they are blocked, and so are undisturbed before they can say
    anything about it themselves.
    """
    # Whatever starts a process starts this one before, if need be, and that unblocks them again.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end(started: Sequence[BaseProcess]) -> None:
    """Ends processes that this one has started, those that are stopped or do not listen as well."""
    for process in started:
        process.terminate()
    until = time.monotonic() + _PATIENCE_S
    for process in started:
        process.join(max(until - time.monotonic(), 0.0))
        if process.exitcode is None:
            process.kill()
            process.join()


def end_with_parent() -> None:
    """Has this process, which `multiprocessing` has started, end when its parent does.

    A thread waits for that. On Linux the kernel ends a fork of a fork server with the server too;
    elsewhere it would do so as soon as the thread that forked ends, which need not be the parent's
    end.
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
    """Has the kernel send this process, which no `multiprocessing` has started, a signal at the end
    of the one that `STARTER` names; elsewhere than on Linux nothing happens.
    """
    starter = os.environ.pop(STARTER, "")
    if not sys.platform.startswith("linux") or not starter:
        return
    _signal_at_parents_end(number)
    if str(os.getppid()) != starter:  # it has ended before
        os.kill(os.getpid(), number)


def _signal_at_parents_end(number: signal.Signals) -> None:
    """Has the Linux kernel send this process a signal when the one that forked it ends."""
    set_death_signal = 1  # PR_SET_PDEATHSIG
    ctypes.CDLL(None).prctl(set_death_signal, number)


def end_if_unguarded() -> None:
    """To be called before anything is prepared for new processes.

    A new process first imports the script that was run. When that script calls tpsrl without a main
    guard, the import comes here again: the new process then ends, with an exit code that
    `exit_reason` explains.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        # A server of forks would turn any exception, that of an exit too, into exit code 1.
        os._exit(_UNGUARDED)


def is_unguarded(process: BaseProcess) -> bool:
    """Whether a process ended since the calling script has no main guard; waits for its end."""
    process.join()
    return process.exitcode == _UNGUARDED


def exit_reason(process: BaseProcess) -> str:
    """How a process ended, for messages: "signal SIGKILL; ..." or "exit code 1"; waits for it."""
    if is_unguarded(process):
        return _GUARD
    code = process.exitcode or 0
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    hint = "; is there enough memory for so many processes?" if code == -signal.SIGKILL else ""
    return f"{how}{hint}"
