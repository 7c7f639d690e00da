"""Folder for the temporary files of this process and its children, removed when they end.

A killed process cannot remove its files. Therefore all files made through `tempfile` (sockets of
processes, files of a planner, torchrun's logs) go into one folder with a lock in it, and the next
process removes the folders whose lock is free.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from multiprocessing import process, util
from pathlib import Path

_PREFIX = "tpsrl-"
_LOCK = "lock"
_TRIES = 10  # attempts, since a concurrent `sweep` may remove a folder before it is locked
_FRESH_S = 60.0  # younger folders without a lock are not removed
_LONGEST = 60  # characters of a path, so that paths of sockets in it fit into the limit of 107


@contextlib.contextmanager
def own() -> Iterator[None]:
    """Redirects `tempfile`, here and in child processes, to a folder that is removed at the end.

    Folders of killed processes are removed first. If no folder can be made, nothing changes.
    """
    before = tempfile.tempdir, os.environ.get("TMPDIR")
    folder = lock = None
    with contextlib.suppress(OSError):
        base = _base()
        sweep(base)
        for _ in range(_TRIES):
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
            lock = _try_lock(folder / _LOCK)
            if lock is not None:
                break
    if folder is None or lock is None:
        yield
        return
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before[0]
        if before[1] is None:
            os.environ.pop("TMPDIR", None)
        else:
            os.environ["TMPDIR"] = before[1]
        for name in [n for n, value in os.environ.items() if value.startswith(f"{folder}/")]:
            del os.environ[name]  # torch sets its cache folder, and would make the folder again
        # The fork server's socket in the folder is used until the interpreter exits. Then
        # multiprocessing removes its own folder, at priority -100, and this one is removed next.
        if process.current_process()._config.get("tempdir", "").startswith(f"{folder}/"):  # type: ignore[attr-defined]
            util.Finalize(None, _remove, (folder, lock), exitpriority=-101)
        else:
            _remove(folder, lock)


def _base() -> Path:
    """Returns the user's folder for temporary files, or /tmp if socket paths would be too long."""
    base = Path(tempfile.gettempdir())
    usual = Path("/tmp")
    if len(str(base)) > _LONGEST and usual.is_dir() and os.access(usual, os.W_OK | os.X_OK):
        return usual
    return base


def lasting(name: str) -> Path:
    """Returns a folder private to this user that outlasts this process, also within `own`.

    It is `NAME_UID` among the temporary files, or a new folder if another user owns or can access
    that one.

    Raises:
        OSError: the folder cannot be made or written.
    """
    base = Path(tempfile.gettempdir())
    if base.name.startswith(_PREFIX) and (base / _LOCK).is_file():
        base = base.parent  # `base` is a folder of `own`, in this process or its parent
    folder = base / f"{name}_{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077 or folder.is_symlink():
        folder = Path(tempfile.mkdtemp(prefix=f"{name}_", dir=base))
    with tempfile.TemporaryFile(dir=folder):
        pass
    return folder


def _remove(folder: Path, lock: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)


def sweep(base: Path) -> None:
    """Removes this user's folders in `base` whose processes have ended."""
    for folder in base.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            found = folder.lstat()
            if found.st_uid != os.getuid() or not folder.is_dir() or folder.is_symlink():
                continue
            if not (folder / _LOCK).exists() and time.time() - found.st_mtime < _FRESH_S:
                continue
            lock = _try_lock(folder / _LOCK)
            if lock is not None:
                _remove(folder, lock)


def _try_lock(path: Path) -> int | None:
    """Locks a file and returns its descriptor, closed by exec; None if it is locked or removed."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A concurrent `sweep` may have locked and removed the file after it was opened.
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None
