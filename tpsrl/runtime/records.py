"""Decodes JSON records into dataclasses and checks them, using `msgspec`.

Supported types are dataclasses, `tuple[X, ...]`, `dict[str, X]`, `X | None`, `str`, `bool`, `int`,
`float`, and `Any`, which is not checked. Bounds are part of the annotation, as in
`Annotated[float, msgspec.Meta(ge=0)]`.
"""

import dataclasses
import re
import reprlib
from typing import Annotated, Any, TypeVar

import msgspec

from tpsrl.errors import UserError, unknown
from tpsrl.runtime import files

T = TypeVar("T")

_LONGEST = 100_000  # maximum characters of a text, such as a recorded command line
_RELATIVE = r"\A(?!/)(?![^/]*:)[^\\]*\Z"
_INSIDE = r"\A(?!/)(?![^/]*:)(?!([^/]*/)*\.\.(/|\Z))[^\\]+\Z"

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]  # exact as a float
Text = Annotated[str, msgspec.Meta(max_length=_LONGEST)]
FolderPath = Annotated[str, msgspec.Meta(max_length=_LONGEST, pattern=_RELATIVE)]
FilePath = Annotated[str, msgspec.Meta(max_length=_LONGEST, pattern=_INSIDE)]

_WORDS = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "a record",
}
_PATTERNS = {
    f"`str` matching regex {_RELATIVE!r}": "a path relative to the folder",
    f"`str` matching regex {_INSIDE!r}": "the path of a file in the folder",
}
_MESSAGE = re.compile(r"(.*?)(?: - at (?:`key` in )?`\$\.?(.*)`)?")
_MISSING = re.compile(r"Object missing required field `(.*)`")
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")  # one step of a path such as `stages[3].rate`


def decode(value: Any, kind: type[T], where: str, closed: bool = False) -> T:
    """Converts a JSON value to a type and checks it.

    Args:
        value: value made of JSON types
        kind: the type
        where: prefix of messages: the file, or the field that names the file
        closed: refuse entries that a dataclass does not have; by default they are ignored

    Raises:
        UserError: the value has another type or is out of bounds; names the entry, the expected and
            the given value.
    """
    try:
        found = msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise UserError(f"{where}: {_said(str(error), value)}") from None
    except RecursionError:
        raise UserError(f"{where}: nested too deeply") from None
    if closed:
        _check_known(value, found, where)
    return found


def read(text: str | bytes, kind: type[T], where: str) -> T:
    """Parses a JSON text and decodes it with `decode`.

    Raises:
        UserError: the text is not JSON, or does not match the type.
    """
    try:
        value = files.parse_json(text)
    except ValueError as error:
        raise UserError(f"{where} is not JSON ({error})") from None
    return decode(value, kind, where)


def shown(value: Any) -> str:
    """Returns the beginning of a value's representation, without building all of it."""
    return f"{reprlib.repr(value):.80}"


def _said(message: str, value: Any) -> str:
    """Rewrites a message of msgspec about a value in this project's wording."""
    found = _MESSAGE.fullmatch(message)
    assert found is not None
    what, path = found[1], found[2] or ""
    missing = _MISSING.fullmatch(what)
    if missing:
        return ": ".join(filter(None, (path, missing[1], "is missing")))
    what = what.replace("Expected", "must be")
    for pattern, words in _PATTERNS.items():
        what = what.replace(pattern, words)
    if "[...]" not in path:  # msgspec does not name the entry of a dictionary
        what = f"{what.partition(', got ')[0]}, got {shown(_part(value, path))}"
    words = re.sub(r"`([^`]*)`", lambda names: _in_words(names[1]), what)
    return f"{path}: {words}" if path else words


def _in_words(names: str) -> str:
    return " or ".join(_WORDS.get(name, name) for name in names.split(" | "))


def _part(value: Any, path: str) -> Any:
    for name, number in _STEP.findall(path):
        value = value[name or int(number)]
    return value


def _check_known(value: Any, found: Any, where: str) -> None:
    """Refuses entries of a value that the dataclasses decoded from it do not have."""
    if dataclasses.is_dataclass(found):
        names = [field.name for field in dataclasses.fields(found)]
        for name, part in value.items():
            if name not in names:
                raise unknown(where, name, names)
            _check_known(part, getattr(found, name), f"{where}: {name}")
    elif isinstance(found, tuple):
        for number, (part, made) in enumerate(zip(value, found, strict=True)):
            _check_known(part, made, f"{where}[{number}]")
