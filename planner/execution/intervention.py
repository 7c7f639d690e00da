"""What may look into an episode, and change it, at its handoffs."""

from typing import TYPE_CHECKING, Protocol

from planner.plan import PlanStep

if TYPE_CHECKING:
    from planner.execution.execution import Execution
    from planner.execution.trace import Stage


class Intervention(Protocol):
    """Called by an `Execution` at every handoff; may replace its home, or take marks of it."""

    def before(self, execution: "Execution", step: PlanStep | None) -> None:
        """A step is about to begin, its preconditions not yet looked at; None: the final wait."""
        ...

    def grant(self, execution: "Execution", step: PlanStep, stage: "Stage") -> bool:
        """A step has not brought about what it was to, or has ended the episode.

        Returns:
            Whether its effects were granted: then the episode goes on as if it had succeeded.
        """
        ...


class NoIntervention:
    """Lets everything go as it goes."""

    def before(self, execution: "Execution", step: PlanStep | None) -> None:
        """Does nothing."""

    def grant(self, execution: "Execution", step: PlanStep, stage: "Stage") -> bool:
        """Grants nothing."""
        return False
