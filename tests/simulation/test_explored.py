"""Paths on maps built from the robot's own observations."""

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
from homes import LAYOUT_A, driving, episode, on_floor, roomiest
from scipy import sparse
from scipy.sparse import csgraph

from skills.core.inputs import PolicyInputs
from skills.envs.environment import SkillEnv
from skills.starts.source import StartSource
from tpsrl.errors import UserError
from tpsrl.sim.mujoco_sim import MujocoSimulator
from tpsrl.world import action as act
from tpsrl.world import explored
from tpsrl.world.explored import CELL_M, SIDE, ExploredMaps
from tpsrl.world.floor import CELL_M as FLOOR_CELL_M
from tpsrl.world.floor import floor_map, rounded

TURN = driving(0.0)
TURN[act.BASE] = (0.0, 1.0)
NAMES = ("goal_polar", "velocity", "laser", "explored_way", "way")


@pytest.fixture(scope="module")
def one() -> MujocoSimulator:
    return MujocoSimulator(1, slots=12)


def looked(simulator: MujocoSimulator, steps: int, action: np.ndarray = TURN) -> ExploredMaps:
    """Returns the map after `steps` steps of an action."""
    maps = ExploredMaps(1)
    maps.begin([0], simulator.state([0]).base)
    for _ in range(steps):
        simulator.step([0], action[None])
        depth = simulator.depth([0], 64, 64)
        maps.look([0], simulator.state([0]), simulator.laser([0]), depth)
    return maps


def map_of(seen: np.ndarray) -> ExploredMaps:
    """Returns a map around the origin with obstacles in the cells (SIDE, SIDE) that are True."""
    maps = ExploredMaps(1)
    maps.begin([0], np.zeros((1, 3)))
    maps.restore(0, {**maps.to_arrays(0), "seen": np.packbits(seen)})
    return maps


def seen_points(maps: ExploredMaps) -> np.ndarray:
    """Returns the centres (k, 2) of the cells in which an obstacle was seen."""
    arrays = maps.to_arrays(0)
    iy, ix = np.nonzero(np.unpackbits(arrays["seen"]).reshape(SIDE, SIDE))
    return np.stack([ix + 0.5, iy + 0.5], axis=1) * CELL_M + arrays["origin"]


@pytest.mark.parametrize("start", range(3))
def test_obstacles_are_mapped_where_they_stand(one: MujocoSimulator, start: int) -> None:
    source = StartSource("navigate", split="val", num_objects=12, num_episodes=4)
    begun = source[start].episode
    one.reset([0], [begun])
    points = seen_points(looked(one, 60))
    floor = floor_map(begun.layout, joints=rounded(one.state([0]).joints[0]))
    index = np.floor((points - floor.origin) / FLOOR_CELL_M).astype(int)
    away = floor.distance[index[:, 1], index[:, 0]]
    assert len(points) > 100
    # The tolerance is half a cell's diagonal. Loose objects may hang over the edges of furniture.
    assert np.mean(away < 0.75 * CELL_M) > 0.99


def test_neither_the_robot_nor_its_held_object_is_mapped_as_an_obstacle(
    one: MujocoSimulator,
) -> None:
    x, y = roomiest(LAYOUT_A)
    home = episode(LAYOUT_A, (x, y, 0.0), on_floor("003_cracker_box", x + 0.6, y))
    one.reset([0], [dataclasses.replace(home, held=0)])
    maps = ExploredMaps(1)
    maps.begin([0], one.state([0]).base)
    rng = np.random.default_rng(0)
    for _ in range(60):
        action = np.append(rng.uniform(-1.0, 1.0, 7), [1.0, 0.0, 0.0, -1.0])
        one.step([0], action[None])
        maps.look([0], one.state([0]), one.laser([0]), one.depth([0], 64, 64))
    away = np.linalg.norm(seen_points(maps) - np.array([x, y]), axis=1)
    assert away.min() > 1.0


def test_path_costs_agree_with_dijkstra() -> None:
    """Compares path costs on random maps with scipy's Dijkstra on the whole graph."""
    rng = np.random.default_rng(3)
    for _ in range(3):
        seen = np.zeros((SIDE, SIDE), bool)
        near = slice(SIDE // 2 - 25, SIDE // 2 + 25)
        seen[near, near] = rng.random((50, 50)) < 0.02
        maps = map_of(seen)
        start, goal = np.array([[-1.5, -1.5, 0.3]]), np.array([[1.55, 1.35, 0.0]])
        maps.ahead([0], start, goal, 0.5, np.zeros(1))
        found = maps.to_arrays(0)
        route = found["route"][: found["length"][0]].astype(int)
        costs = explored._COSTS[np.minimum(maps._level[0], explored._BLOCKED)]
        spent = sum(
            math.hypot(*(there - here)) * costs[there[1], there[0]]
            for here, there in itertools.pairwise(route)
        )
        least = dijkstra(costs, route[0], (goal[0, :2] - found["origin"]) / CELL_M - 0.5, 5.0)
        assert spent == pytest.approx(least, rel=1e-4)


def dijkstra(costs: np.ndarray, start: np.ndarray, goal: np.ndarray, reach: float) -> float:
    """Returns the least cost of cells entered from a start (x, y) to within `reach` of a goal.

    `reach` is in cells.
    """
    index = np.arange(SIDE * SIDE).reshape(SIDE, SIDE)
    rows, columns, weights = [], [], []
    for dy, dx in ((0, 1), (1, 0), (1, 1), (1, -1), (0, -1), (-1, 0), (-1, -1), (-1, 1)):
        here = index[max(0, -dy) : SIDE - max(0, dy), max(0, -dx) : SIDE - max(0, dx)]
        there = here + dy * SIDE + dx
        rows.append(here.ravel())
        columns.append(there.ravel())
        weights.append(math.hypot(dy, dx) * costs.ravel()[there.ravel()])
    graph = sparse.csr_matrix(
        (np.concatenate(weights), (np.concatenate(rows), np.concatenate(columns)))
    )
    least = csgraph.dijkstra(graph, indices=int(start[1] * SIDE + start[0]))
    iy, ix = np.divmod(np.arange(SIDE * SIDE), SIDE)
    within = np.hypot(ix - goal[0], iy - goal[1]) <= reach
    return float(least[within].min())


@pytest.mark.parametrize("start", range(3))
def test_paths_lead_to_the_goal(start: int) -> None:
    """A robot that drives towards the next corner arrives without knowledge of the apartment."""
    env = SkillEnv("navigate", split="val", sensors=NAMES, depth=64, num_objects=12, num_episodes=4)
    shown, _ = env.reset(options={"start": start})
    layout = PolicyInputs.of("navigate", NAMES, 64).layout()
    shortest = shown["state"][layout["way"]][0]
    steps = 0
    while shown["state"][layout["way"]][0] > 0.05:
        _, forward, left = shown["state"][layout["explored_way"]]
        turn = math.atan2(left, forward)
        action = driving(0.7 * max(math.cos(turn), 0.0) ** 3)
        action[act.BASE][1] = np.clip(3.0 * turn, -1.0, 1.0)
        shown, *_ = env.step(action)
        steps += 1
        assert steps < 300
    found = env.batch.path_metrics(0, success=True)
    assert found is not None and found["driven_m"] < 1.5 * shortest + 0.5
    env.close()


def test_a_snapshot_contains_map_and_path() -> None:
    options: dict[str, Any] = {"sensors": "mapping", "depth": 32, "num_episodes": 1}
    env = SkillEnv("navigate", split="val", num_objects=12, **options)
    shown, _ = env.reset(options={"start": 0})
    assert env.observation_space["state"].contains(shown["state"])
    frozen = None
    for step in range(30):
        if step == 13:
            frozen = env.snapshot()
        shown, *_ = env.step(TURN)
    assert frozen is not None
    expected = shown
    env.restore(frozen)
    for _ in range(17):
        shown, *_ = env.step(TURN)
    np.testing.assert_array_equal(shown["state"], expected["state"])
    env.close()


def test_the_path_to_a_goal_beyond_the_map_is_straight() -> None:
    maps = ExploredMaps(1)
    base = np.array([[1.0, 2.0, math.pi / 2]])
    maps.begin([0], base)
    ahead = maps.ahead([0], base, np.array([[1.0, 42.0]]), 1.5, np.zeros(1))
    np.testing.assert_allclose(ahead, [[38.5, 40.0, 0.0]], atol=1e-9)


@pytest.mark.parametrize(("skill", "point"), [("pick", "start_reach"), ("place", "goal_reach")])
def test_the_path_of_a_skill_of_the_arm_ends_within_its_reach(skill: str, point: str) -> None:
    options: dict[str, Any] = {"sensors": "mapping", "depth": 32, "num_episodes": 8}
    env = SkillEnv(skill, split="val", num_objects=12, **options)
    layout = env.batch.options.inputs.layout()
    for start in range(8):
        state = env.reset(options={"start": start})[0]["state"]
        away = math.hypot(*(state[layout["ee"]] + state[layout[point]])[:2])
        left, forward, side = state[layout["explored_way"]]
        if left:
            assert left > away - 1.0 - 0.15  # a cell's diagonal
            assert 0.0 < math.hypot(forward, side) < left + 0.15
        else:
            assert away < 1.0 + 0.15
    env.close()


def test_a_damaged_map_is_refused() -> None:
    maps = ExploredMaps(1)
    good = maps.to_arrays(0)
    for name, values, message in (
        ("seen", good["seen"][:5], "array seen is missing or of another shape"),
        ("origin", good["origin"] * np.nan, "array origin is damaged"),
        ("route", good["route"] - 1, "array route is damaged"),
        ("progress", good["progress"] + np.inf, "array progress is damaged"),
    ):
        with pytest.raises(UserError, match=message):
            maps.restore(0, {**good, name: values})


def test_a_path_with_zero_reach_ends_at_the_goal() -> None:
    maps = ExploredMaps(1)
    base = np.zeros((1, 3))
    maps.begin([0], base)
    ahead = maps.ahead([0], base, np.array([[2.03, 0.04]]), 0.0, np.zeros(1))
    assert maps.to_arrays(0)["length"][0] == 21
    np.testing.assert_allclose(ahead, [[2.0, 2.0, 0.05]], atol=0.11)


def with_obstacles(points: np.ndarray) -> ExploredMaps:
    """Returns a map around the origin in which obstacles were seen at points (k, 2)."""
    seen = np.zeros((SIDE, SIDE), bool)
    ix, iy = (np.floor(points / CELL_M).astype(int) + SIDE // 2).T
    seen[iy, ix] = True
    return map_of(seen)


def end_of(maps: ExploredMaps) -> np.ndarray:
    """Returns the point (2,) at which the planned path ends."""
    arrays = maps.to_arrays(0)
    last = arrays["route"][arrays["length"][0] - 1]
    return np.asarray((last + 0.5) * CELL_M + arrays["origin"])


BASE = np.zeros((1, 3))
GOAL = np.array([[1.4, 0.0]])
CHAIR = np.array([(0.55, y) for y in np.arange(-0.6, 0.61, 0.05)])  # between base and goal


def test_a_path_leads_around_a_chair_to_where_the_arm_reaches_the_goal() -> None:
    maps = with_obstacles(CHAIR)
    left, *_ = maps.ahead([0], BASE, GOAL, 1.0, np.zeros(1), 1.5)[0]
    assert math.dist(end_of(maps), GOAL[0]) <= 1.0
    assert np.linalg.norm(CHAIR - end_of(maps), axis=1).min() >= 0.22
    assert left > 0.8
    # No time is left for the detour.
    late = with_obstacles(CHAIR).ahead([0], BASE, GOAL, 1.0, np.array([300]), 1.5)
    np.testing.assert_array_equal(late, 0.0)


def test_a_path_ends_farther_away_where_nearer_floor_is_blocked() -> None:
    turns = np.linspace(0.0, 2.0 * np.pi, 200)
    ring = GOAL + np.stack([np.cos(turns), np.sin(turns)], axis=1)
    maps = with_obstacles(ring)
    start = np.array([[-2.0, 0.0, 0.0]])
    maps.ahead([0], start, GOAL, 1.0, np.zeros(1), 1.5)
    assert 1.2 < math.dist(end_of(maps), GOAL[0]) < 1.35
    there = np.array([[*end_of(maps), 0.0]])
    np.testing.assert_array_equal(maps.ahead([0], there, GOAL, 1.0, np.ones(1), 1.5), 0.0)


def test_a_blocked_robot_maps_an_obstacle_then_ends_its_path() -> None:
    maps = with_obstacles(np.array([[-5.0, -5.0]]))
    lengths = [maps.ahead([0], BASE, GOAL, 1.0, np.array([step]), 1.5)[0, 0] for step in range(125)]
    assert np.isclose(seen_points(maps), [0.25, 0.05]).all(axis=1).any()
    assert lengths[0] < lengths[70]  # around the obstacle
    assert lengths[-1] == 0.0
    maps.begin([0], BASE)
    assert maps.ahead([0], BASE, GOAL, 1.0, np.zeros(1), 1.5)[0, 0] == lengths[0]
