"""Page of a scenario report with handoffs, repairs and clips."""

import re
import shlex
import xml.etree.ElementTree
from collections.abc import Iterator
from typing import Any

import pytest
from full_report import COMMAND, ODD_ID, full_records, full_report, rendered
from markupsafe import escape
from msgspec import structs
from rich.console import Console

from eval.analysing.bounds import decode
from eval.analysing.results import EpisodeResult
from eval.analysing.schema import Report
from eval.reporting import bars, pages, table, words
from planner.execution.trace import Cause
from planner.predicates import PREDICATES
from skills.core import skill
from tpsrl.errors import UserError
from tpsrl.world.state import JOINTS

MINUS = "\N{MINUS SIGN}"


def sections(html: str) -> list[str]:
    return re.findall(r"<h2>([^<]+)</h2>", html)


def parse(html: str) -> xml.etree.ElementTree.Element:
    body = html[html.index("<main>") : html.index("</main>") + 7].replace("video controls", "video")
    return xml.etree.ElementTree.fromstring(body)


def words_of(element: xml.etree.ElementTree.Element) -> str:
    return " ".join("".join(element.itertext()).split())


def test_a_full_report_has_every_section_and_is_well_formed() -> None:
    html = rendered()
    assert sections(html) == [
        "Stages of the plan", "Handoffs", "Loss along the chain", "Flow of failures",
        "Gain of repairs", "First causes of failure", "Failure reel", "Stage goals",
        "Timeouts", "Videos", "Episodes", "Protocol habitat and command",
    ]  # fmt: skip
    assert not re.search("https?:", html) and "<script" not in html and "<link" not in html
    tree = parse(html)
    assert [v.get("poster") for v in tree.iter("video")][:3] == [
        f"reel/000{number}.png" for number in range(3)
    ]


def test_text_from_files_is_escaped() -> None:
    html = rendered()
    for tag in ("<b>", "<i>", "<em>", "<where>", "<one>", "<pick>"):
        assert escape(tag) in html
    assert html.count("<em>") == html.count("<i>") == html.count("<one>") == 0
    assert "obj_0</b>" not in html and "goal_0</b>" not in html
    assert escape(ODD_ID) in html and "<script" not in html


def test_findings_are_directly_below_the_headline() -> None:
    tree = parse(rendered())
    first = tree.findall("section")[0]
    assert [child.tag for child in first] == ["div", "ul", "div"]
    assert words_of(first[0]).startswith("59.0%full success, 95% interval 52.0% to 66.0%")
    assert [item.text for item in first[1]] == full_report()["findings"]


def test_the_matrix_has_a_cell_for_every_pair_and_marks_significant_taxes() -> None:
    tree = parse(rendered())
    (matrix,) = (table for table in tree.iter("table") if table.get("class") == "matrix")
    head = [words_of(cell) for cell in matrix.iter("th")]
    assert head == [
        "to pick", "to navigate", "to place",
        "from navigate", "from pick", "from place", "from open fridge",
    ]  # fmt: skip
    cells = [words_of(cell) for row in matrix.findall("tbody/tr") for cell in row.findall("td")]
    assert cells[0] == (
        "89.0% after the handoff97.0% isolatedtax +8.0 (+3.0 to +13.0)"
        "n = 346, p <0.001▲ significant"
    )
    assert cells[1] == "does not occur" and "tax not measured" in cells[7]
    assert sum("significant" in cell for cell in cells) == 1


def test_success_is_plotted_for_every_dimension_with_a_text_label() -> None:
    html = rendered()
    tree = parse(html)
    labels = [svg.get("aria-label") or "" for svg in tree.iter("svg")]
    drawn = [label for label in labels if label.startswith("Success by")]
    assert len(drawn) == 8
    assert drawn[0] == (
        "Success by distance to the target. 0 to 0.25: 95.0% of 100; 0.25 to 0.50: 88.0% of 70;"
        " 0.50 to 0.75: 60.0% of 40; 0.75 to 1.00: - of 0"
    )
    assert "25% to 50%: 88.0% of 70" in drawn[5]
    assert "median before success 0.31 m, failure 0.72 m" in html


def test_the_waterfall_runs_from_the_isolated_product_to_measured_success() -> None:
    tree = parse(rendered())
    (box,) = (s for s in tree.iter("section") if s[0].text == "Loss along the chain")
    rows = [
        (words_of(row[0]), words_of(row[2])) for row in box.iter("li") if row.get("class") is None
    ]
    assert rows[0] == ("product of the isolated rates", "80.0%")
    assert rows[1] == ("2 handoff tax, nav obj_0 -> pick obj_0", f"{MINUS}8.0")
    assert rows[-2:] == [("2 smaller parts", "+0.2"), ("measured", "59.0%")]
    change = sum(float(value.replace(MINUS, "-")) for _, value in rows[1:-1])
    assert change == pytest.approx(-21.0)
    bars = [rect for rect in box.iter("rect")]
    ends = [(float(r.get("x", "")[:-1]), float(r.get("width", "")[:-1])) for r in bars]
    # Each bar begins where the last one ended: from 80% down to 72%, on an axis of 50% to 80%.
    assert ends[0] == (73.33, 26.67) and ends[1] == (63.33, 10.0)


def test_the_flow_is_shown_as_a_diagram_with_shares_of_edges_and_as_a_table() -> None:
    report = full_report()
    tree = parse(rendered(report))
    (svg,) = (found for found in tree.iter("svg") if found.get("class") == "flow")
    bands = [words_of(path) for path in svg.iter("path")]
    assert len(bands) == len(report["flow"]["edges"])
    # A node is named by the first cause of an episode, or else by the text in the file.
    assert "<b>obj_0</b> in the hand, force limit of the skill -> 6 pick obj_1: 10.0%" in bands
    heights = {rect.get("class"): float(rect.get("height", "")) for rect in svg.iter("rect")}
    assert heights["end"] == pytest.approx(420 * 0.41, abs=0.1)
    (box,) = (s for s in tree.iter("section") if s[0].text == "Flow of failures")
    (flow_table,) = box.iter("table")
    rows = [[words_of(cell) for cell in row] for row in flow_table.findall("tbody/tr")]
    assert ["goal 0: lost", "6 pick obj_1", "4.0%"] in rows
    assert len(rows) == len(bands)


def test_repairs_are_ranked_by_kind_with_a_sentence_for_the_best() -> None:
    html = rendered()
    assert "Repairing navigate -&gt; pick alone lifts full success from 59% to 68%." in html
    assert "Repairing navigate -&gt; pick alone lifts full success from 59% to 71%." in html
    assert "+8.5 (+4.5 to +12.5)" in html and html.count("not measured</td>") == 2
    assert "all others" in html and "57 of 60" in html
    assert html.count("All of them repaired: 59.0% to 76.0%, +17.0 points") == 2


def test_causes_are_worded_on_the_page_and_in_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    html = rendered()
    table.show(Console(width=120), decode(full_report(), Report, "report"))
    printed = capsys.readouterr().out
    for text in ("force limit of the skill", "ran out of steps", "no plan left"):
        assert text in html and text in printed
    tree = parse(html)
    (reel,) = (s for s in tree.iter("section") if s[0].text == "Failure reel")
    assert words_of(reel[2]) == (
        "pick obj_0: <b>obj_0</b> in the hand, force limit of the skill: 7 episodes"
    )
    assert words_of(reel[3][0]).endswith("<b>obj_0</b> in the hand: 12.5 kN > 10 kN at step 412")


def test_the_terminal_ends_the_stages_with_full_success_and_names_failed_episodes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = decode(full_report(), Report, "report")
    results = [decode(record, EpisodeResult, "report") for record in full_records()]
    table.show(Console(width=160), report, results)
    printed = capsys.readouterr().out
    assert re.search(r"full success +59% *\n", printed)
    assert f"{ODD_ID} failed: pick obj_0: " in printed
    assert f"film it: {words.replay(COMMAND, ODD_ID)}" in printed


def test_the_terminal_shows_findings_taxes_and_repairs(capsys: pytest.CaptureFixture[str]) -> None:
    table.show(Console(width=120), decode(full_report(), Report, "report"))
    printed = capsys.readouterr().out
    assert "- Full success is 59.0% (118 of 200); 80.0% if nothing were lost" in printed
    rows = [line.split() for line in printed.splitlines()]
    taxed = ["navigate", "->", "pick", "346", "89%", "97%", "+8.0", "+3.0", "to", "+13.0"]
    assert [*taxed, "significant"] in rows
    repaired = ["navigate", "->", "pick", "state", "59%", "to", "68%", "+9.0", "+5.0", "to"]
    assert [*repaired, "+13.0", "+8.5"] in rows


def test_every_episode_shows_the_command_that_films_it() -> None:
    tree = parse(rendered())
    commands = [code.text or "" for fold in tree.iter("details") for code in fold.iter("code")]
    film = COMMAND.replace("tpsrl eval", "tpsrl video")
    again = [command for command in commands if command.startswith(film)]
    assert len(again) == len(full_records())
    assert again[1] == f"{film} episode=val_1"
    assert shlex.split(again[0])[-1] == f"episode={ODD_ID}"


def test_an_episode_shows_its_first_cause_and_the_skill_that_set_it_up() -> None:
    tree = parse(rendered())
    (box,) = (s for s in tree.iter("section") if s[0].text == "Episodes")
    cells = [words_of(row[2]) for row in box.findall(".//tbody/tr")]
    assert cells[0] == (
        "2 pick obj_0: force limit of the skill"
        "<b>obj_0</b> in the hand: 12.5 kN > 10 kN at step 412set up by navigate"
    )
    assert cells[1] == "" and "set up" not in cells[3]


KEYS = {
    "Loss along the chain": "propagation",
    "Flow of failures": "flow",
    "Gain of repairs": "repairs",
    "Failure reel": "reel",
}


@pytest.mark.parametrize("gone", [None, "absent"])
@pytest.mark.parametrize(("title", "key"), KEYS.items())
def test_quantities_that_were_not_measured_have_no_section(
    title: str, key: str, gone: str | None
) -> None:
    report = full_report()
    report[key] = None
    if gone:
        del report[key]
    shown = sections(rendered(report))
    assert title not in shown and len(shown) == 11


def test_without_isolated_runs_the_page_states_that_taxes_were_not_measured() -> None:
    report = full_report()
    for key in ("handoff_matrix", "analysis", "repairs", "repair_all", "flow", "findings", "blame"):
        del report[key]
    report["handoffs"] = [
        row | dict.fromkeys(("rate_isolated", "tax", "ci_low", "ci_high"))
        for row in report["handoffs"]
    ]
    report["propagation"] |= {"product_isolated": None, "loss": None, "parts": None}
    html = rendered(report)
    assert "Success of the skills from their own start states was not measured" in html
    assert "nav obj_0 -&gt; pick obj_0" in html and "Loss along the chain" not in html
    parse(html)


@pytest.mark.parametrize(
    ("predicate", "fact"),
    [
        ("holding(obj_4, robot_0)", "obj_4 in the hand"),
        ("not_holding(robot_0)", "hand empty"),
        ("robot_at(goal_0, robot_0)", "robot at goal_0"),
        ("in(obj_0, cab_push_point_7)", "obj_0 in left top drawer"),
        ("closed_fridge(fridge_push_point)", "fridge closed"),
        ("undisturbed(clutter)", "clutter undisturbed"),
        ("place.wrong_drop", "place: wrong drop"),
        ("poured(cup)", "poured(cup)"),
        ("in(cup)", "in(cup)"),  # too few terms for the planner's predicate
    ],
)
def test_predicates_are_worded(predicate: str, fact: str) -> None:
    assert words.fact(predicate) == fact
    cause = Cause(0, "pick obj_4", "pick", predicate, -1.0, "bool", "timeout", 9)
    assert words.figures(cause, f"{predicate}: not so at step 9") == f"{fact}: not so at step 9"
    assert words.figures(cause, "of somebody else") == "of somebody else"


def test_steps_of_a_plan_name_the_receptacle_instead_of_its_handle() -> None:
    assert (
        words.stage("nav_to_receptacle cab_push_point_5") == "nav to receptacle: right top drawer"
    )
    assert words.stage("pick obj_0") == "pick obj_0"
    assert words.numbered(7, "open_fridge fridge_push_point") == "8  open fridge: fridge"


def test_every_predicate_of_the_planner_and_every_handle_has_a_wording() -> None:
    assert words.FACTS.keys() >= set(PREDICATES) and words.PLACES.keys() == set(JOINTS)


def test_a_custom_reason_is_worded_from_its_name() -> None:
    assert words.reason("skill_stop") == "gave up"
    assert words.reason("spilled_the_tea") == "spilled the tea"


def test_every_reason_of_the_executor_has_a_wording() -> None:
    ends = ("timeout", "skill_stop", "skill_force", "force_limit", "episode_steps", "precondition")
    known = {*ends, *skill.FAILURES, "no_plan", "lost", "stop"} - {""}
    assert known <= words.REASONS.keys()


def test_repairs_without_effect_and_repairs_that_lower_success_are_worded() -> None:
    row = decode(full_report(), Report, "report").repairs[0]
    same, worse = (structs.replace(row, before=0.6, after=after) for after in (0.6, 0.5))
    assert words.repair_sentence(same).endswith("leaves full success at 60%.")
    assert "lowers full success from 60% to 50%" in words.repair_sentence(worse)


def test_points_have_a_sign_except_zero_and_missing_values() -> None:
    assert [words.points(v) for v in (0.081, -0.02, 0.0, -0.0001, None)] == [
        "+8.1", f"{MINUS}2.0", "0.0", "0.0", "-",
    ]  # fmt: skip


def test_a_scale_has_a_few_round_ticks_for_any_range_of_values() -> None:
    assert bars.around([0.59, 0.8]).ticks == pytest.approx((0.5, 0.6, 0.7, 0.8))
    assert bars.around([-0.42, 0.57]).ticks == pytest.approx((-0.5, 0.0, 0.5, 1.0))
    assert bars.around([0.0, 0.0]).ticks == pytest.approx((0.0, 0.01))
    assert all(2 <= len(bars.around([-x / 99, x / 70]).ticks) <= 6 for x in range(1, 70))


def test_repairs_outside_the_budget_are_shown_as_not_measured() -> None:
    report = full_report()
    report["analysis"]["repaired"]["state"] = 0
    report["repairs"] = [row for row in report["repairs"] if row["kind"] == "effect"]
    html = rendered(report)
    assert html.index("State repaired") > html.index("Effect repaired")
    assert html.count("Not measured: the budget of control steps") == 1


def test_the_page_notes_plans_that_differ_between_episodes() -> None:
    report = full_report()
    note = "Plans differ between episodes"
    assert note not in rendered(report)
    report["stages"].insert(1, report["stages"][1] | {"name": "nav obj_9"})
    assert note in rendered(report)


def _planted(value: Any, text: str) -> Iterator[tuple[str, Any]]:
    """Yields paths and copies of a JSON value, each with `text` in place of one inner value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in pairs:
        if isinstance(inner, dict | list):
            found: Any = _planted(inner, text)
        else:
            found = [("", text)]
        for where, planted in found:
            whole = dict(value) if isinstance(value, dict) else list(value)
            whole[key] = planted  # type: ignore[index]
            yield f"{key}.{where}", whole


@pytest.mark.slow
def test_markup_in_place_of_any_value_is_escaped() -> None:
    script = "<script>alert(1)</script>"
    report, records = full_report(), full_records()
    pages = [(where, planted, records) for where, planted in _planted(report, script)]
    pages += [(where, report, planted) for where, planted in _planted(records[:1], script)]
    shown = 0
    for where, content, listed in pages:
        try:
            html = rendered(content, listed)
        except (UserError, LookupError):
            continue  # text in place of a number
        shown += escape(script) in html
        assert "<script" not in html, where
    assert shown > 100


@pytest.mark.parametrize("path", ["//evil.example/x.mp4", "/etc/x.mp4"])
def test_addresses_of_other_machines_are_refused_or_escaped(path: str) -> None:
    with pytest.raises(ValueError, match="does not begin at the page"):
        pages.address(path)
    assert pages.address("https://evil.example/x") == "https%3A//evil.example/x"


def test_the_page_forbids_scripts_and_external_content() -> None:
    html = rendered()
    assert html.index("Content-Security-Policy") < html.index("<title>")
    assert "default-src 'none'" in html and "script-src" not in html


def test_the_number_of_ticks_of_a_scale_is_bounded() -> None:
    assert len(bars.around([0.0, 3e6]).ticks) <= 12
    assert bars.around([-2.0, 3.0]).ticks == pytest.approx([n / 2 for n in range(-4, 7)])
