import dataclasses
import itertools
import math
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from homes import LAYOUT_A, episode, roomiest
from small_worlds import random_path, rows, to_torch, world

from eval.running.agents import make_for_skill
from skills.core import sensors as observation
from skills.core import task
from skills.core.conditions import Margin, margins
from skills.core.context import MeasureContext
from skills.core.inputs import PolicyInputs
from skills.core.interface import SkillGoal
from skills.core.path_metrics import PathProgress, soft_spl, spl
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
from skills.envs.training import TrainingVecEnvFactory
from skills.pointnav.baselines import polar
from skills.pointnav.starts import acceptance, pointnav_start
from skills.pointnav.task import PointNav, PointNavSettings, PointNavThresholds
from skills.registry import get
from skills.starts.start import Start
from tpsrl import config, sim
from tpsrl.errors import UserError
from tpsrl.sim.base import Simulator
from tpsrl.world import action as act
from tpsrl.world.floor import main_floor, rounded
from tpsrl.world.geodesic import free_floor
from tpsrl.world.state import JOINTS, WorldState

POINTNAV = PointNav()
SETTINGS = PointNavSettings()
LIMITS = PointNavThresholds()
AGENTS = ("random", "forward_only", "goal_follower", "shortest_path")


def worlds(base: np.ndarray) -> WorldState:
    """Returns a batch of worlds with base poses (n, 3), one object and nothing in motion."""
    one, n = world(), len(base)
    fields = {name: np.repeat(getattr(one, name), n, axis=0) for name in WorldState.__slots__}
    return WorldState(**{**fields, "base": np.asarray(base, dtype=float)})


def begun(world: WorldState, *goals: tuple[float, float]) -> TaskState:
    return task.begin(
        POINTNAV, Goals.of([SkillGoal(position=(*g, 0.0)) for g in goals]), world, LIMITS
    )


def judged(
    state: TaskState, path: PathProgress, stop: list[bool], world: WorldState | None = None
) -> tuple[TaskState, StepOutcome]:
    """Returns the task's state and outcome after a step with the given path progress."""
    actions = np.zeros((len(stop), act.SIZE))
    actions[:, act.STOP] = np.where(stop, 1.0, -1.0)
    world = worlds(np.zeros((len(stop), 3))) if world is None else world
    after, _, outcome = task.step(POINTNAV, state, actions, world, SETTINGS, LIMITS, path)
    return after, outcome


def one(left: float, stop: bool, gained: float = 0.0, driven: float = 4.9) -> StepOutcome:
    """Returns the outcome of the first step if the shortest path is 5 m long."""
    path = PathProgress(*(np.array([value]) for value in (5.0, left, gained, driven)))
    return judged(begun(worlds(np.zeros((1, 3))), (5.0, 0.0)), path, [stop])[1]


def test_spl_is_the_ratio_of_shortest_to_driven_path() -> None:
    success = np.array([True, True, True, False])
    shortest = np.array([4.0, 4.0, 0.0, 4.0])
    driven = np.array([5.0, 3.9, 0.0, 4.0])  # a path that ends short of the goal counts in full
    assert spl(success, shortest, driven).tolist() == [0.8, 1.0, 1.0, 0.0]


def test_spl_of_a_success_without_a_finite_shortest_path_is_nan() -> None:
    value = spl(np.array([True, False]), np.array([np.inf, np.inf]), np.array([3.0, 3.0]))
    assert math.isnan(value[0]) and value[1] == 0.0


def test_soft_spl_is_weighted_by_the_progress_towards_the_goal() -> None:
    left, shortest, driven = np.array([1.0, 6.0]), np.array([4.0, 4.0]), np.array([5.0, 2.0])
    assert soft_spl(left, shortest, driven) == pytest.approx([0.75 * 0.8, 0.0])


def test_a_stop_near_the_goal_is_rewarded_with_spl_progress_and_slack() -> None:
    outcome = one(0.1, stop=True, gained=2.9, driven=7.0)
    assert outcome.reward_terms["success"][0] == pytest.approx(2.5 * 5.0 / 7.0)
    assert outcome.reward_terms["progress"][0] == pytest.approx(2.9)
    assert outcome.reward_terms["slack"][0] == pytest.approx(-0.01)
    assert outcome.reward[0] == pytest.approx(2.5 * 5.0 / 7.0 + 2.9 - 0.01)
    assert outcome.success[0] and outcome.terminated[0] and not outcome.truncated[0]


def test_a_step_without_stop_is_rewarded_with_progress_and_slack() -> None:
    outcome = one(3.0, stop=False, gained=-0.2)
    assert outcome.reward[0] == pytest.approx(-0.2 - 0.01)
    assert not outcome.terminated[0] and not outcome.truncated[0]


@pytest.mark.parametrize(("distance", "succeeds"), [(0.199, True), (0.2, False), (3.0, False)])
def test_a_stop_succeeds_only_within_a_fifth_of_a_metre(distance: float, succeeds: bool) -> None:
    outcome = one(distance, stop=True)
    assert outcome.terminated[0]
    assert outcome.success[0] == succeeds
    assert FAILURES[int(outcome.failure[0])] == ("" if succeeds else "stopped")
    assert (outcome.reward_terms["success"][0] > 0) == succeeds


def test_reaching_the_goal_without_a_stop_is_no_success() -> None:
    outcome = one(0.0, stop=False)
    assert not outcome.success[0] and not outcome.terminated[0]
    assert outcome.reward_terms["success"][0] == 0.0


def test_the_horizon_truncates_unless_the_robot_stops_in_its_last_step() -> None:
    path = PathProgress(*(np.array([value]) for value in (5.0, 5.0, 0.0, 0.0)))
    state, truncated = begun(worlds(np.zeros((1, 3))), (5.0, 0.0)), []
    for _ in range(499):
        state, outcome = judged(state, path, [False])
        truncated.append(bool(outcome.truncated[0]))
    assert not any(truncated)
    assert judged(state, path, [False])[1].truncated[0]
    last = judged(state, path, [True])[1]
    assert last.terminated[0] and not last.truncated[0]


def test_conditions_are_the_geodesic_distance_and_the_stop() -> None:
    def results(path: PathProgress | None) -> dict[str, Margin]:
        here, stop = worlds(np.zeros((1, 3))), np.array([True])
        state = begun(here, (5.0, 0.0))
        verdict = task.evaluate(POINTNAV, state, here, stop, SETTINGS, LIMITS, path)
        return margins(verdict.conditions)

    found = results(PathProgress(*(np.array([value]) for value in (5.0, 0.15, 0.0, 6.0))))
    assert list(found) == ["success", "distance", "stop"] and found["success"].holds
    assert found["distance"].margin == pytest.approx(0.05)
    with pytest.raises(UserError, match="path along the floor, which is not measured"):
        results(None)


def test_the_compass_gives_distance_and_angle_of_the_goal() -> None:
    assert polar(np.array([1.0, 2.0, math.pi / 2]), np.array([1.0, 5.0])) == pytest.approx((3, 0))
    left = polar(np.array([1.0, 2.0, 0.0]), np.array([1.0, 5.0]))
    assert left == pytest.approx((3.0, math.pi / 2))
    behind = polar(np.array([0.0, 0.0, math.pi]), np.array([3.0, -1e-9]))
    assert abs(behind[1]) == pytest.approx(math.pi)


def test_the_observation_holds_compass_and_velocity_in_the_robots_frame() -> None:
    moving = world(
        base=np.array([[0.0, 0.0, math.pi / 2]]), base_velocity=np.array([[0.3, 2, -0.5]])
    )
    state = begun(moving, (2.0, 0.0))
    measures = POINTNAV.measure(MeasureContext(state, moving, LIMITS))
    for choice in ("habitat", "fetch", "full"):
        sensors = PolicyInputs.of("pointnav", choice).sensors
        shown = SensorContext(state, measures, moving, Readings(laser=np.zeros((1, 0))))
        seen = observation.observe(POINTNAV, sensors, shown)
        assert seen.shape == (1, 6)
        assert seen[0] == pytest.approx([2.0, 0.0, -1.0, 2.0, -0.3, -0.5], abs=1e-6)


def random_batch(n: int = 64) -> tuple[WorldState, TaskState, PathProgress, list[bool]]:
    rng = np.random.default_rng(4)
    state = begun(worlds(rng.uniform(-3, 3, (n, 3))), *rng.uniform(-3, 3, (n, 2)).tolist())
    path = random_path(rng, n)
    return worlds(rng.uniform(-3, 3, (n, 3))), state, path, (rng.random(n) < 0.5).tolist()


def test_a_batch_is_evaluated_like_its_rows() -> None:
    here, state, path, stop = random_batch()
    after, whole = judged(state, path, stop, here)
    distance = POINTNAV.measure(MeasureContext(state, here, LIMITS)).distance
    assert whole.success.any() and (~whole.success & whole.terminated).any()
    for row in range(64):
        part = slice(row, row + 1)
        alone = state.take(part)
        single, outcome = judged(alone, rows(path, part), stop[part], here.row(row))
        assert outcome.reward[0] == pytest.approx(whole.reward[row], abs=1e-12)
        assert outcome.success[0] == whole.success[row]
        assert outcome.failure[0] == whole.failure[row]
        assert single.steps[0] == after.steps[row]
        measures = POINTNAV.measure(MeasureContext(alone, here.row(row), LIMITS))
        assert measures.distance[0] == pytest.approx(distance[row])


def test_numpy_and_torch_give_the_same_numbers() -> None:
    torch = pytest.importorskip("torch", reason="torch belongs to the extra 'train'")
    here, state, path, stop = random_batch()
    after, ours = judged(state, path, stop, here)
    actions = torch.zeros((64, act.SIZE))
    actions[:, act.STOP] = torch.asarray(stop) * 2.0 - 1.0
    other, _, theirs = task.step(
        POINTNAV, to_torch(state), actions, to_torch(here), SETTINGS, LIMITS, to_torch(path)
    )
    for name, term in ours.reward_terms.items():
        assert np.allclose(term, theirs.reward_terms[name].numpy(), atol=1e-12)
    for name in ("reward", "success", "failure", "terminated", "truncated"):
        assert np.allclose(getattr(ours, name), getattr(theirs, name).numpy(), atol=1e-12)
    assert np.array_equal(after.steps, other.steps.numpy())
    measures = POINTNAV.measure(MeasureContext(state, here, LIMITS))
    seen = POINTNAV.measure(MeasureContext(to_torch(state), to_torch(here), LIMITS))
    assert np.allclose(measures.distance, seen.distance.numpy())


def test_the_preset_holds_the_papers_numbers() -> None:
    assert config.load_preset("skill", "pointnav", PointNavSettings) == SETTINGS
    assert (SETTINGS.success, SETTINGS.slack, LIMITS.distance_m) == (2.5, 0.01, 0.2)
    assert (SETTINGS.horizon, SETTINGS.progress) == (500, 1.0)
    assert (get("pointnav").load_settings(), get("pointnav").thresholds) == (SETTINGS, LIMITS)


def test_only_base_and_stop_are_in_the_action_mask() -> None:
    assert np.flatnonzero(POINTNAV.mask()).tolist() == [8, 9, act.STOP]


def test_the_meter_sums_the_driven_and_measures_the_remaining_distance() -> None:
    x, y = roomiest(LAYOUT_A)
    meter = PathMeter(2)
    meter.begin([1], [LAYOUT_A], np.array([[x + 0.5, y]]), worlds(np.array([[x, y, 0.0]])))
    meter.drive([1], worlds(np.array([[x, y + 0.3, 0.0]])))
    path = meter.path([1])
    assert path.shortest == pytest.approx([0.5], abs=1e-4)
    assert path.left == pytest.approx([math.hypot(0.5, 0.3)], abs=1e-4)
    assert path.gained == pytest.approx(0.5 - path.left, abs=1e-4)
    meter.drive([1], worlds(np.array([[x + 0.4, y, 0.0]])))
    again = meter.path([1])
    assert again.driven == pytest.approx([0.8])
    assert path.gained + again.gained == pytest.approx(again.shortest - again.left)
    found = meter.metrics([1], np.array([True]))
    assert found["distance_left_m"] == pytest.approx(0.1, abs=1e-4)
    assert found["spl"] == pytest.approx(0.5 / 0.8, abs=1e-4)
    assert found["soft_spl"] == pytest.approx(0.8 * 0.5 / 0.8, abs=1e-3)


def test_a_base_off_the_map_makes_no_progress_until_it_returns() -> None:
    x, y = roomiest(LAYOUT_A)
    meter = PathMeter(1)
    goal, base = np.array([[x + 0.5, y]]), np.array([[x, y, 0.0]])
    meter.begin([0], [LAYOUT_A], goal, worlds(base))
    meter.drive([0], worlds(np.array([[x + 1e3, y, 0.0]])))
    lost = meter.path([0])
    assert lost.gained[0] == 0.0 and lost.left == lost.shortest
    meter.drive([0], worlds(np.array([[x + 0.2, y, 0.0]])))
    assert meter.path([0]).gained == pytest.approx([0.2], abs=1e-4)


def test_the_meter_continues_from_its_saved_arrays_and_refuses_incomplete_ones() -> None:
    x, y = roomiest(LAYOUT_A)
    goal = np.array([x + 0.5, y])
    first, second = PathMeter(1), PathMeter(3)
    first.begin([0], [LAYOUT_A], goal[None], worlds(np.array([[x, y, 0.0]])))
    first.drive([0], worlds(np.array([[x, y + 0.3, 0.0]])))
    arrays = first.to_arrays(0)
    second.restore(2, arrays, LAYOUT_A, goal)
    for meter, home in ((first, 0), (second, 2)):
        meter.drive([home], worlds(np.array([[x + 0.1, y, 0.0]])))
    reached = np.array([True])
    assert first.metrics([0], reached) == second.metrics([2], reached)
    del arrays["driven"]
    with pytest.raises(UserError, match="path: arrays driven missing or unknown"):
        second.restore(2, arrays, LAYOUT_A, goal)


def test_the_path_of_navigate_ends_within_reach_of_the_goal() -> None:
    x, y = roomiest(LAYOUT_A)
    meter = PathMeter(1, reach_m=0.5)
    meter.begin([0], [LAYOUT_A], np.array([[x + 0.8, y, 0.9]]), worlds(np.array([[x, y, 0.0]])))
    assert meter.path([0]).shortest[0] == pytest.approx(0.3, abs=0.03)
    meter.drive([0], worlds(np.array([[x + 0.4, y, 0.0]])))
    assert meter.path([0]).left == pytest.approx([0.0], abs=1e-4)


def test_paths_avoid_doors_at_their_positions_at_the_start() -> None:
    # The fridge of the first home is closed; in the second home it is open and blocks the path.
    two = worlds(np.array([[-1.4, -2.6, 0.0]] * 2))
    joints = np.zeros((2, len(JOINTS)))
    joints[1, JOINTS.index("fridge_push_point")] = 1.2
    goals = np.array([[-1.9, -5.0, 0.8]] * 2)
    meter = PathMeter(2, reach_m=1.5)
    meter.begin([0, 1], [LAYOUT_A] * 2, goals, dataclasses.replace(two, joints=joints))
    shut, wide = meter.path([0, 1]).shortest
    assert wide > shut + 0.3
    floor = free_floor(LAYOUT_A, rounded(joints[1]))
    assert (main_floor(LAYOUT_A) & ~floor.free).any()
    # Later movements, and those while a snapshot is kept, do not change the path.
    other = PathMeter(1, reach_m=1.5)
    other.restore(0, meter.to_arrays(1), LAYOUT_A, goals[1])
    meter.drive([0, 1], two)
    assert meter.path([0, 1]).shortest.tolist() == [shut, wide]
    assert other.path([0]).shortest.tolist() == [wide]


def test_a_goal_far_from_any_floor_has_no_path_if_that_is_allowed() -> None:
    world, goals = worlds(np.array([[-1.4, -2.6, 0.0]])), np.array([[40.0, 40.0, 0.0]])
    strict = PathMeter(1, reach_m=1.5)
    strict.begin([0], [LAYOUT_A], goals, world)
    with pytest.raises(UserError, match="goal: no free floor within"):
        strict.path([0])
    meter = PathMeter(1, reach_m=1.5, allow_unreachable=True)
    meter.begin([0], [LAYOUT_A], goals, world)
    assert meter.ahead([0], world.base).tolist() == [[0.0, 0.0, 0.0]]
    meter.drive([0], worlds(np.array([[-1.0, -2.6, 0.0]])))
    path = meter.path([0])
    assert path.left.tolist() == [math.inf] and path.gained.tolist() == [0.0]


def test_straight_episodes_are_mostly_rejected() -> None:
    assert acceptance(0.9, 0.8) == 0.0
    assert acceptance(31.0, 10.0) == 0.0
    assert acceptance(5.5, 5.0) == 1.0
    assert acceptance(5.0, 5.0) == pytest.approx(0.008)
    assert acceptance(5.25, 5.0) == pytest.approx(20 * 0.07**2)


@pytest.fixture(scope="module")
def starts() -> list[Start]:
    return [pointnav_start(index) for index in range(30)]


def lengths(start: Start) -> tuple[float, float]:
    """Returns geodesic and Euclidean distance from start to goal."""
    assert start.goal.position is not None
    meter = PathMeter(1)
    base, goal = start.episode.robot_start, np.array([start.goal.position])
    meter.begin([0], [start.episode.layout], goal, worlds(np.array([base])))
    return float(meter.path([0]).shortest[0]), math.dist(base[:2], goal[0, :2])


def test_starts_have_long_and_rarely_straight_paths(starts: list[Start]) -> None:
    found = [lengths(start) for start in starts]
    assert all(1.0 <= geodesic <= 30.0 for geodesic, _ in found)
    assert sum(geodesic < 1.1 * euclid for geodesic, euclid in found) < 15
    assert len({start.episode.layout for start in starts}) == 21


def test_a_start_depends_on_its_seed_and_index_alone(starts: list[Start]) -> None:
    assert pointnav_start(7) == starts[7]
    assert pointnav_start(7, seed=1) != starts[7]
    assert pointnav_start(7, split="train").episode.layout != starts[7].episode.layout


def test_the_starts_of_the_validation_split_are_unchanged(starts: list[Start]) -> None:
    episode, goal = starts[7].episode, starts[7].goal
    assert (episode.id, episode.layout) == ("pointnav_val_0_00007", "replica_cad/v3_sc3_staging_07")
    assert episode.robot_start == pytest.approx((-1.2825, -3.2575, -1.5636294632681433))
    assert goal.position == pytest.approx((2.5675, -1.2825, 0.0))
    assert get("pointnav").start_states().obtain(get("pointnav"), [7], "val") == [starts[7]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "vall"}, "split: unknown value 'vall'; did you mean 'val'"),
        ({"seed": -1}, "seed: must be at least 0, got -1"),
        ({"index": -2}, "index: must be at least 0, got -2"),
    ],
)
def test_start_arguments_out_of_range_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        pointnav_start(**{"index": 0, **arguments})


def test_an_unknown_agent_is_refused_with_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'forward_only'"):
        make_for_skill("forward-only", "pointnav")
    assert get("pointnav").agent_names() == (*AGENTS, "zero")
    assert get("pointnav").default_agent == "shortest_path"


def test_agents_stop_once_the_compass_distance_is_small() -> None:
    record = episode(LAYOUT_A, (0.0, 0.0, 0.0))
    for name in ("random", "forward_only", "goal_follower"):
        agent = make_for_skill(name, "pointnav")
        near, far = worlds(np.array([[0.81, 0.0, 0.0]])), worlds(np.array([[0.0, 0.0, 0.0]]))
        agent.begin(record, SkillGoal(position=(1.0, 0.0, 0.0)), far)
        assert agent.act(far)[act.STOP] < 0
        assert agent.act(near)[act.STOP] > 0


def test_the_goal_follower_turns_to_the_goal_before_it_drives() -> None:
    agent = make_for_skill("goal_follower", "pointnav")
    world = worlds(np.array([[0.0, 0.0, 0.0]]))
    agent.begin(episode(LAYOUT_A, (0.0, 0.0, 0.0)), SkillGoal(position=(0.0, 3.0, 0.0)), world)
    assert agent.act(world)[act.BASE].tolist() == [0.0, 1.0]
    facing = worlds(np.array([[0.0, 0.0, math.pi / 2]]))
    assert agent.act(facing)[act.BASE] == pytest.approx([1.0, 0.0])


def test_the_random_agent_is_reproducible_for_an_episode() -> None:
    world = worlds(np.array([[0.0, 0.0, 0.0]]))
    record = episode(LAYOUT_A, (0.0, 0.0, 0.0))
    runs = []
    for _ in range(2):
        agent = make_for_skill("random", "pointnav")
        agent.begin(record, SkillGoal(position=(3.0, 0.0, 0.0)), world)
        runs.append([tuple(agent.act(world)[act.BASE]) for _ in range(30)])
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == 3
    assert all(len(set(runs[0][i : i + 3])) == 1 for i in range(0, 30, 3))


@pytest.fixture(scope="module")
def simulator() -> Simulator:
    return sim.make(slots=12)


def around_furniture(starts: list[Start], count: int) -> list[Start]:
    """Returns the `count` starts with the least straight paths."""

    def straightness(start: Start) -> float:
        geodesic, euclid = lengths(start)
        return euclid / geodesic

    return sorted(starts, key=straightness)[:count]


def results(simulator: Simulator, starts: list[Start], agent: str) -> list[SkillEpisode]:
    env = SkillEnv("pointnav", simulator=simulator, starts=starts)
    return episodes.run(env, make_for_skill(agent, "pointnav"), range(len(starts)))


def test_the_shortest_path_follower_reaches_goals_behind_furniture_with_spl_near_one(
    simulator: Simulator, starts: list[Start]
) -> None:
    found = results(simulator, around_furniture(starts[5:], 6), "shortest_path")
    assert [r.ended_by for r in found] == ["success"] * 6
    paths = [r.path for r in found if r.path is not None]
    assert len(paths) == 6 and min(path["spl"] for path in paths) > 0.97
    for path in paths:
        covered = path["driven_m"] + path["distance_left_m"]
        assert covered == pytest.approx(path["shortest_m"], rel=0.03)


def test_blind_agents_do_not_reach_goals_behind_furniture(
    simulator: Simulator, starts: list[Start]
) -> None:
    hard = around_furniture(starts[5:], 4)
    found = [results(simulator, hard, a) for a in ("random", "forward_only", "goal_follower")]
    assert sum(r.success for r in itertools.chain(*found)) <= 2
    assert all(r.ended_by == "timeout" for r in itertools.chain(*found) if not r.success)


def test_an_episode_gives_the_same_result_twice(simulator: Simulator, starts: list[Start]) -> None:
    assert results(simulator, starts[:1], "shortest_path") == results(
        simulator, starts[:1], "shortest_path"
    )


def test_the_environment_passes_gymnasiums_checks() -> None:
    env = gymnasium.make("skills.gym:tpsrl/PointNav-v0", depth=(8, 8), split="val", horizon=5)
    assert env.observation_space["state"].shape == (6,)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        check_env(env.unwrapped, skip_render_check=True)
    assert [str(w.message) for w in seen if "infinity" not in str(w.message)] == []
    env.close()


def test_the_environments_of_a_vector_behave_like_a_single_one(simulator: Simulator) -> None:
    vector = gymnasium.make_vec(
        "skills.gym:tpsrl/PointNav-v0",
        num_envs=2,
        vectorization_mode="vector_entry_point",
        split="val",
        horizon=4,
    )
    single = SkillEnv("pointnav", simulator=simulator, split="val", horizon=4)
    shown, _ = vector.reset(seed=5)
    alone, _ = single.reset(seed=6)
    actions = np.random.default_rng(0).uniform(-1, 1, (4, 2, act.SIZE)).astype(np.float32)
    actions[:, :, act.STOP] = -1.0
    for action in actions:
        assert np.array_equal(alone["state"], shown["state"][1])
        shown, reward, _, truncated, infos = vector.step(action)
        alone, expected, _, over, info = single.step(action[1])
        assert reward[1] == expected and truncated[1] == over
    assert over and {k: v[1] for k, v in infos["path"].items() if k[0] != "_"} == info["path"]
    vector.close()


def test_a_training_records_the_metrics_of_finished_episodes() -> None:
    made = TrainingVecEnvFactory(EnvOptions.of("pointnav", split="val", horizon=3), seed=1)
    homes = made([0])
    homes.reset([0])
    forward = np.zeros((1, act.SIZE), np.float32)
    forward[0, 8], forward[0, act.STOP] = 1.0, -1.0
    done = [homes.step([0], forward) for _ in range(3)][-1]
    (over,) = done.episodes
    found = over.metrics
    assert (over.ended_by, found["spl"]) == ("timeout", 0.0)
    assert 0.05 < found["driven_m"] < 0.3 and found["soft_spl"] < 0.3
    assert abs(found["shortest_m"] - found["distance_left_m"]) <= found["driven_m"] + 0.05


def test_a_snapshot_restores_the_path_in_another_environment(starts: list[Start]) -> None:
    batch = SkillBatch(EnvOptions.of("pointnav"), sim.make("mujoco", 2, slots=12))
    batch.reset([0], starts[:1])
    forward = np.zeros((1, act.SIZE))
    forward[0, 8], forward[0, act.STOP] = 1.0, -1.0
    for _ in range(5):
        batch.step([0], forward)
    batch.restore(1, batch.snapshot(0))
    for _ in range(3):
        rewards = [float(batch.step([home], forward).outcome.reward[0]) for home in (0, 1)]
        assert rewards[0] == rewards[1]
    assert batch.path_metrics(0, False) == batch.path_metrics(1, False)
    batch.simulator.close()


def test_the_environment_refuses_invalid_options_and_calls(simulator: Simulator) -> None:
    with pytest.raises(UserError, match="num_episodes: must be between 1 and 1008, got 0"):
        SkillEnv("pointnav", simulator=simulator, num_episodes=0)
    with pytest.raises(UserError, match="not reset yet"):
        SkillEnv("pointnav", simulator=simulator).step(np.zeros(act.SIZE))
    with pytest.raises(UserError, match="start: must be at least 0"):
        SkillEnv("pointnav", simulator=simulator).reset(options={"start": -1})
