"""What a report and its records hold, for files that somebody else may have written.

A key that is absent, and null, is no error here: reports of before have less.
"""

import reprlib
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

Check = Callable[[Any, str], None]

_LONGEST = 100_000  # letters of a text, which may be a command line
_LARGEST = 2**53
_SLACK = 1e-6  # of shares, which are sums of many
_MOST, _MOST_NAMES, _MOST_EPISODES = 10_000, 1000, 1_000_000  # entries of a list


def check_report(report: Any) -> None:
    """Checks the types of what is shown of a report.json.

    Raises:
        ValueError: something is not of its type, too long, or out of its bounds; names the entry.
    """
    if not (isinstance(report, dict) and report.keys() & {"runs", "differences", "success"}):
        raise ValueError("it is not the report of an evaluation")
    if "runs" in report:
        _INDEX(report, "")
    elif "differences" in report:
        _COMPARISON(report, "")
    else:
        _REPORT(report, "")


def check_record(record: Any) -> None:
    """Checks the types of what is shown of a line of episodes.jsonl.

    Raises:
        ValueError: something is not of its type, too long, or out of its bounds; names the entry.
    """
    _RECORD(record, "")


def _wrong(where: str, value: Any, what: str) -> ValueError:
    shown = reprlib.repr(value)  # of a large or deep one the beginning
    return ValueError(f"{where}: {shown} is {what}" if where else f"{shown} is {what}")


def _text(value: Any, where: str) -> None:
    if not isinstance(value, str):
        raise _wrong(where, value, "not a string")
    if len(value) > _LONGEST:
        raise _wrong(where, value, f"longer than {_LONGEST:,} letters")


def _flag(value: Any, where: str) -> None:
    if not isinstance(value, bool):
        raise _wrong(where, value, "not a boolean")


def _anything(value: Any, where: str) -> None:
    """Values of settings, which are shown as text."""


def _between(low: float, high: float, whole: bool = False) -> Check:
    what = "an integer" if whole else "a number"

    def check(value: Any, where: str) -> None:
        if not isinstance(value, int if whole else int | float) or isinstance(value, bool):
            raise _wrong(where, value, f"not {what}")
        if not low <= value <= high:
            raise _wrong(where, value, f"not {what} from {round(low):,} to {round(high):,}")

    return check


_number = _between(-1e300, 1e300)
_count = _between(0, _LARGEST, whole=True)
_place = _between(-1, _LARGEST, whole=True)  # of a stage; -1: of none
_share = _between(-_SLACK, 1 + _SLACK)
_change = _between(-1 - _SLACK, 1 + _SLACK)


def _link(value: Any, where: str) -> None:
    _text(value, where)
    if value.startswith("/") or "\\" in value or ":" in value.partition("/")[0]:
        raise _wrong(where, value, "not a path relative to the folder")


def _inside(value: Any, where: str) -> None:
    _link(value, where)
    if not value or ".." in PurePosixPath(value).parts:
        raise _wrong(where, value, "not a file in the folder")


def _fields(**checks: Check) -> Check:
    def check(value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise _wrong(where, value, "not an object with keys")
        for name, inner in checks.items():
            name = name.rstrip("_")
            if value.get(name) is not None:
                inner(value[name], f"{where}.{name}" if where else name)

    return check


def _each(inner: Check, most: int = _MOST) -> Check:
    def check(value: Any, where: str) -> None:
        if not isinstance(value, list):
            raise _wrong(where, value, "not a list")
        if len(value) > most:
            raise ValueError(f"{where}: it has {len(value):,} entries, {most:,} at most are shown")
        for place, item in enumerate(value):
            inner(item, f"{where}[{place}]")

    return check


def _by_name(inner: Check) -> Check:
    def check(value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise _wrong(where, value, "not an object with keys")
        if len(value) > _MOST:
            raise ValueError(f"{where}: it has {len(value):,} keys, {_MOST:,} at most are shown")
        for name, item in value.items():
            _text(name, where)
            if item is not None:
                inner(item, f"{where}.{name[:40]}")

    return check


_ENDS: dict[str, Check] = {"ci_low": _number, "ci_high": _number}
_RATE = _fields(mean=_share, ci_low=_share, ci_high=_share)
_SPREAD = _fields(mean=_number, median=_number, p90=_number, max=_number)
_FORCE = _fields(peak_n=_SPREAD, total_n=_SPREAD)
_CAUSE = _fields(
    stage=_place, name=_text, skill=_text, predicate=_text, reason=_text, margin=_number,
    unit=_text, count=_count, step=_count,
)  # fmt: skip
_READING = _fields(success=_flag, ended_by=_text, steps=_count, goals_met=_count)
_RECORD = _fields(
    id=_text, layout=_text, success=_flag, ended_by=_text, steps=_count, plans=_count,
    goals=_count, goals_met=_count, first_cause=_CAUSE, cause_text=_text, set_up_by=_text,
    force_peak_n=_number, force_total_n=_number, reward=_number, video=_inside,
    clutter_moved=_count, view_blocked=_share,
    timeouts=_fields(first=_CAUSE, ending=_READING, ignored=_READING),
    stages=_each(
        _fields(
            name=_text, skill=_text, reached=_flag, succeeded=_flag, skill_success=_flag,
            ended_by=_text, attempts=_count, steps=_count, handed_over=_flag,
        )
    ),
)  # fmt: skip
_STAGE = _fields(
    index=_count, name=_text, skill=_text, reached=_count, succeeded=_count, rate=_share,
    ci_low=_share, ci_high=_share, cumulative=_share, skill_succeeded=_count,
    only_predicates=_count, only_skill=_count,
)  # fmt: skip
_HANDOFF: dict[str, Check] = {
    "from_": _text, "to": _text, "n": _count, "tax": _change, **_ENDS, "p_value": _share,
    "significant": _flag,
}  # fmt: skip
_BIN = _fields(low=_number, high=_number, n=_count, rate=_RATE)
_ERROR = _fields(
    dimension=_text, unit=_text, median_before_success=_number, median_before_failure=_number,
    bins=_each(_BIN),
)  # fmt: skip
_MATRIX = _each(_fields(**_HANDOFF, after=_RATE, isolated=_RATE, errors=_each(_ERROR)), _MOST_NAMES)
_GAIN: dict[str, Check] = {
    "n": _count, "applied": _count, "before": _share, "after": _share, "gain": _change, **_ENDS,
}  # fmt: skip
_TIMEOUTS = _fields(
    ending=_RATE, ignored=_RATE, episodes=_count, reasons=_by_name(_count), how=_text
)
_CLUTTER = _fields(mean=_number, none=_share, objects=_number)
_VIEW = _fields(mean=_share)
_TURNS = _fields(object=_count, turns=_count, nav_pick=_RATE, nav_pick_nav_place=_RATE)
_PART = _fields(kind=_text, stage=_place, from_=_text, to=_text, skill=_text, value=_change)
_CLIP = _fields(episode=_text, video=_inside, poster=_inside, text=_text)

_RAN: dict[str, Check] = {
    "title": _text, "scenario": _text, "skill": _text, "split": _text, "seed": _count,
    "starts": _text, "protocol": _text, "protocol_changes": _by_name(_anything),
    "protocol_values": _by_name(_anything), "engine": _text, "version": _text, "agent": _text,
    "agent_rules": _fields(
        one_policy=_text, without=_each(_text), base_masked=_each(_text), nav_stop_within_m=_number
    ),
    "stand_ins": _by_name(_text), "dataset": _text, "settings_command": _text,
    "num_episodes": _count, "replan": _flag, "blind": _each(_text),
    "learned": _by_name(
        _fields(checkpoint=_text, trained_steps=_number, sample=_flag, privileged=_each(_text))
    ),
}  # fmt: skip
_FIGURES: dict[str, Check] = {
    "success": _RATE, "goals_met": _share, "steps": _SPREAD, "force": _FORCE, "reward": _SPREAD,
    "timeouts": _TIMEOUTS, "clutter_moved": _CLUTTER, "view_blocked": _VIEW,
}  # fmt: skip
_REPORT = _fields(
    **_RAN,
    **_FIGURES,
    stage_rule=_text,
    stages=_each(_STAGE),
    stage_goals=_each(
        _fields(name=_text, episodes=_count, reached=_count, rate=_share, **_ENDS)
    ),
    handoffs=_each(
        _fields(**_HANDOFF, index=_count, rate_after_handoff=_share, rate_isolated=_share)
    ),
    handoff_matrix=_MATRIX,
    propagation=_fields(
        measured=_share,
        product_isolated=_share,
        product_conditional=_share,
        residual=_change,
        loss=_change,
        parts=_each(_PART),
    ),
    flow=_fields(
        nodes=_each(_fields(id=_text, kind=_text, label=_text, share=_share)),
        edges=_each(_fields(from_=_text, to=_text, share=_share)),
    ),
    repairs=_each(
        _fields(
            **_GAIN, kind=_text, from_=_text, to=_text, shapley=_change,
            shapley_ci_low=_number, shapley_ci_high=_number,
        )
    ),
    repair_all=_by_name(_fields(**_GAIN)),
    analysis=_fields(
        episodes=_count,
        repaired=_by_name(_count),
        steps=_count,
        repair_steps=_count,
        budget=_count,
        canonical=_text,
    ),
    findings=_each(_text),
    blame=_each(_fields(skill=_text, set_up_by=_text, count=_count)),
    reel=_each(_fields(cause=_text, count=_count, clips=_each(_CLIP))),
    first_causes=_each(_CAUSE),
    interactions=_fields(objects=_each(_TURNS), all=_TURNS),
    travelled_m=_by_name(_fields(runs=_count, mean=_number)),
    parts=_each(_fields(name=_text, held=_count, runs=_count, unit=_text, median_lacking=_number)),
    path=_by_name(_number),
    path_intervals=_by_name(_fields(**_ENDS)),
)  # fmt: skip
_INDEX = _fields(
    **_RAN,
    runs=_each(
        _fields(
            **_FIGURES, name=_text, folder=_text, num_episodes=_count, stages=_number,
            num_stages=_count, disagree=_count,
        ),
        _MOST_NAMES,
    ),
)  # fmt: skip
_AGENT = _fields(
    **_RAN, name=_text, folder=_text, link=_link, success=_RATE, stages=_each(_STAGE),
    first_causes=_each(_CAUSE), handoff_matrix=_MATRIX,
)  # fmt: skip
_COMPARISON = _fields(
    **_RAN,
    agents=_each(_AGENT, _MOST_NAMES),
    differences=_each(
        _fields(
            name=_text, against=_text, both=_count, only_first=_count, only_second=_count,
            neither=_count, value=_change, **_ENDS, unpaired_ci_low=_number,
            unpaired_ci_high=_number, p_value=_share,
        ),
        _MOST_NAMES,
    ),
    episodes=_each(_fields(id=_text, outcomes=_each(_RECORD, _MOST_NAMES)), _MOST_EPISODES),
)  # fmt: skip
