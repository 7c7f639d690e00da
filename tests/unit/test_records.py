import dataclasses
import json
import math
from typing import Annotated, Any

import msgspec
import pytest

from eval.analysing.results import EpisodeResult, Reading, StageResult, Timeouts
from eval.analysing.skill_results import SkillResult
from planner.execution.trace import Cause
from skills.core.conditions import Margin
from tpsrl.errors import UserError
from tpsrl.runtime import records


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


@pytest.mark.parametrize("made", [episode, skill])
@pytest.mark.parametrize("margin", [-0.1, math.inf, -math.inf, math.nan])
def test_a_result_survives_a_round_trip_through_the_journal(made: Any, margin: float) -> None:
    result = made(margin)
    kept = json.loads(json.dumps(dataclasses.asdict(result)))
    found = records.decode(kept, type(result), "journal")
    assert repr(found) == repr(result)  # NaN is not equal to itself
    assert found.to_json() == result.to_json()
    json.dumps(found.to_json(), allow_nan=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    rate: Annotated[float, msgspec.Meta(ge=0, le=1)]
    size: tuple[int, int] = (0, 0)


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    name: Annotated[str, msgspec.Meta(max_length=9)]
    parts: tuple[Part, ...] = ()
    counts: dict[str, records.Count] = dataclasses.field(default_factory=dict)
    anything: Any = None
    flag: bool | None = None


def test_a_record_is_decoded_into_its_annotated_types() -> None:
    anything = {"a": [1, None, {"b": 2**100}]}
    record = {"name": "x", "parts": [{"rate": 1, "size": [3, 4]}], "anything": anything, "more": 1}
    made = Sample("x", (Part(1.0, (3, 4)),), {}, anything)
    assert records.decode(record, Sample, "here") == made
    assert records.read(json.dumps(record), Sample, "here") == made
    assert records.decode(dataclasses.asdict(made), Sample, "here", closed=True) == made


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"name": 3}, "name: must be a string, got 3"),
        ({"name": "x" * 10}, "name: must be a string of length <= 9, got 'xxxxxxxxxx'"),
        ({"parts": {}}, "parts: must be a list, got {}"),
        ({"parts": [{"rate": 1}, 5]}, "parts[1]: must be a record, got 5"),
        ({"parts": [{"rate": True}]}, "parts[0].rate: must be a number, got True"),
        ({"parts": [{"rate": None}]}, "parts[0].rate: must be a number, got None"),
        ({"parts": [{"rate": 2}]}, "parts[0].rate: must be a number <= 1.0, got 2"),
        ({"parts": [{}]}, "parts[0]: rate: is missing"),
        (
            {"parts": [{"rate": 1, "size": [1]}]},
            "parts[0].size: must be a list of length 2, got [1]",
        ),
        (
            {"parts": [{"rate": 1, "size": [1, 2.0]}]},
            "parts[0].size[1]: must be an integer, got 2.0",
        ),
        ({"counts": {"k": -1}}, "counts[...]: must be an integer >= 0"),
        ({"counts": {"k": "3"}}, "counts[...]: must be an integer, got a string"),
        ({"flag": "yes"}, "flag: must be true or false or null, got 'yes'"),
    ],
)
def test_an_invalid_value_is_reported_with_its_path(entries: dict[str, Any], message: str) -> None:
    record = {"name": "x", **entries}
    with pytest.raises(UserError) as raised:
        records.decode(record, Sample, "a.json")
    assert str(raised.value) == f"a.json: {message}"
    with pytest.raises(UserError) as raised:
        records.read(json.dumps(record), Sample, "a.json")
    assert str(raised.value) == f"a.json: {message}"


@pytest.mark.parametrize("value", [[], None, 5, "x"])
def test_a_value_that_is_not_a_record_is_refused(value: Any) -> None:
    with pytest.raises(UserError, match=r"a\.json: must be a record, got "):
        records.decode(value, Sample, "a.json")


def test_unknown_entries_are_refused_in_closed_records() -> None:
    record = {"name": "x", "parts": [{"rate": 1, "siez": [1, 2]}]}
    assert records.decode(record, Sample, "card").parts == (Part(1.0),)
    with pytest.raises(UserError, match=r"card: parts\[0\]: unknown value 'siez'; .* 'size'"):
        records.decode(record, Sample, "card", closed=True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"name": "x"',
        '{"name": NaN}',
        '{"name": "x", "anything": 1e999}',
        '{"name": "x", "anything": ' + "9" * 309 + "}",
        '{"name": "\\ud800"}',
        b'{"name": "\xff"}',
        "[" * 100_000,
    ],
)
def test_text_that_is_not_json_of_finite_numbers_is_refused(text: Any) -> None:
    with pytest.raises(UserError, match=r"^a.json is not JSON \("):
        records.read(text, Sample, "a.json")
