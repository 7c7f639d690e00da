"""What an evaluation keeps of an episode."""

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
    """One step of the first plan, by its last execution.

    `succeeded` says that the plan's effects held after it, `skill_success` that the skill met its
    own, narrower thresholds; `ended_by` is "" where it was never run. `steps` of all executions.
    `purpose` is the predicate of what the step is for; the others are as in
    `planner.execution.trace.Trace.outcomes`.
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
        """Whether the plan came through it; by `succeeded` in results that do not say more."""
        return self.succeeded if self.handed_over is None else self.handed_over


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """How an episode ended by one reading of timeouts."""

    success: bool
    ended_by: Text
    steps: Count
    goals_met: Count


@dataclasses.dataclass(frozen=True, slots=True)
class Timeouts:
    """An episode that ends where a skill first runs out of steps, and the same with that ignored.

    `first` says where that was, None where it never happened: then both are the same. `ignored` is
    None where the episode was not carried on.
    """

    first: Cause | None
    ending: Reading
    ignored: Reading | None


@dataclasses.dataclass(frozen=True, slots=True)
class EpisodeResult:
    """One evaluated episode.

    `goals` are the atoms of the scenario's goal, of which `goals_met` hold at the end.
    `stage_goals` says of each named stage goal whether it was reached, by the protocol's rule.
    Forces in newton: the largest of a control step, and the sum over control steps.
    `clutter_moved` of `clutter` objects that are no targets ended more than 0.1 m from where they
    were at the start, and `targets_moved` targets that were never in the hand. `view_blocked` is
    the share of the looks, with an object in the hand, in which it hid what is ahead
    (`eval.running.view`). `cause_text` is the first cause in words, `set_up_by` the skill that had
    set the failed one up to fail (`eval.handoffs.blame`). What was not measured is None.
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
        """The control steps that were made, those after a timeout too."""
        ignored = None if self.timeouts is None else self.timeouts.ignored
        return self.steps if ignored is None else max(self.steps, ignored.steps)

    def to_json(self) -> dict[str, Any]:
        """The record as JSON types; a margin that is not finite is null."""
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
    """What is kept of a trace; `stage_rule` is as in `eval.protocols.Protocol`.

    Only placements count as goals, not that the hand is empty or a drawer closed again.
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
    """A predicate without the names that differ between episodes: "holding(obj_0, robot_0)".

    Clutter has no numbers either: which of it is where differs, too.
    """
    short = re.sub(r"\w+", lambda word: short_name(word.group()), predicate)
    return re.sub(r"\bclutter_\d+", "clutter", short)


def _end_as_cause(trace: Trace) -> Cause:
    """Where everything came out right and yet the episode failed, its end is the cause."""
    return Cause(-1, "", "", "stop", -1.0, "bool", trace.ended_by, trace.steps)
