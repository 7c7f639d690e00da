"""What this machine has, and whether a thing fits into it."""

import contextlib
import ctypes
import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from tpsrl.errors import UserError

_NO_MEMORY = re.compile("(can't|[Cc]ould not|[Cc]annot) allocate memory|out of memory")
HOME_BYTES = 500_000  # that a further home of a simulator takes, measured with 12 objects


def cores() -> int:
    """Processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_gib() -> float:
    """Main memory in GiB; NaN where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (ValueError, OSError, AttributeError):
        return float("nan")


def keep_memory() -> bool:
    """Has this process keep the memory it frees, where the C library is glibc; whether it does.

    By default glibc gives every large block back to the system at once, and each of its pages costs
    a fault when it is taken again. A network that learns takes and frees the same blocks in every
    step: keeping them saves a quarter of its time on the CPU.
    """
    trim_threshold, top_pad, mmap_threshold, arena_max = -1, -2, -3, -8  # of mallopt(3)
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    wanted = {mmap_threshold: 1 << 30, trim_threshold: (1 << 31) - 1, top_pad: 64 << 20}
    wanted[arena_max] = 1  # the thread that computes gradients would have its own
    return all([mallopt(option, value) for option, value in wanted.items()])


def memory_bytes() -> float:
    """Main memory in bytes that processes may take together; infinite where nobody says.

    A container has a limit of its own.
    """
    found = [memory_gib() * 2**30]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            found.append(float(Path("/sys/fs/cgroup", name).read_text()))
    return min((size for size in found if size == size), default=math.inf)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there is no memory left: Python's own, PyTorch's, or MuJoCo's.

    Theirs are told by their words, since it takes seconds to import what defines them.
    """
    if isinstance(error, MemoryError):
        return True
    told = type(error).__name__ in ("RuntimeError", "OutOfMemoryError", "FatalError")
    return told and bool(_NO_MEMORY.search(str(error)))


def refuse(
    given: Mapping[str, int],
    needed: Callable[[Mapping[str, int]], float],
    limit: float,
    usual: Mapping[str, int],
) -> None:
    """Refuses whole numbers that need more bytes than there are.

    Args:
        given: by the names of their fields
        needed: the bytes that such numbers need, which grow with each of them
        limit: the bytes that there are
        usual: what such numbers mostly are, by the last part of their names

    Raises:
        UserError: names a field, and the largest value of it that fits; if one alone does not
            bring it within the limit, the one without which least is needed.
    """
    total = needed(given)
    if total <= limit:
        return
    fitting = {name: _largest(name, given, needed, limit) for name in given}
    within = {name: value for name, value in fitting.items() if value}
    if within:
        # Of two that are multiplied, the one that is not as it mostly is.
        odd = {n: v for n, v in within.items() if given[n] > usual.get(n.rpartition(".")[2], 0)}
        within = odd or within
        worst = min(within, key=lambda name: within[name] / given[name])
        hint = f"{within[worst]:,} would fit"
    else:
        worst = min(given, key=lambda name: needed({**given, name: 1}))
        others = {name: 1 for name in given if name != worst}
        most = _largest(worst, {**given, **others}, needed, limit)
        hint = f"{most:,} would be the most, with all else small"
    raise UserError(
        f"{worst}: {given[worst]} needs {_gib(total)} of memory here, this machine has "
        f"{_gib(limit)}; {hint}"
    )


def _largest(
    name: str, given: Mapping[str, int], needed: Callable[[Mapping[str, int]], float], limit: float
) -> int:
    """The largest value of one number that fits, the others being as given; 0 if none does."""
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
