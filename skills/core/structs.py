"""Structs of arrays with a leading axis n: one row for each home."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, Self

import array_api_compat
import numpy as np

from skills.core.arrays import Array
from tpsrl.errors import UserError

Rows = Array | slice | list[int]  # indices of homes (m,)


class Struct:
    """Base of dataclasses whose fields are arrays (n, ...) or other structs."""

    __slots__ = ()

    def take(self, rows: Rows) -> Self:
        """Returns the struct of the homes at `rows` (m,)."""
        return type(self)(*[_taken(getattr(self, name), rows) for name in _names(type(self))])

    def put(self, rows: Rows, other: Self) -> None:
        """Writes a struct of m homes to `rows` (m,), in place."""
        for name in _names(type(self)):
            mine, theirs = getattr(self, name), getattr(other, name)
            if isinstance(mine, Struct):
                mine.put(rows, theirs)
            else:
                mine[rows] = theirs

    def merged(self, which: Array, other: Self) -> Self:
        """Returns a struct with the rows of `other` where `which` (n,) is true, else its own."""
        return type(self)(
            *[_merged(getattr(self, n), which, getattr(other, n)) for n in _names(type(self))]
        )

    def converted(self, convert: Callable[[Any], Any]) -> Self:
        """Returns a struct of the results of `convert` for each array."""
        values = (getattr(self, name) for name in _names(type(self)))
        return type(self)(
            *[v.converted(convert) if isinstance(v, Struct) else convert(v) for v in values]
        )

    def room(self, count: int) -> Self:
        """Returns a struct of numpy zeros for `count` homes, to be filled by `put`."""
        return type(self)(*[_room(getattr(self, name), count) for name in _names(type(self))])

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Returns numpy copies by dotted name, for snapshots and checkpoints."""
        found: dict[str, np.ndarray] = {}
        for name in _names(type(self)):
            value = getattr(self, name)
            if isinstance(value, Struct):
                found |= {f"{name}.{key}": array for key, array in value.to_arrays().items()}
            else:
                found[name] = np.array(value)
        return found

    def like(self, arrays: Mapping[str, np.ndarray]) -> Self:
        """Creates a struct of the same structure from the result of `to_arrays`.

        Raises:
            UserError: an array is missing or unknown.
        """
        wrong = set(self.to_arrays()) ^ set(arrays)
        if wrong:
            raise UserError(f"task state: arrays {', '.join(sorted(wrong))} missing or unknown")
        return self._read(arrays, "")

    def _read(self, arrays: Mapping[str, np.ndarray], prefix: str) -> Self:
        values: list[Any] = []
        for name in _names(type(self)):
            value = getattr(self, name)
            if isinstance(value, Struct):
                values.append(value._read(arrays, f"{prefix}{name}."))
            else:
                values.append(np.array(arrays[prefix + name]))
        return type(self)(*values)


def _names(kind: Any) -> tuple[str, ...]:
    return _field_names(kind)


@functools.cache
def _field_names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


def _taken(value: Any, rows: Rows) -> Any:
    return value.take(rows) if isinstance(value, Struct) else value[rows]


def _merged(mine: Any, which: Array, theirs: Any) -> Any:
    if isinstance(mine, Struct):
        return mine.merged(which, theirs)
    xp = array_api_compat.array_namespace(mine)
    return xp.where(xp.reshape(which, (-1, *[1] * (mine.ndim - 1))), theirs, mine)


def _room(value: Any, count: int) -> Any:
    if isinstance(value, Struct):
        return value.room(count)
    return np.zeros((count, *value.shape[1:]), dtype=value.dtype)
