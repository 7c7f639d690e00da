"""Attribution of failures to the skill that failed or to an earlier one that set it up to fail."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from eval.analysing.schema import BlameRow
from eval.handoffs.study import StudyRecord

_FAR = 3.0  # robust standard deviations above the median before success
# The smallest relevant errors (m or rad).
_LEAST = {"distance": 0.1, "heading": 0.1, "arm_rest": 0.05, "slip": 0.02}
_LEAST_SHARE = 0.1  # the same for other dimensions
# Effect of the step in which such an error originates; other errors: the step before.
_MADE_BY = {"slip": "holding", "view_blocked": "holding", "articulation": "opened"}
_ENOUGH = 8  # successful handoffs needed for an estimate of usual errors
_TO_SIGMA = 1.4826  # standard deviation over median absolute deviation, normal distribution


def set_up_by(studies: Sequence[StudyRecord]) -> list[str | None]:
    """Returns for each episode the skill that set the failed one up to fail, None if there is none.

    A failed step was set up to fail if it succeeds from a repaired state, and if an error of the
    state in which it began is far outside the usual: more than three robust standard deviations (by
    the median absolute deviation; Iglewicz and Hoaglin, "How to detect and handle outliers", 1993)
    above the median over the same handoffs that went well. Errors of the held object are attributed
    to the skill that picked it, those of an articulation to the skill that opened it, and all
    others to the step before.
    """
    usual: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for study in studies:
        for index, stage in enumerate(study["stages"][1:], start=1):
            if stage["handed_over"]:
                before = study["stages"][index - 1]["skill"]
                for dimension, value in (stage["errors"] or {}).items():
                    usual[before, stage["skill"], dimension].append(value)
    return [_culprit(study, usual) for study in studies]


def broken_at(study: StudyRecord) -> int | None:
    """Returns the index of the first step that did not hand over, None if all did."""
    done = [stage["handed_over"] for stage in study["stages"]]
    return done.index(False) if False in done else None


def _culprit(study: StudyRecord, usual: Mapping[tuple[str, str, str], list[float]]) -> str | None:
    index = broken_at(study)
    if study["success"] or not index:
        return None
    stages = study["stages"]
    stage, before = stages[index], stages[index - 1]["skill"]
    if not stage["mended"]:
        return None
    worst, size = "", 0.0
    for dimension, value in (stage["errors"] or {}).items():
        known = usual.get((before, stage["skill"], dimension), [])
        if len(known) >= _ENOUGH:
            excess = _excess(value, known, _LEAST.get(dimension, _LEAST_SHARE))
            if excess > size:
                worst, size = dimension, excess
    if size <= 1.0:
        return None
    made = _MADE_BY.get(worst)
    mine = [s["skill"] for s in stages[:index] if made is not None and s["makes"].startswith(made)]
    return mine[-1] if mine else before


def _excess(value: float, known: Sequence[float], least: float) -> float:
    """Returns the excess over the median, relative to the larger of `_FAR` spreads and `least`."""
    median = float(np.median(known))
    spread = _TO_SIGMA * float(np.median(np.abs(np.asarray(known) - median)))
    return (value - median) / max(_FAR * spread, least)


def blamed(studies: Sequence[StudyRecord], culprits: Sequence[str | None]) -> list[BlameRow]:
    """Counts failed episodes by failed skill and skill that set it up, the most frequent first."""
    counts: Counter[tuple[str, str | None]] = Counter()
    for study, culprit in zip(studies, culprits, strict=True):
        index = broken_at(study)
        if not study["success"] and index is not None:
            counts[study["stages"][index]["skill"], culprit] += 1
    return [BlameRow(*pair, count) for pair, count in counts.most_common()]
