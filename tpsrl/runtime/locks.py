"""One writer to a folder: a lock that the system frees when its process ends, however that ends."""

import contextlib
import fcntl
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from tpsrl.errors import UserError

RUNNING = ".running"
_LOCK = "lock"
_TRIES = 100  # how often the one before may remove the file just as it is opened


@contextlib.contextmanager
def hold(folder: Path, field: str = "out", shown: Path | None = None) -> Iterator[Path]:
    """Keeps others that ask for the same folder out of it, in this process or another one.

    Yields `folder/.running`, where what is not finished may be kept. Folders are made if need be,
    and those that were made go again at the end when nothing is in them.

    Args:
        folder: that is held
        field: what messages call it
        shown: the folder that messages name, where this one only stands for it

    Raises:
        UserError: somebody else holds it, or it cannot be written; the message names the field.
    """
    running = folder / RUNNING
    made = [path for path in running.parents if not path.exists()]
    if folder.name.startswith("."):  # a stand-in, which a killed process may have left
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
            # Removed while it is held: whoever opens it afterwards makes another one.
            (running / _LOCK).unlink(missing_ok=True)
            os.close(descriptor)
    finally:
        for path in (running, *made):
            with contextlib.suppress(OSError):
                path.rmdir()


def _acquire(path: Path) -> int:
    """The descriptor of the locked file, which says who holds it.

    Raises:
        BlockingIOError: it is taken.
        OSError: it cannot be made or locked.
    """
    for attempt in range(_TRIES):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # New processes do not inherit it, so it is free as soon as this one has ended.
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except (FileExistsError, FileNotFoundError):  # the one before is removing its folders
            if attempt == _TRIES - 1:
                raise
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(FileNotFoundError):
                # Not a file that the one before has removed meanwhile.
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
