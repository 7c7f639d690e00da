import dataclasses
import json
import math
from typing import Any

import pytest

from eval.analysing.records import decode
from eval.analysing.results import EpisodeResult, Reading, StageResult, Timeouts
from eval.analysing.skill_results import SkillResult
from planner.execution.trace import Cause
from skills.core.conditions import Margin


def cause(margin: float = -0.1) -> Cause:
    return Cause(1, "pick obj_0", "pick", "holding", margin, "m", "timeout", 40, recovered=True)


def episode(margin: float = -0.1) -> EpisodeResult:
    stage = StageResult("pick obj_0", "pick", True, False, True, "timeout", 2, 40)
    reading = Reading(False, "timeout", 40, 0)
    return EpisodeResult(
        id="test/0",
        layout="v3_sc3_staging_00",
        success=False,
        ended_by="timeout",
        steps=40,
        plans=1,
        goals=2,
        goals_met=0,
        stages=(stage, dataclasses.replace(stage, name="nav goal_0", reached=False)),
        first_cause=cause(margin),
        force_peak_n=0.1 + 0.2,
        force_total_n=1e-17,
        stage_goals={"held": True, "placed": False},
        video="videos/0000.mp4",
        timeouts=Timeouts(cause(margin), reading, None),
        clutter_moved=1,
        clutter=20,
    )


def skill(margin: float = -0.1) -> SkillResult:
    parts = {"rest": Margin(False, margin, "m"), "holding": Margin(True, 1.0, "bool")}
    path = {"driven_m": 0.1 + 0.7, "spl": 0.5}
    return SkillResult(
        "test/0", "x", False, "timeout", 3, -1.5, parts, cause(margin), 2.5, 7.0, path, None, 0.25
    )


@pytest.mark.parametrize("result", [episode(), skill()])
def test_a_result_is_the_same_after_it_was_written_and_read(result: Any) -> None:
    for record in (result.to_json(), dataclasses.asdict(result)):
        assert type(result).from_json(json.loads(json.dumps(record))) == result


@pytest.mark.parametrize("made", [episode, skill])
@pytest.mark.parametrize("margin", [math.inf, -math.inf, math.nan])
def test_a_margin_that_is_not_finite_is_null_in_a_record_and_itself_in_a_journal(
    made: Any, margin: float
) -> None:
    result = made(margin)
    text = json.dumps(result.to_json(), allow_nan=False)
    assert math.isnan(type(result).from_json(json.loads(text)).first_cause.margin)
    whole = json.loads(json.dumps(dataclasses.asdict(result)))
    found = type(result).from_json(whole)
    assert repr(found) == repr(result)  # NaN is not equal to itself
    assert found.to_json() == result.to_json()


def test_what_a_record_does_not_have_was_not_measured() -> None:
    record = episode().to_json()
    for name in ("timeouts", "clutter_moved", "clutter", "video", "stage_goals"):
        del record[name]
    result = EpisodeResult.from_json(record)
    assert (result.timeouts, result.clutter_moved, result.stage_goals) == (None, None, {})
    del record["steps"]
    with pytest.raises(ValueError, match="steps"):
        EpisodeResult.from_json(record)


@dataclasses.dataclass
class Sample:
    number: float = 0.0
    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    names: tuple[str, ...] = ()
    opaque: Any = None
    flag: bool | None = None


def test_values_are_read_by_the_types_of_the_fields() -> None:
    anything = {"a": [1, None, {"b": 2.5}]}
    record = {"number": 3, "names": ["x"], "opaque": anything, "flag": None, "counts": {"k": 1}}
    found = decode(Sample, record)
    assert found == Sample(3, {"k": 1}, ("x",), anything, None)
    assert isinstance(found.number, int)  # it is written again as it was
    assert decode(list[int], [1, 2]) == [1, 2]
    assert decode(dict, anything) == anything


@pytest.mark.parametrize(
    "record",
    [
        {"number": "3"},
        {"number": True},
        {"counts": {"k": 1.5}},
        {"counts": []},
        {"names": "xyz"},
        {"flag": 1},
        {"unknown": 1},
        [],
        None,
    ],
)
def test_what_is_of_another_type_is_refused(record: Any) -> None:
    with pytest.raises(ValueError, match="is not of type"):
        decode(Sample, record)
