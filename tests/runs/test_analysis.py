"""An evaluation with handoff analysis, from the settings of the command to the report's files."""

import dataclasses
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import planted
import pytest
from planted import Faults, Home
from rich.console import Console

from eval.analysing.causes import cause_text
from eval.analysing.results import EpisodeResult, from_trace
from eval.analysing.schema import Report
from eval.handoffs.study import Players, Study
from eval.running.analysis import StudyJob
from eval.running.command import settings_command
from eval.running.episodes import obtain
from eval.running.evaluator import EpisodeJob, evaluate
from eval.settings import EvalSettings
from planner.execution.trace import Cause
from planner.predicates import PredicateThresholds
from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.world.episode import save_episodes
from tpsrl.world.scenarios import load_scenario
from tpsrl.world.state import JOINTS

FAULTS = Faults(short_m=0.4, short_share=0.3)
COUNT = 24


@dataclasses.dataclass(frozen=True)
class Episodes:
    """Runs the episodes of an evaluation in the home with planted faults."""

    settings: EvalSettings

    def __call__(self) -> Callable[[EpisodeJob], EpisodeResult]:
        executor = planted.executor(Home(), FAULTS)

        def work(job: EpisodeJob) -> EpisodeResult:
            result = from_trace(executor.run(job.episode))
            if result.first_cause is not None:
                text = cause_text(result.first_cause, PredicateThresholds())
                result = dataclasses.replace(result, cause_text=text)
            return result

        return work


@dataclasses.dataclass(frozen=True)
class Studies:
    """Builds handoff studies in the home with planted faults."""

    settings: EvalSettings
    players: Players

    def __call__(self) -> Callable[[StudyJob], dict[str, Any]]:
        executor = planted.executor(Home(), FAULTS)
        study = Study(executor, self.players, dict.fromkeys(JOINTS, 0.45))
        return lambda job: study.run(job.episode, job.coalitions)


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    path = tmp_path / "planted.jsonl.gz"
    save_episodes(path, list(planted.episodes(COUNT + 2)))  # two are invalid, inside walls
    return path


def settings(dataset: Path, out: Path, *overrides: str) -> EvalSettings:
    words = ["scenario=tidy_house", f"episodes={dataset}", f"out={out}", "processes=1"]
    words += ["skip_invalid=true", *overrides]
    return config.load(EvalSettings, config.parse(words))


def run(given: EvalSettings) -> Report:
    return evaluate(given, Console(quiet=True), Episodes, studies=Studies)


def test_a_report_has_handoff_taxes_repairs_and_findings(dataset: Path, tmp_path: Path) -> None:
    report = run(settings(dataset, tmp_path / "out", "analysis_steps=1000000"))
    found = report.propagation
    assert report.analysis.episodes == found.episodes == COUNT
    assert report.analysis.repaired == {"state": COUNT, "effect": COUNT}
    assert found.measured == report.success.mean
    assert sum(part.value for part in found.parts) == pytest.approx(found.loss)
    taxes = {(row.from_, row.to): row for row in report.handoff_matrix}
    assert taxes["navigate", "pick"].tax > 0.1
    assert report.repairs[0].kind == "state" and report.repairs[0].from_ == "navigate"
    assert {row.set_up_by for row in report.blame} >= {"navigate"}
    assert len(report.findings) == 3 and "navigate" in report.findings[2]
    shares = {node.id: node.share for node in report.flow.nodes}
    assert shares["end:failed"] == pytest.approx(1.0 - report.success.mean)
    graph = nx.read_graphml(tmp_path / "out/flow.graphml")
    assert set(graph) == set(shares)
    records = [json.loads(line) for line in (tmp_path / "out/episodes.jsonl").open()]
    assert all(bool(r["cause_text"]) != r["success"] for r in records)
    assert "navigate" in {r["set_up_by"] for r in records}
    page = (tmp_path / "out/report.html").read_text()
    assert report.findings[0].replace("'", "&#39;") in page


def test_the_analysis_is_the_same_for_any_number_of_processes(
    dataset: Path, tmp_path: Path
) -> None:
    one = run(settings(dataset, tmp_path / "one", "num_episodes=8"))
    two = run(settings(dataset, tmp_path / "two", "num_episodes=8", "processes=2"))
    assert one == two


def test_a_stopped_analysis_resumes_with_the_remaining_studies(
    dataset: Path, tmp_path: Path
) -> None:
    whole = run(settings(dataset, tmp_path / "whole", "num_episodes=6"))
    begun: list[str] = []

    @dataclasses.dataclass(frozen=True)
    class Stopping(Studies):
        def __call__(self) -> Callable[[StudyJob], dict[str, Any]]:
            work = super().__call__()

            def until_third(job: StudyJob) -> dict[str, Any]:
                begun.append(job.episode.id)
                if len(begun) == 3:
                    raise KeyboardInterrupt
                return work(job)

            return until_third

    given = settings(dataset, tmp_path / "out", "num_episodes=6")
    quiet = Console(quiet=True)
    with pytest.raises(KeyboardInterrupt):
        evaluate(given, quiet, Episodes, studies=Stopping)
    assert not (tmp_path / "out/report.json").exists()
    again = evaluate(given, quiet, Episodes, studies=Stopping)
    assert again == whole and len(begun) == 3 + 4
    for name in ("report.json", "report.html", "episodes.jsonl"):
        ours, theirs = ((tmp_path / folder / name).read_bytes() for folder in ("out", "whole"))
        assert ours.replace(b"/out", b"/whole") == theirs


@pytest.mark.parametrize("word", ["analysis_episodes=0", "replan=true"])
def test_a_report_without_an_analysis_has_no_findings(
    word: str, dataset: Path, tmp_path: Path
) -> None:
    report = run(settings(dataset, tmp_path / "out", "num_episodes=4", word))
    assert report.analysis is None and not report.findings
    assert report.propagation.product_isolated is None
    assert report.flow.nodes


def test_an_episode_is_reproduced_by_its_id(dataset: Path, tmp_path: Path) -> None:
    run(settings(dataset, tmp_path / "all", "analysis_episodes=0"))
    records = [json.loads(line) for line in (tmp_path / "all/episodes.jsonl").open()]
    wanted = next(record for record in records if not record["success"])
    again = run(settings(dataset, tmp_path / "one", f"episode={wanted['id']}"))
    assert again.num_episodes == 1 and again.analysis is None
    (record,) = [json.loads(line) for line in (tmp_path / "one/episodes.jsonl").open()]
    assert record == wanted


def test_an_unknown_episode_is_refused(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"episode: .*did you mean 'planted/0/1'"):
        run(settings(dataset, tmp_path / "out", "episode=planted/0/1x"))
    scenario = load_scenario("tidy_house")
    for wrong in ("tidy_house_val_0_1e3", "-1", "1" * 20):
        with pytest.raises(UserError, match="is not in this dataset"):
            obtain(scenario, "val", 0, None, None, 1, wrong)


def test_a_generated_episode_can_be_chosen_by_id_or_number() -> None:
    scenario = dataclasses.replace(load_scenario("tidy_house"), num_objects=6)
    third = obtain(scenario, "val", 5, 3, None, 1)[2]
    assert obtain(scenario, "val", 5, None, None, 1, third.id) == [third]
    assert obtain(scenario, "val", 5, None, None, 1, "2") == [third]


def test_the_command_of_an_evaluation_reproduces_its_settings(tmp_path: Path) -> None:
    words = [
        "scenario=set_table", "seed=7", "split=train", "protocol=m3", "agent=tp_srl",
        "protocol.skills.pick.rest_m=0.1", "protocol.limits.force_total_n=null",
        "after_timeout=false", "actions=pick:pick",
    ]  # fmt: skip
    given = config.load(EvalSettings, config.parse([*words, "num_episodes=5", "out=somewhere"]))
    command = shlex.split(settings_command(given))
    assert command[:3] == ["tpsrl", "eval", "set_table"]
    again = config.load(EvalSettings, config.parse([f"scenario={command[2]}", *command[3:]]))
    assert dataclasses.replace(again, num_episodes=5, out="somewhere") == given
    assert settings_command(config.load(EvalSettings, config.parse(["scenario=tidy_house"]))) == (
        "tpsrl eval tidy_house"
    )


def test_a_cause_is_described_with_value_limit_and_step() -> None:
    thresholds = PredicateThresholds()

    def text(predicate: str, margin: float, unit: str) -> str:
        return cause_text(Cause(0, "s", "k", predicate, margin, unit, "r", 412), thresholds)

    assert text("robot_at(goal_0, robot_0)", -0.31, "m") == (
        "robot_at(goal_0, robot_0): 2.31 m > 2 m at step 412"
    )
    assert text("opened_cab(cab_push_point_5)", -0.05, "m") == (
        "opened_cab(cab_push_point_5): 0.30 m < 0.35 m at step 412"
    )
    assert text("holding(obj_0_024_bowl, robot_0)", -1.0, "bool") == (
        "holding(obj_0, robot_0): not so at step 412"
    )
    assert text("pick.rest", -0.07, "m") == "pick.rest: 0.07 m beyond its limit at step 412"
