import json
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from eval.running.several import evaluate_scenarios, evaluate_skills
from eval.settings import AllSettings, SkillsSettings
from skills.registry import planned
from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.world.scenarios import benchmark_names

SPREAD = {"mean": 150.0, "median": 140.0, "p90": 200, "max": 210}
FORCE = {"peak_n": SPREAD, "total_n": SPREAD}


def stage(index: int, cumulative: float, only_predicates: int) -> dict[str, Any]:
    row: dict[str, Any] = {"index": index, "cumulative": cumulative, "reached": 4}
    return row | {"only_predicates": only_predicates, "only_skill": 1}


def scenario_report(settings: Any, console: Console) -> dict[str, Any]:
    """What an evaluation of four episodes would report."""
    good = len(settings.scenario.name) % 4
    return {
        "num_episodes": 4,
        "success": {"mean": good / 4, "ci_low": 0.1, "ci_high": 0.9},
        "goals_met": 0.75,
        "stages": [stage(0, 1.0, 2), stage(1, 0.5, 0)],
        "steps": SPREAD,
        "force": FORCE,
    }


def skill_report(settings: Any, console: Console) -> dict[str, Any]:
    return {
        "num_episodes": 2,
        "success": {"mean": 1.0, "ci_low": 0.3, "ci_high": 1.0},
        "ends": {"success": 2},
        "steps": SPREAD,
        "force": FORCE,
        "reward": SPREAD,
    }


def test_all_scenarios_stand_in_one_table_with_their_own_reports_beside(tmp_path: Path) -> None:
    settings = config.load(AllSettings, ["protocol=m3", f"out={tmp_path}"])
    console = Console(record=True, width=80)
    summary = evaluate_scenarios(settings, console, scenario_report)
    assert [row["name"] for row in summary["runs"]] == benchmark_names()
    assert summary["protocol"] == "m3" and "4 episodes each" in console.export_text(clear=False)
    assert summary["protocol_values"]["skills.pick.rest_m"] == 0.05
    assert json.loads((tmp_path / "report.json").read_text()) == summary
    html = (tmp_path / "report.html").read_text()
    xml.etree.ElementTree.fromstring(html[html.index("<main>") : html.index("</main>") + 7])
    assert all(f'href="{name}/report.html"' in html for name in benchmark_names())
    printed = console.export_text()
    row = next(line for line in printed.splitlines() if line.strip().startswith("tidy_house"))
    assert row.split()[1:] == ["50.0%", "10-90%", "75.0%", "1.5/2", "150"]


def test_the_table_of_all_scenarios_has_both_readings_of_timeouts(tmp_path: Path) -> None:
    def report(settings: Any, console: Console) -> dict[str, Any]:
        both = {"ending": {"mean": 0.25}, "ignored": {"mean": 0.5}, "episodes": 1}
        moved = {"mean": 0.75, "none": 0.5, "objects": 25, "targets": 0}
        return scenario_report(settings, console) | {"timeouts": both, "clutter_moved": moved}

    settings = config.load(AllSettings, [f"out={tmp_path}"])
    console = Console(record=True, width=80)
    summary = evaluate_scenarios(settings, console, report)
    assert {row["timeouts"]["ending"]["mean"] for row in summary["runs"]} == {0.25}
    rows = [line.split() for line in console.export_text().splitlines()]
    (row,) = (cells for cells in rows if cells[:1] == ["prepare_groceries"])
    assert row[1:] == ["25.0%", "10-90%", "25/50%", "75.0%", "1.5/2", "150", "0.8"]
    assert '<th class="n">ignored</th>' in (tmp_path / "report.html").read_text()


def test_every_scenario_is_run_under_the_same_settings(tmp_path: Path) -> None:
    overrides = ["protocol=m3", "num_episodes=3", "seed=5", f"out={tmp_path}"]
    seen = []

    def run(settings: Any, console: Console) -> dict[str, Any]:
        seen.append((settings.scenario.name, settings.out, settings.num_episodes, settings.seed))
        return scenario_report(settings, console)

    evaluate_scenarios(config.load(AllSettings, overrides), Console(quiet=True), run)
    expected = benchmark_names()
    assert seen == [(name, str(tmp_path / name), 3, 5) for name in expected]


def test_all_skills_stand_in_one_table(tmp_path: Path) -> None:
    settings = config.load(SkillsSettings, ["agent=zero", f"out={tmp_path}"])
    console = Console(record=True, width=120)
    summary = evaluate_skills(settings, console, skill_report)
    assert [row["name"] for row in summary["runs"]] == list(planned())
    assert summary["agent"] == "zero" and "reward" in console.export_text()


def test_an_output_folder_that_cannot_be_written_is_refused_before_any_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    settings = config.load(AllSettings, [f"out={tmp_path}/file"])
    with pytest.raises(UserError, match="out: cannot write into"):
        evaluate_scenarios(settings, Console(quiet=True), scenario_report)
