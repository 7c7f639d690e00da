import dataclasses
import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from homes import IDLE

import tpsrl.sim
from tpsrl.config import preset_names
from tpsrl.errors import UserError
from tpsrl.sim import datasets
from tpsrl.world import scenarios
from tpsrl.world.access import faults, layout_suits
from tpsrl.world.doors import joints_at, travel
from tpsrl.world.episode import Episode
from tpsrl.world.floor import CELL_M, CLOSED, floor_map, main_floor
from tpsrl.world.generator import Source
from tpsrl.world.handles import handle
from tpsrl.world.layouts import load_layout_set, placed_receptacles, resolve
from tpsrl.world.objects import REARRANGE_EASY, object_kind
from tpsrl.world.reach import reachable
from tpsrl.world.scenarios import FRIDGE, RECEPTACLE_SETS, Scenario, TargetDraw, load_scenario

BOWL, APPLE = 0, 1


def facts(scenario: str) -> dict:
    packed = Path(scenarios.__file__).parent / "data/replica_cad.json.gz"
    return json.loads(gzip.decompress(packed.read_bytes()))["hab_receptacles"]["tasks"][scenario]


def made(scenario: str, count: int, num_objects: int, split: str = "val") -> list[Episode]:
    source = Source(load_scenario(scenario), split, num_objects=num_objects)
    return datasets.generate(source, range(count), processes=1)[0]


@pytest.fixture(scope="module")
def groceries() -> list[Episode]:
    return made("prepare_groceries", 7, 30)


@pytest.fixture(scope="module")
def tables() -> list[Episode]:
    return made("set_table", 7, 29)


# -- agreement with the facts ------------------------------------------------------------------


def test_tidy_house_equals_the_layout_data() -> None:
    task, scenario = facts("tidy_house"), load_scenario("tidy_house")
    assert sorted(scenario.clutter) == sorted(task["objects"])
    assert sorted(scenario.clutter_on) == sorted(task["start_receptacles"])
    assert scenario.num_targets == task["num_targets"]
    for target in scenario.targets:
        assert sorted(target.objects) == sorted(task["objects"])
        assert sorted(target.starts) == sorted(task["start_receptacles"])
        assert sorted(target.goals) == sorted(task["goal_receptacles"])


@pytest.mark.parametrize("name", ["prepare_groceries", "set_table"])
def test_scenarios_with_containers_equal_the_layout_data(name: str) -> None:
    task, scenario = facts(name), load_scenario(name)
    assert sorted(scenario.clutter) == sorted(task["clutter"]["objects"])
    assert sorted(scenario.clutter_on) == sorted(task["clutter"]["receptacles"])
    given = [
        (sorted(t.get("objects", scenario.clutter)), sorted(t["start"]), sorted(t["goal"]))
        for t in task["targets"]
        for _ in range(t["num"])
    ]
    assert given == [
        (sorted(t.objects), sorted(t.starts), sorted(t.goals)) for t in scenario.targets
    ]
    assert scenario.target_region == {"fridge": task["fridge_sample_region_ratio"]}
    door = task["articulated_start_state"].get("fridge", {}).get("top_door_hinge")
    assert scenario.articulation == ({} if door is None else {FRIDGE: door})


def test_prepare_groceries_moves_two_objects_out_of_the_fridge_and_one_in(
    groceries: list[Episode],
) -> None:
    for episode in groceries:
        assert len(episode.objects) == 30
        assert episode.articulation == {FRIDGE: 1.5}
        ways = [(episode.objects[t.object].receptacle, t.receptacle) for t in episode.targets]
        assert [a for a, _ in ways[:2]] == ["fridge", "fridge"]
        assert ways[2][1] == "fridge"
        assert {ways[0][1], ways[1][1], ways[2][0]} <= set(RECEPTACLE_SETS["counters"])


def test_set_table_has_a_bowl_in_the_drawer_and_an_apple_in_the_fridge_both_closed(
    tables: list[Episode],
) -> None:
    for episode in tables:
        assert len(episode.objects) == 29
        assert episode.articulation == {}
        bowl, apple = (episode.objects[t.object] for t in episode.targets)
        assert (bowl.name, bowl.receptacle) == ("024_bowl", "drawer_right_top")
        assert (apple.name, apple.receptacle) == ("013_apple", "fridge")
        assert [t.receptacle for t in episode.targets] == ["table_1", "table_1"]
        assert all(o.receptacle not in scenarios.DRAWERS for o in episode.objects[2:])


def test_targets_in_the_fridge_are_in_the_middle_half_of_its_shelf(
    groceries: list[Episode], tables: list[Episode]
) -> None:
    for episode in [*groceries, *tables]:
        layout_set, layout = resolve(episode.layout)
        placed = placed_receptacles(layout_set, layout)
        shelf = next(r for r in placed if r.name == "fridge")
        spots = [(o.receptacle, o.pos) for o in episode.objects[: len(episode.targets)]]
        spots += [(t.receptacle, t.goal) for t in episode.targets]
        for where, pos in spots:
            if where == "fridge":
                local = shelf.rotation.T @ (np.array(pos) - shelf.pos)
                assert (np.abs(local[:2]) <= 0.5 * shelf.half[:2] + 0.002).all()


# -- reachability ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["prepare_groceries", "set_table"])
def test_reachable_scenarios_have_starts_and_goals_within_reach_once_opened(
    name: str,
) -> None:
    scenario = load_scenario(f"{name}_reachable")
    episodes = made(scenario.name, 5, scenario.num_objects)
    assert all(faults(scenario, episode) == [] for episode in episodes)
    for episode in episodes:
        start = joints_at(episode.articulation)
        for target, draw in zip(episode.targets, scenario.targets, strict=True):
            end = joints_at(scenario.opened(draw))
            thing = episode.objects[target.object]
            marker = scenarios.DRAWERS.get(thing.receptacle, "")
            way = travel(episode.layout, marker, start, end)
            up = np.array([0.0, 0.0, object_kind(thing.name).half[2]])
            assert reachable(episode.layout, np.array(thing.pos) + way + up, joints=end)
            assert reachable(episode.layout, np.array(target.goal) + up, joints=end)
            assert np.linalg.norm(np.subtract(thing.pos, target.goal)) > 0.49


def test_a_goal_out_of_reach_is_reported(tables: list[Episode]) -> None:
    scenario = load_scenario("set_table")
    episode = next(e for e in tables if not faults(scenario, e))
    high = dataclasses.replace(episode.targets[0], goal=(*episode.targets[0].goal[:2], 2.5))
    changed = dataclasses.replace(episode, targets=(high, episode.targets[1]))
    assert faults(scenario, changed) == ["goal out of reach"]


def test_benchmark_scenarios_are_those_without_reachability_checks() -> None:
    assert scenarios.benchmark_names() == ["prepare_groceries", "set_table", "tidy_house"]


def test_targets_are_near_free_floor(groceries: list[Episode], tables: list[Episode]) -> None:
    for episode in [*groceries, *tables]:
        free = main_floor(episode.layout, joints_at(episode.articulation))
        x0, y0 = floor_map(episode.layout).origin
        cells = np.argwhere(free)[:, ::-1] * CELL_M + (x0, y0)
        for target in episode.targets:
            for x, y, _ in (episode.objects[target.object].pos, target.goal):
                assert np.hypot(*(cells - (x, y)).T).min() < 1.6


def test_objects_in_closed_containers_are_out_of_reach(tables: list[Episode]) -> None:
    for episode in tables:
        for index in (BOWL, APPLE):
            top = np.add(episode.objects[index].pos, (0.0, 0.0, 0.03))
            assert not reachable(episode.layout, top)


def test_the_robot_does_not_start_in_the_open_door(groceries: list[Episode]) -> None:
    for episode in groceries:
        x, y, _ = episode.robot_start
        joints = joints_at(episode.articulation)
        assert floor_map(episode.layout, joints=joints).clearance(x, y) > 0.27


def test_contents_and_doors_stay_at_rest(groceries: list[Episode], tables: list[Episode]) -> None:
    simulator = tpsrl.sim.make(slots=30)
    for episode in [*groceries[:3], *tables[:3]]:
        simulator.reset([0], [episode])
        for _ in range(30):
            simulator.step([0], IDLE[None])
        state, count = simulator.state([0]), len(episode.objects)
        placed = np.array([o.pos for o in episode.objects])
        assert np.abs(state.object_pos[0, :count] - placed).max() < 0.002
        assert np.abs(state.joints[0] - joints_at(episode.articulation)).max() < 0.002
        assert state.force_total[0] == 0.0


def test_objects_travel_with_their_drawer() -> None:
    layout = "replica_cad/v3_sc3_staging_03"
    opened = joints_at({"cab_push_point_5": 0.45})
    way = travel(layout, "cab_push_point_5", CLOSED, opened)
    drawer = handle(layout, "cab_push_point_5")
    assert way == pytest.approx(drawer.point(0.45) - drawer.point(0.0))
    assert np.linalg.norm(way) == pytest.approx(0.45)
    assert (travel(layout, "cab_push_point_6", CLOSED, opened) == 0).all()
    assert (travel(layout, "", CLOSED, opened) == 0).all()


# -- definitions -------------------------------------------------------------------------------

DRAW = TargetDraw(["024_bowl"], ["table_1"], ["counters"])


def test_shipped_scenarios_have_matching_names_and_distinct_seed_numbers() -> None:
    numbers = {}
    for group in ("scenario", "dataset"):
        for name in preset_names(group):
            assert load_scenario(name).name == name
            numbers[name] = load_scenario(name).seed_number
    assert sorted(numbers.values()) == list(range(9))


def test_set_names_and_counts_are_expanded() -> None:
    draw = TargetDraw(["024_bowl", "tidy_house"], ["table_1"], ["counters", "sink"], count=2)
    scenario = Scenario("mine", targets=[draw], clutter_on=["drawers"])
    assert scenario.num_targets == 2
    first, second = scenario.targets
    assert first == second and first.goals == ["counter_left", "counter_right", "sink"]
    assert first.objects[0] == "024_bowl" and len(first.objects) == 9
    assert scenario.clutter_on == list(scenarios.DRAWERS)


def test_title_and_seed_number_default_to_values_derived_from_the_name() -> None:
    scenario, other = Scenario("my_task", targets=[DRAW]), Scenario("other", targets=[DRAW])
    assert scenario.title == "My Task"
    assert scenario.seed_number is not None and scenario.seed_number != other.seed_number
    assert dataclasses.replace(scenario) == scenario


def test_the_digest_depends_on_the_distribution_but_not_on_the_title() -> None:
    scenario = Scenario("mine", targets=[DRAW])
    assert dataclasses.replace(scenario, title="Another").digest == scenario.digest
    assert dataclasses.replace(scenario, seed_number=7).digest != scenario.digest
    assert dataclasses.replace(scenario, articulation={FRIDGE: 1.0}).digest != scenario.digest


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"name": "my task"}, "name: must have letters"),
        ({"targets": []}, "targets: must have at least one entry"),
        ({"targets": [("024_bow", "sink", "sofa")]}, r"\[0\].objects: .* mean '024_bowl'"),
        ({"targets": [("024_bowl", "sinc", "sofa")]}, r"\[0\].starts: .* mean 'sink'"),
        ({"targets": [("024_bowl", "sink", "soffa")]}, r"\[0\].goals: .* mean 'sofa'"),
        ({"floor_within_m": 0.0}, "floor_within_m: must be between 0.5 and 20.0, got 0.0"),
        ({"floor_within_m": 1e-9}, "floor_within_m: must be between 0.5 and 20.0, got 1e-09"),
        ({"title": "a\x1b[31mb"}, "title: .* cannot be printed"),
        ({"title": "a" * 101}, "title: .* more than 100 characters"),
        ({"name": "a" * 101}, "name: .* at most 100"),
        ({"num_objects": 2_000_000_000}, "num_objects: must be between 1 and 30"),
        ({"targets": [dataclasses.replace(DRAW, count=10**14)]}, r"\[0\].count: .* 1 and 30"),
        (
            {"targets": [dataclasses.replace(DRAW, count=30)] * 2},
            "targets: must be at most 30, got 60 or more",
        ),
        ({"apart_m": -0.1}, "apart_m: must be between 0.0 and 20.0, got -0.1"),
        (
            {"targets": [TargetDraw(["024_bowl"], ["sink"], [])]},
            "goals: must have at least one entry",
        ),
        (
            {"targets": [dataclasses.replace(DRAW, count=0)]},
            "count: must be between 1 and 30, got 0",
        ),
        (
            {"targets": [dataclasses.replace(DRAW, opened={"cab_push_point_9": 0.1})]},
            r"opened: .* mean 'cab_push_point_",
        ),
        ({"clutter": ["tidy_hous"]}, "clutter: .* mean 'tidy_house'"),
        ({"clutter": ["tidy_house"]}, "clutter_on: clutter needs at least one receptacle"),
        ({"clutter_on": ["counter"]}, "clutter_on: .* mean 'counters'"),
        ({"articulation": {"fridge": 1.0}}, "articulation: .* mean 'fridge_push_point'"),
        ({"articulation": {FRIDGE: 3.0}}, "must be between 0.0 and 2.3, got 3.0"),
        ({"target_region": {"frige": 0.5}}, "target_region: .* mean 'fridge'"),
        ({"target_region": {"fridge": 0.0}}, "must be between 0.01 and 1.0"),
        ({"at_most": {"sink": -1}}, "at_most.sink: must be between 0 "),
        ({"seed_number": -1}, "seed_number: must be between 0 "),
    ],
)
def test_an_invalid_definition_is_refused(entries: dict, message: str) -> None:
    if isinstance(next(iter(entries.get("targets", [])), None), tuple):
        entries = {"targets": [TargetDraw(*([name] for name in entries["targets"][0]))]}
    with pytest.raises(UserError, match=message):
        Scenario(**{"name": "mine", "targets": [DRAW], **entries})


def test_more_objects_than_targets_need_clutter() -> None:
    Source(Scenario("mine", targets=[DRAW]), "val", num_objects=1).check()
    with pytest.raises(UserError, match="clutter: no objects are given, but of num_objects=2"):
        Source(Scenario("mine", targets=[DRAW]), "val", num_objects=2).check()


def test_an_unknown_scenario_is_refused_with_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'tidy_house'"):
        load_scenario("tidy_hose")


# -- layouts without room ----------------------------------------------------------------------


def test_every_validation_layout_is_suitable_for_every_scenario() -> None:
    for layout in load_layout_set("replica_cad").split("val"):
        for name in (*preset_names("scenario"), *preset_names("dataset")):
            assert layout_suits(load_scenario(name), f"replica_cad/{layout.name}")


def test_a_layout_with_a_blocked_fridge_is_replaced_by_the_next_suitable_one() -> None:
    names = [lay.name for lay in load_layout_set("replica_cad").split("train")]
    blocked = names.index("v3_sc1_staging_18")  # 19 and 20 are blocked too
    table = load_scenario("set_table_reachable")
    assert not layout_suits(table, f"replica_cad/{names[blocked]}")
    source = Source(table, "train", num_objects=12)
    (episode,), _ = datasets.generate(source, [blocked], processes=1)
    assert episode.layout == f"replica_cad/{names[blocked + 4]}"


# -- the training scenes -----------------------------------------------------------------------


def test_rearrange_easy_has_everything_open_and_20_kinds_of_objects() -> None:
    episodes = made("rearrange_easy", 21, 12)
    seen = set()
    for episode in episodes:
        kinds = [object_kind(o.name) for o in episode.objects]
        seen |= {k.name for k in kinds}
        assert all(q > 0.48 for q in joints_at(episode.articulation))
        assert len(episode.targets) == 1
    assert seen <= set(REARRANGE_EASY)
    assert len(REARRANGE_EASY) == 20
    assert len(seen) > 16


def test_at_most_two_objects_are_on_a_chair_or_in_the_sink() -> None:
    for episode in made("rearrange_easy", 4, 30):
        layout_set, layout = resolve(episode.layout)
        for place in placed_receptacles(layout_set, layout):
            if place.name in ("chair", "sink"):
                on = [place.contains(np.array(o.pos)) for o in episode.objects]
                assert sum(on) <= 2


@pytest.mark.parametrize(
    ("scenario", "place"), [("in_drawer", "drawer_right_top"), ("in_fridge", "fridge")]
)
def test_the_only_target_is_in_the_closed_container(scenario: str, place: str) -> None:
    for episode in made(scenario, 5, 12):
        assert [o.receptacle == place for o in episode.objects] == [True] + [False] * 11
        assert [t.object for t in episode.targets] == [0]
        assert episode.articulation == {}
