"""What an evaluation keeps of a skill that was run by itself."""

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
    """One evaluated run of a skill.

    `ended_by` is "success", "timeout", "skill_stop" where a policy gave up that has no stop to
    call, or one of `Skill.failures`. `parts` are the parts of success at the end, by
    name, `reward` is the sum over the run, `path` the metrics of `skills.core.path_metrics` where
    the skill is to drive somewhere, `view_blocked` as in `EpisodeResult`. Forces in newton:
    the largest of a control step, and the sum over the run.
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
        """The control steps that were made."""
        return self.steps

    def to_json(self) -> dict[str, Any]:
        """The record as JSON types; a margin that is not finite is null."""
        record = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        parts = {name: dataclasses.asdict(margin) for name, margin in self.parts.items()}
        cause = self.first_cause
        return record | {"parts": plain(parts), "first_cause": cause and cause.to_json()}


def cause_of(skill: str, parts: dict[str, Margin], ended_by: str, steps: int) -> Cause:
    """The first part of success that was missing, with why the run ended."""
    name, margin = lacking(parts)
    return Cause(0, skill, skill, name, margin.margin, margin.unit, ended_by, steps)


def parts(results: Sequence[SkillResult]) -> list[SkillPart]:
    """For each part of success: in how many runs it held at the end, and what the others lacked."""
    rows = []
    for name in dict.fromkeys(name for result in results for name in result.parts):
        margins = [result.parts[name] for result in results if name in result.parts]
        missing = [margin.margin for margin in margins if not margin.holds]
        finite = [margin for margin in missing if math.isfinite(margin)]
        held, missed = len(margins) - len(missing), statistics.median(finite) if finite else None
        rows.append(SkillPart(name, margins[0].unit, held, len(margins), missed))
    return rows


def lacking(parts: dict[str, Margin]) -> tuple[str, Margin]:
    """The first part that does not hold, else the first one."""
    missing = [(name, margin) for name, margin in parts.items() if not margin.holds]
    return (missing or list(parts.items()))[0]
