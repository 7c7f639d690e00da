"""Resources of this machine, and checks whether settings fit into its memory."""

import contextlib
import ctypes
import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from tpsrl.errors import UserError

_NO_MEMORY = re.compile("(can't|[Cc]ould not|[Cc]annot) allocate memory|out of memory")
HOME_BYTES = 500_000  # memory of each additional home in a simulator, measured with 12 objects


def cores() -> int:
    """Returns the number of processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_gib() -> float:
    """Returns the main memory in GiB; NaN if the system does not report it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (ValueError, OSError, AttributeError):
        return float("nan")


def keep_memory() -> bool:
    """Makes glibc keep the memory that this process frees; returns whether that succeeded.

    By default glibc returns every large block to the system at once, and each of its pages causes a
    page fault when it is allocated again. A training allocates and frees the same blocks in every
    step; keeping them saves a quarter of its time on the CPU.
    """
    trim_threshold, top_pad, mmap_threshold, arena_max = -1, -2, -3, -8  # of mallopt(3)
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    wanted = {mmap_threshold: 1 << 30, trim_threshold: (1 << 31) - 1, top_pad: 64 << 20}
    wanted[arena_max] = 1  # otherwise the thread that computes gradients has its own arena
    return all([mallopt(option, value) for option, value in wanted.items()])


def memory_bytes() -> float:
    """Returns the memory in bytes available to all processes together; infinite if unknown.

    The memory limit of a container is included.
    """
    found = [memory_gib() * 2**30]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            found.append(float(Path("/sys/fs/cgroup", name).read_text()))
    return min((size for size in found if size == size), default=math.inf)


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether an error of Python, PyTorch or MuJoCo means that memory is exhausted.

    Errors of PyTorch and MuJoCo are recognized by their texts, since importing their classes takes
    seconds.
    """
    if isinstance(error, MemoryError):
        return True
    known_type = type(error).__name__ in ("RuntimeError", "OutOfMemoryError", "FatalError")
    return known_type and bool(_NO_MEMORY.search(str(error)))


def refuse(
    given: Mapping[str, int],
    needed: Callable[[Mapping[str, int]], float],
    limit: float,
    usual: Mapping[str, int],
) -> None:
    """Refuses numbers of settings that need more memory than is available.

    Args:
        given: value of each field, by field name
        needed: returns the bytes needed by such values; increases with each of them
        limit: available bytes
        usual: typical values, by the last part of the field name

    Raises:
        UserError: names a field and its largest value that fits; if no single field can be reduced
            enough, the field whose reduction to 1 saves the most.
    """
    total = needed(given)
    if total <= limit:
        return
    fitting = {name: _largest(name, given, needed, limit) for name in given}
    within = {name: value for name, value in fitting.items() if value}
    if within:
        # If two fields are multiplied, the one above its typical value is reported.
        odd = {n: v for n, v in within.items() if given[n] > usual.get(n.rpartition(".")[2], 0)}
        within = odd or within
        worst = min(within, key=lambda name: within[name] / given[name])
        hint = f"{within[worst]:,} would fit"
    else:
        worst = min(given, key=lambda name: needed({**given, name: 1}))
        others = {name: 1 for name in given if name != worst}
        most = _largest(worst, {**given, **others}, needed, limit)
        hint = f"at most {most:,} fits, with minimal values of all others"
    raise UserError(
        f"{worst}: {given[worst]} needs {_gib(total)} of memory here, this machine has "
        f"{_gib(limit)}; {hint}"
    )


def _largest(
    name: str, given: Mapping[str, int], needed: Callable[[Mapping[str, int]], float], limit: float
) -> int:
    """Returns the largest value of one field that fits with the others as given; 0 if none does."""
    low, high = 0, given[name]
    while low < high:
        middle = (low + high + 1) // 2
        if needed({**given, name: middle}) <= limit:
            low = middle
        else:
            high = middle - 1
    return low


def _gib(size: float) -> str:
    return f"{size / 2**30:,.1f} GiB" if size < 2**60 else "more than 10^9 GiB"
