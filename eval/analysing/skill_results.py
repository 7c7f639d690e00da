"""Results of skills run in isolation, as stored in episodes.jsonl."""

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import Any

from eval.analysing.bounds import Fraction, Number
from eval.analysing.schema import SkillPart
from planner.execution.trace import Cause, plain
from skills.core.conditions import Margin
from tpsrl.runtime.records import Count, FilePath, Text


@dataclasses.dataclass(frozen=True, slots=True)
class SkillResult:
    """Result of one evaluated run of a skill.

    Attributes:
        id: of the start state's episode
        layout: of its apartment
        success: by the skill's thresholds
        ended_by: "success", "timeout", "skill_stop" (a policy without a stop action gave up) or one
            of `Skill.failures`
        steps: control steps
        reward: sum over the run
        parts: conditions of success at the end, by name
        first_cause: of the failure; None on success
        force_peak_n: largest force of a control step (N)
        force_total_n: sum over the run (N)
        path: metrics of `skills.core.path_metrics`, for skills that drive to a place
        video: path of the video, relative to the output folder
        view_blocked: see `eval.analysing.results.EpisodeResult`
    """

    id: Text
    layout: Text
    success: bool
    ended_by: Text
    steps: Count
    reward: Number
    parts: dict[str, Margin]
    first_cause: Cause | None
    force_peak_n: Number
    force_total_n: Number
    path: dict[str, float] | None = None
    video: FilePath | None = None
    view_blocked: Fraction | None = None

    @property
    def steps_run(self) -> int:
        """Number of control steps that were run."""
        return self.steps

    def to_json(self) -> dict[str, Any]:
        """Returns the record as JSON types; a margin that is not finite is null."""
        record = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        parts = {name: dataclasses.asdict(margin) for name, margin in self.parts.items()}
        cause = self.first_cause
        return record | {"parts": plain(parts), "first_cause": cause and cause.to_json()}


def cause_of(skill: str, parts: dict[str, Margin], ended_by: str, steps: int) -> Cause:
    """Returns the first condition of success that did not hold, with the reason of the end."""
    name, margin = lacking(parts)
    return Cause(0, skill, skill, name, margin.margin, margin.unit, ended_by, steps)


def parts(results: Sequence[SkillResult]) -> list[SkillPart]:
    """Returns for each condition of success in how many runs it held at the end.

    `median_lacking` is the median of the finite margins in the other runs.
    """
    rows = []
    for name in dict.fromkeys(name for result in results for name in result.parts):
        margins = [result.parts[name] for result in results if name in result.parts]
        missing = [margin.margin for margin in margins if not margin.holds]
        finite = [margin for margin in missing if math.isfinite(margin)]
        held, missed = len(margins) - len(missing), statistics.median(finite) if finite else None
        rows.append(SkillPart(name, margins[0].unit, held, len(margins), missed))
    return rows


def lacking(parts: dict[str, Margin]) -> tuple[str, Margin]:
    """Returns the first condition that does not hold, or the first one if all hold."""
    missing = [(name, margin) for name, margin in parts.items() if not margin.holds]
    return (missing or list(parts.items()))[0]
