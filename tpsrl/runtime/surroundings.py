"""Environment of the process: variables, threads, terminal."""

import importlib
import os
import re

from tpsrl.errors import UserError

_COUNT = "[1-9][0-9]{0,4}"  # pattern of a number of threads, columns or lines


def check() -> None:
    """Checks the working directory and the environment variables that would break libraries.

    Raises:
        UserError: the working directory does not exist, or a variable is invalid; names the
            variable and its valid values.
    """
    try:
        os.getcwd()
    except OSError:
        raise UserError("the current folder no longer exists; change to another") from None
    # OpenMP accepts one number for each level of nested parallelism.
    for name, several in (("NUMBA_NUM_THREADS", ""), ("OMP_NUM_THREADS", f"( *, *{_COUNT})*")):
        threads = os.environ.get(name)
        if threads is not None and not re.fullmatch(f" *{_COUNT}{several} *", threads):
            raise UserError(f"{name}: '{threads}' is not an integer >= 1; nearest: 1")
    if os.environ.get("TORCH_LOGS"):
        _check_torch_logs()


def _check_torch_logs() -> None:
    """Imports torch, where installed; torch parses TORCH_LOGS at its import.

    Raises:
        UserError: torch refuses the value.
    """
    try:
        importlib.import_module("torch")
    except ValueError:
        value = os.environ["TORCH_LOGS"]
        raise UserError(f"TORCH_LOGS: torch does not know '{value}'; unset it") from None
    except ImportError:
        return


def let_threads_sleep() -> None:
    """Lets waiting OpenMP threads sleep; must be called before torch is imported.

    Busy-waiting threads would take the cores from the processes that simulate. OpenMP reads the
    variable when torch is imported.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def forget_odd_sizes() -> None:
    """Removes COLUMNS and LINES if they are 0 or implausible, so that the terminal is queried.

    Must be called before anything is printed: with 0 columns, nothing would be shown.
    """
    for name in ("COLUMNS", "LINES"):
        if not re.fullmatch(_COUNT, os.environ.get(name, "1")):
            del os.environ[name]
