"""What an evaluation keeps of an episode."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Cause:
    """Why an episode failed first: the predicate that did not hold, and how far it was off.

    `stage` counts from 0 (-1: no stage, as when the plan was not found). `end` says how the stage
    ended: "timeout", "stop", ... `margin` is negative by what is missing, in `unit`.
    """

    stage: int
    name: str
    skill: str
    end: str
    predicate: str
    margin: float | None
    unit: str


@dataclasses.dataclass(frozen=True, slots=True)
class StageResult:
    """One step of the plan, in its order; `end` is "" and `steps` 0 where it was not reached."""

    name: str
    skill: str
    reached: bool
    succeeded: bool
    end: str
    steps: int


@dataclasses.dataclass(frozen=True, slots=True)
class EpisodeResult:
    """One evaluated episode.

    `goals` of the scenario, of which `goals_met` hold at the end. Forces in newton: the largest of
    a control step, and the sum over control steps.
    """

    index: int
    id: str
    layout: str
    success: bool
    steps: int
    goals: int
    goals_met: int
    stages: tuple[StageResult, ...]
    first_cause: Cause | None
    replans: int
    force_peak_n: float
    force_total_n: float
    video: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The record as JSON types."""
        return dataclasses.asdict(self)
