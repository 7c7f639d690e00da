"""Marks: handoffs from which an episode can be resumed repeatedly."""

import dataclasses
from typing import TYPE_CHECKING

from planner.execution.intervention import Intervention
from planner.plan import Plan
from tpsrl.sim.base import Snapshot

if TYPE_CHECKING:
    from planner.execution.execution import Execution


@dataclasses.dataclass(frozen=True, slots=True)
class Mark:
    """Handoff of an episode in progress, from which it can be resumed any number of times."""

    _execution: "Execution"  # state at the handoff, copied to resume
    _snapshot: Snapshot

    @property
    def at(self) -> int:
        """Index of the next step in the plan."""
        return self._execution.at

    @property
    def plan(self) -> Plan:
        """The plan in execution."""
        return self._execution.plan

    def resumed(self, intervention: Intervention | None = None) -> "Execution":
        """Returns the episode resumed from here; `run` it before resuming another in this home."""
        execution = self._execution.copy(intervention)
        execution.home.restore(self._snapshot)
        return execution
