"""Locks that admit one writer to a folder; the system frees them when the process ends or dies."""

import contextlib
import fcntl
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from tpsrl.errors import UserError

RUNNING = ".running"
_LOCK = "lock"
_TRIES = 100  # attempts, since the previous holder may remove the file while it is opened


@contextlib.contextmanager
def hold(folder: Path, field: str = "out", shown: Path | None = None) -> Iterator[Path]:
    """Locks a folder against other writers, in this process or another one.

    Yields `folder/.running`, for unfinished files. Missing folders are made, and those that were
    made are removed at the end if they are empty.

    Args:
        folder: folder to lock
        field: name of its setting in messages
        shown: folder named in messages, if `folder` only stands for it

    Raises:
        UserError: another writer holds the lock, or the folder cannot be written; names the field.
    """
    running = folder / RUNNING
    made = [path for path in running.parents if not path.exists()]
    if folder.name.startswith("."):  # stands for `shown`; a killed process may have left it
        made = list(dict.fromkeys([folder, *made]))
    try:
        try:
            descriptor = _acquire(running / _LOCK)
        except BlockingIOError:
            raise UserError(
                f"{field}: {shown or folder} is in use by {_holder(running / _LOCK)}; "
                f"wait until it has ended, or choose another {field}"
            ) from None
        except OSError as error:
            raise UserError(
                f"{field}: cannot lock '{shown or folder}' ({error.strerror})"
            ) from None
        try:
            yield running
        finally:
            # Removed while it is locked, so that the next process makes a new file.
            (running / _LOCK).unlink(missing_ok=True)
            os.close(descriptor)
    finally:
        for path in (running, *made):
            with contextlib.suppress(OSError):
                path.rmdir()


def _acquire(path: Path) -> int:
    """Locks a file, writes the process's id and host into it, and returns its descriptor.

    Raises:
        BlockingIOError: another process holds the lock.
        OSError: the file cannot be made or locked.
    """
    for attempt in range(_TRIES):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Child processes do not inherit the descriptor, so the lock ends with this process.
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except (FileExistsError, FileNotFoundError):  # the previous holder removes its folders
            if attempt == _TRIES - 1:
                raise
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(FileNotFoundError):
                # The previous holder may have removed the file after it was opened.
                if os.path.samestat(os.fstat(descriptor), path.stat()):
                    os.ftruncate(descriptor, 0)
                    os.write(descriptor, f"{os.getpid()} {platform.node()}\n".encode())
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise BlockingIOError


def _holder(path: Path) -> str:
    try:
        process, _, machine = path.read_text().strip().partition(" ")
    except OSError:
        process, machine = "", ""
    if not process:
        return "another process"
    return f"process {process}" + (f" on {machine}" if machine != platform.node() else "")
