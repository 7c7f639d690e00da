"""Types of what files hold, with bounds for files of unknown origin, and how they are read."""

import math
import operator
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, UnsetType

from planner.execution.trace import plain

T = TypeVar("T")

_LONGEST = 100_000  # letters of a text, which may be a command line
_LARGEST = 2**53
_SLACK = 1e-6  # of shares, which are sums of many
_MOST = 10_000  # entries of a list
_RELATIVE = r"\A(?!/)(?![^/]*:)[^\\]*\Z"
_INSIDE = r"\A(?!/)(?![^/]*:)(?!([^/]*/)*\.\.(/|\Z))[^\\]+\Z"
_EXPECTED = {
    f"`str` matching regex {_RELATIVE!r}": "a path relative to the folder",
    f"`str` matching regex {_INSIDE!r}": "the path of a file in the folder",
}

Text = Annotated[str, Meta(max_length=_LONGEST)]
Count = Annotated[int, Meta(ge=0, le=_LARGEST)]
StageNumber = Annotated[int, Meta(ge=-1, le=_LARGEST)]  # -1: of none
Number = Annotated[float, Meta(ge=-1e300, le=1e300)]
Share = Annotated[float, Meta(ge=-_SLACK, le=1 + _SLACK)]
Change = Annotated[float, Meta(ge=-1 - _SLACK, le=1 + _SLACK)]
FolderPath = Annotated[str, Meta(max_length=_LONGEST, pattern=_RELATIVE)]
FilePath = Annotated[str, Meta(max_length=_LONGEST, pattern=_INSIDE)]
Rows = Annotated[list[T], Meta(max_length=_MOST)]
ByName = Annotated[dict[Text, T], Meta(max_length=_MOST)]
Maybe: TypeAlias = T | UnsetType | None  # None: not measured; unset: the key is left out


def decode(kind: type[T], value: Any) -> T:
    """A value of a type from JSON types; keys that the type does not have are ignored.

    A null margin of one result is NaN, since JSON has no word for what is not finite.

    Raises:
        ValueError: something is not of its type or out of its bounds; names the entry.
    """
    try:
        return msgspec.convert(_with_margins(value), kind)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        for pattern, words in _EXPECTED.items():
            what = what.replace(pattern, words)
        entry = where.rstrip("`").lstrip(".")
        raise ValueError(f"{entry}: {what[0].lower()}{what[1:]}" if entry else what) from None


def encode(value: Any) -> Any:
    """The JSON types of a report; what is not finite is null."""
    return plain(msgspec.to_builtins(value, enc_hook=operator.methodcaller("item")))


def _with_margins(value: Any) -> Any:
    """With NaN for the null margins of a `Cause` (which has a step) or `Margin` (which holds)."""
    if isinstance(value, list):
        return [_with_margins(item) for item in value]
    if isinstance(value, dict):
        found = {key: _with_margins(item) for key, item in value.items()}
        infinite = found.get("margin", 0.0) is None and ("step" in found or "holds" in found)
        return found | {"margin": math.nan} if infinite else found
    return value
