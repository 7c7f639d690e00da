import dataclasses
import importlib.resources
import shlex
from pathlib import Path

import pytest
import yaml
from kinematic_home import make_episode

from eval.protocols import Protocol
from eval.running.command import settings_command
from eval.settings import EvalSettings
from planner.execution.limits import EpisodeLimits
from planner.options import PlanOptions
from planner.predicates import PredicateThresholds
from skills import registry
from skills.articulated.task import ArticulatedLimits
from skills.core.limits import SkillLimits
from skills.core.settings import TaskSettings
from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.world.layouts import resolve
from tpsrl.world.state import JOINTS

NAMES = ("habitat", "m3", "mshab")
BASED = {"habitat_no_skill_timeout": "habitat"}
SCENARIOS = ("tidy_house", "prepare_groceries", "set_table")
SKILLS = (
    "navigate",
    "pick",
    "place",
    "open_fridge",
    "close_fridge",
    "open_drawer",
    "close_drawer",
)


def preset(name: str) -> Protocol:
    return config.load_preset("protocol", name, Protocol)


def steps(name: str) -> dict[str, int]:
    return {skill: preset(name).limits.of(skill).steps for skill in SKILLS}


def test_protocols_are_named_after_their_files():
    found = config.preset_names("protocol")
    assert sorted(found) == sorted((*NAMES, *BASED))
    assert [preset(name).name for name in found] == found


@pytest.mark.parametrize(("name", "base"), BASED.items())
def test_a_protocol_based_on_another_states_only_its_differences(name: str, base: str):
    text = (importlib.resources.files("configs") / "protocol" / f"{name}.yaml").read_text()
    written = yaml.safe_load(text)
    assert written.pop("based_on") == base
    own, theirs = preset(name).values(), preset(base).values()
    assert written["limits"] == {"end_on_timeout": False}
    differing = {key for key in own if own[key] != theirs[key]}
    assert differing == {"name", "limits.end_on_timeout"}
    assert preset(name).changes() == {}


def test_a_protocol_based_on_m3_has_the_skill_values_of_m3(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    presets(monkeypatch, tmp_path, mine="based_on: m3 # and more\nname: mine\nstage_rule: ever\n")
    mine, m3 = preset("mine"), preset("m3")
    assert (mine.skills, mine.limits, mine.alone) == (m3.skills, m3.limits, m3.alone)
    assert (mine.name, mine.stage_rule) == ("mine", "ever")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a": "based_on: hab\nname: a\n"}, "a.yaml: based_on: .*'hab'"),
        (
            {"a": "based_on: b\nname: a\n", "b": "based_on: a\nname: b\n"},
            "itself based on this preset",
        ),
        ({"a": "based_on: m3\nbased_on: m3\nname: a\n"}, "given more than once"),
        (
            {"a": "based_on: m3\nname: a\nlimits:\n  wrong: 3\n"},
            "a.yaml, line 4, column 3: unknown key 'limits.wrong'",
        ),
    ],
)
def test_a_protocol_with_an_invalid_base_or_key_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: dict[str, str], message: str
):
    presets(monkeypatch, tmp_path, **files)
    with pytest.raises(UserError, match=message):
        preset("a")


def presets(monkeypatch: pytest.MonkeyPatch, folder: Path, **files: str) -> None:
    """Makes `folder` the folder of protocols, with `files` as further protocols."""
    for file in (importlib.resources.files("configs") / "protocol").iterdir():
        (folder / file.name).write_text(file.read_text())
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    monkeypatch.setattr(config, "_presets", lambda group: folder)


@pytest.mark.parametrize("name", NAMES)
def test_a_protocol_file_states_every_value_outside_its_skills(name: str):
    text = (importlib.resources.files("configs") / "protocol" / f"{name}.yaml").read_text()
    written = yaml.safe_load(text)
    of_skills = {"skills", "alone", "episode_steps"}
    fields = {field.name for field in dataclasses.fields(Protocol)} - of_skills
    assert set(written) - {"episode_steps"} == fields
    assert set(written["predicates"]) == {f.name for f in dataclasses.fields(PredicateThresholds)}
    assert set(written["limits"]) == {f.name for f in dataclasses.fields(EpisodeLimits)}


@pytest.mark.parametrize("name", NAMES)
def test_a_protocol_has_the_values_registered_for_each_skill(name: str):
    protocol = preset(name)
    for skill, spec in registry.specs().items():
        assert protocol.skills.of(skill) == spec.values(name).thresholds
        assert protocol.alone.of(skill) == spec.values(name).alone
    for skill in registry.planned():
        assert protocol.limits.of(skill) == registry.get(skill).values(name).limits


def test_a_protocol_that_a_skill_does_not_name_has_the_skills_default_values():
    spec = registry.get("pointnav")
    assert set(spec.protocols) == {"habitat"} and spec.values("m3") == spec.values("habitat")


def test_habitat_limits_skills_in_steps_and_episodes_in_steps_and_force():
    protocol = preset("habitat")
    assert steps("habitat") == dict.fromkeys(SKILLS, 200) | {"navigate": 300}
    limits = protocol.limits
    assert (limits.reset_arm_steps, limits.episode_steps, limits.wait_end_steps) == (50, 3000, 30)
    assert (limits.force_instant_n, limits.force_total_n) == (1e4, 1e5)
    assert limits.end_on_timeout and limits.timeout_calls_stop
    assert all(limits.of(skill).force_total_n is None for skill in SKILLS)
    assert protocol.alone.of("navigate") == SkillLimits(400, 1e4, 1e4)
    assert protocol.alone.of("open_fridge") == ArticulatedLimits(200, 1e4, 2e4)
    assert protocol.alone.of("open_drawer") == ArticulatedLimits(200, 1e4, None)
    assert protocol.alone.of("close_drawer") == ArticulatedLimits(200, None, None)
    assert protocol.stage_rule == "ever" and not protocol.plan.close_after


@pytest.mark.parametrize("skill", [*SKILLS, "pointnav"])
def test_under_habitat_a_skill_alone_has_its_limits_of_training(skill: str):
    limits, trained = preset("habitat").alone.of(skill), registry.get(skill).load_settings()
    assert isinstance(trained, TaskSettings)
    assert limits.settings() == {name: getattr(trained, name) for name in limits.settings()}


def test_place_is_judged_at_the_release_alone_and_at_rest_in_a_plan():
    for name in NAMES:
        protocol = preset(name)
        assert protocol.alone.of("place").wrong_drop == "release"
        assert protocol.limits.of("place").wrong_drop == "rest"


def test_m3_is_stricter_at_rest_and_limits_the_force_of_pick_and_place():
    protocol = preset("m3")
    thresholds = protocol.skills
    assert (thresholds.pick.rest_m, thresholds.place.rest_m) == (0.05, 0.05)
    assert (thresholds.place.goal_m, thresholds.open_drawer.rest_m) == (0.15, 0.15)
    assert (thresholds.navigate.distance_m, thresholds.navigate.angle_rad) == (0.1, 0.25)
    assert thresholds.navigate.region_m > 0.0
    assert steps("m3") == dict.fromkeys(SKILLS, 200) | {"navigate": 500}
    sums = {skill: protocol.limits.of(skill).force_total_n for skill in SKILLS}
    assert sums == dict.fromkeys(SKILLS) | {"pick": 5000.0, "place": 7500.0}
    assert protocol.stage_rule == "cumulative"
    assert protocol.plan == PlanOptions(nav_after_open_drawer=False, close_after=True)


def test_mshab_requires_shares_of_joint_ranges_and_counts_subtasks():
    protocol = preset("mshab")
    layout_set, _ = resolve(make_episode().layout)
    ranges = {name: layout_set.link(name)[1].range[1] for name in JOINTS}
    assert protocol.skills.open_fridge.target == pytest.approx(0.75 * ranges["fridge_push_point"])
    (drawer,) = {ranges[name] for name in JOINTS if name.startswith("cab")}
    assert protocol.skills.open_drawer.target == pytest.approx(0.9 * drawer)
    assert (protocol.skills.open_drawer.tolerance, protocol.skills.close_fridge.tolerance) == (
        0.0,
        0.01,
    )
    assert (protocol.skills.pick.arm_rad, protocol.skills.pick.rest_m) == (0.6, 0.05)
    assert (protocol.skills.navigate.distance_m, protocol.skills.navigate.angle_rad) == (2.0, 0.5)
    assert steps("mshab") == dict.fromkeys(SKILLS, 200) | {"navigate": 1000}
    assert protocol.alone.navigate.steps == 500
    assert protocol.limits.of("open_drawer").force_total_n == 10_000.0
    assert protocol.stage_rule == "subtask" and protocol.plan.close_after
    assert protocol.limits.end_on_timeout and not protocol.limits.timeout_calls_stop


def test_the_step_limit_of_an_episode_depends_on_the_scenario_under_m3():
    found = {name: preset("m3").limits_for(name).episode_steps for name in SCENARIOS}
    assert found == {"tidy_house": 5000, "prepare_groceries": 4000, "set_table": 4500}
    assert {preset("habitat").limits_for(name).episode_steps for name in SCENARIOS} == {3000}


def test_the_lower_of_two_step_limits_applies():
    protocol = preset("m3")
    lower = dataclasses.replace(protocol.limits, episode_steps=100)
    short = dataclasses.replace(protocol, limits=lower)
    assert short.limits_for("set_table").episode_steps == 100


def test_the_episode_limit_of_mshab_covers_the_steps_of_every_subtask():
    limits = preset("mshab").limits
    tidy_house = 5 * (2 * limits.navigate.steps + limits.pick.steps + limits.place.steps)
    assert limits.episode_steps > tidy_house


def test_changes_name_nested_entries_with_dots():
    changed = dataclasses.replace(
        preset("m3"), plan=PlanOptions(True, True), stage_rule="ever", add_arm_rest=False
    )
    expected = {"plan.nav_after_open_drawer": True, "stage_rule": "ever", "add_arm_rest": False}
    assert changed.changes() == expected
    assert preset("m3").values()["limits.pick.force_total_n"] == 5000.0


def test_every_entry_of_a_protocol_is_documented():
    document = (Path(__file__).parents[2] / "docs" / "protocols.md").read_text()
    entries = {key.rpartition(".")[2] for key in preset("habitat").values()} - {"name"}
    missing = [e for e in sorted(entries) if f"`{e}`" not in document and f".{e}`" not in document]
    assert missing == []


def test_a_protocol_file_can_be_repeated_as_command_line_changes(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("based_on: m3\nskills: {pick: {rest_m: 0.4}}\n")
    settings = config.load(EvalSettings, {"scenario": "tidy_house", "protocol": str(path)})
    assert settings.protocol.name == "mine" and settings.protocol.skills.pick.rest_m == 0.4
    assert "protocol.skills.pick.rest_m=0.4" in settings_command(settings)
    words = shlex.split(settings_command(settings))[3:]
    again = config.load(EvalSettings, {"scenario": "tidy_house"} | config.parse(words))
    assert dataclasses.replace(again.protocol, name="mine") == settings.protocol


def test_a_command_contains_the_changes_of_nested_settings() -> None:
    plain = config.load(EvalSettings, {"scenario": "tidy_house"})
    assert settings_command(plain) == "tpsrl eval tidy_house"
    words = ["engine=habitat", "habitat.data=/data", "habitat.colour=true"]
    given = config.load(EvalSettings, {"scenario": "tidy_house"} | config.parse(words))
    assert shlex.split(settings_command(given))[3:] == words
