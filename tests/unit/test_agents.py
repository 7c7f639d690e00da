import json
from pathlib import Path
from typing import Any

import kinematic_home as fake
import numpy as np
import pytest
from fake_evaluation import Fake, quiet, settings
from rich.console import Console

from eval.analysing import interactions
from eval.analysing.bounds import encode
from eval.analysing.results import EpisodeResult, from_trace
from eval.presets import AgentPreset
from eval.protocols import Protocol
from eval.reporting import acting
from eval.running import agents, stand_ins
from eval.running.episodes import obtain
from eval.running.evaluator import evaluate
from eval.settings import EvalSettings
from planner.execution.executor import Executor
from planner.execution.limits import ExecutionRules, execution_limits
from planner.execution.trace import Trace
from planner.predicates import PredicateThresholds
from planner.problem import problem_from_episode
from planner.rewriting import by_one_skill, without_actions
from planner.search import plan
from skills import registry
from skills.core.interface import SkillPolicy
from skills.policies.in_turn import GoThere
from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.world import action as layout

NAMES = config.preset_names("agent")
NAVIGATION = ("nav", "nav_to_receptacle", "nav_to_receptacle_by_name")


def preset(name: str) -> AgentPreset:
    return config.load_preset("agent", name, AgentPreset)


def load(*overrides: str) -> EvalSettings:
    return config.load(EvalSettings, config.parse(["scenario=tidy_house", *overrides]))


def go_and(skill: str, policy: SkillPolicy) -> SkillPolicy:
    return GoThere([(registry.get("navigate"), fake.Drive())], registry.get(skill), policy)


def execute(home: fake.KinematicHome, rules: ExecutionRules, **acting: SkillPolicy) -> Trace:
    policies = {"navigate": fake.Drive(), "pick": fake.Grab(), "place": fake.Put(), **acting}
    limits = execution_limits(end_on_timeout=False)
    executor = Executor(home, policies, reset_arm=fake.Fold(), limits=limits, rules=rules)
    return executor.run(fake.make_episode())


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_has_its_own_name_and_can_be_deployed(name: str) -> None:
    assert preset(name).name == name and preset(name).changes() == {}
    assert preset(name).deployed(ExecutionRules()).add_arm_rest


def test_tp_srl_is_deployed_as_in_the_ver_paper() -> None:
    own = load("agent=tp_srl", "protocol=m3").rules()
    assert (own.nav_stop_within_m, own.plan.nav_after_open_drawer) == (2.0, True)
    assert own.plan.close_after  # set by the protocol
    protocols = load("protocol=m3").rules()
    assert protocols.nav_stop_within_m == np.inf and not protocols.plan.nav_after_open_drawer


def test_the_arm_is_reset_straight_only_before_trained_policies_by_default() -> None:
    learned = {"pick": "somewhere"}
    assert set(AgentPreset().resets_straight(learned)) == {"pick"}
    assert set(AgentPreset(arm_reset="planned").resets_straight(learned)) == set()
    assert {"pick", "navigate"} < set(AgentPreset(arm_reset="straight").resets_straight(learned))


@pytest.mark.parametrize(("protocols", "expected"), [(1.0, 1.0), (3.0, 2.0)])
def test_the_smaller_stop_distance_of_protocol_and_agent_applies(
    protocols: float, expected: float
) -> None:
    given = load("agent=tp_srl", f"protocol.nav_stop_within_m={protocols}")
    assert given.rules().nav_stop_within_m == expected


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["agent=tp_slr"], "agent: unknown value 'tp_slr'; did you mean 'tp_srl'"),
        (["agent.without=[nab]"], "agent.without: unknown value 'nab'; did you mean 'nav'"),
        (["agent.base_masked=[pikc]"], "unknown value 'pikc'; did you mean 'pick'"),
        (["agent.nav_stop_within_m=-1"], "agent.nav_stop_within_m: -1.0 is out of range"),
        (["agent=tp_spa", "skills.pick=x"], "skills.pick: agent tp_spa uses scripted skills only"),
        (
            ["agent=tp_srl_nonav", "skills.navigate=x"],
            "skills.navigate: agent tp_srl_nonav has no such skill; it has pick, place, open_",
        ),
    ],
)
def test_an_invalid_agent_is_refused_in_one_line(overrides: list[str], message: str) -> None:
    with pytest.raises(UserError) as raised:
        agents.Policies.of(load(*overrides))
    assert message in str(raised.value) and "\n" not in str(raised.value)


def test_omitted_steps_add_no_preconditions_and_leave_their_time_to_the_next() -> None:
    found = plan(problem_from_episode(fake.make_episode()))
    rest = without_actions(found, NAVIGATION)
    assert rest.stages == ["pick obj_0", "place obj_0", "pick obj_1", "place obj_1"]
    assert [step.index for step in rest] == [0, 1, 2, 3]
    assert {step.takes_over for step in rest} == {("navigate",)}
    atoms = [lit.atom[0] for step in rest for clause in step.preconditions for lit in clause]
    assert "robot_at" not in atoms and "holding" in atoms
    assert rest.found is found and without_actions(found, ()).stages == found.stages


def test_one_skill_replaces_all_steps_of_each_object_in_a_plan() -> None:
    found = plan(problem_from_episode(fake.make_episode()))
    whole = by_one_skill(found, "place")
    assert whole.stages == ["move obj_0", "move obj_1"]
    assert [[atom[0] for atom in step.adds] for step in whole] == [["object_at", "not_holding"]] * 2
    assert all(step.preconditions == () and step.skill == "place" for step in whole)
    assert [name[:5] for name in whole.turns] == ["obj_0", "obj_1"]


@pytest.mark.slow
def test_without_navigation_a_skill_gets_its_own_and_navigations_steps() -> None:
    home = fake.KinematicHome()
    trace = execute(
        home,
        ExecutionRules(without=NAVIGATION),
        pick=go_and("pick", fake.Grab()),
        place=go_and("place", fake.Put()),
    )
    assert trace.success and [s.skill for s in trace.stages] == ["pick", "place"] * 2
    assert all(stage.travelled_m > 1.0 and stage.in_hand for stage in trace.stages)
    slow = execute(home, ExecutionRules(without=NAVIGATION), pick=fake.Idle())
    assert slow.stages[0].steps == 200 + 300
    assert slow.stages[0].travelled_m == 0.0 and not slow.stages[0].in_hand
    assert list(trace.stage_goals) == ["stage_0_5", "stage_1", "stage_1_5", "stage_2"]


def test_a_masked_base_stands_still_in_the_listed_skills() -> None:
    class Lurch(fake.Grab):
        def act(self, world: Any, depth: np.ndarray | None = None) -> np.ndarray:
            action = super().act(world, depth)
            action[layout.BASE] = 1.0
            return action

    free = execute(fake.KinematicHome(), ExecutionRules(), pick=Lurch())
    held = execute(fake.KinematicHome(), ExecutionRules(base_masked=("pick",)), pick=Lurch())
    assert [s.travelled_m > 0 for s in free.stages][:2] == [True, True]
    assert [s.travelled_m > 0 for s in held.stages][:2] == [True, False]
    assert held.success and not free.success


def test_a_chained_policy_runs_its_parts_in_order_and_stops_with_the_last() -> None:
    home, episode = fake.KinematicHome(), fake.make_episode()
    home.reset([0], [episode])
    world = home.state([0])
    policy = go_and("pick", fake.Quit())
    policy.begin(episode, registry.get("pick").goal_of([_object(world)]), world)  # type: ignore[misc]
    assert policy.act(world)[layout.STOP] < 0 and policy.diagnosis() == {"acting": "navigate"}
    near = fake.make_episode(robot_start=(0.0, 1.45, np.pi / 2))
    home.reset([0], [near])
    arrived = home.state([0])
    assert policy.act(arrived)[layout.STOP] > 0
    assert policy.diagnosis() == {"acting": "pick", "gave_up": True}


def _object(world: Any) -> Any:
    from skills.spec import Referent

    x, y, z = world.object_pos[0, 0]
    return Referent("object", 0, "", (x, y, z))


def result(rules: ExecutionRules, **acting: SkillPolicy) -> EpisodeResult:
    return from_trace(execute(fake.KinematicHome(), rules, **acting))


@pytest.mark.slow
def test_success_per_object_is_counted_over_episodes_that_reached_its_turn() -> None:
    good, lost = result(ExecutionRules()), result(ExecutionRules(), place=fake.Put(1.0))
    found = interactions.of_objects([good, lost])
    first = found.objects[0]
    assert (first.object, first.turns) == (1, 2)
    assert first.nav_pick.mean == 1.0
    assert first.nav_pick_nav_place.mean == 0.5
    assert found.all.turns == 4 and len(found.objects) == 2
    never = interactions.of_objects([result(ExecutionRules(), navigate=fake.Idle())])
    assert [row.turns for row in never.objects] == [1, 1]
    assert never.all.nav_pick.mean == 0.0
    nothing = interactions.of_objects([])
    assert nothing.all.nav_pick.mean is None


def test_travelled_distance_is_measured_per_skill() -> None:
    ways = interactions.travelled_m([result(ExecutionRules())])
    assert [(name, way.runs) for name, way in ways.items()] == [
        ("navigate", 4), ("pick", 2), ("place", 2),
    ]  # fmt: skip
    assert ways["navigate"].mean > 1.0 and ways["pick"].mean == 0.0


@pytest.mark.slow
def test_a_report_names_the_scripted_stand_ins_of_an_agent(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    given = settings(dataset, out, "processes=1", "agent=tp_srl", "agent.nav_stop_within_m=1.5")
    console = Console(record=True, width=200, file=(tmp_path / "log").open("w"))
    report = evaluate(given, console, Fake)
    assert report.agent == "tp_srl"
    assert report.stand_ins == dict.fromkeys(["navigate", "pick", "place"], "scripted")
    assert report.agent_changes == {"nav_stop_within_m": 1.5}
    assert report.agent_rules["nav_after_open_drawer"] is True
    line = "tp_srl agent, scripted stand-ins for navigate, pick, place"
    assert line in console.export_text()
    assert line in (out / "report.html").read_text()
    assert json.loads((out / "report.json").read_text()) == encode(report)


@pytest.mark.slow
def test_the_scripted_agent_has_no_stand_ins(dataset: Path, tmp_path: Path) -> None:
    report = evaluate(settings(dataset, tmp_path / "out", "processes=1"), quiet(), Fake)
    assert (report.agent, report.stand_ins) == ("scripted", {})
    assert acting.who(report) == "scripted agent"


def test_without_navigation_a_stand_in_drives_before_its_skill() -> None:
    rules = preset("tp_srl_nonav").deployed(ExecutionRules())
    assert stand_ins.description("pick", rules) == "scripted after scripted navigate"
    made = stand_ins.stand_in("pick", rules, PredicateThresholds())
    assert isinstance(made, GoThere)
    plain = stand_ins.stand_in("pick", ExecutionRules(), PredicateThresholds())
    assert type(plain).__name__ == "ScriptedPick"


def test_a_protocol_has_no_settings_of_agents() -> None:
    assert not {"without", "base_masked", "one_policy"} & set(Protocol().values())


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["agent.without=[open_fridge]"], "agent.without: 'open_fridge' cannot be left out with"),
        (
            ["agent.one_policy=navigate"],
            "agent.one_policy: navigate carries out one step of a plan",
        ),
        (["agent.one_policy=pikc"], "agent.one_policy: unknown value 'pikc'"),
        (["agent.base_masked=[navigate]"], "agent.base_masked: navigate drives to a place, so its"),
        (
            ["protocol.predicates.opened_cab_m=0.1", "protocol.predicates.closed_cab_m=0.3"],
            "protocol.predicates.closed_cab_m: 0.3 must not be more than protocol.predicates.open",
        ),
    ],
)
def test_contradictory_settings_are_refused_before_anything_runs(
    overrides: list[str], message: str
) -> None:
    with pytest.raises(UserError) as raised:
        agents.Policies.of(load(*overrides))
    assert message in str(raised.value)


def test_one_chosen_episode_contradicts_several_requested_ones() -> None:
    with pytest.raises(UserError, match="num_episodes: episode=0 is one episode, 3 requested"):
        obtain(load().scenario, "val", 0, 3, None, one="0")


@pytest.mark.parametrize("key", ["video_stride", "view_stride"])
def test_a_stride_longer_than_an_episode_is_refused(key: str) -> None:
    with pytest.raises(UserError, match=f"{key}: 1000000000 is out of range"):
        load(f"{key}=1000000000")
