"""Files that are written completely or not at all, and checks of the folders that hold them."""

import contextlib
import errno
import functools
import glob
import gzip
import hashlib
import itertools
import json
import os
import platform
import shutil
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tpsrl.errors import UserError
from tpsrl.runtime import locks

MOST_DATA = 2**30  # maximum bytes; the largest datasets of episodes have a tenth of it
MOST_TEXT = 2**26  # maximum bytes of a text file
_DIGITS = bytes.maketrans(b"123456789", b"0" * 9)
_HUGE = b"0" * 309  # digits of an integer that may exceed the range of a float
_LONGEST_NAME = 255  # maximum bytes of a name, in most file systems
_PROBES = 100  # attempts to write into a folder that other ranks make and remove
_LONGEST_STEM = 180  # maximum bytes of a stem in the name of a temporary file


@contextlib.contextmanager
def atomic(path: Path, durable: bool = False) -> Iterator[Path]:
    """Yields a temporary path beside `path`; the file written there replaces `path` at the end.

    Folders are made if needed. If the block raises or writes no file, the old file stays and the
    temporary one is removed. With `durable`, the file is either the complete old or the complete
    new one, even after a power loss.

    Raises:
        OSError: the file cannot be written, or `path` is a folder, a device or a pipe.
    """
    if path.exists() and not path.is_file():  # replacing a device would remove it
        raise FileExistsError(errno.EEXIST, "not a regular file", str(path))
    temporary = path.with_name(_temporary(path, str(os.getpid())))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_dead(path)
        yield temporary
        if temporary.exists():
            if durable:
                with temporary.open("rb") as file:
                    os.fsync(file.fileno())
            temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):  # nothing to remove if the parent is a file
            temporary.unlink()


@contextlib.contextmanager
def unfinished(folder: Path) -> Iterator[Path]:
    """Yields a temporary folder beside `folder`, which it becomes at the end; `folder` must be new.

    If the block raises, nothing is left. Remains of a killed process are removed first.

    Raises:
        UserError: the folder cannot be written, or another process is filling it.
    """
    beside = folder.with_name(f".{folder.name}.unfinished")
    with locks.hold(folder.with_name(f".{folder.name}.lock"), shown=folder):
        shutil.rmtree(beside, ignore_errors=True)
        try:
            beside.mkdir(parents=True)
            yield beside
            if folder.is_dir():
                folder.rmdir()  # empty
            beside.replace(folder)
        except OSError as error:
            raise UserError(f"out: cannot write '{folder}' ({error.strerror})") from None
        finally:
            shutil.rmtree(beside, ignore_errors=True)


def sweep_unfinished(folder: Path) -> None:
    """Removes the temporary folder of `unfinished` that a process killed near its end has left.

    Raises:
        UserError: another process is filling the folder.
    """
    with locks.hold(folder.with_name(f".{folder.name}.lock"), shown=folder):
        shutil.rmtree(folder.with_name(f".{folder.name}.unfinished"), ignore_errors=True)


def user_path(path: str | os.PathLike[str], field: str = "out") -> Path:
    """Returns a path given by a user, with `~` and `~USER` expanded.

    Raises:
        UserError: the value is not a path, the user is unknown, a name is longer than file systems
            allow, or the path has a null byte; the message names the field.
    """
    if not isinstance(path, str | os.PathLike):
        raise UserError(f"{field}: {path!r} is not a path")
    try:
        found = Path(path).expanduser()
    except RuntimeError:
        raise UserError(f"{field}: '{Path(path).parts[0]}' names an unknown user") from None
    for part in found.parts:
        if "\0" in part:
            raise UserError(f"{field}: a path must not contain null bytes, got {str(path)!r}")
        size = len(os.fsencode(part))
        if size > _LONGEST_NAME:
            raise UserError(
                f"{field}: '{part[:20]}...' has {size} bytes, must have at most {_LONGEST_NAME}"
            )
    return found


def output_file(path: str | os.PathLike[str], field: str = "out") -> Path:
    """Returns the path of an output file, after checking that its folder can be written.

    Raises:
        UserError: the path is a folder, a device or empty, or cannot be written; the message names
            the field.
    """
    found = user_path(path, field)
    if not found.name or found.name == ".." or found.is_dir():
        raise UserError(f"{field}: '{path}' is a folder; name a file")
    if found.exists() and not found.is_file():
        raise UserError(f"{field}: '{path}' is a device or a pipe; name a file")
    check_writable(found.parent, field)
    return found


def new_folder(path: str | os.PathLike[str], field: str = "out") -> Path:
    """Returns the path of a folder that is new or empty, with symbolic links resolved.

    Raises:
        UserError: the folder exists and is not empty, or its parent cannot be written; the message
            names the field.
    """
    found = user_path(path, field)
    if os.path.lexists(found) and (not found.is_dir() or any(found.iterdir())):
        raise UserError(f"{field}: {found} already exists; delete it, or choose another out")
    if found.is_symlink():
        found = found.resolve()
    check_writable(found.parent, field)
    return found


def plain(path: str | os.PathLike[str]) -> Path:
    """Returns the path of a file to read; refuses pipes and devices, whose reading may never end.

    Raises:
        OSError: the path is a pipe or a device. A missing file is left to the code that opens it.
    """
    found = Path(path)
    if found.exists() and not found.is_file() and not found.is_dir():
        raise OSError(errno.EINVAL, "not a file", str(path))
    return found


def read_data(path: str | os.PathLike[str], field: str, most: int = MOST_DATA) -> bytes:
    """Reads a whole file, decompressed if it is a gzip file.

    Raises:
        UserError: the file cannot be read, is a folder, device or pipe, is damaged, or has more
            than `most` bytes, compressed or decompressed; the message names the field.
    """
    where = user_path(path, field)
    try:
        if where.exists() and not where.is_file():
            raise UserError(f"{field}: {path} is not a file")
        with where.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            source = gzip.GzipFile(fileobj=file) if packed else file
            data = source.read(most + 1)  # bounds the memory, however large the file is
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{field}: {path} is corrupt or truncated ({error})") from None
    except OSError as error:
        raise UserError(f"{field}: cannot read {path}: {error.strerror or error}") from None
    if len(data) > most:
        raise UserError(f"{field}: {path} has more than {most:,} bytes")
    return data


def read_text(path: str | os.PathLike[str], most: int = MOST_TEXT) -> str:
    """Reads a UTF-8 text file, such as settings or metadata.

    Raises:
        OSError: the file cannot be read, is a folder, device or pipe, or has more than `most`
            bytes.
        UnicodeDecodeError: the file is not UTF-8.
    """
    with plain(path).open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"more than {most:,} bytes", str(path))
    return data.decode()


def open_arrays(path: str | os.PathLike[str], most: int = MOST_DATA, whole: bool = True) -> Any:
    """Opens a file of arrays as numpy's `NpzFile`, without pickle.

    Args:
        path: path of the .npz file
        most: maximum number of decompressed bytes
        whole: apply the limit to the sum of all arrays instead of each array

    Raises:
        OSError: the file cannot be read, is not a file, or exceeds `most` bytes.
        ValueError, zipfile.BadZipFile: the file is not an .npz file.
    """
    import numpy as np

    found = np.load(plain(path), allow_pickle=False)
    if not isinstance(found, np.lib.npyio.NpzFile):
        raise ValueError("a single array instead of an archive")
    archive: Any = found.zip
    sizes = [entry.file_size for entry in archive.infolist()]
    if (sum(sizes) if whole else max(sizes, default=0)) > most:
        found.close()
        raise OSError(errno.EFBIG, f"more than {most:,} bytes unpacked", str(path))
    return found


def parse_json(text: str | bytes) -> Any:
    """Parses JSON in which every number is finite and every text can be encoded again.

    Raises:
        ValueError: the text is not JSON, is nested too deeply, or has a number outside the range of
            floats, NaN, an infinity or a lone surrogate.
    """
    from msgspec import json as decoder  # imported late, since help does not need it

    try:
        found = decoder.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    data = text if isinstance(text, bytes) else text.encode()
    if _HUGE in data.translate(_DIGITS):
        raise ValueError(f"a number of {len(_HUGE)} digits or more")
    return found


def check_replaceable(folder: Path, names: Iterable[str], field: str = "out") -> None:
    """Checks that the named files of a folder, where they exist, can be replaced.

    Raises:
        UserError: a path is a folder, a device or a pipe.
    """
    for path in (folder / name for name in names):
        if path.exists() and not path.is_file():
            raise UserError(f"{field}: {path} is not a regular file and would be replaced")


def check_writable(out: str | os.PathLike[str], field: str = "out") -> Path:
    """Checks that files can be written into a folder, leaving nothing behind.

    Raises:
        UserError: the folder cannot be written; the message names the field.
    """
    folder = user_path(out, field)
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    probe = folder / f".probe.{os.getpid()}"
    try:
        for attempt in itertools.count():
            try:
                folder.mkdir(parents=True, exist_ok=True)
                probe.write_bytes(b"")
                break
            except (FileNotFoundError, FileExistsError):  # another rank removed the folder
                if attempt == _PROBES:
                    raise
        with contextlib.suppress(FileNotFoundError):
            for each in folder.glob(".probe.*"):  # including those of killed processes
                each.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"{field}: cannot write into '{out}' ({error.strerror})") from None
    finally:
        for path in missing:
            with contextlib.suppress(OSError):
                path.rmdir()
    return folder


def _temporary(path: Path, process: str) -> str:
    """Returns the name of a process's temporary file for `path`.

    The suffix is kept, because some writers choose the format by it, and long stems are truncated.
    """
    stem = os.fsdecode(os.fsencode(path.stem)[:_LONGEST_STEM])
    return f".{stem}.{process}.{_here()}.tmp{path.suffix}"


@functools.cache
def _here() -> str:
    """Returns a digest of the host and process namespace, within which a process id is unique."""
    where = platform.node()
    with contextlib.suppress(OSError):  # only Linux has namespaces
        where += os.readlink("/proc/self/ns/pid")
    return hashlib.sha256(where.encode()).hexdigest()[:8]


def _remove_dead(path: Path) -> None:
    """Removes temporary files of `path` left by killed processes of this host and namespace."""
    before, after = _temporary(path, "\0").split("\0")
    for stray in path.parent.glob(f"{glob.escape(before)}*{glob.escape(after)}"):
        process = stray.name[len(before) : -len(after)]
        try:
            os.kill(int(process), 0)
        except ProcessLookupError:
            stray.unlink(missing_ok=True)
        except (ValueError, OverflowError, PermissionError):
            continue  # not a process id, or a process of another user


def remove_strays(path: Path) -> None:
    """Removes the temporary files of `path` left by killed processes.

    No process may be writing the file. The stem `*` stands for all files with this suffix.
    """
    for stray in path.parent.glob(f".{path.stem}.*.tmp{path.suffix}"):
        stray.unlink(missing_ok=True)


def write_text(path: Path, text: str, field: str = "out") -> None:
    """Writes a text file completely or not at all, even if the machine loses power.

    Raises:
        UserError: the file cannot be written; the message names the field.
    """
    try:
        with atomic(path, durable=True) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{field}: cannot write '{path}' ({error.strerror})") from None


def write_json(path: Path, value: Any, field: str = "out") -> None:
    """Writes indented JSON; NaN and infinity raise an error, since JSON has neither."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n", field)


def write_jsonl(path: Path, records: Iterable[Any], field: str = "out") -> None:
    """Writes one JSON record per line."""
    write_text(path, "".join(json.dumps(r, allow_nan=False) + "\n" for r in records), field)
