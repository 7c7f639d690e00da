"""Memory and signals shared between processes, which never remain after these have ended.

The memory has no name: the system frees it when the last process that holds it ends, for whatever
reason. The signals are semaphores in such memory.
"""

import contextlib
import ctypes
import errno
import functools
import math
import mmap
import os
import tempfile
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from tpsrl.errors import RunError
from tpsrl.rl.envs.messages import MessagePipe
from tpsrl.runtime import machine

ArrayLayout = Mapping[str, tuple[tuple[int, ...], Any]]  # name -> shape, dtype

_LINE = 64  # bytes: every array begins on its own cache line, and every semaphore has one
_NO_SEMAPHORES = "processes: workers need semaphores in shared memory, which this system lacks"


class SharedArrays:
    """Named numpy arrays, zero at first, in one block of anonymous shared memory.

    `send` passes the memory over a pipe to another process, which maps it by `receive`. An array
    must not be used after `close`.

    Raises:
        RunError: the machine has too little memory.
    """

    def __init__(self, layout: ArrayLayout, descriptor: int | None = None) -> None:
        self.layout = {
            name: (tuple(shape), np.dtype(kind)) for name, (shape, kind) in layout.items()
        }
        places, size = _places(self.layout)
        self._file = _allocate(size) if descriptor is None else descriptor
        self._map = mmap.mmap(self._file, size)
        self._arrays = {
            name: np.ndarray(shape, kind, self._map, places[name])
            for name, (shape, kind) in self.layout.items()
        }

    def __getitem__(self, name: str) -> np.ndarray:
        """Returns the array itself, not a copy."""
        return self._arrays[name]

    def send(self, pipe: MessagePipe) -> None:
        """Sends the memory to the process at the other end, which must call `receive`."""
        pipe.send(self.layout)
        pipe.send_descriptor(self._file)

    @staticmethod
    def receive(pipe: MessagePipe) -> "SharedArrays":
        """Maps the memory that the other end of the pipe sends."""
        layout = pipe.recv()
        return SharedArrays(layout, pipe.recv_descriptor())

    def close(self) -> None:
        """Releases this process's reference; safe to call twice."""
        self._arrays = {}
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        # While arrays are still referenced, the memory is freed with the last of them.
        with contextlib.suppress(BufferError):
            self._map.close()


def _places(layout: Mapping[str, tuple[tuple[int, ...], np.dtype]]) -> tuple[dict[str, int], int]:
    """Returns the offset of each array, and the size of all, in bytes."""
    places, end = {}, 0
    for name, (shape, kind) in layout.items():
        places[name] = end
        end += math.ceil(math.prod(shape) * kind.itemsize / _LINE) * _LINE
    return places, max(end, _LINE)


def _allocate(size: int) -> int:
    """Returns the descriptor of a file of `size` bytes without name, in memory where supported."""
    if size / 2**30 > machine.memory_gib():
        raise RunError(
            f"shared memory: {size / 2**30:,.1f} GiB are needed, this machine has "
            f"{machine.memory_gib():.1f}"
        )
    if hasattr(os, "memfd_create"):
        # Unlike a file in /dev/shm, it is not limited to that folder's size, 64 MB in a container.
        file = os.memfd_create("tpsrl", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as unlinked:
            file = os.dup(unlinked.fileno())
    os.ftruncate(file, size)
    return file


class Signals:
    """Counting semaphores in shared memory, one per channel, all zero at first.

    A channel counts the signals sent and not yet received. On Linux these are glibc's semaphores,
    based on futexes: sending takes no system call unless the receiver sleeps, and then one, which
    wakes it. Receiving takes no system call if a signal was already sent, and otherwise one for
    each sleep.

    Raises:
        RunError: this system has no such semaphores.
    """

    def __init__(self, memory: np.ndarray) -> None:
        """Places channels in `memory` (channels, 64) uint8 of a `SharedArrays`."""
        self._memory = memory
        self._at = [memory[channel].ctypes.data for channel in range(len(memory))]

    @staticmethod
    def layout(channels: int) -> tuple[tuple[int, ...], Any]:
        """Returns the shape and type of the memory of `channels` channels."""
        return (channels, _LINE), np.uint8

    def begin(self) -> None:
        """Initialises the semaphores; called once, by the process that made the memory."""
        for place in self._at:
            if _libc().sem_init(place, 1, 0) != 0:
                reason = os.strerror(ctypes.get_errno())
                raise RunError(f"{_NO_SEMAPHORES} ({reason})")

    def send(self, channel: int) -> None:
        """Increments the counter of a channel."""
        if _libc().sem_post(self._at[channel]) != 0:
            raise OSError(ctypes.get_errno(), "sem_post")

    def drain(self, channel: int) -> None:
        """Sets the counter of a channel to zero, without a system call."""
        while _libc().sem_trywait(self._at[channel]) == 0:
            pass

    def receive(self, channel: int, timeout_s: float) -> bool:
        """Decrements a counter, sleeping while it is zero; False after timeout or interrupt."""
        libc, place = _libc(), self._at[channel]
        if libc.sem_trywait(place) == 0:
            return True
        end = time.time() + timeout_s
        until = _Time(int(end), int(end % 1.0 * 1e9))
        if libc.sem_timedwait(place, ctypes.byref(until)) == 0:
            return True
        if ctypes.get_errno() not in (errno.ETIMEDOUT, errno.EINTR):
            raise OSError(ctypes.get_errno(), "sem_timedwait")
        return False


class _Time(ctypes.Structure):
    """The struct `timespec` of C."""

    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


@functools.cache
def _libc() -> Any:
    """Loads the C library, whose calls release Python's global interpreter lock."""
    libc = ctypes.CDLL(None, use_errno=True)
    place = ctypes.c_void_p
    try:
        libc.sem_init.argtypes = [place, ctypes.c_int, ctypes.c_uint]
        libc.sem_post.argtypes = libc.sem_trywait.argtypes = [place]
        libc.sem_timedwait.argtypes = [place, ctypes.POINTER(_Time)]
    except AttributeError:
        raise RunError(_NO_SEMAPHORES) from None
    return libc
