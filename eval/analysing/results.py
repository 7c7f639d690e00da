"""What an evaluation keeps of an episode."""

import dataclasses
import itertools
import operator
import re
from typing import Any

from planner.entities import short_name
from planner.execution.trace import Cause, Trace
from tpsrl.errors import unknown


@dataclasses.dataclass(frozen=True, slots=True)
class StageResult:
    """One step of the first plan, by its last execution.

    `succeeded` says that the plan's effects held after it, `skill_success` that the skill met its
    own, narrower thresholds; `ended_by` is "" where it was never run. `steps` of all executions.
    """

    name: str
    skill: str
    reached: bool
    succeeded: bool
    skill_success: bool
    ended_by: str
    attempts: int
    steps: int


@dataclasses.dataclass(frozen=True, slots=True)
class EpisodeResult:
    """One evaluated episode.

    `goals` are the atoms of the scenario's goal, of which `goals_met` hold at the end.
    `stage_goals` says of each named stage goal whether it was reached, by the protocol's rule.
    Forces in newton: the largest of a control step, and the sum over control steps.
    """

    id: str
    layout: str
    success: bool
    ended_by: str
    steps: int
    plans: int
    goals: int
    goals_met: int
    stages: tuple[StageResult, ...]
    first_cause: Cause | None
    force_peak_n: float
    force_total_n: float
    stage_goals: dict[str, bool] = dataclasses.field(default_factory=dict)
    video: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The record as JSON types."""
        cause = self.first_cause
        stages = [dataclasses.asdict(stage) for stage in self.stages]
        record = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return record | {"stages": stages, "first_cause": cause and cause.to_json()}


def from_trace(trace: Trace, video: str | None = None, stage_rule: str = "ever") -> EpisodeResult:
    """What is kept of a trace; `stage_rule` is as in `eval.protocols.Protocol`.

    Only placements count as goals, not that the hand is empty or a drawer closed again.
    """
    placed = [margin.holds for atom, margin in trace.goal.items() if atom.startswith("object_at")]
    outcomes = [{k: v for k, v in o.items() if k != "index"} for o in trace.outcomes()]
    return EpisodeResult(
        id=trace.episode.id,
        layout=trace.episode.layout,
        success=trace.success,
        ended_by=trace.ended_by,
        steps=trace.steps,
        plans=trace.plans,
        goals=len(placed),
        goals_met=sum(placed),
        stages=tuple(StageResult(**outcome) for outcome in outcomes),
        first_cause=None if trace.success else trace.first_cause or _end_as_cause(trace),
        force_peak_n=trace.force_peak_n,
        force_total_n=trace.force_total_n,
        stage_goals=reached_goals(trace, stage_rule),
        video=video,
    )


def reached_goals(trace: Trace, stage_rule: str) -> dict[str, bool]:
    """Which stage goals an episode reached, by the rule "ever", "cumulative" or "subtask".

    By the last one the goals are the steps of the first plan themselves.
    """
    if stage_rule == "ever":
        return {name: mark.first is not None for name, mark in trace.stage_goals.items()}
    if stage_rule == "cumulative":
        return {name: mark.in_turn is not None for name, mark in trace.stage_goals.items()}
    if stage_rule != "subtask":
        raise unknown("stage_rule", stage_rule, ["ever", "cumulative", "subtask"])
    done = itertools.accumulate((o["skill_success"] for o in trace.outcomes()), operator.and_)
    names = (f"{number} {name}" for number, name in enumerate(trace.plan, start=1))
    return dict(zip(names, done, strict=True))


def generic(predicate: str) -> str:
    """A predicate without the names that differ between episodes: "holding(obj_0, robot_0)"."""
    return re.sub(r"\w+", lambda word: short_name(word.group()), predicate)


def _end_as_cause(trace: Trace) -> Cause:
    """Where everything came out right and yet the episode failed, its end is the cause."""
    return Cause(-1, "", "", "stop", -1.0, "bool", trace.ended_by, trace.steps)
