"""Conditions of success: named, batched, each with the margin by which it holds and its unit.

A skill states its success once, as a conjunction of conditions over n homes. Training judges whole
batches by them, the executor and the reports read the row of one home as `Margin`s.
"""

import dataclasses
import functools
import operator
from collections.abc import Mapping

from array_api_compat import array_namespace

from skills.core.arrays import Array


@dataclasses.dataclass(frozen=True, slots=True)
class Margin:
    """A named result of one home: whether it holds, by how much, and in which unit.

    `margin` is positive when the result holds and negative by what is missing; for yes-or-no
    facts it is +1 or -1 with unit "bool".
    """

    holds: bool
    margin: float
    unit: str

    @staticmethod
    def below(value: float, limit: float, unit: str) -> "Margin":
        """value < limit."""
        return Margin(bool(value < limit), float(limit - value), unit)

    @staticmethod
    def above(value: float, limit: float, unit: str) -> "Margin":
        """value > limit."""
        return Margin(bool(value > limit), float(value - limit), unit)

    @staticmethod
    def flag(value: bool) -> "Margin":
        """A yes-or-no fact."""
        return Margin(bool(value), 1.0 if value else -1.0, "bool")


# Made at every step, so it is not frozen, and computes its margin only when that is asked for.
@dataclasses.dataclass(slots=True)
class Condition:
    """What has to hold in each of n homes for a skill to have succeeded.

    `holds` (n,) bool; `value` (n,) is held against `limit`, both in `unit`, or None for a fact that
    is only true or false.
    """

    holds: Array
    unit: str
    value: Array | None = None
    limit: float = 0.0

    @staticmethod
    def below(value: Array, limit: float, unit: str) -> "Condition":
        """value (n,) < limit."""
        return Condition(value < limit, unit, value, limit)

    @staticmethod
    def at_most(value: Array, limit: float, unit: str) -> "Condition":
        """value (n,) <= limit."""
        return Condition(value <= limit, unit, value, limit)

    @staticmethod
    def fact(holds: Array) -> "Condition":
        """A yes-or-no fact (n,) bool."""
        return Condition(holds, "bool")

    @property
    def margin(self) -> Array:
        """By how much it holds (n,), negative by what is missing; 1 or -1 for a fact."""
        if self.value is not None:
            return self.limit - self.value
        xp = array_namespace(self.holds)
        return xp.where(self.holds, 1.0, -1.0)

    def at(self, row: int) -> Margin:
        """That of one home."""
        holds = bool(self.holds[row])
        if self.value is None:
            return Margin.flag(holds)
        return Margin(holds, float(self.limit - float(self.value[row])), self.unit)


Conditions = dict[str, Condition]


def conjunction(conditions: Mapping[str, Condition]) -> Array:
    """Whether all of at least one condition hold (n,) bool."""
    return functools.reduce(operator.and_, [one.holds for one in conditions.values()])


def margins(conditions: Mapping[str, Condition], row: int = 0) -> dict[str, Margin]:
    """The conditions of one home as margins, headed by "success": all of them hold.

    Its margin is that of the first condition that does not hold, or of the first when all do:
    units differ, so there is no smallest one.
    """
    parts = {name: condition.at(row) for name, condition in conditions.items()}
    decisive = next((part for part in parts.values() if not part.holds), next(iter(parts.values())))
    return {"success": decisive, **parts}
