"""Registration of skills, modules and packages with skills, and tables by skill."""

import concurrent.futures
import dataclasses
import importlib.metadata
import multiprocessing
import os
import pickle
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from skills import registry, tables
from skills.core.interface import Demonstrator, SkillGoal
from skills.core.limits import SkillLimits
from skills.navigate.task import Navigate, NavigateSettings, NavigateThresholds
from skills.pick.task import PickThresholds
from skills.spec import ProtocolValues, Referent, SkillSpec
from tpsrl.errors import UserError

SEVEN = (
    "navigate", "pick", "place", "open_fridge", "close_fridge", "open_drawer", "close_drawer",
)  # fmt: skip
IN_THE_BOX = (*SEVEN, "pointnav", "flee", "explore", "objectnav", "monolithic")

MODULE = """
from skills.navigate.task import Navigate, NavigateSettings, NavigateThresholds
from skills.spec import ProtocolValues, SkillSpec
{imports}

class {kind}(Navigate):
    \"\"\"A skill of a user's own.\"\"\"


SPEC = SkillSpec(
    name="{name}",
    definition={kind}(),
    starts="skills.navigate.starts:STARTS",
    settings=NavigateSettings(),
    protocols={{"habitat": ProtocolValues(NavigateThresholds(distance_m=0.7))}},
)
{end}
"""


class Loiter(Navigate):
    """A skill for these tests only."""


class Linger(Navigate):
    """A second skill for these tests only."""


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Unregisters the skills and unloads the skill modules of a test after the test."""
    monkeypatch.setenv(registry.VARIABLE, "")
    monkeypatch.setattr(sys, "path", list(sys.path))
    known, modules = set(registry.names()), set(sys.modules)
    yield
    for name in set(registry.names()) - known:
        registry.unregister(name)
    for module in set(sys.modules) - modules:
        if getattr(sys.modules[module], "SPEC", None) is not None:
            del sys.modules[module]


def spec(name: str = "loiter", definition: Any = None, **changes: Any) -> SkillSpec:
    fields: dict[str, Any] = {
        "name": name,
        "definition": definition or Loiter(),
        "starts": "skills.navigate.starts:STARTS",
        "settings": NavigateSettings(),
        "protocols": {"habitat": ProtocolValues(NavigateThresholds())},
    }
    return SkillSpec(**{**fields, **changes})


def written(path: Path, name: str, kind: str = "Own", registers: bool = True) -> Path:
    """Writes a module that defines a skill and, if `registers` is set, registers the skill."""
    imports, end = (
        ("from skills.registry import register\n", "register(SPEC)") if registers else ("", "")
    )
    path.write_text(MODULE.format(name=name, kind=kind, imports=imports, end=end))
    return path


def elsewhere(function: Callable[..., Any], *arguments: Any) -> Any:
    """Returns the result of a function called in a new process."""
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return pool.submit(function, *arguments).result()


# -- names and registration --------------------------------------------------------------------


def test_built_in_skills_come_in_the_order_of_the_benchmark() -> None:
    assert registry.names() == IN_THE_BOX
    assert registry.planned() == SEVEN
    assert list(registry.specs()) == list(registry.names())
    assert all(registry.get(name).name == name for name in registry.names())


def test_other_skills_come_after_the_built_in_ones_in_alphabetical_order() -> None:
    with registry.registered(spec("loiter")), registry.registered(spec("absail", Linger())):
        assert registry.names() == (*IN_THE_BOX, "absail", "loiter")


def test_an_unknown_skill_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UserError, match=r"skill: unknown value 'plase'; did you mean 'place'\?"):
        registry.get("plase")
    with (
        registry.registered(spec("loiter")),
        pytest.raises(UserError, match="did you mean 'loiter'"),
    ):
        registry.get("loitre")


def test_a_skill_is_unregistered_at_the_end_of_its_with_block() -> None:
    with registry.registered(spec()) as own:
        assert registry.get("loiter") is own
    assert "loiter" not in registry.names()
    with pytest.raises(ZeroDivisionError), registry.registered(spec()):
        raise ZeroDivisionError
    assert "loiter" not in registry.names()


def test_a_name_is_given_once() -> None:
    with pytest.raises(UserError, match="skill: 'pick' is registered already"):
        registry.register(spec("pick"))
    with pytest.raises(UserError, match="skill: 'pick' is registered already"):
        registry.register(registry.get("pick"))
    with registry.registered(spec("loiter")):
        with pytest.raises(UserError, match="skill: 'loiter' is registered already"):
            registry.register(spec("loiter", Linger()))
        # Worker processes import the script that started them, so its skill is registered twice.
        again = registry.register(spec("loiter"))
        assert registry.get("loiter") is again


def test_a_gymnasium_id_belongs_to_one_skill() -> None:
    message = "skill loiter: open_drawer has the gymnasium id tpsrl/OpenDrawer-v0"
    with pytest.raises(UserError, match=message):
        registry.register(spec(gym_id="tpsrl/OpenDrawer-v0"))
    with (
        registry.registered(spec("loiter_about")),
        pytest.raises(UserError, match="skill loiter__about: loiter_about has the gymnasium id"),
    ):
        registry.register(spec("loiter__about", Linger()))


def test_built_in_skills_cannot_be_unregistered() -> None:
    registry.unregister("pick")
    registry.unregister("nothing_of_this_name")
    assert registry.names() == IN_THE_BOX


def test_the_built_in_skill_executes_an_action_unless_another_is_chosen() -> None:
    own = spec("absail", actions=("nav", "wave"), goal_of=lambda things: SkillGoal())
    with registry.registered(own):
        assert registry.carrying_out("nav").name == "navigate"
        assert registry.carrying_out("nav", {"nav": "absail"}) is own
        assert registry.carrying_out("nav", {"pick": "absail"}).name == "navigate"
        assert registry.carrying_out("wave") is own
        assert registry.planned() == (*SEVEN, "absail")
        with pytest.raises(UserError, match=r"actions\.nav: unknown value 'pick'"):
            registry.carrying_out("nav", {"nav": "pick"})
    for chosen in (None, {}, {"nav": "navigate"}):
        with pytest.raises(UserError, match=r"domain: action: .*did you mean 'place'"):
            registry.carrying_out("plase", chosen)


# -- user modules ------------------------------------------------------------------------------


def test_a_file_registers_its_skill(tmp_path: Path) -> None:
    path = written(tmp_path / "wanderer.py", "wander")
    registry.load_modules(str(path))
    assert registry.get("wander").thresholds.distance_m == 0.7
    assert os.environ[registry.VARIABLE] == str(path)


def test_a_module_in_the_working_directory_registers_its_skill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "of_my_own").mkdir()
    written(tmp_path / "of_my_own" / "roaming.py", "roam")
    monkeypatch.chdir(tmp_path)
    registry.load_modules("of_my_own.roaming")
    assert registry.get("roam").definition.__class__.__module__ == "of_my_own.roaming"
    assert os.environ[registry.VARIABLE] == "of_my_own.roaming"


def test_several_modules_are_separated_by_commas_and_recorded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "wanderer.py", "wander", "Wander")
    written(tmp_path / "rover.py", "rove", "Rove")
    monkeypatch.chdir(tmp_path)
    path = str(tmp_path / "wanderer.py")
    assert registry.load_modules("wanderer.py, rover") == f"{path},rover"
    assert {"wander", "rove"} < set(registry.names())
    registry.load_modules("rover")  # as a second command of one process does
    assert os.environ[registry.VARIABLE] == f"{path},rover"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("empty.py", "", "skill_modules: .*empty.py registers no skill"),
        ("broken.py", "1 / 0", r"skill_modules: cannot import .*broken.py \(ZeroDivisionError: "),
        ("typo.py", "def", r"skill_modules: cannot import .*typo.py \(SyntaxError: "),
        ("lines.py", "raise ValueError('two\\nlines')", r"\(ValueError: two lines\)"),
        ("absent.py", None, "skill_modules: there is no file .*absent.py"),
        ("absent_module", None, r"skill_modules: cannot import absent_module \(ModuleNotFound"),
        ("absent.module", None, r"skill_modules: cannot import absent.module \(ModuleNotFound"),
    ],
)
def test_a_module_that_is_no_good_is_named_on_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str | None, message: str
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message) as raised:
        registry.load_modules(name)
    assert "\n" not in str(raised.value)
    assert os.environ[registry.VARIABLE] == "" and registry.names() == IN_THE_BOX


def test_a_module_with_an_invalid_skill_is_reported_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="skill: 'pick' is registered already"):
        registry.load_modules(str(written(tmp_path / "thief.py", "pick")))


@pytest.mark.slow
def test_a_new_process_loads_the_modules_of_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    written(tmp_path / "wanderer.py", "wander", "Wander")
    written(tmp_path / "elsewhere" / "rover.py", "rove", "Rove")
    monkeypatch.chdir(tmp_path)
    registry.load_modules("wanderer.py")
    monkeypatch.chdir(tmp_path / "elsewhere")
    registry.load_modules("rover")
    assert elsewhere(registry.names) == (*IN_THE_BOX, "rove", "wander")
    monkeypatch.setenv(registry.VARIABLE, "")
    assert elsewhere(registry.names) == IN_THE_BOX


# -- packages ----------------------------------------------------------------------------------


def installed(monkeypatch: pytest.MonkeyPatch, folder: Path, *values: str) -> None:
    """Simulates installed packages with these entry points, before any search for skills."""
    points = [
        importlib.metadata.EntryPoint(f"own{i}", v, "tpsrl.skills") for i, v in enumerate(values)
    ]

    def entry_points(group: str) -> list[importlib.metadata.EntryPoint]:
        assert group == registry.ENTRY_POINT
        return points

    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    monkeypatch.setitem(registry._state, "found", False)


@pytest.mark.parametrize("registers", [True, False])
@pytest.mark.parametrize("value", ["packaged", "packaged:SPEC"])
def test_skills_of_installed_packages_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, registers: bool, value: str
) -> None:
    written(tmp_path / "packaged.py", "prowl", registers=registers)
    installed(monkeypatch, tmp_path, value)
    # An entry point may name the spec itself; the module need not register that spec.
    assert ("prowl" in registry.names()) == (registers or value == "packaged:SPEC")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("broken_package", "ZeroDivisionError: division by zero"),
        ("not_there.at_all:SPEC", "ModuleNotFoundError: "),
        ("packaged:NOTHING", "AttributeError: "),
    ],
)
def test_a_broken_entry_point_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, reason: str
) -> None:
    (tmp_path / "broken_package.py").write_text("1 / 0\n")
    written(tmp_path / "packaged.py", "prowl")
    installed(monkeypatch, tmp_path, value)
    for _ in range(2):  # each call raises the error
        with pytest.raises(UserError, match=rf"skills: entry point '{value}' fails \({reason}"):
            registry.names()
    registry._state["found"] = True


# -- one skill ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"protocols": {}}, "skill loiter: protocols lack 'habitat'"),
        (
            {"protocols": {"m3": ProtocolValues(NavigateThresholds())}},
            "skill loiter: protocols lack 'habitat'",
        ),
        ({"name": "Loiter"}, "skill: 'Loiter' is not a valid name; use lower case and underscores"),
        ({"name": "loiter-about"}, "skill: 'loiter-about' is not a valid name"),
        ({"name": "2nd"}, "skill: '2nd' is not a valid name"),
        ({"name": ""}, "skill: '' is not a valid name"),
        ({"actions": ("nav",)}, "skill loiter: actions need goal_of"),
    ],
)
def test_an_invalid_spec_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        spec(**changes)


def test_a_protocol_that_a_skill_does_not_name_has_the_default_values() -> None:
    own = spec()
    assert own.values("mshab") is own.values() and own.thresholds == NavigateThresholds()
    navigate = registry.get("navigate")
    assert navigate.values("m3").thresholds.region_m == 0.95
    assert own.values().limits == SkillLimits(200)


def test_every_skill_draws_its_start_states_with_its_own_seed() -> None:
    seeds = [registry.get(name).draw_seed for name in registry.names()]
    assert seeds[:7] == list(range(7)) and len(set(seeds)) == len(seeds)
    # The default seed depends only on the name, so a new skill does not change other draws.
    assert registry.get("pointnav").draw_seed == zlib.crc32(b"pointnav")
    assert spec("loiter").draw_seed == zlib.crc32(b"loiter")
    assert spec(seed=99).draw_seed == 99


def test_the_goal_of_a_planned_skill_follows_from_its_referents() -> None:
    box = Referent("object", 3, "", (1.0, 2.0, 0.8))
    goal = Referent("goal", 3, "", (4.0, 5.0, 0.9))
    drawer = Referent("handle", -1, "cab_push_point_5", (0.0, 1.0, 0.5))

    def about(name: str, *things: Referent) -> SkillGoal:
        goal_of = registry.get(name).goal_of
        assert goal_of is not None
        return goal_of(things)

    assert about("navigate", box) == SkillGoal(3, (1.0, 2.0, 0.8))
    assert about("navigate", goal) == SkillGoal(-1, (4.0, 5.0, 0.9))
    assert about("navigate", drawer) == SkillGoal(-1, (0.0, 1.0, 0.5), "cab_push_point_5")
    assert about("pick", box) == SkillGoal(3)
    assert about("place", box, goal) == SkillGoal(3, (4.0, 5.0, 0.9))
    assert about("open_drawer", drawer) == SkillGoal(marker="cab_push_point_5")


# -- tables ------------------------------------------------------------------------------------


def every_table() -> list[Any]:
    protocols = ("habitat", "m3", "mshab")
    return [
        *(tables.thresholds(name) for name in protocols),
        *(tables.alone(name) for name in protocols),
        tables.paths_table()(pick="a/b.safetensors"),
    ]


def test_a_table_has_an_entry_for_each_skill() -> None:
    table = tables.thresholds("mshab")
    assert tuple(field.name for field in dataclasses.fields(table)) == registry.names()
    assert table.pick == PickThresholds(rest_m=0.05, arm_rad=0.6, still=0.2)
    assert table.of("pick") is table.pick
    assert table.pointnav == registry.get("pointnav").thresholds
    assert tables.alone("habitat").navigate.steps == 400
    assert tables.thresholds_table()() == tables.thresholds("habitat")
    assert tables.paths_table()(place="x").given() == {"place": "x"}
    with pytest.raises(UserError, match="skill: unknown value 'pik'; did you mean 'pick'"):
        table.of("pik")
    with pytest.raises(dataclasses.FrozenInstanceError):
        table.pick = None


@pytest.mark.slow
def test_a_table_has_entries_for_the_registered_skills_only() -> None:
    before = dataclasses.asdict(tables.thresholds())
    with registry.registered(spec()):
        assert tables.thresholds().loiter == NavigateThresholds()
        assert tables.alone("m3").loiter == SkillLimits()
    assert dataclasses.asdict(tables.thresholds()) == before and "loiter" not in before


def test_a_table_is_unchanged_after_a_skill_is_unregistered() -> None:
    before = tables.thresholds()
    with registry.registered(spec()):
        assert tables.thresholds() != before
    assert tables.thresholds() == before


def test_a_user_skill_may_reuse_a_built_in_definition() -> None:
    own = spec(definition=registry.get("pick").definition)
    with registry.registered(own):
        assert registry.names()[-1] == own.name
    assert own.name not in registry.names()


def test_a_module_file_whose_name_is_already_taken_is_refused(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    registry.load_modules(str(written(tmp_path / "one" / "wanderer.py", "wander")))
    second = written(tmp_path / "two" / "wanderer.py", "roam", kind="Other")
    with pytest.raises(UserError, match=r"two/wanderer.py: another module is called wanderer \("):
        registry.load_modules(str(second))
    hidden = written(tmp_path / "json.py", "roam", kind="Other")
    with pytest.raises(UserError, match=r"another module is called json"):
        registry.load_modules(str(hidden))


def test_mutable_thresholds_are_refused() -> None:
    @dataclasses.dataclass
    class Loose:
        near_m: float = 1.0

    loose = ProtocolValues(Loose())
    known = registry.registered(spec(protocols={"habitat": loose}))
    with known, pytest.raises(UserError, match="skill loiter: Loose must be a frozen"):
        tables.thresholds()


def test_tables_survive_pickling() -> None:
    for table in every_table():
        again = pickle.loads(pickle.dumps(table))
        assert again == table and type(again) is type(table)


def same_tables(given: list[Any]) -> list[Any]:
    """Returns, in another process, the tables that differ from its own, and all given tables."""
    return [[one for one, here in zip(given, every_table(), strict=True) if one != here], given]


@pytest.mark.slow
def test_tables_come_back_equal_from_another_process() -> None:
    given = every_table()
    differ, back = elsewhere(same_tables, given)
    assert differ == [] and back == given


def loitering(table: Any) -> tuple[float, Any]:
    return table.wander.distance_m, table


@pytest.mark.slow
def test_tables_with_a_user_skill_come_back_equal_from_another_process(tmp_path: Path) -> None:
    registry.load_modules(str(written(tmp_path / "wanderer.py", "wander")))
    table = dataclasses.replace(tables.thresholds(), wander=NavigateThresholds(distance_m=0.4))
    assert elsewhere(loitering, table) == (0.4, table)


def test_a_skill_without_settings_is_a_user_error() -> None:
    with pytest.raises(UserError, match="skill loiter: has no settings; give SkillSpec"):
        spec(settings=None).load_settings()


def test_thresholds_of_different_classes_across_protocols_are_refused() -> None:
    mixed = {
        "habitat": ProtocolValues(NavigateThresholds()),
        "m3": ProtocolValues(registry.get("pick").thresholds),
    }
    message = "skill loiter: thresholds under m3 are PickThresholds, under habitat Navigate"
    with pytest.raises(UserError, match=message):
        spec(protocols=mixed)


def test_a_refused_registration_keeps_the_skill_registered_before() -> None:
    with registry.registered(spec()) as first:
        with pytest.raises(UserError), registry.registered(spec(definition=Linger())):
            raise AssertionError("it should have been refused")
        assert registry.get("loiter") is first


def test_skills_for_actions_are_parsed_from_text() -> None:
    with registry.registered(
        spec(actions=("nav",), goal_of=registry.get("navigate").goal_of)
    ) as own:
        assert registry.choices(f"nav:{own.name}, pick:pick") == {"nav": own.name, "pick": "pick"}
    with pytest.raises(UserError, match="actions: 'nav=loiter' must have the form ACTION:SKILL"):
        registry.choices("nav=loiter")


@pytest.mark.parametrize("skill", registry.planned())
def test_every_skill_of_a_plan_has_a_demonstrator(skill: str) -> None:
    assert isinstance(registry.get(skill).make_demonstrator(), Demonstrator)


def test_a_skill_without_a_demonstrator_is_refused_with_the_recordable_agent() -> None:
    with pytest.raises(UserError, match=r"skills\.pointnav: there is no demonstrator; record"):
        registry.get("pointnav").make_demonstrator()
