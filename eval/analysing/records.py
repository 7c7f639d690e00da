"""Dataclasses from the JSON that was made of them, by the types of their fields."""

import dataclasses
import functools
import math
import types
import typing
from typing import Any, TypeVar

T = TypeVar("T")


def decode(kind: type[T], value: Any) -> T:
    """A value of a type from what `json` reads of one that was written.

    Types are dataclasses of such types, `tuple[X, ...]`, `list[X]`, `dict[str, X]`, `X | None`,
    `str`, `bool`, `int`, `float`, and `Any`, which is taken as it is. A field that is missing has
    its default; null for a number is NaN, since JSON has no word for what is not finite.

    Raises:
        ValueError: the value is not of the type.
    """
    decoded: T = _decode(kind, value)
    return decoded


def _decode(kind: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(kind) or kind, typing.get_args(kind)
    if kind is Any:
        return value
    if origin in (types.UnionType, typing.Union):
        (inner,) = (argument for argument in arguments if argument is not types.NoneType)
        return None if value is None else _decode(inner, value)
    if dataclasses.is_dataclass(kind):
        return _decode_fields(kind, value)
    if kind is float and value is None:
        return math.nan
    expected = {tuple: list, float: int | float}.get(origin, origin)
    if not isinstance(value, expected) or isinstance(value, bool) != (kind is bool):
        raise ValueError(f"{value!r} is not of type {kind}")
    if arguments and origin in (tuple, list):
        return origin(_decode(arguments[0], item) for item in value)
    if arguments and origin is dict:
        return {key: _decode(arguments[1], item) for key, item in value.items()}
    return value


def _decode_fields(kind: Any, value: Any) -> Any:
    hints = _hints(kind)
    if not isinstance(value, dict) or not value.keys() <= hints.keys():
        raise ValueError(f"{value!r} is not of type {kind}")
    try:
        return kind(**{name: _decode(hints[name], item) for name, item in value.items()})
    except TypeError as error:
        raise ValueError(str(error)) from None


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}
