"""Interventions: hooks that inspect and change an episode at its handoffs."""

from typing import TYPE_CHECKING, Protocol

from planner.plan import PlanStep

if TYPE_CHECKING:
    from planner.execution.execution import Execution
    from planner.execution.trace import Stage


class Intervention(Protocol):
    """Hooks that an `Execution` calls at every handoff; they may replace its home or take marks."""

    def before(self, execution: "Execution", step: PlanStep | None) -> None:
        """Called before a step begins and its preconditions are checked; None: the final wait."""
        ...

    def grant(self, execution: "Execution", step: PlanStep, stage: "Stage") -> bool:
        """Called when a step has not brought about its effects, or has ended the episode.

        Returns:
            Whether its effects were granted; then the episode continues as if the step had
            succeeded.
        """
        ...


class NoIntervention:
    """Intervention that changes nothing."""

    def before(self, execution: "Execution", step: PlanStep | None) -> None:
        """Does nothing."""

    def grant(self, execution: "Execution", step: PlanStep, stage: "Stage") -> bool:
        """Grants nothing."""
        return False
