"""A folder for what this process and its children put aside, which goes when they end.

A process that is killed can remove nothing. So all that goes through `tempfile` (sockets of
processes, files of a planner, torchrun's logs) is put into one folder with a lock in it, and who
comes next removes the folders whose lock is free.
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
_TRIES = 10  # of which somebody who sweeps may take each just as it is made
_FRESH_S = 60.0  # so long a folder may have no lock yet
_LONGEST = 60  # characters of a path, such that names of sockets in it fit into the 107 they have


@contextlib.contextmanager
def own() -> Iterator[None]:
    """Has `tempfile`, here and in child processes, use a folder that is removed at the end.

    Folders of processes that were killed are removed first. Where none can be made, nothing
    changes.
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
            del os.environ[name]  # torch notes its cache there, and would make the folder again
        # By the socket in it a server of forks is reached until the interpreter ends; then
        # multiprocessing removes its own folder, at priority -100, and what is around it goes.
        if process.current_process()._config.get("tempdir", "").startswith(f"{folder}/"):  # type: ignore[attr-defined]
            util.Finalize(None, _remove, (folder, lock), exitpriority=-101)
        else:
            _remove(folder, lock)


def _base() -> Path:
    """Where temporary files go: as the user says, unless names of sockets were too long there."""
    base = Path(tempfile.gettempdir())
    usual = Path("/tmp")
    if len(str(base)) > _LONGEST and usual.is_dir() and os.access(usual, os.W_OK | os.X_OK):
        return usual
    return base


def lasting(name: str) -> Path:
    """A folder of this user alone that outlasts this process, also within `own`.

    It is `NAME_UID` among the temporary files, where nobody else's folder is in its place.

    Raises:
        OSError: it cannot be made, or not be written.
    """
    base = Path(tempfile.gettempdir())
    if base.name.startswith(_PREFIX) and (base / _LOCK).is_file():
        base = base.parent  # of a folder of `own`, this process's or its parent's
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
    """Removes this user's folders whose processes are gone."""
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
    """Descriptor of the locked file, which exec does not pass on; None if it is taken or gone."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Whoever swept just then may have locked it before, and removed it.
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None
