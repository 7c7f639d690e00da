"""Flee and Explore, DD-PPO's transfer tasks, on PointNav's episodes without goals."""

import dataclasses
import math
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from homes import LAYOUT_A, roomiest
from small_worlds import random_path, rows, to_torch
from test_pointnav import worlds

from eval.running.agents import make_for_skill
from skills.core import sensors, task
from skills.core.conditions import margins
from skills.core.context import MeasureContext
from skills.core.inputs import PolicyInputs
from skills.core.interface import SkillGoal
from skills.core.path_metrics import PathProgress
from skills.core.sensors import Readings
from skills.core.state import Goals, TaskState
from skills.core.task import StepOutcome
from skills.envs import episodes
from skills.envs.batch import SkillBatch
from skills.envs.environment import SkillEnv
from skills.envs.options import EnvOptions
from skills.envs.path_meter import PathMeter
from skills.pointnav.roaming import (
    Explore,
    ExploreSettings,
    ExploreThresholds,
    Flee,
    FleeSettings,
    FleeThresholds,
)
from skills.pointnav.starts import pointnav_start
from skills.registry import get
from tpsrl import config, sim
from tpsrl.errors import UserError
from tpsrl.sim.base import Simulator
from tpsrl.world import action as act
from tpsrl.world.floor import CELL_M
from tpsrl.world.geodesic import FreeFloor, distance_field, free_floor
from tpsrl.world.survey import farthest, squares

NAMES = ("flee", "explore")
FLEE, EXPLORE = Flee(), Explore()
START = (0.5, 0.5)


def way(left: float, gained: float = 0.0, most: float = 10.0, floor: float = 40.0) -> PathProgress:
    """Returns the path progress of one environment back to its start, with a surveyed floor."""
    return PathProgress(*(np.array([value]) for value in (0.0, left, gained, 3.0, most, floor)))


def begun(skill: Any, *bases: tuple[float, float]) -> TaskState:
    goals = Goals.of([SkillGoal(position=(*base, 0.0)) for base in bases])
    return task.begin(skill, goals, at(*bases), get(name_of(skill)).thresholds)


def at(*bases: tuple[float, float]) -> Any:
    return worlds(np.array([(*base, 0.0) for base in bases]))


def name_of(skill: Any) -> str:
    return "flee" if isinstance(skill, Flee) else "explore"


def stepped(
    skill: Any, state: TaskState, path: PathProgress, *bases: tuple[float, float], stop: float = -1
) -> tuple[TaskState, StepOutcome]:
    spec = get(name_of(skill))
    actions = np.full((len(bases), act.SIZE), stop)
    after, _, outcome = task.step(
        skill, state, actions, at(*bases), spec.load_settings(), spec.thresholds, path
    )
    return after, outcome


def test_fleeing_is_rewarded_by_progress_relative_to_the_longest_path() -> None:
    _, outcome = stepped(FLEE, begun(FLEE, START), way(3.0, gained=-2.0), (1.0, 1.0))
    assert outcome.reward_terms["fled"][0] == pytest.approx(5.0 * 2.0 / 10.0)
    assert outcome.reward[0] == pytest.approx(1.0)
    _, back = stepped(FLEE, begun(FLEE, START), way(3.0, gained=0.5), (1.0, 1.0))
    assert back.reward[0] == pytest.approx(-0.25)
    assert not outcome.terminated[0] and not outcome.truncated[0]


def test_a_flight_ends_at_the_farthest_point_without_extra_reward() -> None:
    for left, over in ((9.79, False), (9.81, True), (10.3, True)):
        _, outcome = stepped(FLEE, begun(FLEE, START), way(left), (1.0, 1.0))
        assert bool(outcome.success[0]) == bool(outcome.terminated[0]) == over
        assert outcome.reward[0] == 0.0


def test_each_new_square_is_rewarded_once() -> None:
    state, found = begun(EXPLORE, START), []
    for base in ((0.9, 0.1), (1.1, 0.1), (1.9, -0.1), (0.2, 0.2), (1.5, 0.5), (-0.1, 0.5)):
        state, outcome = stepped(EXPLORE, state, way(1.0), base)
        found.append(float(outcome.reward[0]))
    assert found == [0.0, 0.25, 0.25, 0.0, 0.0, 0.25]
    assert EXPLORE.driving(state, way(1.0))["visited"][0] == 4.0


def test_exploration_succeeds_once_no_square_is_left() -> None:
    state = begun(EXPLORE, START)
    state, first = stepped(EXPLORE, state, way(1.0, floor=3.0), (1.5, 0.5))
    state, last = stepped(EXPLORE, state, way(1.0, floor=3.0), (2.5, 0.5))
    assert not first.terminated[0]
    assert last.success[0] and last.reward[0] == 0.25


def test_a_stop_ends_neither_task() -> None:
    for skill in (FLEE, EXPLORE):
        _, outcome = stepped(skill, begun(skill, START), way(1.0), START, stop=1.0)
        assert not outcome.terminated[0] and not outcome.truncated[0]


@pytest.mark.parametrize("skill", [FLEE, EXPLORE], ids=NAMES)
def test_conditions_measure_the_remainder_and_need_a_surveyed_floor(skill: Any) -> None:
    spec, state = get(name_of(skill)), begun(skill, START)
    stop = np.array([False])

    def judged(path: PathProgress) -> Any:
        args = state, at((1.5, 0.5)), stop, spec.load_settings(), spec.thresholds, path
        return margins(task.evaluate(skill, *args).conditions)

    found = judged(way(9.0))
    missing = found["farthest"] if skill is FLEE else found["left"]
    assert missing.margin == pytest.approx(-0.8 if skill is FLEE else -37.0)
    with pytest.raises(UserError, match="path along the floor, which is not measured"):
        judged(dataclasses.replace(way(9.0), farthest=None, squares=None))


@pytest.mark.parametrize("name", NAMES)
def test_observations_contain_neither_goal_nor_map(name: str) -> None:
    skill: Any = get(name).definition
    for choice in ("habitat", "full"):
        assert PolicyInputs.of(name, choice).sensors == ("velocity",)
    assert set(PolicyInputs.of(name, "fetch").sensors) == {"velocity", sensors.LASER}
    shown = []
    for start in (START, (3.0, -2.0)):
        goals = Goals.of([SkillGoal(position=(*start, 0.0))])
        state = task.begin(skill, goals, at(START), get(name).thresholds)
        measures = skill.measure(MeasureContext(state, at(START), get(name).thresholds))
        seen = sensors.SensorContext(state, measures, at(START), Readings())
        shown.append(sensors.observe(skill, ("velocity",), seen).tolist())
    assert shown[0] == shown[1]


@pytest.mark.parametrize("name", NAMES)
def test_only_the_base_is_in_the_action_mask(name: str) -> None:
    assert np.flatnonzero(get(name).definition.mask()).tolist() == [8, 9]


def test_the_presets_hold_the_papers_numbers() -> None:
    flee, explore = get("flee").load_settings(), get("explore").load_settings()
    assert config.load_preset("skill", "flee", FleeSettings) == flee == FleeSettings()
    assert config.load_preset("skill", "explore", ExploreSettings) == explore == ExploreSettings()
    assert (flee.horizon, flee.fled, flee.success, flee.slack) == (500, 5.0, 0.0, 0.0)
    assert (explore.horizon, explore.visited, explore.success) == (500, 0.25, 0.0)
    assert get("flee").thresholds == FleeThresholds(0.2)
    assert get("explore").thresholds == ExploreThresholds(1)


def random_batch(skill: Any, n: int = 32) -> tuple[TaskState, Any, PathProgress]:
    rng = np.random.default_rng(4)
    before, after = rng.uniform(-3, 3, (2, n, 2))
    path = random_path(rng, n)
    return begun(skill, *map(tuple, before.tolist())), after.tolist(), path


@pytest.mark.parametrize("skill", [FLEE, EXPLORE], ids=NAMES)
def test_a_batch_is_evaluated_like_its_rows(skill: Any) -> None:
    state, bases, path = random_batch(skill)
    after, whole = stepped(skill, state, path, *bases)
    assert whole.success.any() and not whole.success.all()
    for row in range(len(bases)):
        part = slice(row, row + 1)
        single, outcome = stepped(skill, state.take(part), rows(path, part), bases[row])
        assert outcome.reward[0] == pytest.approx(whole.reward[row], abs=1e-12)
        assert outcome.success[0] == whole.success[row]
        assert single.to_arrays().keys() == after.to_arrays().keys()
        for name, array in single.to_arrays().items():
            assert np.array_equal(array[0], after.to_arrays()[name][row])


@pytest.mark.parametrize("skill", [FLEE, EXPLORE], ids=NAMES)
def test_numpy_and_torch_give_the_same_numbers(skill: Any) -> None:
    torch = pytest.importorskip("torch", reason="torch belongs to the extra 'train'")
    state, bases, path = random_batch(skill)
    _, ours = stepped(skill, state, path, *bases)
    spec = get(name_of(skill))
    args = torch.full((len(bases), act.SIZE), -1.0), to_torch(at(*bases))
    given = spec.load_settings(), spec.thresholds, to_torch(path)
    _, _, theirs = task.step(skill, to_torch(state), *args, *given)
    for name in ("reward", "success", "failure", "terminated", "truncated"):
        assert np.allclose(getattr(ours, name), getattr(theirs, name).numpy(), atol=1e-12)


# The floor.


def test_the_survey_finds_the_farthest_point_and_the_number_of_squares() -> None:
    free = np.ones((120, 120), dtype=bool)  # 3 m x 3 m
    free[:100, 58:62] = False
    floor = FreeFloor.of_cells(free, origin=(-1.0, 0.0))
    x, y, most = farthest(distance_field(floor, (-0.9, 0.1)), floor)
    assert x > 1.8 and y < 0.1
    assert most > 2 * math.hypot(1.3, 2.3) > math.dist((x, y), (-0.9, 0.1)) + 2.0
    assert squares(floor) == 9
    free[:, 40:] = False
    assert squares(FreeFloor.of_cells(free, origin=(-1.0, 0.0))) == 3
    assert squares(FreeFloor.of_cells(free, origin=(-1.0 + 1.5 * CELL_M, 0.0))) == 6


def test_without_free_floor_there_is_no_farthest_point() -> None:
    free = np.zeros((4, 4), dtype=bool)
    free[0, 0] = True
    field = distance_field(FreeFloor.of_cells(free), (CELL_M / 2, CELL_M / 2))
    assert farthest(field, FreeFloor.of_cells(np.zeros((4, 4), dtype=bool))) == (0.0, 0.0, 0.0)


def test_the_meter_surveys_the_floor_if_requested_and_after_a_restore() -> None:
    x, y = roomiest(LAYOUT_A)
    base, goal = worlds(np.array([[x, y, 0.0]])), np.array([[x, y]])
    plain, meter, other = PathMeter(1), PathMeter(2, surveys=True), PathMeter(1, surveys=True)
    plain.begin([0], [LAYOUT_A], goal, base)
    meter.begin([1], [LAYOUT_A], goal, base)
    assert plain.path([0]).farthest is None and plain.path([0]).squares is None
    found = meter.path([1])
    floor = free_floor(LAYOUT_A)
    most = farthest(distance_field(floor, (x, y)), floor)
    assert found.farthest.tolist() == [most[2]] and found.squares.tolist() == [squares(floor)]
    assert 4.0 < most[2] < 30.0 and 10 < squares(floor) < 150
    other.restore(0, meter.to_arrays(1), LAYOUT_A, goal[0])
    assert other.path([0]).farthest.tolist() == found.farthest.tolist()


# Episodes.


@pytest.mark.parametrize("name", NAMES)
def test_episodes_are_those_of_pointnav_without_goals(name: str) -> None:
    own = get(name).start_states().obtain(get(name), [3, 4], "val")
    for index, start in zip((3, 4), own, strict=True):
        assert start.episode == pointnav_start(index).episode
        x, y, _ = start.episode.robot_start
        assert start.goal == SkillGoal(position=(x, y, 0.0))


@pytest.fixture(scope="module")
def simulator() -> Simulator:
    return sim.make(slots=12)


def result(simulator: Simulator, skill: str, agent: str, **options: Any) -> Any:
    env = SkillEnv(skill, simulator=simulator, split="val", **options)
    return episodes.run(env, make_for_skill(agent, skill), [0])[0]


def test_the_farthest_path_agent_reaches_the_farthest_point(simulator: Simulator) -> None:
    done = result(simulator, "flee", "farthest_path")
    assert done.ended_by == "success" and done.path is not None
    assert 0.95 < done.path["fled"] <= 1.01
    assert done.reward == pytest.approx(5.0 * done.path["fled"], abs=1e-6)
    assert done.path["fled"] == pytest.approx(done.path["distance_m"] / done.path["farthest_m"])
    assert done.path["driven_m"] >= done.path["distance_m"] - 0.05


def test_rewards_sum_to_the_papers_metric(simulator: Simulator) -> None:
    fled = result(simulator, "flee", "random", horizon=90)
    assert fled.ended_by == "timeout" and fled.steps == 90
    assert fled.reward == pytest.approx(5.0 * fled.path["fled"], abs=1e-6)
    explored = result(simulator, "explore", "random", horizon=90)
    assert explored.reward == 0.25 * (explored.path["visited"] - 1)
    assert 1 < explored.path["visited"] < explored.path["squares"]


def test_blind_baselines_do_not_stop_at_their_start() -> None:
    start = pointnav_start(0)
    base = worlds(np.array([start.episode.robot_start]))
    goal = SkillGoal(position=(*start.episode.robot_start[:2], 0.0))
    for name in NAMES:
        agent = make_for_skill("forward_only", name)
        agent.begin(start.episode, goal, base)
        assert agent.act(base)[act.BASE].tolist() == [1.0, 0.0]
        assert agent.act(base)[act.STOP] < 0
    assert get("flee").agent_names() == ("random", "forward_only", "farthest_path", "zero")
    assert get("explore").agent_names() == ("random", "forward_only", "zero")


@pytest.mark.parametrize("name", NAMES)
def test_the_environment_passes_gymnasiums_checks(name: str) -> None:
    title = name.capitalize()
    env = gymnasium.make(f"skills.gym:tpsrl/{title}-v0", depth=(8, 8), split="val", horizon=5)
    assert env.observation_space["state"].shape == (3,)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        check_env(env.unwrapped, skip_render_check=True)
    assert [str(w.message) for w in seen if "infinity" not in str(w.message)] == []
    env.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_snapshot_restores_visited_squares_in_another_environment(name: str) -> None:
    batch = SkillBatch(EnvOptions.of(name), sim.make("mujoco", 2, slots=12))
    batch.reset([0], get(name).start_states().obtain(get(name), [1], "val"))
    forward = np.full((1, act.SIZE), -1.0)
    forward[0, act.BASE] = 1.0, 0.0
    for _ in range(15):
        batch.step([0], forward)
    batch.restore(1, batch.snapshot(0))
    assert batch.path_metrics(0, False) == batch.path_metrics(1, False)
    for _ in range(3):
        rewards = [float(batch.step([home], forward).outcome.reward[0]) for home in (0, 1)]
        assert rewards[0] == rewards[1]
    assert batch.path_metrics(0, False) == batch.path_metrics(1, False)
    batch.simulator.close()
