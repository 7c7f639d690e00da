"""The environment of the process: variables, threads, terminal."""

import importlib
import os
import re

from tpsrl.errors import UserError

_COUNT = "[1-9][0-9]{0,4}"  # of threads, or of characters in a line


def check() -> None:
    """Refuses what libraries would end with pages about, or all commands would stumble over.

    Raises:
        UserError: names the variable and what it may be.
    """
    try:
        os.getcwd()
    except OSError:
        raise UserError("the current folder is not there any more; change into another") from None
    # OpenMP takes one number for each level of threads within threads.
    for name, several in (("NUMBA_NUM_THREADS", ""), ("OMP_NUM_THREADS", f"( *, *{_COUNT})*")):
        threads = os.environ.get(name)
        if threads is not None and not re.fullmatch(f" *{_COUNT}{several} *", threads):
            raise UserError(f"{name}: '{threads}' is not an integer >= 1; nearest: 1")
    if os.environ.get("TORCH_LOGS"):
        _check_torch_logs()


def _check_torch_logs() -> None:
    """Has torch, where it is installed, read what it is told to log, which it does once.

    Raises:
        UserError: it refuses that.
    """
    try:
        importlib.import_module("torch")
    except ValueError:
        told = os.environ["TORCH_LOGS"]
        raise UserError(f"TORCH_LOGS: torch does not know '{told}'; unset it") from None
    except ImportError:
        return


def let_threads_sleep() -> None:
    """To be called before torch is imported, which is when OpenMP reads this.

    Threads that wait by turning in circles would take the cores from the processes that simulate.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def forget_odd_sizes() -> None:
    """Has a terminal whose size is said to be nothing, or beyond all screens, be asked itself.

    To be called before anything is shown: without a column nothing would be.
    """
    for name in ("COLUMNS", "LINES"):
        if not re.fullmatch(_COUNT, os.environ.get(name, "1")):
            del os.environ[name]
