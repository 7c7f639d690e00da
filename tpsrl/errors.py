"""Errors that a user caused and can fix."""

import contextlib
import difflib
from collections.abc import Iterable, Iterator

_SHOWN = 12  # maximum number of valid values in a message
_LONGEST = 300  # maximum characters of a message on one line
_NEAR = 0.6  # minimum similarity (0 to 1) of a suggested value
_PREFIX = 3  # minimum length of a prefix for a suggestion


class UserError(Exception):
    """Bad input. The command line prints the message on one line and exits with code 2.

    The message names the field, the given value and the nearest valid value.
    """


def unknown(field: str, given: object, valid: Iterable[str]) -> UserError:
    """Returns a `UserError` for a value outside a closed set; suggests the nearest valid value."""
    return UserError(f"{field}: unknown value '{given}'{_hint(given, valid)}")


class UnknownKeyword(UserError, TypeError):
    """Unknown keyword argument; also a `TypeError`, like the error that Python itself raises."""


def unknown_keyword(field: str, given: object, valid: Iterable[str]) -> UnknownKeyword:
    """Returns an `UnknownKeyword` that names the nearest valid keyword."""
    why = f"got an unexpected keyword argument '{given}'"
    return UnknownKeyword(f"{field}: {why}{_hint(given, valid)}")


def _hint(given: object, valid: Iterable[str]) -> str:
    """Returns the nearest valid value, if any, and a list of valid values."""
    options = sorted(str(v) for v in valid)
    close = nearest(str(given), options)
    shown = ", ".join(options[:_SHOWN])
    if len(options) > _SHOWN:
        shown += f" and {len(options) - _SHOWN} more"
    return f"{suggestion(close)} (valid: {shown})"


def nearest(given: str, valid: Iterable[str]) -> str | None:
    """Returns the valid value most similar to `given`, or None if none is similar.

    Two words are also similar if one is a prefix of the other.
    """
    words = [word for word in valid if _goes_on(given, word) or _likeness(given, word) >= _NEAR]
    return max(words, key=lambda word: (_likeness(given, word), word), default=None)


def _likeness(given: str, valid: str) -> float:
    """Returns the similarity of two words, 0 to 1; of the form KIND:REST only KIND is compared."""
    if min(given.find(":"), valid.find(":")) > 0:
        given, valid = given.partition(":")[0], valid.partition(":")[0]
    return difflib.SequenceMatcher(None, valid, given).ratio()


def _goes_on(one: str, other: str) -> bool:
    """Returns whether one of two words is a prefix of the other, of at least `_PREFIX` letters."""
    short, long = sorted((one, other), key=len)
    return len(short) >= _PREFIX and long.startswith(short)


class UnknownKeyError(UserError):
    """Unknown key of a command's settings; `key` is its name, `nearest` a valid one, if any."""

    def __init__(self, key: str, nearest: str | None) -> None:
        super().__init__(f"unknown key '{key}'" + suggestion(nearest))
        self.key, self.nearest = key, nearest


def suggestion(nearest: str | None) -> str:
    """Returns the end of a message that suggests a valid value, or "" if none is near."""
    return f"; did you mean '{nearest}'?" if nearest else ""


@contextlib.contextmanager
def renamed(field: str, given: str) -> Iterator[None]:
    """Replaces the name `field` by `given`, the setting used, in errors raised inside the block."""
    try:
        yield
    except UserError as error:
        named, colon, rest = str(error).partition(":")
        if named != field:
            raise
        raise UserError(given + colon + rest) from None


def one_line(message: str) -> str:
    """Returns a message on one line of at most 300 characters, whatever user input it quotes.

    Control characters, line ends included, and lone surrogates are escaped. The middle of a longer
    message is left out, because it begins with the field and ends with the valid values.
    """
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)
    if len(shown) <= _LONGEST:
        return shown
    head = (_LONGEST - 3) * 2 // 3
    return f"{shown[:head]}...{shown[head + 3 - _LONGEST :]}"


class RunError(Exception):
    """A run that could not continue although its input was valid.

    The command line prints the message and exits with code 1.
    """
