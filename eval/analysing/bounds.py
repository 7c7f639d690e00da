"""Bounded types of report entries, for files of unknown origin, and their encoding."""

import math
import operator
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, UnsetType

from planner.execution.trace import plain
from tpsrl.errors import UserError
from tpsrl.runtime import records
from tpsrl.runtime.records import Text

T = TypeVar("T")

_SLACK = 1e-6  # rounding of shares that are sums of many terms
_MOST = 10_000  # entries of a list or dictionary

StageNumber = Annotated[int, Meta(ge=-1, le=2**53)]  # -1: no stage
Number = Annotated[float, Meta(ge=-1e300, le=1e300)]
Fraction = Annotated[float, Meta(ge=-_SLACK, le=1 + _SLACK)]
Change = Annotated[float, Meta(ge=-1 - _SLACK, le=1 + _SLACK)]
Items = Annotated[list[T], Meta(max_length=_MOST)]
ByName = Annotated[dict[Text, T], Meta(max_length=_MOST)]
Maybe: TypeAlias = T | UnsetType | None  # None: not measured; unset: the key is left out


def decode(value: Any, kind: type[T], where: str) -> T:
    """Decodes a part of a report, see `tpsrl.runtime.records.decode`.

    A null margin of a result becomes NaN: JSON cannot represent values that are not finite.
    """
    try:
        value = _with_margins(value)
    except RecursionError:
        raise UserError(f"{where}: nested too deeply") from None
    return records.decode(value, kind, where)


def encode(value: Any) -> Any:
    """Returns a report as JSON types; values that are not finite become null."""
    return plain(msgspec.to_builtins(value, enc_hook=operator.methodcaller("item")))


def _with_margins(value: Any) -> Any:
    """Replaces null margins by NaN in a `Cause` (has "step") or `Margin` (has "holds")."""
    if isinstance(value, list):
        return [_with_margins(item) for item in value]
    if isinstance(value, dict):
        found = {key: _with_margins(item) for key, item in value.items()}
        infinite = found.get("margin", 0.0) is None and ("step" in found or "holds" in found)
        return found | {"margin": math.nan} if infinite else found
    return value
