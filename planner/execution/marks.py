"""Marks: handoffs of an episode from which it can go on, again and again."""

import dataclasses
from typing import TYPE_CHECKING

from planner.execution.intervention import Intervention
from planner.plan import Plan
from tpsrl.sim.base import Snapshot

if TYPE_CHECKING:
    from planner.execution.execution import Execution


@dataclasses.dataclass(frozen=True, slots=True)
class Mark:
    """A handoff of an episode in progress, from which it can go on as often as wanted."""

    _execution: "Execution"  # as it was then; what goes on is a copy of it
    _snapshot: Snapshot

    @property
    def at(self) -> int:
        """The place in the plan of the step that comes next."""
        return self._execution.at

    @property
    def plan(self) -> Plan:
        """The plan that is carried out."""
        return self._execution.plan

    def resumed(self, intervention: Intervention | None = None) -> "Execution":
        """The episode from here on; `run` it before the next one is made in the same home."""
        execution = self._execution.copy(intervention)
        execution.home.restore(self._snapshot)
        return execution
