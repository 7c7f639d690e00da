"""ObjectNav: viewpoints, episodes, success, reward and baselines."""

import dataclasses
import json
import math
import os
import subprocess
import sys
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from homes import LAYOUT_A, episode
from small_worlds import random_path, rows, to_torch
from test_pointnav import worlds

from eval.running.agents import make_for_skill
from skills.core import sensors, task
from skills.core.conditions import margins
from skills.core.context import MeasureContext
from skills.core.inputs import PolicyInputs
from skills.core.interface import SkillGoal
from skills.core.path_metrics import PathProgress
from skills.core.sensors import Readings, SensorContext
from skills.core.skill import FAILURES
from skills.core.state import Goals, TaskState
from skills.core.task import StepOutcome
from skills.envs import episodes
from skills.envs.batch import SkillBatch
from skills.envs.environment import SkillEnv
from skills.envs.episodes import SkillEpisode
from skills.envs.options import EnvOptions
from skills.envs.path_meter import PathMeter
from skills.objectnav.frontier import FrontierExplorer
from skills.objectnav.starts import objectnav_start
from skills.objectnav.task import ObjectNav, ObjectNavThresholds
from skills.pointnav.task import PointNavSettings
from skills.registry import get
from skills.starts.start import Start
from tpsrl import config, sim
from tpsrl.errors import UserError
from tpsrl.sim.base import Simulator
from tpsrl.world import action as act
from tpsrl.world.categories import CATEGORIES
from tpsrl.world.collision import ARM_SPHERES, REST, ArmChecker
from tpsrl.world.episode import Episode
from tpsrl.world.floor import layout_obstacles, main_floor
from tpsrl.world.geodesic import free_floor
from tpsrl.world.layouts import load_layout_set, resolve
from tpsrl.world.own_body import EYE, FORWARD, TAN_HALF, UP
from tpsrl.world.reach import static_bodies
from tpsrl.world.sight import in_sight
from tpsrl.world.viewpoints import VIEW_M, category_field, instances, present, viewpoints

OBJECTNAV = ObjectNav()
SETTINGS = PointNavSettings()
LIMITS = ObjectNavThresholds()
VAL = [f"replica_cad/{layout.name}" for layout in load_layout_set("replica_cad").split("val")]


# -- viewpoints ---------------------------------------------------------------------------------


def own_boxes(layout: str, body: str) -> np.ndarray:
    """Returns which obstacles (n,) bool of a layout belong to a body without links."""
    return np.array([name.startswith(f"{body}/") for name in layout_obstacles(layout).names])


def inside(points: np.ndarray, layout: str, rows: np.ndarray) -> np.ndarray:
    """Returns whether points (..., 3) are inside any of the selected obstacles."""
    o = layout_obstacles(layout)
    found = np.zeros(points.shape[:-1], bool)
    for centre, rotation, half in zip(o.centre[rows], o.rotation[rows], o.half[rows], strict=True):
        found |= (np.abs((points - centre) @ rotation) <= half).all(axis=-1)
    return found


def slowly_seen(layout: str, body: str, at: np.ndarray, points: np.ndarray) -> bool:
    """Returns whether a tenth of a body's points are visible from (2,), by rays in small steps."""
    seen = 0
    for point in points:
        towards = (point[:2] - at) / np.linalg.norm(point[:2] - at)
        eye = np.append(at + EYE[0] * towards, EYE[2])
        ray = point - eye
        along = np.array([ray[:2] @ towards, 0.0, ray[2]])
        if abs(along @ UP) > TAN_HALF * (along @ FORWARD):
            continue
        steps = eye + np.linspace(0.0, 0.998, 400)[:, None] * ray
        seen += not inside(steps, layout, ~own_boxes(layout, body)).any()
    return seen >= 0.1 * len(points)


def slowly_away(layout: str, body: str, at: np.ndarray) -> float:
    """Returns the distance from (2,) to a body over the floor, by a fine grid inside its boxes."""
    o, own = layout_obstacles(layout), own_boxes(layout, body)
    net = np.stack(np.meshgrid(*[np.linspace(-1, 1, 41)] * 3), axis=-1).reshape(-1, 3)
    nets = [
        centre + (net * half) @ rotation.T
        for centre, rotation, half in zip(o.centre[own], o.rotation[own], o.half[own], strict=True)
    ]
    return float(np.linalg.norm(np.concatenate(nets)[:, :2] - at, axis=1).min())


@pytest.mark.parametrize(("layout", "category"), [(VAL[3], "tv"), (VAL[0], "plant")])
def test_viewpoints_agree_with_a_slow_check_of_visibility_within_a_metre(
    layout: str, category: str
) -> None:
    (one,) = instances(layout, category)
    floor = free_floor(layout)
    iy, ix = (2 * at for at in np.nonzero(floor.free[::2, ::2]))
    spots = np.stack([ix + 0.5, iy + 0.5], axis=1) * floor.cell_m + floor.origin
    spots = spots[np.linalg.norm(spots - one.centre[:2], axis=1) < 2.5]
    found = {tuple(spot) for spot in one.viewpoints}
    chosen = np.random.default_rng(0).choice(len(spots), 30, replace=False)
    answers = []
    for spot in spots[chosen]:
        far = slowly_away(layout, one.body, spot)
        if abs(far - VIEW_M) > 0.03:
            expected = far < VIEW_M and slowly_seen(layout, one.body, spot, one.points)
            answers.append((tuple(spot) in found, expected))
    assert sum(is_one == expected for is_one, expected in answers) >= len(answers) - 1
    assert {expected for _, expected in answers} == {True, False}


def test_every_apartment_has_fixtures_and_most_furniture_in_view() -> None:
    for layout in VAL:
        found = present(layout)
        assert {"chair", "sofa", "table", "fridge", "counter", "sink"} <= set(found)
        assert len(found) >= 11
        for category in found:
            bodies = [one.body for one in instances(layout, category)]
            assert len(set(bodies)) == len(bodies)
            assert all(resolve(layout)[1].poses[body].present for body in bodies)


def test_viewpoints_are_on_free_floor_at_distance_zero() -> None:
    floor = free_floor(LAYOUT_A)
    for category in present(LAYOUT_A):
        found = viewpoints(LAYOUT_A, category)
        assert all(floor.snap(*point) == tuple(point) for point in found[:50])
        assert category_field(LAYOUT_A, category).distances(found) == pytest.approx(0.0, abs=1e-6)


def test_an_absent_or_unknown_category_is_refused_with_the_nearest() -> None:
    without = next(layout for layout in VAL if "beanbag" not in present(layout))
    with pytest.raises(UserError, match=r"category in view in replica_cad/.*: unknown value 'bea"):
        category_field(without, "beanbag")
    with pytest.raises(UserError, match="category: unknown value 'chiar'; did you mean 'chair'"):
        instances(LAYOUT_A, "chiar")


# -- success, reward ----------------------------------------------------------------------------


def begun(bases: np.ndarray) -> TaskState:
    goals = Goals.of([SkillGoal(position=(1.0, 2.0, 0.5))] * len(bases))
    return task.begin(OBJECTNAV, goals, worlds(bases), LIMITS)


def judged(state: TaskState, path: PathProgress, stop: list[bool]) -> StepOutcome:
    actions = np.zeros((len(stop), act.SIZE))
    actions[:, act.STOP] = np.where(stop, 1.0, -1.0)
    here = worlds(np.zeros((len(stop), 3)))
    return task.step(OBJECTNAV, state, actions, here, SETTINGS, LIMITS, path)[2]


def one(left: float, stop: bool, gained: float = 0.0, driven: float = 4.9) -> StepOutcome:
    """Returns the outcome of the first step if the shortest path is 5 m long."""
    path = PathProgress(*(np.array([value]) for value in (5.0, left, gained, driven)))
    return judged(begun(np.zeros((1, 3))), path, [stop])


@pytest.mark.parametrize(("left", "succeeds"), [(0.0, True), (0.099, True), (0.1, False)])
def test_a_stop_succeeds_within_a_tenth_of_a_metre_of_a_viewpoint(
    left: float, succeeds: bool
) -> None:
    outcome = one(left, stop=True)
    assert outcome.terminated[0] and outcome.success[0] == succeeds
    assert FAILURES[int(outcome.failure[0])] == ("" if succeeds else "stopped")


def test_reaching_a_viewpoint_without_a_stop_is_no_success() -> None:
    outcome = one(0.0, stop=False)
    assert not outcome.success[0] and not outcome.terminated[0]


def test_the_reward_is_that_of_pointnav() -> None:
    outcome = one(0.05, stop=True, gained=2.9, driven=7.0)
    assert outcome.reward[0] == pytest.approx(2.5 * 5.0 / 7.0 + 2.9 - 0.01)
    assert one(3.0, stop=False, gained=-0.2).reward[0] == pytest.approx(-0.2 - 0.01)


def test_the_preset_has_the_defaults_and_the_papers_values() -> None:
    assert config.load_preset("skill", "objectnav", PointNavSettings) == SETTINGS
    assert (SETTINGS.horizon, SETTINGS.success, LIMITS.viewpoint_m) == (500, 2.5, 0.1)
    assert np.flatnonzero(OBJECTNAV.mask()).tolist() == [8, 9, act.STOP]


def stopped(layout: str, category: str, base: np.ndarray) -> np.ndarray:
    """Returns whether stops at base poses (n, 3), as the first step, succeed, (n,) bool."""
    count = len(base)
    meter, here = PathMeter(count), worlds(base)
    goals = np.zeros((count, 3))
    meter.begin(range(count), [layout] * count, goals, here, [category] * count)
    path, stop = meter.path(range(count)), np.ones(count, bool)
    return task.evaluate(OBJECTNAV, begun(base), here, stop, SETTINGS, LIMITS, path).success


@pytest.mark.parametrize("category", ["chair", "bookcase", "sink"])
def test_a_stop_succeeds_only_near_an_actual_viewpoint(category: str) -> None:
    rng = np.random.default_rng(1)
    spots = viewpoints(LAYOUT_A, category)
    base = np.zeros((400, 3))
    base[:, :2] = spots[rng.integers(len(spots), size=400)] + rng.normal(0.0, 0.2, (400, 2))
    free, floor = main_floor(LAYOUT_A), free_floor(LAYOUT_A)
    cells = np.floor((base[:, :2] - floor.origin) / floor.cell_m).astype(int)
    base = base[free[cells[:, 1], cells[:, 0]]]
    nearest = np.array([np.linalg.norm(spots - at[:2], axis=1).min() for at in base])
    sure = np.abs(nearest - 0.1) > 0.002
    assert np.array_equal(stopped(LAYOUT_A, category, base)[sure], (nearest < 0.1)[sure])
    assert 0 < (nearest < 0.1).sum() < len(base)


def behind_walls(layout: str) -> list[tuple[str, np.ndarray]]:
    """Returns categories and base poses (n, 3) within 1 m of an object that only walls hide."""
    floor, found = free_floor(layout), []
    for category in present(layout):
        views = viewpoints(layout, category)
        for thing in instances(layout, category):
            spots = floor.within(*thing.centre[:2], 3.0)[::2]
            spots = spots[thing.away(spots) < VIEW_M]
            far = [np.linalg.norm(views - at, axis=1).min() > 0.3 for at in spots]
            base = np.pad(spots[np.array(far, bool)], ((0, 0), (0, 1)))
            walls = len(load_layout_set("replica_cad").walls)
            centre, rotation, half = (boxes[walls:] for boxes in thing.others)
            open_plan = centre, rotation, half
            found.append((category, base[in_sight(base, thing.points, open_plan, turning=True)]))
    return [(category, base) for category, base in found if len(base)]


def test_a_stop_near_an_object_behind_a_wall_does_not_succeed() -> None:
    found = [(layout, *hidden) for layout in (VAL[9], VAL[15]) for hidden in behind_walls(layout)]
    assert sum(len(base) for *_, base in found) > 10
    for layout, category, base in found:
        assert not stopped(layout, category, base).any()


def test_conditions_are_the_distance_to_a_viewpoint_and_the_stop() -> None:
    here, state = worlds(np.zeros((1, 3))), begun(np.zeros((1, 3)))
    path = PathProgress(*(np.array([value]) for value in (5.0, 0.04, 0.0, 6.0)))
    stop = np.array([True])
    found = margins(task.evaluate(OBJECTNAV, state, here, stop, SETTINGS, LIMITS, path).conditions)
    assert list(found) == ["success", "viewpoint", "stop"] and found["success"].holds
    assert found["viewpoint"].margin == pytest.approx(0.06) and found["viewpoint"].unit == "m"


def random_batch(n: int = 64) -> tuple[TaskState, PathProgress, list[bool]]:
    rng = np.random.default_rng(4)
    state = begun(rng.uniform(-3, 3, (n, 3)))
    path = dataclasses.replace(random_path(rng, n), left=rng.uniform(0, 0.2, n))
    return state, path, (rng.random(n) < 0.5).tolist()


def test_a_batch_is_evaluated_like_its_rows_in_numpy_and_torch() -> None:
    torch = pytest.importorskip("torch", reason="torch belongs to the extra 'train'")
    state, path, stop = random_batch()
    whole = judged(state, path, stop)
    assert whole.success.any() and (~whole.success & whole.terminated).any()
    for row in range(64):
        part = slice(row, row + 1)
        alone = judged(state.take(part), rows(path, part), stop[part])
        assert alone.reward[0] == pytest.approx(whole.reward[row], abs=1e-12)
        assert (alone.success[0], alone.failure[0]) == (whole.success[row], whole.failure[row])
    actions = torch.zeros((64, act.SIZE))
    actions[:, act.STOP] = torch.asarray(stop) * 2.0 - 1.0
    here = to_torch(worlds(np.zeros((64, 3))))
    theirs = task.step(OBJECTNAV, to_torch(state), actions, here, SETTINGS, LIMITS, to_torch(path))[
        2
    ]
    for name in ("reward", "success", "failure", "terminated", "truncated"):
        assert np.allclose(getattr(whole, name), getattr(theirs, name).numpy(), atol=1e-12)


# -- observations ----------------------------------------------------------------------------------


def test_odometry_is_in_the_frame_of_the_start() -> None:
    state = begun(np.array([[1.0, 2.0, math.pi / 2]]))
    now = worlds(np.array([[0.0, 5.0, math.pi]]))  # 3 m ahead, 1 m to the left, turned left
    measures = OBJECTNAV.measure(MeasureContext(state, now, LIMITS))
    shown = SensorContext(state, measures, now, Readings())
    seen = sensors.observe(OBJECTNAV, ("gps", "start_heading"), shown)
    assert seen[0] == pytest.approx([3.0, 1.0, 0.0, 1.0], abs=1e-6)


def test_only_full_and_teacher_sensors_are_privileged() -> None:
    for choice in ("habitat", "fetch", "mapping"):
        assert PolicyInputs.of("objectnav", choice).privileged == ()
    assert PolicyInputs.of("objectnav", "full").privileged == (sensors.SIGHTING,)
    assert {sensors.SIGHTING, sensors.WAY} < {*PolicyInputs.of("objectnav", "teacher").privileged}


def test_the_category_is_observed_one_hot() -> None:
    start = objectnav_start(3)
    env = SkillEnv("objectnav", simulator=sim.make(slots=12), starts=[start], sensors="habitat")
    observation, _ = env.reset(options={"start": 0})
    shown = observation["state"][env.batch.options.inputs.layout()[sensors.CATEGORY]]
    assert shown.tolist() == [float(name == start.episode.category) for name in CATEGORIES]
    env.close()


# -- episodes -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def starts() -> list[Start]:
    return [objectnav_start(index) for index in range(63)]


def test_starts_are_valid_in_all_apartments(starts: list[Start]) -> None:
    assert {start.episode.layout for start in starts} == set(VAL)
    for start in starts:
        record = start.episode
        x, y, _ = record.robot_start
        assert record.category in present(record.layout)
        assert 1.0 <= category_field(record.layout, record.category).distance(x, y) <= 30.0
        floor = free_floor(record.layout)
        assert floor.snap(x, y) == (x, y)
        near, _ = static_bodies(record.layout).seen_from(np.array(record.robot_start))
        assert ArmChecker(ARM_SPHERES, near).free(REST, 0.02)
        centres = [one.centre for one in instances(record.layout, record.category)]
        assert start.goal.position in centres


def test_categories_and_headings_are_drawn_evenly(starts: list[Start]) -> None:
    found = [objectnav_start(index).episode for index in range(63, 363)] + [
        start.episode for start in starts
    ]
    counts = {name: sum(one.category == name for one in found) for name in CATEGORIES}
    # If every apartment had all categories, there would be 23 of each.
    assert min(counts.values()) > 8 and max(counts.values()) < 45
    headings = np.array([one.robot_start[2] for one in found])
    assert np.histogram(headings, bins=8, range=(-math.pi, math.pi))[0].min() > 25


def test_a_start_depends_on_its_seed_and_index_alone(starts: list[Start]) -> None:
    assert objectnav_start(7) == starts[7]
    assert objectnav_start(7, seed=1) != starts[7]
    assert objectnav_start(7, split="train").episode.layout not in VAL
    assert get("objectnav").start_states().obtain(get("objectnav"), [7], "val") == [starts[7]]


def test_another_process_draws_the_same_episodes(starts: list[Start]) -> None:
    code = (
        "import json\nfrom skills.objectnav.starts import objectnav_start\n"
        "print(json.dumps([objectnav_start(i).episode.to_json() for i in (9, 4)]))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "3"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert [Episode.from_json(record) for record in json.loads(done.stdout)] == [
        starts[9].episode,
        starts[4].episode,
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "vall"}, "split: unknown value 'vall'; did you mean 'val'"),
        ({"seed": -1}, "seed: must be at least 0, got -1"),
        ({"index": -2}, "index: must be at least 0, got -2"),
    ],
)
def test_start_arguments_out_of_range_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        objectnav_start(**{"index": 0, **arguments})


def test_a_record_keeps_the_category_and_an_unknown_one_is_refused() -> None:
    found = dataclasses.replace(episode(LAYOUT_A, (0.0, 0.0, 0.0)), category="bike")
    assert Episode.from_json(found.to_json()) == found
    assert "category" not in episode(LAYOUT_A, (0.0, 0.0, 0.0)).to_json()
    with pytest.raises(UserError, match="episode: category: unknown value 'bkie'; did you mean"):
        Episode.from_json({**found.to_json(), "category": "bkie"})


def test_an_episode_without_a_category_is_refused() -> None:
    start = Start(episode(LAYOUT_A, (0.0, 0.0, 0.0)), SkillGoal(position=(1.0, 0.0, 0.0)))
    env = SkillEnv("objectnav", simulator=sim.make(slots=12), starts=[start])
    with pytest.raises(
        UserError, match=r"episode\.category: objectnav needs one, episode test has"
    ):
        env.reset(options={"start": 0})
    batch = SkillBatch(EnvOptions.of("objectnav"), env.batch.simulator)
    with pytest.raises(UserError, match=r"episode\.category: objectnav needs one"):
        batch.reset([0], [start])
    env.close()


# -- agents and environments --------------------------------------------------------------------


@pytest.fixture(scope="module")
def simulator() -> Simulator:
    return sim.make(slots=12)


def results(simulator: Simulator, starts: list[Start], agent: str) -> list[SkillEpisode]:
    env = SkillEnv("objectnav", simulator=simulator, starts=starts)
    return episodes.run(env, make_for_skill(agent, "objectnav"), range(len(starts)))


def test_the_shortest_path_agent_reaches_objects_with_spl_near_one(
    simulator: Simulator, starts: list[Start]
) -> None:
    found = results(simulator, starts[:8], "shortest_path")
    assert [one.ended_by for one in found] == ["success"] * 8
    assert min(one.path["spl"] for one in found if one.path is not None) > 0.95


def test_demonstrator_labels_equal_actions_of_the_shortest_path_agent(
    simulator: Simulator, starts: list[Start]
) -> None:
    start = starts[2]
    simulator.reset([0], [start.episode])
    world = simulator.state([0])
    teacher = get("objectnav").make_demonstrator()
    agent = make_for_skill("shortest_path", "objectnav")
    for each in (teacher, agent):
        each.begin(start.episode, start.goal, world)
    label, valid = teacher.label(world)
    assert valid and np.array_equal(label, agent.act(world)) and label[act.STOP] < 0
    at = viewpoints(start.episode.layout, start.episode.category)[0]
    label, valid = teacher.label(worlds(np.array([[*at, 0.0]])))
    assert valid and label[act.STOP] > 0 and not label[act.BASE].any()


def test_the_agents_have_the_expected_names_and_default() -> None:
    names = ("scripted", "random", "forward_only", "frontier", "frontier_pictures")
    names += ("frontier_colour", "shortest_path", "zero")
    assert get("objectnav").agent_names() == names
    assert get("objectnav").default_agent == "shortest_path"
    assert isinstance(make_for_skill("scripted", "objectnav"), FrontierExplorer)


def test_blind_agents_stop_only_at_viewpoints(simulator: Simulator, starts: list[Start]) -> None:
    for agent in ("random", "forward_only"):
        found = results(simulator, starts[:2], agent)
        assert {one.ended_by for one in found} <= {"success", "timeout"}


def test_frontier_exploration_finds_more_than_driving_forward(
    simulator: Simulator, starts: list[Start]
) -> None:
    explorer = results(simulator, starts[8:13], "frontier")
    forward = results(simulator, starts[8:13], "forward_only")
    assert sum(one.success for one in explorer) >= 4
    assert sum(one.success for one in explorer) > sum(one.success for one in forward)


def test_path_metrics_refer_to_the_nearest_viewpoint(
    simulator: Simulator, starts: list[Start]
) -> None:
    record = starts[0].episode
    (found,) = results(simulator, starts[:1], "shortest_path")
    path, field = found.path, category_field(record.layout, record.category)
    assert path is not None
    assert path["shortest_m"] == pytest.approx(field.distance(*record.robot_start[:2]))
    assert path["spl"] == pytest.approx(
        path["shortest_m"] / max(path["shortest_m"], path["driven_m"])
    )
    covered = 1.0 - path["distance_left_m"] / path["shortest_m"]
    assert path["soft_spl"] == pytest.approx(covered * path["spl"])


def test_the_environment_passes_gymnasiums_checks() -> None:
    env = gymnasium.make("skills.gym:tpsrl/ObjectNav-v0", depth=(8, 8), split="val", horizon=5)
    assert env.observation_space["state"].shape == (len(CATEGORIES) + 7,)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        check_env(env.unwrapped, skip_render_check=True)
    assert [str(w.message) for w in seen if "infinity" not in str(w.message)] == []
    env.close()


def test_a_snapshot_restores_category_and_path_in_another_environment(starts: list[Start]) -> None:
    batch = SkillBatch(EnvOptions.of("objectnav", sensors="full"), sim.make("mujoco", 2, slots=12))
    batch.reset([0], starts[:1])
    forward = np.zeros((1, act.SIZE))
    forward[0, 8], forward[0, act.STOP] = 1.0, -1.0
    for _ in range(5):
        batch.step([0], forward)
    shown = batch.observe([0])["state"]
    assert np.array_equal(batch.restore(1, batch.snapshot(0))["state"], shown)
    for _ in range(3):
        rewards = [float(batch.step([home], forward).outcome.reward[0]) for home in (0, 1)]
        assert rewards[0] == rewards[1]
    assert batch.path_metrics(0, False) == batch.path_metrics(1, False)
    batch.simulator.close()
