"""Results of evaluated episodes, as stored in episodes.jsonl."""

import dataclasses
import itertools
import operator
import re
from typing import Any

from eval.analysing.bounds import Fraction, Number
from planner.entities import short_name
from planner.execution.trace import Cause, Trace, plain
from tpsrl.errors import unknown
from tpsrl.runtime.records import Count, FilePath, Text


@dataclasses.dataclass(frozen=True, slots=True)
class StageResult:
    """Outcome of one step of the first plan, from its last execution.

    Attributes:
        name: of the step
        skill: that carried it out
        reached: whether it ever ran
        succeeded: whether the plan's effects held after it
        skill_success: whether the skill met its own, narrower thresholds
        ended_by: reason of the end, "" if it never ran
        attempts: number of executions
        steps: control steps of all executions
        purpose: predicate that the step is to make true
        turn: number of the object that the step is for, counted from 1; 0: none
        in_hand: whether that object was in the hand in any execution
        travelled_m: path length of the base in all executions
        handed_over: whether the effects still held at the next handoff and the episode went on;
            None in results of earlier versions
    """

    name: Text
    skill: Text
    reached: bool
    succeeded: bool
    skill_success: bool
    ended_by: Text
    attempts: Count
    steps: Count
    purpose: Text = ""
    turn: int = 0
    in_hand: bool = False
    travelled_m: float = 0.0
    handed_over: bool | None = None

    @property
    def passed(self) -> bool:
        """Whether the step handed over; `succeeded` in results of earlier versions."""
        return self.succeeded if self.handed_over is None else self.handed_over


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """End of an episode by one reading of timeouts."""

    success: bool
    ended_by: Text
    steps: Count
    goals_met: Count


@dataclasses.dataclass(frozen=True, slots=True)
class Timeouts:
    """Both readings of timeouts for one episode.

    Attributes:
        first: where a skill first ran out of steps; None: never, and both readings are equal
        ending: the episode ends there
        ignored: the timeout is ignored; None if the episode was not continued
    """

    first: Cause | None
    ending: Reading
    ignored: Reading | None


@dataclasses.dataclass(frozen=True, slots=True)
class EpisodeResult:
    """Result of one evaluated episode. Entries that were not measured are None.

    Attributes:
        id: of the episode
        layout: of its apartment
        success: whether the episode counts as a success by the protocol
        ended_by: reason of the end
        steps: control steps
        plans: number of plans
        goals: number of placements in the scenario's goal
        goals_met: number of these that hold at the end
        stages: outcome of each step of the first plan
        first_cause: of the failure; None on success
        force_peak_n: largest force of a control step (N)
        force_total_n: sum over control steps (N)
        stage_goals: whether each named stage goal was reached, by the protocol's rule
        video: path of the video, relative to the output folder
        timeouts: both readings of timeouts
        clutter_moved: number of objects that are not targets and ended more than 0.1 m from their
            start
        clutter: number of objects that are not targets
        targets_moved: number of targets moved by more than 0.1 m that were never in the hand
        view_blocked: share of views, with an object in the hand, that it blocked
            (`eval.running.view`)
        cause_text: first cause as text
        set_up_by: skill that caused the failure of another one (`eval.handoffs.blame`)
    """

    id: Text
    layout: Text
    success: bool
    ended_by: Text
    steps: Count
    plans: Count
    goals: Count
    goals_met: Count
    stages: tuple[StageResult, ...]
    first_cause: Cause | None
    force_peak_n: Number
    force_total_n: Number
    stage_goals: dict[str, bool] = dataclasses.field(default_factory=dict)
    video: FilePath | None = None
    timeouts: Timeouts | None = None
    clutter_moved: Count | None = None
    clutter: Count | None = None
    targets_moved: Count | None = None
    view_blocked: Fraction | None = None
    cause_text: Text | None = None
    set_up_by: Text | None = None

    @property
    def steps_run(self) -> int:
        """Number of control steps that were run, including those after a timeout."""
        ignored = None if self.timeouts is None else self.timeouts.ignored
        return self.steps if ignored is None else max(self.steps, ignored.steps)

    def to_json(self) -> dict[str, Any]:
        """Returns the record as JSON types; a margin that is not finite is null."""
        cause, timeouts = (
            self.first_cause,
            self.timeouts and plain(dataclasses.asdict(self.timeouts)),
        )
        stages = [dataclasses.asdict(stage) for stage in self.stages]
        record = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        record |= {"stages": stages, "first_cause": cause and cause.to_json()}
        return record | {"timeouts": timeouts}


def from_trace(
    trace: Trace,
    video: str | None = None,
    stage_rule: str = "ever",
    view_blocked: float | None = None,
) -> EpisodeResult:
    """Returns the result of an episode from its trace.

    Only placements count as goals, and not an empty hand or a drawer that is closed again.

    Args:
        trace: of the episode
        video: path of the video, relative to the output folder
        stage_rule: see `eval.protocols.Protocol`
        view_blocked: see `EpisodeResult`
    """
    placed, moved = _placed(trace), trace.moved
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
        timeouts=_timeouts(trace),
        clutter_moved=None if moved is None else moved.clutter,
        clutter=None if moved is None else moved.clutter_objects,
        targets_moved=None if moved is None else moved.targets,
        view_blocked=view_blocked,
    )


def _placed(trace: Trace) -> list[bool]:
    return [margin.holds for atom, margin in trace.goal.items() if atom.startswith("object_at")]


def _timeouts(trace: Trace) -> Timeouts:
    ignoring = trace.ignoring
    return Timeouts(
        trace.timeout, _reading(trace.ending), None if ignoring is None else _reading(ignoring)
    )


def _reading(trace: Trace) -> Reading:
    return Reading(trace.success, trace.ended_by, trace.steps, sum(_placed(trace)))


def reached_goals(trace: Trace, stage_rule: str) -> dict[str, bool]:
    """Returns which stage goals an episode reached, by the rule "ever", "cumulative" or "subtask".

    By "subtask" the stage goals are the steps of the first plan.
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
    """Returns a predicate without names that differ between episodes: "holding(obj_0, robot_0)".

    Numbers of clutter are removed, because clutter differs between episodes, too.
    """
    short = re.sub(r"\w+", lambda word: short_name(word.group()), predicate)
    return re.sub(r"\bclutter_\d+", "clutter", short)


def _end_as_cause(trace: Trace) -> Cause:
    """Returns the end of an episode as the cause, if it failed without any other cause."""
    return Cause(-1, "", "", "stop", -1.0, "bool", trace.ended_by, trace.steps)
