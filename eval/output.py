"""The folder that a run writes: checked before any work, every file whole or not there."""

import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tpsrl.errors import UserError


def check(out: str | os.PathLike[str]) -> Path:
    """Proves that files can be written into an output folder, and leaves nothing behind.

    Raises:
        UserError: it cannot.
    """
    folder = Path(out).expanduser()
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    probe = folder / f".probe.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise UserError(f"out: cannot write into '{out}' ({error.strerror})") from None
    finally:
        for path in missing:
            with contextlib.suppress(OSError):
                path.rmdir()
    return folder


def write_text(path: Path, text: str) -> None:
    """Writes a file under another name and renames it, so that it is never half there."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):  # a parent that is a file has nothing to remove
            temporary.unlink()
        raise UserError(f"out: cannot write '{path}' ({error.strerror})") from None


def write_json(path: Path, value: Any) -> None:
    """Indented JSON; a NaN or infinity is an error, since JSON has none."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def write_jsonl(path: Path, records: Iterable[Any]) -> None:
    """One JSON record a line."""
    write_text(path, "".join(json.dumps(r, allow_nan=False) + "\n" for r in records))
