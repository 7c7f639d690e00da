import json
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from rich.console import Console
from test_report import HEADER, episode, summarise

from eval.analysing.bounds import decode, encode
from eval.analysing.intervals import Rate
from eval.analysing.schema import (
    ClutterMoved,
    Forces,
    LostEpisode,
    Report,
    SkillRan,
    SkillReport,
    Spread,
    TimeoutRates,
)
from eval.running.several import evaluate_scenarios, evaluate_skills
from eval.settings import AllSettings, EvalSettings, SkillsSettings
from skills.registry import planned
from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.world.scenarios import benchmark_names

SPREAD = Spread(150.0, 140.0, 200, 210)
FORCES = Forces(SPREAD, SPREAD)


def scenario_report(settings: Any, console: Console) -> Report:
    """Returns a report as of an evaluation of four episodes."""
    report = summarise(HEADER, [episode(0, 3)])
    stages = [
        structs.replace(
            report.stages[0],
            index=index,
            cumulative=share,
            reached=4,
            only_predicates=2,
            only_skill=1,
        )
        for index, share in enumerate((1.0, 0.5))
    ]
    return structs.replace(
        report,
        num_episodes=4,
        success=Rate(len(settings.scenario.name) % 4 / 4, 0.1, 0.9),
        goals_met=0.75,
        stages=stages,
        steps=SPREAD,
        force=FORCES,
    )


def skill_report(settings: Any, console: Console) -> SkillReport:
    ran = {key: value for key, value in HEADER.items() if key != "scenario"}
    ran |= {"skill": settings.skill, "dataset": "0"}
    return SkillReport(
        **structs.asdict(decode(ran, SkillRan, "report")),
        num_episodes=2,
        success=Rate(1.0, 0.3, 1.0),
        ends={"success": 2},
        parts=[],
        first_causes=[],
        steps=SPREAD,
        force=FORCES,
        reward=SPREAD,
    )


def test_all_scenarios_are_in_one_table_that_links_their_reports(tmp_path: Path) -> None:
    settings = config.load(AllSettings, config.parse(["protocol=m3", f"out={tmp_path}"]))
    console = Console(record=True, width=80)
    summary = evaluate_scenarios(settings, console, scenario_report)
    assert [row.name for row in summary.runs] == benchmark_names()
    assert summary.protocol == "m3" and "4 episodes each" in console.export_text(clear=False)
    assert summary.protocol_values["skills.pick.rest_m"] == 0.05
    assert json.loads((tmp_path / "report.json").read_text()) == encode(summary)
    html = (tmp_path / "report.html").read_text()
    xml.etree.ElementTree.fromstring(html[html.index("<main>") : html.index("</main>") + 7])
    assert all(f'href="{name}/report.html"' in html for name in benchmark_names())
    printed = console.export_text()
    row = next(line for line in printed.splitlines() if line.strip().startswith("tidy_house"))
    assert row.split()[1:] == ["50.0%", "10-90%", "75.0%", "1.5/2", "150"]


def test_the_table_of_all_scenarios_has_both_readings_of_timeouts(tmp_path: Path) -> None:
    def report(settings: Any, console: Console) -> Report:
        both = TimeoutRates(1, {}, Rate(0.25, 0.1, 0.9), Rate(0.5, 0.1, 0.9), "")
        moved = ClutterMoved(0.75, 0.5, 25, 0)
        return structs.replace(
            scenario_report(settings, console), timeouts=both, clutter_moved=moved
        )

    settings = config.load(AllSettings, config.parse([f"out={tmp_path}"]))
    console = Console(record=True, width=80)
    summary = evaluate_scenarios(settings, console, report)
    assert {row.timeouts.ending.mean for row in summary.runs if row.timeouts} == {0.25}
    rows = [line.split() for line in console.export_text().splitlines()]
    (row,) = (cells for cells in rows if cells[:1] == ["prepare_groceries"])
    assert row[1:] == ["25.0%", "10-90%", "25/50%", "75.0%", "1.5/2", "150", "0.8"]
    assert '<th class="n">ignored</th>' in (tmp_path / "report.html").read_text()


def test_the_summary_states_how_many_episodes_were_lost(tmp_path: Path) -> None:
    def report(settings: Any, console: Console) -> Report:
        found = scenario_report(settings, console)
        if settings.scenario.name != "set_table":
            return found
        return structs.replace(found, num_episodes=3, lost=[LostEpisode("val/0", "a crash")])

    settings = config.load(AllSettings, config.parse([f"out={tmp_path}"]))
    console = Console(record=True, width=80)
    summary = evaluate_scenarios(settings, console, report)
    assert summary.num_episodes == 4
    line = "episodes lost and not counted: set_table 1"
    assert line in console.export_text() and line in (tmp_path / "report.html").read_text()


def test_every_scenario_is_run_under_the_same_settings(tmp_path: Path) -> None:
    overrides = ["protocol=m3", "num_episodes=3", "seed=5", f"out={tmp_path}"]
    seen = []

    def run(settings: Any, console: Console) -> Report:
        seen.append((settings.scenario.name, settings.out, settings.num_episodes, settings.seed))
        return scenario_report(settings, console)

    evaluate_scenarios(config.load(AllSettings, config.parse(overrides)), Console(quiet=True), run)
    expected = benchmark_names()
    assert seen == [(name, str(tmp_path / name), 3, 5) for name in expected]


def test_all_skills_are_in_one_table(tmp_path: Path) -> None:
    settings = config.load(SkillsSettings, config.parse(["agent=zero", f"out={tmp_path}"]))
    console = Console(record=True, width=120)
    summary = evaluate_skills(settings, console, skill_report)
    assert [row.name for row in summary.runs] == list(planned())
    assert summary.agent == "zero" and "reward" in console.export_text()


def test_an_output_folder_that_cannot_be_written_is_refused_before_any_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    settings = config.load(AllSettings, config.parse([f"out={tmp_path}/file"]))
    with pytest.raises(UserError, match="out: cannot write into"):
        evaluate_scenarios(settings, Console(quiet=True), scenario_report)


def test_an_evaluation_with_other_settings_is_refused_before_any_run(tmp_path: Path) -> None:
    words = ["num_episodes=4", f"out={tmp_path}"]
    last = benchmark_names()[-1]
    given = config.load(EvalSettings, config.parse([*words, f"scenario={last}", "seed=7"]))
    (tmp_path / last).mkdir()
    (tmp_path / last / "config.yaml").write_text(config.to_yaml(given))
    (tmp_path / last / "report.json").write_text("{}")

    def run(settings: Any, console: Console) -> Report:
        raise AssertionError("it ran")

    settings = config.load(AllSettings, config.parse(words))
    with pytest.raises(UserError, match=f"{last} holds an evaluation .*seed: 7, now 0"):
        evaluate_scenarios(settings, Console(quiet=True), run)
