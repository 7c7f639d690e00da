import itertools
import math

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from homes import LAYOUT_A, episode, roomiest

from skills import baselines, pointnav
from skills.base import SkillGoal
from skills.path_metrics import PathMeter, door_positions, soft_spl, spl
from skills.pointnav import PointNavSettings, PointNavState
from skills.pointnav_environment import PointNavEnv
from skills.pointnav_rollout import PointNavResult, run
from skills.pointnav_starts import acceptance, pointnav_start
from skills.starts import Start
from skills.task import FAILURES
from tpsrl import config, sim
from tpsrl.errors import UserError
from tpsrl.sim.base import Simulator
from tpsrl.world import action as act
from tpsrl.world.floor import CLOSED, main_floor
from tpsrl.world.geodesic import free_floor
from tpsrl.world.state import JOINTS, WorldState

SETTINGS = PointNavSettings()


def worlds(base: np.ndarray, velocity: np.ndarray | None = None, step: int = 0) -> WorldState:
    """Homes with these base poses (n, 3); all else is zero."""
    n = len(base)
    fields = {name: np.zeros(n) for name in WorldState.__slots__}
    fields["base"] = np.asarray(base, dtype=float)
    fields["base_velocity"] = np.zeros((n, 3)) if velocity is None else velocity
    fields["step"] = np.full(n, step)
    return WorldState(**fields)


def actions(stop: list[bool]) -> np.ndarray:
    result = np.zeros((len(stop), act.SIZE))
    result[:, act.STOP] = np.where(stop, 1.0, -1.0)
    return result


def drive(
    states: list[list[float]], distances: list[float], stop: bool = True
) -> list[tuple[PointNavState, object]]:
    """The outcomes along base positions of one home; the first is the start, stop comes last."""
    world = worlds(np.array([[*states[0], 0.0]]))
    task = pointnav.begin(world, np.array([[5.0, 0.0]]), np.array(distances[:1]))
    found = []
    for number, (position, distance) in enumerate(zip(states[1:], distances[1:], strict=True)):
        called = stop and number == len(states) - 2
        world = worlds(np.array([[*position, 0.0]]))
        task, outcome = pointnav.step(
            task, actions([called]), world, np.array([distance]), SETTINGS
        )
        found.append((task, outcome))
    return found


def test_spl_is_the_share_of_the_path_that_was_needed() -> None:
    success = np.array([True, True, True, False])
    shortest = np.array([4.0, 4.0, 0.0, 4.0])
    driven = np.array([5.0, 3.9, 0.0, 4.0])  # a path that ends short of the goal counts in full
    assert spl(success, shortest, driven).tolist() == [0.8, 1.0, 1.0, 0.0]


def test_spl_over_floor_that_the_map_calls_impassable_is_not_a_number() -> None:
    value = spl(np.array([True, False]), np.array([np.inf, np.inf]), np.array([3.0, 3.0]))
    assert math.isnan(value[0]) and value[1] == 0.0


def test_soft_spl_counts_the_way_covered() -> None:
    left, shortest, driven = np.array([1.0, 6.0]), np.array([4.0, 4.0]), np.array([5.0, 2.0])
    assert soft_spl(left, shortest, driven) == pytest.approx([0.75 * 0.8, 0.0])


def test_a_stop_near_the_goal_is_rewarded_with_spl_progress_and_slack() -> None:
    (_, first), (task, last) = drive([[0.0, 0.0], [3.0, 0.0], [3.0, 4.0]], [5.0, 3.0, 0.1])
    assert first.reward[0] == pytest.approx(2.0 - 0.01)
    assert not first.terminated[0] and not first.truncated[0]
    assert task.driven[0] == pytest.approx(7.0)
    assert last.terms["success"][0] == pytest.approx(2.5 * 5.0 / 7.0)
    assert last.terms["progress"][0] == pytest.approx(2.9)
    assert last.terms["slack"][0] == pytest.approx(-0.01)
    assert last.reward[0] == pytest.approx(2.5 * 5.0 / 7.0 + 2.9 - 0.01)
    assert last.success[0] and last.terminated[0] and not last.truncated[0]


@pytest.mark.parametrize(("distance", "succeeds"), [(0.199, True), (0.2, False), (3.0, False)])
def test_a_stop_succeeds_only_within_a_fifth_of_a_metre(distance: float, succeeds: bool) -> None:
    ((_, outcome),) = drive([[0.0, 0.0], [4.9, 0.0]], [5.0, distance])
    assert outcome.terminated[0]
    assert outcome.success[0] == succeeds
    assert FAILURES[int(outcome.failure[0])] == ("" if succeeds else "stopped")
    assert (outcome.terms["success"][0] > 0) == succeeds


def test_being_at_the_goal_is_no_success_without_a_stop() -> None:
    ((_, outcome),) = drive([[0.0, 0.0], [5.0, 0.0]], [5.0, 0.0], stop=False)
    assert not outcome.success[0] and not outcome.terminated[0]


def test_the_horizon_truncates_unless_the_robot_stops_in_its_last_step() -> None:
    at = [[0.0, 0.0]] * 501
    outcomes = [outcome for _, outcome in drive(at, [5.0] * 501, stop=False)]
    assert [bool(o.truncated[0]) for o in outcomes] == [False] * 499 + [True]
    last = drive(at, [5.0] * 501)[-1][1]
    assert last.terminated[0] and not last.truncated[0]


def test_progress_adds_up_to_the_distance_covered() -> None:
    distances = [5.0, 5.2, 4.0, 4.0, 1.0]
    outcomes = drive([[float(i), 0.0] for i in range(5)], distances, stop=False)
    total = sum(o.terms["progress"][0] for _, o in outcomes)
    assert total == pytest.approx(distances[0] - distances[-1])


def test_a_base_that_was_pushed_off_the_map_makes_no_progress_until_it_is_back() -> None:
    outcomes = drive([[float(i), 0.0] for i in range(4)], [5.0, 4.0, np.inf, 3.5], stop=False)
    progress = [o.terms["progress"][0] for _, o in outcomes]
    assert progress == pytest.approx([1.0, 0.0, 0.5])


def test_the_compass_says_how_far_and_where_the_goal_is() -> None:
    base = np.array([[1.0, 2.0, math.pi / 2], [1.0, 2.0, 0.0], [0.0, 0.0, math.pi]])
    goal = np.array([[1.0, 5.0], [1.0, 5.0], [3.0, -1e-9]])
    polar = pointnav.goal_polar(base, goal)
    assert polar[0] == pytest.approx([3.0, 0.0])
    assert polar[1] == pytest.approx([3.0, math.pi / 2])  # to the left
    assert abs(polar[2, 1]) == pytest.approx(math.pi)


def test_the_observation_holds_compass_and_velocity_in_the_robots_frame() -> None:
    world = worlds(np.array([[0.0, 0.0, math.pi / 2]]), np.array([[0.3, 2.0, -0.5]]))
    task = pointnav.begin(world, np.array([[2.0, 0.0]]), np.array([2.0]))
    seen = pointnav.observe(task, world)
    assert seen.shape == (1, pointnav.OBSERVATION)
    assert seen[0] == pytest.approx([2.0, 0.0, -1.0, 2.0, -0.3, -0.5])


def random_batch(n: int = 64) -> tuple[WorldState, PointNavState, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    world = worlds(rng.uniform(-3, 3, (n, 3)), rng.normal(size=(n, 3)))
    task = PointNavState(
        goal=rng.uniform(-3, 3, (n, 2)),
        shortest=rng.uniform(1, 8, n),
        distance=rng.uniform(0, 8, n),
        driven=rng.uniform(0, 9, n),
        last=world.base[:, :2] + rng.normal(0, 0.1, (n, 2)),
        steps=rng.integers(0, 500, n),
    )
    return world, task, actions((rng.random(n) < 0.5).tolist()), rng.uniform(0, 0.5, n)


def test_a_batch_is_judged_like_its_homes_one_by_one() -> None:
    world, task, action, distance = random_batch()
    after, whole = pointnav.step(task, action, world, distance, SETTINGS)
    assert whole.success.any() and (~whole.success & whole.terminated).any()
    for row in range(64):
        one = slice(row, row + 1)
        part = PointNavState.from_arrays({k: v[one] for k, v in task.to_arrays().items()})
        single, outcome = pointnav.step(part, action[one], world.row(row), distance[one], SETTINGS)
        assert outcome.reward[0] == whole.reward[row]
        assert outcome.success[0] == whole.success[row]
        assert outcome.failure[0] == whole.failure[row]
        assert outcome.truncated[0] == whole.truncated[row]
        assert single.driven[0] == after.driven[row]


def test_numpy_and_torch_give_the_same_numbers() -> None:
    torch = pytest.importorskip("torch", reason="torch belongs to the extra 'train'")
    world, task, action, distance = random_batch()
    fields = {name: torch.asarray(getattr(world, name)) for name in WorldState.__slots__}
    torch_world = WorldState(**fields)
    torch_task = PointNavState(**{k: torch.asarray(v) for k, v in task.to_arrays().items()})
    after, ours = pointnav.step(task, action, world, distance, SETTINGS)
    other, theirs = pointnav.step(
        torch_task, torch.asarray(action), torch_world, torch.asarray(distance), SETTINGS
    )
    for name, term in ours.terms.items():
        assert np.allclose(term, theirs.terms[name].numpy(), atol=1e-12)
    for name in ("reward", "success", "failure", "terminated", "truncated"):
        assert np.allclose(getattr(ours, name), getattr(theirs, name).numpy(), atol=1e-12)
    for name, array in after.to_arrays().items():
        assert np.allclose(array, getattr(other, name).numpy())
    seen = pointnav.observe(torch_task, torch_world).numpy()
    assert np.allclose(pointnav.observe(task, world), seen)


def test_the_state_survives_its_arrays_and_refuses_others() -> None:
    _, task, _, _ = random_batch()
    arrays = task.to_arrays()
    again = PointNavState.from_arrays(arrays).to_arrays()
    assert all(np.array_equal(arrays[name], again[name]) for name in arrays)
    del arrays["driven"]
    with pytest.raises(UserError, match="pointnav state: arrays driven missing or unknown"):
        PointNavState.from_arrays(arrays)


def test_the_preset_holds_the_papers_numbers() -> None:
    assert config.load_preset("skill", "pointnav", PointNavSettings) == SETTINGS
    assert (SETTINGS.success, SETTINGS.slack, SETTINGS.success_m) == (2.5, 0.01, 0.2)
    assert (SETTINGS.horizon, SETTINGS.progress) == (500, 1.0)


def test_only_base_and_stop_may_be_used() -> None:
    assert np.flatnonzero(pointnav.mask()).tolist() == [8, 9, act.STOP]


def test_the_meter_adds_up_what_is_driven_and_knows_what_is_left() -> None:
    x, y = roomiest(LAYOUT_A)
    record = episode(LAYOUT_A, (x, y, 0.0))
    meter = PathMeter(2)
    goal = np.array([[x + 0.5, y]])
    meter.begin([1], [record], goal, worlds(np.array([[x, y, 0.0]])))
    assert meter.shortest[1] == pytest.approx(0.5, abs=1e-4)
    assert meter.step([1], worlds(np.array([[x, y + 0.3, 0.0]]))) == pytest.approx(
        [math.hypot(0.5, 0.3)], abs=1e-4
    )
    meter.step([1], worlds(np.array([[x + 0.4, y, 0.0]])))
    assert meter.driven.tolist() == pytest.approx([0.0, 0.8])
    found = meter.metrics(1, True)
    assert found["distance_left_m"] == pytest.approx(0.1, abs=1e-4)
    assert found["spl"] == pytest.approx(0.5 / 0.8, abs=1e-4)
    assert found["soft_spl"] == pytest.approx(0.8 * 0.5 / 0.8, abs=1e-3)


def test_for_navigate_the_way_ends_where_the_goal_is_within_reach() -> None:
    x, y = roomiest(LAYOUT_A)
    record = episode(LAYOUT_A, (x, y, 0.0))
    meter = PathMeter(1, reach_m=0.5)
    meter.begin([0], [record], np.array([[x + 0.8, y, 0.9]]), worlds(np.array([[x, y, 0.0]])))
    assert meter.shortest[0] == pytest.approx(0.3, abs=0.03)
    assert meter.step([0], worlds(np.array([[x + 0.4, y, 0.0]]))) == pytest.approx([0.0], abs=1e-4)


def test_doors_that_an_episode_opens_are_where_the_way_goes_around_them() -> None:
    shut = episode(LAYOUT_A, (0.0, 0.0, 0.0))
    wide = episode(LAYOUT_A, (0.0, 0.0, 0.0), articulation={"fridge_push_point": 1.5})
    assert door_positions(shut) == CLOSED
    assert door_positions(wide)[JOINTS.index("fridge_push_point")] == pytest.approx(1.5)
    assert (main_floor(LAYOUT_A) & ~free_floor(LAYOUT_A, door_positions(wide)).free).any()


def test_straight_episodes_are_mostly_refused() -> None:
    assert acceptance(0.9, 0.8) == 0.0
    assert acceptance(31.0, 10.0) == 0.0
    assert acceptance(5.5, 5.0) == 1.0
    assert acceptance(5.0, 5.0) == pytest.approx(0.008)
    assert acceptance(5.25, 5.0) == pytest.approx(20 * 0.07**2)


@pytest.fixture(scope="module")
def starts() -> list[Start]:
    return [pointnav_start(index) for index in range(30)]


def lengths(start: Start) -> tuple[float, float]:
    """Geodesic and Euclidean distance from start to goal."""
    assert start.goal.position is not None
    meter = PathMeter(1)
    base, goal = start.episode.robot_start, np.array([start.goal.position])
    meter.begin([0], [start.episode], goal, worlds(np.array([base])))
    return float(meter.shortest[0]), math.dist(base[:2], goal[0, :2])


def test_starts_are_apart_and_seldom_straight(starts: list[Start]) -> None:
    found = [lengths(start) for start in starts]
    assert all(1.0 <= geodesic <= 30.0 for geodesic, _ in found)
    assert sum(geodesic < 1.1 * euclid for geodesic, euclid in found) < 15
    assert len({start.episode.layout for start in starts}) == 21


def test_a_start_depends_on_its_seed_and_index_alone(starts: list[Start]) -> None:
    assert pointnav_start(7) == starts[7]
    assert pointnav_start(7, seed=1) != starts[7]
    assert pointnav_start(7, split="train").episode.layout != starts[7].episode.layout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "vall"}, "split: unknown value 'vall'; did you mean 'val'"),
        ({"seed": -1}, "seed: must be at least 0, got -1"),
        ({"index": -2}, "index: must be at least 0, got -2"),
    ],
)
def test_starts_refuse_what_is_out_of_range(arguments: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        pointnav_start(**{"index": 0, **arguments})


def test_an_unknown_agent_is_named_with_its_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'forward_only'"):
        baselines.make("forward-only")
    assert baselines.names() == ("random", "forward_only", "goal_follower", "shortest_path")


def test_agents_stop_where_the_compass_says_that_they_are_there() -> None:
    record = episode(LAYOUT_A, (0.0, 0.0, 0.0))
    for name in ("random", "forward_only", "goal_follower"):
        agent = baselines.make(name)
        near, far = worlds(np.array([[0.81, 0.0, 0.0]])), worlds(np.array([[0.0, 0.0, 0.0]]))
        agent.begin(record, SkillGoal(position=(1.0, 0.0, 0.0)), far)
        assert agent.act(far)[act.STOP] < 0
        assert agent.act(near)[act.STOP] > 0


def test_the_goal_follower_turns_to_the_goal_before_it_drives() -> None:
    agent = baselines.make("goal_follower")
    world = worlds(np.array([[0.0, 0.0, 0.0]]))
    agent.begin(episode(LAYOUT_A, (0.0, 0.0, 0.0)), SkillGoal(position=(0.0, 3.0, 0.0)), world)
    assert agent.act(world)[act.BASE].tolist() == [0.0, 1.0]
    facing = worlds(np.array([[0.0, 0.0, math.pi / 2]]))
    assert agent.act(facing)[act.BASE] == pytest.approx([1.0, 0.0])


def test_the_random_agent_repeats_itself_for_the_same_episode() -> None:
    world = worlds(np.array([[0.0, 0.0, 0.0]]))
    record = episode(LAYOUT_A, (0.0, 0.0, 0.0))
    runs = []
    for _ in range(2):
        agent = baselines.make("random")
        agent.begin(record, SkillGoal(position=(3.0, 0.0, 0.0)), world)
        runs.append([tuple(agent.act(world)[act.BASE]) for _ in range(30)])
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == 3
    assert all(len(set(runs[0][i : i + 3])) == 1 for i in range(0, 30, 3))


@pytest.fixture(scope="module")
def simulator() -> Simulator:
    return sim.make(slots=12)


def around_furniture(starts: list[Start], count: int) -> list[Start]:
    """Those of the starts whose way is least straight."""

    def straightness(start: Start) -> float:
        geodesic, euclid = lengths(start)
        return euclid / geodesic

    return sorted(starts, key=straightness)[:count]


def results(simulator: Simulator, starts: list[Start], agent: str) -> list[PointNavResult]:
    return [run(simulator, baselines.make(agent), start, SETTINGS) for start in starts]


def test_the_shortest_path_follower_reaches_goals_behind_furniture_with_spl_near_one(
    simulator: Simulator, starts: list[Start]
) -> None:
    found = results(simulator, around_furniture(starts[5:], 6), "shortest_path")
    assert [r.ended_by for r in found] == ["success"] * 6
    assert min(r.spl for r in found) > 0.97
    for r in found:
        assert r.driven_m + r.distance_left_m == pytest.approx(r.shortest_m, rel=0.03)


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
    assert isinstance(env.unwrapped, PointNavEnv)
    check_env(env.unwrapped, skip_render_check=True)
    env.close()


def test_the_environment_gives_what_the_rollout_gives(starts: list[Start]) -> None:
    env, agent = PointNavEnv(split="val"), baselines.make("shortest_path")
    env.reset(options={"start": 9})
    assert env.episode == starts[9].episode
    agent.begin(env.episode, env.goal, env.world)
    reward, over, info = 0.0, False, {}
    while not over:
        _, gain, terminated, truncated, info = env.step(agent.act(env.world))
        reward, over = reward + gain, terminated or truncated
    expected = run(env.simulator, baselines.make("shortest_path"), starts[9], SETTINGS)
    assert info["success"] == expected.success
    assert reward == expected.reward
    assert info["path"]["spl"] == expected.spl
    env.close()


def test_the_environment_refuses_what_it_does_not_know() -> None:
    with pytest.raises(UserError, match="num_episodes: must be at least 1, got 0"):
        PointNavEnv(num_episodes=0)
    with pytest.raises(UserError, match="not reset yet"):
        PointNavEnv().step(np.zeros(act.SIZE))
