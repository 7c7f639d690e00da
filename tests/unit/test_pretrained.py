import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from fake_evaluation import Fake, quiet
from fake_evaluation import settings as scenario_settings
from full_report import full_report
from msgspec import structs
from rich.console import Console
from test_several import skill_report
from test_skill_evaluator import recorded
from tiny_policies import Acting, trained

from eval.analysing.bounds import decode, encode
from eval.analysing.schema import Report, ReportedPolicy, SkillReport
from eval.presets import AgentPreset
from eval.reporting import acting
from eval.running import agents, reports
from eval.running.evaluator import evaluate
from eval.running.several import evaluate_skills
from eval.running.skill_evaluator import evaluate_skill
from eval.settings import EvalSettings, SkillSettings, SkillsSettings
from skills import registry
from skills.policies import learned, pretrained, shipped
from skills.policies.card import markdown
from skills.starts.recorded import save_starts
from skills.starts.seeds import VALIDATION_SEED
from tpsrl import cli, config
from tpsrl.errors import RunError, UserError
from tpsrl.rl.policy.settings import PolicySettings
from tpsrl.rl.run.settings import TrainSettings
from tpsrl.training.task import load_teacher

OURS = pretrained.names()
TAUGHT = [name for name in registry.names() if registry.get(name).teacher is not None]


def ship(folder: Path, *skills: str) -> Path:
    """Writes a folder of shipped policies; only the one of navigate has privileged sensors."""
    for skill in skills:
        choice = "full" if skill == "navigate" else "habitat"
        source = trained(folder / "training" / skill, skill, choice)
        shipped.write(shipped.make(skill, source), folder / "shipped")
    return folder / "shipped"


@pytest.fixture
def with_tpsrl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of shipped policies, with those for navigate and pick only."""
    folder = ship(tmp_path, "navigate", "pick")
    monkeypatch.setattr(pretrained, "FOLDER", folder)
    return folder


def load(*overrides: str) -> EvalSettings:
    return config.load(EvalSettings, config.parse(["scenario=tidy_house", *overrides]))


def test_shipped_policies_are_complete_and_their_pages_equal_their_cards() -> None:
    for skill in OURS:  # may be empty
        path = pretrained.find(skill)
        card = shipped.check(path, skill)
        assert path.with_name(pretrained.card_name(skill)).read_text() == markdown(card)
        assert card.success is not None and card.success.split == "val"
        assert card.success.seed != VALIDATION_SEED and card.success.num_episodes >= 100
        assert card.commands and card.apartments and card.hours and card.machine and card.licence
        assert card.demonstrations is not None


def test_shipped_teachers_are_small_and_load_as_teachers() -> None:
    for skill in TAUGHT:
        path = pretrained.find_teacher(skill)
        card = shipped.check(path, skill)
        assert path.with_suffix(".md").read_text() == markdown(card)
        assert path.stat().st_size < 1_000_000
        assert card.success is not None and card.success.seed != VALIDATION_SEED
        load_teacher(skill, "pretrained", TrainSettings(policy=PolicySettings(critic=True)))


def test_the_folder_of_shipped_policies_holds_nothing_else() -> None:
    stems = [*OURS, *(f"{name}.teacher" for name in TAUGHT)]
    allowed = {f"{stem}.{kind}" for stem in stems for kind in ("safetensors", "md")}
    assert {path.name for path in pretrained.FOLDER.iterdir()} == allowed | {"README.md"}


def test_shipped_policies_are_found_and_missing_ones_are_a_user_error(with_tpsrl: Path) -> None:
    assert pretrained.names() == ("navigate", "pick")
    assert learned.find("pick", "pretrained") == with_tpsrl / "pick.safetensors"
    assert learned.find("pick", with_tpsrl) == with_tpsrl / "pick.safetensors"
    text = "skills.place: no policy for place is shipped (shipped: navigate, pick)"
    with pytest.raises(UserError) as raised:
        agents.make_for_skill("pretrained", "place")
    assert text in str(raised.value) and "train one with `tpsrl train place`" in str(raised.value)


def test_agent_pretrained_does_not_mean_a_folder_of_that_name(
    with_tpsrl: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trained(tmp_path / "pretrained", "pick", seed=7)
    assert learned.find("pick", "pretrained") == with_tpsrl / "pick.safetensors"
    assert learned.find("pick", "./pretrained").name == "best.safetensors"
    assert agents.describe("pretrained", {"pick": "pretrained"})["agent"] == "pretrained"


@pytest.mark.slow
def test_agent_pretrained_uses_every_shipped_policy_and_no_other(with_tpsrl: Path) -> None:
    lacking = (
        "skills.place: no policy for place is shipped (shipped: navigate, pick); agent "
        "pretrained needs a checkpoint; train one with `tpsrl train place`, or set "
        "agent.stand_ins=true to use the scripted skill"
    )
    with pytest.raises(UserError) as raised:
        agents.Policies.of(load("agent=pretrained"))
    assert str(raised.value) == lacking
    settings = load("agent=pretrained", "agent.stand_ins=true", "skills.pick=elsewhere.safetensors")
    assert settings.learned() == {"navigate": "pretrained", "pick": "elsewhere.safetensors"}
    settings = load("agent=pretrained", "agent.stand_ins=true")
    policies = agents.Policies.of(settings)
    assert isinstance(policies["pick"], learned.LearnedPolicy)
    assert not isinstance(policies["place"], learned.LearnedPolicy)
    described = agents.describe_preset(settings.agent, settings.learned())
    assert described["agent"] == "pretrained" and "place" in described["stand_ins"]
    assert "pick" not in described["stand_ins"]
    assert load("skills.pick=pretrained").learned() == {"pick": "pretrained"}
    assert AgentPreset().policies({}) == {}


@pytest.mark.slow
def test_with_all_policies_shipped_no_scripted_skill_stands_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretrained, "FOLDER", ship(tmp_path, *registry.planned()))
    settings = load("agent=pretrained")
    policies = agents.Policies.of(settings)
    assert all(isinstance(policies[name], learned.LearnedPolicy) for name in registry.planned())
    described = agents.describe_preset(settings.agent, settings.learned())
    assert (described["agent"], described["stand_ins"]) == ("pretrained", {})
    assert described["learned"].keys() == set(registry.planned())


@pytest.mark.slow
def test_a_missing_policy_ends_a_run_before_it_begins(
    with_tpsrl: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    for words in (
        ["eval", "place", "agent=pretrained"],
        ["video", "place", "agent=pretrained"],
        ["eval", "tidy_house", "skills.place=pretrained"],
        ["eval", "all", "agent=pretrained"],
        ["eval", "skills", "agent=pretrained"],
    ):
        assert cli.main([*words, f"out={out}"]) == 2
        printed = capsys.readouterr()
        assert printed.err.count("\n") == 1
        assert ": no policy for place is shipped" in printed.err
    assert not out.exists()


def skill_settings(folder: Path, skill: str, *overrides: str) -> SkillSettings:
    starts = folder / "starts.npz"
    save_starts(starts, [recorded()])
    words = [f"skill={skill}", f"starts={starts}", f"out={folder}/out", "processes=1"]
    return config.load(
        SkillSettings, config.parse([*words, f"protocol.alone.{skill}.steps=3", *overrides])
    )


@pytest.mark.slow
def test_a_skill_report_lists_the_privileged_sensors_of_its_policy(
    with_tpsrl: Path, tmp_path: Path
) -> None:
    full = trained(tmp_path / "full", "pick", "full")
    for agent, listed in (("pretrained", "none"), (str(full), "pick reach, goal, gap")):
        log = (tmp_path / "log").open("w")
        console = Console(record=True, width=200, file=log)
        words = [f"agent={agent}", "replace=true"]
        report = evaluate_skill(skill_settings(tmp_path, "pick", *words), console, Acting)
        sensors = listed.removeprefix("pick ").replace("none", "")
        assert report.learned["pick"].privileged == [s for s in sensors.split(", ") if s]
        line = f"privileged sensors of learned policies: {listed}"
        assert line in console.export_text()
        assert line in (tmp_path / "out/report.html").read_text()
        assert json.loads((tmp_path / "out/report.json").read_text()) == encode(report)
        again = Console(record=True, width=200, file=log)
        reports.rebuild(str(tmp_path / "out"), again)
        assert line in again.export_text()


@pytest.mark.slow
def test_scenario_reports_and_comparisons_list_privileged_sensors(
    with_tpsrl: Path, dataset: Path, tmp_path: Path
) -> None:
    words = ["processes=1", "skills.pick=pretrained", "skills.navigate=pretrained"]
    console = Console(record=True, width=200, file=(tmp_path / "log").open("w"))
    evaluate(scenario_settings(dataset, tmp_path / "learned", *words), console, Fake)
    line = "privileged sensors of learned policies: navigate reach, goal, gap, way, scan; pick none"
    assert line in " ".join(console.export_text().split())
    assert line in (tmp_path / "learned/report.html").read_text()
    evaluate(scenario_settings(dataset, tmp_path / "scripted", "processes=1"), quiet(), Fake)
    assert "privileged" not in (tmp_path / "scripted/report.html").read_text()
    both = [str(tmp_path / name) for name in ("scripted", "learned")]
    reports.compare(both, str(tmp_path / "both"), console)
    assert f"learned: {line}" in " ".join(console.export_text().split())
    page = (tmp_path / "both/report.html").read_text()
    assert "navigate reach, goal, gap, way, scan; pick none" in page


def test_the_table_of_all_skills_lists_privileged_sensors(tmp_path: Path) -> None:
    def report(settings: Any, console: Console) -> SkillReport:
        policy = ReportedPolicy("x", 5, privileged=["way"])
        learned = {settings.skill: policy}
        return structs.replace(skill_report(settings, console), learned=learned)

    console = Console(record=True, width=200, file=(tmp_path / "log").open("w"))
    given = config.load(SkillsSettings, config.parse(["agent=zero", f"out={tmp_path}/out"]))
    summary = evaluate_skills(given, console, report)
    line = "privileged sensors of learned policies: navigate way; pick way; "
    assert line in console.export_text() and line in (tmp_path / "out/report.html").read_text()
    assert summary.learned.keys() == set(registry.planned())


def test_a_report_of_an_older_version_lists_no_privileged_sensors() -> None:
    old = full_report() | {"learned": {"pick": {"checkpoint": "x", "trained_steps": 5}}}
    assert acting.privileged(decode(old, Report, "report")) == ""
    assert acting.privileged(decode(old | {"learned": {}}, Report, "report")) == ""


def test_a_policy_replaced_during_an_evaluation_ends_it_without_a_report(
    with_tpsrl: Path, tmp_path: Path
) -> None:
    """A training may replace its best checkpoint while the checkpoint is evaluated."""
    other = trained(tmp_path / "other", "pick", seed=9) / "checkpoints/best.safetensors"
    path = tmp_path / "mine.safetensors"
    shutil.copy(with_tpsrl / "pick.safetensors", path)

    class Replacing(Acting):
        def work(self, job: Any) -> Any:
            done = super().work(job)
            shutil.copy(other, path)
            return done

    with pytest.raises(RunError, match="was replaced during the run"):
        given = skill_settings(tmp_path, "pick", f"agent={path}")
        evaluate_skill(given, Console(quiet=True), Replacing)
    assert not (tmp_path / "out/report.json").exists()
