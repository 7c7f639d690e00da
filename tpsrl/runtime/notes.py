"""Notes on where this process keeps things, on standard error.

A command says them when it has ended, and not at all beside an error of its input, which is one
line.
"""

import contextlib
import sys
from collections.abc import Iterator

from tpsrl.errors import UserError

_waiting: list[list[str]] = []  # notes of the commands that are running, the innermost last


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Has notes that are given inside wait for the end, and dropped if that is a wrong input."""
    notes: list[str] = []
    _waiting.append(notes)
    try:
        yield
    except (UserError, OSError):
        notes.clear()
        raise
    finally:
        _waiting.pop()
        for note in notes:
            say(note)


def say(note: str) -> None:
    """Says a note, now or when the command has ended."""
    if _waiting:
        _waiting[-1].append(note)
        return
    with contextlib.suppress(OSError):  # nobody reads it
        print(f"tpsrl: {note}", file=sys.stderr)
