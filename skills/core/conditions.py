"""Conditions of success: named and batched, each with a margin and its unit.

A skill defines its success once, as a conjunction of conditions over n homes. Training evaluates
them in batches; the executor and the reports read the row of one home as `Margin`s.
"""

import dataclasses
import functools
import operator
from collections.abc import Mapping

from array_api_compat import array_namespace

from skills.core.arrays import Array


@dataclasses.dataclass(frozen=True, slots=True)
class Margin:
    """Condition of one home: whether it holds, with margin and unit.

    `margin` is the distance from the threshold, negative where the condition fails; for yes-or-no
    facts it is +1 or -1 with unit "bool".
    """

    holds: bool
    margin: float
    unit: str

    @staticmethod
    def below(value: float, limit: float, unit: str) -> "Margin":
        """Creates the margin of value < limit."""
        return Margin(bool(value < limit), float(limit - value), unit)

    @staticmethod
    def above(value: float, limit: float, unit: str) -> "Margin":
        """Creates the margin of value > limit."""
        return Margin(bool(value > limit), float(value - limit), unit)

    @staticmethod
    def flag(value: bool) -> "Margin":
        """Creates the margin of a yes-or-no fact."""
        return Margin(bool(value), 1.0 if value else -1.0, "bool")


# Created at every step: not frozen, and the margin is computed on demand, to save time.
@dataclasses.dataclass(slots=True)
class Condition:
    """Condition of success in n homes.

    `holds` is (n,) bool. `value` (n,) is compared with `limit`, both in `unit`; it is None for a
    yes-or-no fact.
    """

    holds: Array
    unit: str
    value: Array | None = None
    limit: float = 0.0

    @staticmethod
    def below(value: Array, limit: float, unit: str) -> "Condition":
        """Creates the condition value (n,) < limit."""
        return Condition(value < limit, unit, value, limit)

    @staticmethod
    def at_most(value: Array, limit: float, unit: str) -> "Condition":
        """Creates the condition value (n,) <= limit."""
        return Condition(value <= limit, unit, value, limit)

    @staticmethod
    def fact(holds: Array) -> "Condition":
        """Creates the condition of a yes-or-no fact (n,) bool."""
        return Condition(holds, "bool")

    @property
    def margin(self) -> Array:
        """Margins (n,) in `unit`, negative where the condition fails; 1 or -1 for a fact."""
        if self.value is not None:
            return self.limit - self.value
        xp = array_namespace(self.holds)
        return xp.where(self.holds, 1.0, -1.0)

    def at(self, row: int) -> Margin:
        """Returns the margin of the home at `row`."""
        holds = bool(self.holds[row])
        if self.value is None:
            return Margin.flag(holds)
        return Margin(holds, float(self.limit - float(self.value[row])), self.unit)


Conditions = dict[str, Condition]


def conjunction(conditions: Mapping[str, Condition]) -> Array:
    """Returns whether all conditions hold, (n,) bool; there must be at least one."""
    return functools.reduce(operator.and_, [one.holds for one in conditions.values()])


def margins(conditions: Mapping[str, Condition], row: int = 0) -> dict[str, Margin]:
    """Returns the margins of one home by condition, after an entry "success" for all together.

    "success" has the margin of the first condition that fails, or of the first condition if all
    hold. Units differ, so a smallest margin is not defined.
    """
    parts = {name: condition.at(row) for name, condition in conditions.items()}
    decisive = next((part for part in parts.values() if not part.holds), next(iter(parts.values())))
    return {"success": decisive, **parts}
