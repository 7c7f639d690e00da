"""Errors that a user caused and can mend."""

import contextlib
import difflib
from collections.abc import Iterable, Iterator

_SHOWN = 12  # valid values that a message lists
_LONGEST = 300  # characters of a message on one line
_NEAR = 0.6  # likeness (0 to 1) from which on a valid value is suggested
_PREFIX = 3  # letters that a word has at least to begin another


class UserError(Exception):
    """Bad input. The command line prints the message on one line and exits with code 2.

    A message names the field, what was given and the nearest valid value.
    """


def unknown(field: str, given: object, valid: Iterable[str]) -> UserError:
    """A `UserError` for a value outside a closed set, naming the nearest valid one, if any."""
    return UserError(f"{field}: unknown value '{given}'{_hint(given, valid)}")


class UnknownKeyword(UserError, TypeError):
    """A keyword argument that does not exist; a `TypeError` too, as Python itself raises it."""


def unknown_keyword(field: str, given: object, valid: Iterable[str]) -> UnknownKeyword:
    """An `UnknownKeyword` that names the nearest valid keyword."""
    why = f"got an unexpected keyword argument '{given}'"
    return UnknownKeyword(f"{field}: {why}{_hint(given, valid)}")


def _hint(given: object, valid: Iterable[str]) -> str:
    """The nearest valid value, if any, and the first of all."""
    options = sorted(str(v) for v in valid)
    close = nearest(str(given), options)
    shown = ", ".join(options[:_SHOWN])
    if len(options) > _SHOWN:
        shown += f" and {len(options) - _SHOWN} more"
    return f"{suggestion(close)} (valid: {shown})"


def nearest(given: str, valid: Iterable[str]) -> str | None:
    """The valid value that is most like a given one, None where none is like it.

    A word is like one that it begins, or that begins it, too.
    """
    words = [word for word in valid if _goes_on(given, word) or _likeness(given, word) >= _NEAR]
    return max(words, key=lambda word: (_likeness(given, word), word), default=None)


def _likeness(given: str, valid: str) -> float:
    """How much alike two words are, 0 to 1; of KIND:REST the kinds count."""
    if min(given.find(":"), valid.find(":")) > 0:
        given, valid = given.partition(":")[0], valid.partition(":")[0]
    return difflib.SequenceMatcher(None, valid, given).ratio()


def _goes_on(one: str, other: str) -> bool:
    """Whether one of two words is the beginning of the other."""
    short, long = sorted((one, other), key=len)
    return len(short) >= _PREFIX and long.startswith(short)


class UnknownKeyError(UserError):
    """A setting that a command does not have; `key` is its name."""

    def __init__(self, key: str, nearest: str | None) -> None:
        super().__init__(f"unknown key '{key}'" + suggestion(nearest))
        self.key = key


def suggestion(nearest: str | None) -> str:
    """The end of a message that suggests a valid value, "" where none is near."""
    return f"; did you mean '{nearest}'?" if nearest else ""


@contextlib.contextmanager
def renamed(field: str, given: str) -> Iterator[None]:
    """Has errors about a field inside name the one by which a user gave its value."""
    try:
        yield
    except UserError as error:
        named, colon, rest = str(error).partition(":")
        if named != field:
            raise
        raise UserError(given + colon + rest) from None


def one_line(message: str) -> str:
    """A message on one line of at most 300 characters, whatever of a user's it quotes.

    Control characters, line ends among them, and lone surrogates are escaped. Of one that is too
    long the middle goes: it begins with the field and ends with what is valid.
    """
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)
    if len(shown) <= _LONGEST:
        return shown
    head = (_LONGEST - 3) * 2 // 3
    return f"{shown[:head]}...{shown[head + 3 - _LONGEST :]}"


class RunError(Exception):
    """A run that could not go on though its input was good.

    The command line prints the message and exits with code 1.
    """
