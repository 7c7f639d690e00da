"""Notes on where this process keeps files, printed to standard error.

A command prints them when it has ended. After an error of its input, they are dropped, so that the
error stays one line.
"""

import contextlib
import sys
from collections.abc import Iterator

from tpsrl.errors import UserError

_waiting: list[list[str]] = []  # notes of the running commands, the innermost last


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Delays the notes of the block to its end, and drops them after an error of the input."""
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
    """Prints a note, now or when the command has ended."""
    if _waiting:
        _waiting[-1].append(note)
        return
    with contextlib.suppress(OSError):  # standard error is closed
        print(f"tpsrl: {note}", file=sys.stderr)
