"""Types of what reports hold, with bounds for files of unknown origin, and how they are read."""

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

_SLACK = 1e-6  # of shares, which are sums of many
_MOST = 10_000  # entries of a list

StageNumber = Annotated[int, Meta(ge=-1, le=2**53)]  # -1: of none
Number = Annotated[float, Meta(ge=-1e300, le=1e300)]
Fraction = Annotated[float, Meta(ge=-_SLACK, le=1 + _SLACK)]
Change = Annotated[float, Meta(ge=-1 - _SLACK, le=1 + _SLACK)]
Items = Annotated[list[T], Meta(max_length=_MOST)]
ByName = Annotated[dict[Text, T], Meta(max_length=_MOST)]
Maybe: TypeAlias = T | UnsetType | None  # None: not measured; unset: the key is left out


def decode(value: Any, kind: type[T], where: str) -> T:
    """As `tpsrl.runtime.records.decode`, of a part of a report.

    A null margin of one result is NaN, since JSON has no word for what is not finite.
    """
    try:
        value = _with_margins(value)
    except RecursionError:
        raise UserError(f"{where}: nested too deeply") from None
    return records.decode(value, kind, where)


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
