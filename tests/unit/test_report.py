import re
import xml.etree.ElementTree
from collections.abc import Sequence
from typing import Any

import pytest
from kinematic_home import make_episode
from rich.console import Console

from eval.analysing import report as analysing
from eval.analysing.bounds import decode, encode
from eval.analysing.intervals import wilson
from eval.analysing.results import (
    EpisodeResult,
    Reading,
    StageResult,
    Timeouts,
    from_trace,
    reached_goals,
)
from eval.analysing.schema import ClutterMoved, Report, ScenarioRan, Spread, ViewBlocked
from eval.reporting import pages, table
from planner.execution.trace import Cause, Stage, StageMark, Trace
from tpsrl.errors import UserError

HEADER: dict[str, Any] = {
    "scenario": "tidy_house",
    "title": "Tidy House",
    "protocol": "habitat",
    "protocol_changes": {},
    "protocol_values": {"limits.total": 5000, "skills.reach": None},
    "stage_rule": "ever",
    "agent": "scripted",
    "learned": {},
    "engine": "mujoco",
    "split": "val",
    "seed": 0,
    "replan": False,
    "version": "0",
}
STAGES = (("navigate 1", "navigate"), ("pick 1", "pick"), ("navigate 2", "navigate"))


def episode(index: int, done: int, margin: float = -0.1, **changes: Any) -> EpisodeResult:
    """Returns an episode with `done` of three stages completed; the next stage timed out."""
    stages = tuple(
        StageResult(name, skill, i <= done, i < done, i < done, "success" if i < done else "", 1, 9)
        for i, (name, skill) in enumerate(STAGES)
    )
    failed = done < len(STAGES)
    cause = Cause(done, *STAGES[done], "holding", margin, "m", "timeout", 9) if failed else None
    fields: dict[str, Any] = {
        "id": f"e{index}",
        "layout": "set/one",
        "success": not failed,
        "ended_by": "stop",
        "steps": 100 * (index + 1),
        "goals": 5,
        "goals_met": done,
        "stages": stages,
        "first_cause": cause,
        "plans": 1,
        "force_peak_n": 10.0 * index,
        "force_total_n": 0.0,
    }
    return EpisodeResult(**(fields | changes))


def summarise(header: dict[str, Any], results: Sequence[EpisodeResult]) -> Report:
    return analysing.summarise(ScenarioRan(**header), results)


def test_stage_counts_equal_a_hand_counted_case() -> None:
    # Four episodes: two succeeded, one failed at the second stage, one at the first.
    report = summarise(HEADER, [episode(0, 3), episode(1, 3), episode(2, 1), episode(3, 0)])
    counted = [(s.reached, s.succeeded, s.cumulative) for s in report.stages]
    assert counted == [(4, 3, 0.75), (3, 2, 0.5), (2, 2, 0.5)]
    assert report.stages[1].rate == 2 / 3
    assert report.stages[1].ci_low == wilson(2, 3).ci_low
    assert report.success.mean == 0.5
    assert report.success.ci_high == wilson(2, 4).ci_high


def test_the_product_of_conditional_rates_is_the_share_of_finished_plans() -> None:
    report = summarise(HEADER, [episode(0, 3), episode(1, 2), episode(2, 1), episode(3, 3)])
    assert report.propagation.product_conditional == pytest.approx(0.5)
    assert report.propagation.measured == 0.5


def test_a_stage_that_no_episode_reached_has_no_rate() -> None:
    report = summarise(HEADER, [episode(0, 0), episode(1, 0)])
    last = report.stages[2]
    assert (last.reached, last.rate, last.ci_low) == (0, None, None)
    assert report.propagation.product_conditional == 0.0


def test_handoffs_join_consecutive_stages_and_leave_the_isolated_rate_open() -> None:
    report = summarise(HEADER, [episode(0, 3), episode(1, 1)])
    first, second = report.handoffs
    assert (first.from_, first.to, first.n) == ("navigate 1", "pick 1", 2)
    assert first.rate_after_handoff == 0.5
    assert (second.from_, second.n, second.rate_after_handoff) == ("pick 1", 1, 1.0)
    assert first.rate_isolated is None and first.tax is None


def test_equal_first_causes_are_counted_together_with_their_median_margin() -> None:
    results = [episode(0, 1, -0.1), episode(1, 1, -0.5), episode(2, 1, -0.2), episode(3, 0, -7.0)]
    causes = summarise(HEADER, results).first_causes
    assert [(c.stage, c.count, c.margin) for c in causes] == [(1, 3, -0.2), (0, 1, -7.0)]
    assert causes[0].predicate == "holding" and causes[0].reason == "timeout"


def test_every_failed_episode_is_in_exactly_one_first_cause() -> None:
    results = [episode(i, i % 4) for i in range(11)]
    causes = summarise(HEADER, results).first_causes
    assert sum(c.count for c in causes) == sum(not r.success for r in results)


def test_stages_that_differ_between_episodes_are_counted_separately() -> None:
    other = episode(
        1, 3, stages=(StageResult("open 1", "open", True, True, True, "success", 1, 4),)
    )
    report = summarise(HEADER, [episode(0, 3), other])
    assert [s.name for s in report.stages] == ["navigate 1", "open 1", "pick 1", "navigate 2"]
    assert report.propagation.product_conditional is None


def test_spread_uses_the_nearest_rank() -> None:
    report = summarise(HEADER, [episode(i, 3) for i in range(10)])
    assert report.steps == Spread(550.0, 550.0, 900, 1000)


def test_success_by_skill_and_by_predicates_is_counted_separately() -> None:
    def stages(succeeded: bool, skill_success: bool) -> tuple[StageResult, ...]:
        return (StageResult("place 1", "place", True, succeeded, skill_success, "", 1, 9),)

    pairs = [(True, True), (True, False), (True, False), (False, True), (False, False)]
    results = [episode(i, 3, stages=stages(*pair)) for i, pair in enumerate(pairs)]
    (row,) = summarise(HEADER, results).stages
    assert (row.succeeded, row.skill_succeeded) == (3, 2)
    assert (row.only_predicates, row.only_skill) == (2, 1)
    assert (row.rate, row.skill_rate) == (3 / 5, 2 / 5)
    assert row.skill_ci_low == wilson(2, 5).ci_low
    html = pages.scenario(summarise(HEADER, results), results)
    assert "3 of 5, skill 2, 3 differ" in html


def test_stage_goals_are_rated_over_the_episodes_whose_plan_has_them() -> None:
    goals = [{"stage_1": True}, {"stage_1": True, "stage_2": False}, {"stage_1": False}]
    results = [episode(i, 3, stage_goals=found) for i, found in enumerate(goals)]
    rows = summarise(HEADER, results).stage_goals
    counted = [(row.name, row.reached, row.episodes, row.rate) for row in rows]
    assert counted == [("stage_1", 2, 3, 2 / 3), ("stage_2", 0, 1, 0.0)]
    assert rows[0].ci_high == wilson(2, 3).ci_high


def trace(**changes: Any) -> Trace:
    """Returns a trace of three stages, the second with a failed skill, and three stage goals."""
    outcomes = ("success", "timeout", "success")
    marks = {"a": StageMark(5, 5), "b": StageMark(), "c": StageMark(9, None)}
    runs = [
        Stage(index, 0, name, skill, (name,), None, {}, ended_by=ended)  # type: ignore[arg-type]
        for index, ((name, skill), ended) in enumerate(zip(STAGES, outcomes, strict=True))
    ]
    names, skills = zip(*STAGES, strict=True)
    fields: dict[str, Any] = {"stages": runs, "stage_goals": marks}
    return Trace(make_episode(), list(names), list(skills), **(fields | changes))


def test_stage_goals_count_by_the_protocols_rule() -> None:
    assert reached_goals(trace(), "ever") == {"a": True, "b": False, "c": True}
    assert reached_goals(trace(), "cumulative") == {"a": True, "b": False, "c": False}
    expected = {"1 navigate 1": True, "2 pick 1": False, "3 navigate 2": False}
    assert reached_goals(trace(), "subtask") == expected
    with pytest.raises(UserError, match="did you mean 'ever'"):
        reached_goals(trace(), "evr")


def test_page_shows_every_value_of_the_protocol_and_marks_the_changed_ones() -> None:
    results = [episode(0, 3)]
    html = pages.scenario(
        summarise(HEADER | {"protocol_changes": {"limits.total": 1}}, results), results
    )
    rows = [row for row in html.split("<tr>") if "<code>limits.total</code>" in row]
    assert len(rows) == 1 and "5000" in rows[0] and "changed" in rows[0]
    assert "<code>skills.reach</code>" in html and html.count(">changed<") == 1


def test_the_page_is_well_formed_and_loads_nothing_external() -> None:
    results = [episode(0, 3, video="videos/a.mp4"), episode(1, 1)]
    html = pages.scenario(summarise(HEADER, results), results)
    assert not re.search("https?:", html) and "<script" not in html and "<link" not in html
    body = html[html.index("<main>") : html.index("</main>") + 7].replace("video controls", "video")
    tree = xml.etree.ElementTree.fromstring(body)
    assert [v.get("src") for v in tree.iter("video")] == ["videos/a.mp4"]
    assert len(list(tree.iter("circle"))) == len(STAGES)


def test_page_shows_names_as_text_not_as_markup() -> None:
    results = [episode(0, 1, id="<b>bold</b>")]
    html = pages.scenario(summarise(HEADER, results), results)
    assert "&lt;b&gt;bold&lt;/b&gt;" in html and "<b>bold" not in html


def test_the_page_lists_changes_to_the_protocol() -> None:
    results = [episode(0, 3)]
    header = HEADER | {"protocol_changes": {"limits.total": 4000}}
    assert "limits.total=4000" in pages.scenario(summarise(header, results), results)


def test_table_names_stages_causes_and_success(capsys: pytest.CaptureFixture[str]) -> None:
    table.show(Console(width=100), summarise(HEADER, [episode(0, 3), episode(1, 1)]))
    printed = capsys.readouterr().out
    assert "pick 1" in printed and "holding" in printed and "-0.1 m" in printed
    assert "full success 50.0% (1 of 2 episodes, 95% interval 9.5% to 90.5%)" in printed


def both(index: int, ending: bool, ignored: bool | None, out: bool = True) -> EpisodeResult:
    """Returns an episode with both timeout readings; odd episodes moved one clutter object."""
    first = Cause(1, *STAGES[1], "holding", -1.0, "bool", "timeout", 9) if out else None
    then = None if ignored is None else Reading(ignored, "stop", 900, 5)
    found = Timeouts(first, Reading(ending, "timeout" if out else "stop", 90, 1), then)
    moved = {"clutter_moved": index % 2, "clutter": 25, "targets_moved": 0}
    return episode(index, 3 if ending else 1, timeouts=found, **moved)


def test_success_is_reported_with_timeouts_ending_the_episode_and_ignored() -> None:
    results = [both(0, True, True, out=False), both(1, False, True), both(2, False, False)]
    report = summarise(HEADER | {"protocol_values": {"limits.end_on_timeout": True}}, results)
    found = report.timeouts
    assert (found.episodes, found.ending.mean, found.ignored.mean) == (
        2,
        1 / 3,
        2 / 3,
    )
    assert found.ignored.ci_low == wilson(2, 3).ci_low
    assert "This protocol ends the episode at a timeout; the continuation" in found.how
    html = pages.scenario(report, results)
    assert 'timeouts are ignored</td><td class="n">66.7%' in html and found.how[:40] in html


def test_the_rate_with_timeouts_ignored_needs_episodes_that_were_continued(
    capsys: pytest.CaptureFixture[str],
) -> None:
    results = [both(0, True, True, out=False), both(1, False, None)]
    report = summarise(HEADER, results)
    assert report.timeouts.ignored is None and report.timeouts.ending.mean == 0.5
    table.show(Console(width=100), report)
    printed = capsys.readouterr().out
    readings = "timeouts ending 50.0%, ignored -"
    assert f"{readings}; skills ran out of steps or could not start in 1 of 2 episodes" in printed
    assert "not run" in pages.scenario(report, results)


def test_moved_clutter_is_averaged_and_episodes_without_any_are_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    results = [both(index, True, True, out=False) for index in range(3)]
    report = summarise(HEADER, results)
    assert report.clutter_moved == ClutterMoved(mean=1 / 3, none=2 / 3, objects=25, targets=0)
    table.show(Console(width=100), report)
    assert "clutter moved by over 0.1 m: 0.33 of 25 on average, none in 66.7%" in (
        capsys.readouterr().out
    )


def test_blocked_views_are_averaged_over_the_episodes_that_recorded_them() -> None:
    results = [episode(0, 3, view_blocked=0.5), episode(1, 3, view_blocked=0.0), episode(2, 0)]
    report = summarise(HEADER, results)
    assert report.view_blocked == ViewBlocked(0.25, 2)
    assert "of views blocked while holding" in pages.scenario(report, results)


def test_reports_of_older_versions_can_still_be_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    results = [episode(0, 3), episode(1, 1)]
    report = summarise(HEADER, results)
    assert report.timeouts is None and report.clutter_moved is None
    written = encode(report)
    for key in ("timeouts", "clutter_moved", "view_blocked", "interactions", "handoffs"):
        del written[key]
    report = decode(written, Report, "report")
    pages.scenario(report, results)
    table.show(Console(width=100), report)
    assert "clutter" not in capsys.readouterr().out


def test_a_result_holds_both_timeout_readings_and_counts_their_steps() -> None:
    later = trace(success=True, ended_by="stop", steps=50)
    cause = Cause(1, *STAGES[1], "holding", -1.0, "bool", "timeout", 9)
    first = trace(ended_by="timeout", steps=9, timeout=cause, other=later)
    result = from_trace(first)
    assert result.timeouts == Timeouts(
        cause, Reading(False, "timeout", 9, 0), Reading(True, "stop", 50, 0)
    )
    assert (result.success, result.steps, result.steps_run) == (False, 9, 50)
    assert result.to_json()["timeouts"]["first"]["reason"] == "timeout"
    turned = from_trace(trace(success=True, ended_by="stop", timeout=cause, other=trace()))
    assert turned.timeouts is not None and turned.timeouts.ignored is not None
    assert turned.timeouts.ignored.success and not turned.timeouts.ending.success
