"""Files that are written whole or not at all, and the folders that they go into."""

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

MOST_DATA = 2**30  # bytes; the largest datasets of episodes have a tenth of it
MOST_TEXT = 2**26  # bytes of one that is read as a whole
_DIGITS = bytes.maketrans(b"123456789", b"0" * 9)
_HUGE = b"0" * 309  # digits of a whole number that a float may not hold
_LONGEST_NAME = 255  # bytes, of most file systems
_PROBES = 100  # attempts to write into a folder that other ranks make and remove
_LONGEST_STEM = 180  # of them, of a name that something is added to


@contextlib.contextmanager
def atomic(path: Path, durable: bool = False) -> Iterator[Path]:
    """A name beside `path` to write to; what is there takes the place of `path` at the end.

    Folders are made if need be. When the block raises, the old file stays and the new one goes;
    the same holds when the block leaves nothing there. With `durable`, a machine that loses its
    power has the old file or the new one, whole.

    Raises:
        OSError: the file cannot be written, or what is there is a folder, a device or a pipe.
    """
    if path.exists() and not path.is_file():  # a device would be gone afterwards
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
        with contextlib.suppress(OSError):  # a parent that is a file has nothing to remove
            temporary.unlink()


@contextlib.contextmanager
def unfinished(folder: Path) -> Iterator[Path]:
    """A folder beside `folder` to fill, which takes its place at the end; it must not exist yet.

    When the block raises, nothing is left; what a killed process has left is removed first.

    Raises:
        UserError: it cannot be written, or another process is filling it.
    """
    beside = folder.with_name(f".{folder.name}.unfinished")
    with locks.hold(folder.with_name(f".{folder.name}.lock"), shown=folder):
        shutil.rmtree(beside, ignore_errors=True)
        try:
            beside.mkdir(parents=True)
            yield beside
            if folder.is_dir():
                folder.rmdir()  # an empty one
            beside.replace(folder)
        except OSError as error:
            raise UserError(f"out: cannot write '{folder}' ({error.strerror})") from None
        finally:
            shutil.rmtree(beside, ignore_errors=True)


def sweep_unfinished(folder: Path) -> None:
    """Removes what a process has left beside a folder that was killed when that was in place.

    Raises:
        UserError: another process is filling it.
    """
    with locks.hold(folder.with_name(f".{folder.name}.lock"), shown=folder):
        shutil.rmtree(folder.with_name(f".{folder.name}.unfinished"), ignore_errors=True)


def user_path(path: str | os.PathLike[str], field: str = "out") -> Path:
    """A path that a user gave, `~` and `~USER` replaced by the home that they stand for.

    Raises:
        UserError: it is no path, there is no such user, a name is longer than file systems take, or
            it has a zero byte; the message names the field.
    """
    if not isinstance(path, str | os.PathLike):
        raise UserError(f"{field}: {path!r} is not a path")
    try:
        found = Path(path).expanduser()
    except RuntimeError:
        raise UserError(f"{field}: '{Path(path).parts[0]}' names an unknown user") from None
    for part in found.parts:
        if "\0" in part:
            raise UserError(f"{field}: a path must not contain null bytes: {str(path)!r} has")
        size = len(os.fsencode(part))
        if size > _LONGEST_NAME:
            raise UserError(
                f"{field}: '{part[:20]}...' has {size} bytes, a name has {_LONGEST_NAME} at most"
            )
    return found


def output_file(path: str | os.PathLike[str], field: str = "out") -> Path:
    """The path of a file to write, in a folder that can be written.

    Raises:
        UserError: it is a folder, a device, no name at all, or cannot be written; the message
            names the field.
    """
    found = user_path(path, field)
    if not found.name or found.name == ".." or found.is_dir():
        raise UserError(f"{field}: '{path}' is a folder; name a file")
    if found.exists() and not found.is_file():
        raise UserError(f"{field}: '{path}' is a device or a pipe; name a file")
    check_writable(found.parent, field)
    return found


def new_folder(path: str | os.PathLike[str], field: str = "out") -> Path:
    """The path of a folder to make, or of an empty one; where a link leads, if it is one.

    Raises:
        UserError: it is there already, or its parent cannot be written; the message names the
            field.
    """
    found = user_path(path, field)
    if os.path.lexists(found) and (not found.is_dir() or any(found.iterdir())):
        raise UserError(f"{field}: {found} is there already; delete it, or choose another out")
    if found.is_symlink():
        found = found.resolve()
    check_writable(found.parent, field)
    return found


def plain(path: str | os.PathLike[str]) -> Path:
    """The path, of a file that is about to be read; reading a pipe or a device may never end.

    Raises:
        OSError: there is something else than a file; no error of an absent one, for which reading
            has its own.
    """
    found = Path(path)
    if found.exists() and not found.is_file() and not found.is_dir():
        raise OSError(errno.EINVAL, "it is not a file", str(path))
    return found


def read_data(path: str | os.PathLike[str], field: str, most: int = MOST_DATA) -> bytes:
    """The whole content of a file, unpacked if it is a gzip file.

    Raises:
        UserError: it cannot be read, is a folder, device or pipe, is damaged, or has more than
            `most` bytes, packed or unpacked; the message names the field.
    """
    where = user_path(path, field)
    try:
        if where.exists() and not where.is_file():
            raise UserError(f"{field}: {path} is not a file")
        with where.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            source = gzip.GzipFile(fileobj=file) if packed else file
            data = source.read(most + 1)  # of an endless one no more than that
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{field}: {path} is corrupt or truncated ({error})") from None
    except OSError as error:
        raise UserError(f"{field}: cannot read {path}: {error.strerror or error}") from None
    if len(data) > most:
        raise UserError(f"{field}: {path} has more than {most:,} bytes")
    return data


def read_text(path: str | os.PathLike[str], most: int = MOST_TEXT) -> str:
    """The text of a file that people write or that describes others, in UTF-8.

    Raises:
        OSError: it cannot be read, is a folder, device or pipe, or has more than `most` bytes.
        UnicodeDecodeError: it is no UTF-8.
    """
    with plain(path).open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", str(path))
    return data.decode()


def open_arrays(path: str | os.PathLike[str], most: int = MOST_DATA, whole: bool = True) -> Any:
    """numpy's `NpzFile` of a file of arrays, without pickle.

    Raises:
        OSError: it cannot be read, is not a file, or has more than `most` bytes when unpacked: all
            arrays together, or if they are not read as a whole any one of them.
        ValueError, zipfile.BadZipFile: it is no such file.
    """
    import numpy as np

    found = np.load(plain(path), allow_pickle=False)
    if not isinstance(found, np.lib.npyio.NpzFile):
        raise ValueError("it holds one array alone")
    archive: Any = found.zip
    sizes = [entry.file_size for entry in archive.infolist()]
    if (sum(sizes) if whole else max(sizes, default=0)) > most:
        found.close()
        raise OSError(errno.EFBIG, f"unpacked it has more than {most:,} bytes", str(path))
    return found


def parse_json(text: str | bytes) -> Any:
    """What JSON says; every number in it is finite, and every text can be written again.

    Raises:
        ValueError: it is no JSON, nested too deeply to be read, has a number that no float holds,
            NaN or an infinity among them, or a lone surrogate.
    """
    from msgspec import json as decoder  # what no command's help needs

    try:
        found = decoder.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    data = text if isinstance(text, bytes) else text.encode()
    if _HUGE in data.translate(_DIGITS):
        raise ValueError(f"a number of {len(_HUGE)} digits or more")
    return found


def check_replaceable(folder: Path, names: Iterable[str], field: str = "out") -> None:
    """Proves that files of these names in a folder can be replaced, where there are any.

    Raises:
        UserError: one is a folder, a device or a pipe.
    """
    for path in (folder / name for name in names):
        if path.exists() and not path.is_file():
            raise UserError(f"{field}: {path} is not a regular file and would be replaced")


def check_writable(out: str | os.PathLike[str], field: str = "out") -> Path:
    """Proves that files can be written into a folder, and leaves nothing behind.

    Raises:
        UserError: they cannot; the message names the field.
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
            except (FileNotFoundError, FileExistsError):  # another rank has just removed it
                if attempt == _PROBES:
                    raise
        with contextlib.suppress(FileNotFoundError):
            for each in folder.glob(".probe.*"):  # those of killed processes too
                each.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"{field}: cannot write into '{out}' ({error.strerror})") from None
    finally:
        for path in missing:
            with contextlib.suppress(OSError):
                path.rmdir()
    return folder


def _temporary(path: Path, process: str) -> str:
    """What a process calls a file until it is whole: with the same ending, by which some writers
    choose the format, and not too long, however long the file's own name is.
    """
    stem = os.fsdecode(os.fsencode(path.stem)[:_LONGEST_STEM])
    return f".{stem}.{process}.{_here()}.tmp{path.suffix}"


@functools.cache
def _here() -> str:
    """Where a number means a process: this machine, and this container of it."""
    where = platform.node()
    with contextlib.suppress(OSError):  # not on Linux
        where += os.readlink("/proc/self/ns/pid")
    return hashlib.sha256(where.encode()).hexdigest()[:8]


def _remove_dead(path: Path) -> None:
    """Removes what writers of this file that were killed, right here, have left beside it."""
    before, after = _temporary(path, "\0").split("\0")
    for stray in path.parent.glob(f"{glob.escape(before)}*{glob.escape(after)}"):
        process = stray.name[len(before) : -len(after)]
        try:
            os.kill(int(process), 0)
        except ProcessLookupError:
            stray.unlink(missing_ok=True)
        except (ValueError, OverflowError, PermissionError):
            continue  # no process, or somebody else's


def remove_strays(path: Path) -> None:
    """Removes what writers of this file that were killed have left beside it.

    For a file that nobody is writing. A stem of `*` means all files with this ending.
    """
    for stray in path.parent.glob(f".{path.stem}.*.tmp{path.suffix}"):
        stray.unlink(missing_ok=True)


def write_text(path: Path, text: str, field: str = "out") -> None:
    """Writes a text file, whole or not at all, even when the machine loses its power.

    Raises:
        UserError: it cannot be written; the message names the field.
    """
    try:
        with atomic(path, durable=True) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{field}: cannot write '{path}' ({error.strerror})") from None


def write_json(path: Path, value: Any, field: str = "out") -> None:
    """Indented JSON; a NaN or infinity is an error, since JSON has none."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n", field)


def write_jsonl(path: Path, records: Iterable[Any], field: str = "out") -> None:
    """One JSON record a line."""
    write_text(path, "".join(json.dumps(r, allow_nan=False) + "\n" for r in records), field)
