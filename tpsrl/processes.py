"""Processes that this one started: how they ended."""

import signal
from multiprocessing.process import BaseProcess


def exit_reason(process: BaseProcess) -> str:
    """How a process ended, for messages: "signal SIGKILL; ..." or "exit code 1"; waits for it."""
    process.join()
    code = process.exitcode or 0
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    hint = "; is there enough memory for so many processes?" if code == -signal.SIGKILL else ""
    return f"{how}{hint}"
