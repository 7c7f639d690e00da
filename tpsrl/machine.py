"""What this machine has."""

import contextlib
import ctypes
import math
import os
from pathlib import Path


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
