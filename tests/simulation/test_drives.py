import dataclasses
import heapq
import math

import numpy as np
import pytest
from homes import LAYOUT_A, LAYOUT_B, episode, roomiest

from tpsrl.motion.base.driving import Leg, drive_curve, drive_poses, plan_drive
from tpsrl.motion.base.lattice import cost_to_go
from tpsrl.motion.base.path_following import DIRECTION, X, Y, forecast
from tpsrl.motion.scene import look
from tpsrl.motion.tracking import BaseTracker, OffPlan
from tpsrl.sim.base import Simulator
from tpsrl.world import action as act
from tpsrl.world.action import STEP_M, STEP_RAD
from tpsrl.world.collision import BOX, REST, Bodies
from tpsrl.world.floor import random_base_pose
from tpsrl.world.footprint import Footprint, make_footprint
from tpsrl.world.geometry import wrap_angle

NOTHING = Bodies(np.zeros(0, int), np.zeros((0, 3)), np.zeros((0, 3, 3)), np.zeros((0, 3)))
AT_REST = np.zeros(3)


@pytest.fixture(scope="module")
def footprint() -> Footprint:
    return make_footprint(LAYOUT_A, REST, NOTHING)


def free_pose(footprint: Footprint, rng: np.random.Generator, layout: str = LAYOUT_A) -> np.ndarray:
    while True:
        pose = np.array(random_base_pose(layout, rng))
        if footprint.margin(*pose) > 0.03:
            return pose


def on_the_spot(legs: list[Leg]) -> list[Leg]:
    return [dataclasses.replace(leg, radius=0.0) for leg in legs]


def arrived(pose: np.ndarray, goal: np.ndarray) -> bool:
    return math.dist(pose[:2], goal[:2]) < 0.04 and abs(wrap_angle(pose[2] - goal[2])) < 0.05


def away_from(way: np.ndarray, pose: np.ndarray) -> float:
    """Returns the distance from a pose to the line through poses (n, 3)."""
    a, step = way[:-1, :2], np.diff(way[:, :2], axis=0)
    square = np.maximum((step**2).sum(axis=1), 1e-12)
    t = np.clip(((pose[:2] - a) * step).sum(axis=1) / square, 0.0, 1.0)
    return float(np.hypot(*(a + t[:, None] * step - pose[:2]).T).min())


def test_a_drive_follows_its_forecast_without_contact(simulator: Simulator) -> None:
    rng, off = np.random.default_rng(3), []
    for layout in (LAYOUT_A, LAYOUT_B):
        for _ in range(6):
            footprint = make_footprint(layout, REST, NOTHING)
            start, goal = (free_pose(footprint, rng, layout) for _ in range(2))
            home = episode(layout, tuple(start.tolist()))
            simulator.reset([0], [home])
            legs = plan_drive(footprint, start, goal)
            assert legs is not None
            tracker, poses = BaseTracker(legs, start), drive_poses(start, legs)
            way, world = np.vstack([start, poses]), simulator.state([0])
            for _ in range(len(poses) + 6):
                action = np.zeros(act.SIZE)
                action[act.GRIP] = -1.0
                if not tracker.step(world, action):
                    break
                simulator.step([0], action[None])
                world = simulator.state([0])
                assert away_from(way, world.base[0]) < 0.03
                assert footprint.margin(*world.base[0]) > 0.0
            assert arrived(world.base[0], goal) and world.force_total[0] == 0.0
            off.append(abs(int(world.step[0]) - len(poses)))
    assert max(off) <= 5 and np.mean(off) < 2


def test_corners_are_rounded_only_where_free_and_faster(footprint: Footprint) -> None:
    rng, saved, arcs = np.random.default_rng(4), [], 0
    for _ in range(30):
        start, goal = free_pose(footprint, rng), free_pose(footprint, rng)
        legs = plan_drive(footprint, start, goal)
        assert legs is not None
        poses = drive_poses(start, legs)
        assert arrived(poses[-1], goal)
        assert min(footprint.margin(*pose) for pose in poses) > -0.02
        saved.append(len(drive_poses(start, on_the_spot(legs))) - len(poses))
        arcs += sum(leg.radius > 0.0 for leg in legs)
    assert arcs > 30 and np.mean(saved) > 10 and min(saved) >= -2


def test_a_goal_in_an_enclosed_area_has_no_plan(footprint: Footprint) -> None:
    start = free_pose(footprint, np.random.default_rng(0))
    assert plan_drive(footprint, start, np.array([3.6, -7.5, 0.0])) is None


def test_arbitrary_starts_and_goals_give_a_valid_plan_or_none(footprint: Footprint) -> None:
    rng = np.random.default_rng(1)
    (x0, y0), (ny, nx) = footprint.origin, footprint.disc.shape
    low, high = np.array([x0 - 2, y0 - 2, -9.0]), np.array([x0, y0, 9.0])
    high[:2] += 0.025 * np.array([nx, ny]) + 2.0
    found = 0
    for _ in range(100):
        start, goal = rng.uniform(low, high), rng.uniform(low, high)
        if rng.random() < 0.5:
            start = free_pose(footprint, rng)
        legs = plan_drive(footprint, start, goal)
        found += legs is not None
        if legs is not None:
            assert arrived(drive_poses(start, legs)[-1], goal)
    assert 0 < found < 100
    assert plan_drive(footprint, np.full(3, np.nan), np.zeros(3)) is None


def test_legs_without_a_radius_turn_on_the_spot() -> None:
    legs = [Leg(1.0, 0.0, 0.0, 1), Leg(1.0, 1.0, math.pi / 2, 1)]
    poses = drive_poses(AT_REST, legs)
    np.testing.assert_allclose(poses[-1], [1.0, 1.0, math.pi / 2], atol=0.04)
    steps = np.diff(np.vstack([AT_REST, poses]), axis=0)
    assert np.hypot(steps[:, 0], steps[:, 1]).max() <= STEP_M + 1e-3
    assert np.abs(steps[:, 2]).max() <= STEP_RAD + 1e-3
    least = 2 / STEP_M + math.pi / 2 / STEP_RAD
    assert least < len(poses) < least + 20
    rows = drive_curve(AT_REST, legs)
    assert np.hypot(*(rows[rows[:, DIRECTION] == 0.0][:, [X, Y]] - [1.0, 0.0]).T).max() < 1e-9


@pytest.mark.parametrize("direction", [1, -1])
def test_on_an_arc_of_a_metre_the_base_does_not_slow_down(direction: int) -> None:
    turned = math.pi / 2
    legs = [
        Leg(direction * 1.5, 0.0, 0.0, direction, 1.0),
        Leg(direction * 1.5, direction * 1.5, turned, direction),
    ]
    poses = drive_poses(AT_REST, legs)
    length = 0.5 + math.pi / 2 + 0.5
    assert len(poses) < length / STEP_M + 10
    np.testing.assert_allclose(poses[-1], [direction * 1.5, direction * 1.5, turned], atol=0.05)
    speed = np.hypot(*np.diff(poses[8:-8, :2], axis=0).T)
    assert speed.min() > 0.9 * STEP_M
    corner = np.hypot(poses[:, 0] - direction * 0.5, poses[:, 1] - direction * 1.0)
    on_arc = (np.abs(poses[:, 0]) > 0.6) & (np.abs(poses[:, 1]) < 0.9)
    assert np.abs(corner[on_arc] - 1.0).max() < 0.03


@pytest.mark.parametrize("aside", [-0.19, -0.1, 0.1, 0.19])
@pytest.mark.parametrize("turned", [-0.5, 0.0, 0.5])
def test_a_displaced_base_steers_back_to_its_path(aside: float, turned: float) -> None:
    legs = [Leg(1.5, 0.0, 0.0, 1, 0.8), Leg(1.5, 2.0, math.pi / 2, 1), Leg(1.5, 2.0, 2.0, 1)]
    rows = drive_curve(AT_REST, legs)
    for at in (10, 40, 80, 110):
        x, y, yaw = rows[at, :3]
        off = np.array([x - aside * math.sin(yaw), y + aside * math.cos(yaw), yaw + turned])
        poses = forecast(rows, at, off, AT_REST, 300)
        assert arrived(poses[-1], np.array([1.5, 2.0, 2.0]))
        away = [np.hypot(*(rows[:, :2] - pose[:2]).T).min() for pose in poses]
        assert max(away) < abs(aside) + 0.1 and max(away[20:], default=0.0) < 0.05


@pytest.fixture
def in_the_open(simulator: Simulator) -> np.ndarray:
    start = (*roomiest(LAYOUT_A), 0.0)
    simulator.reset([0], [episode(LAYOUT_A, start)])
    return np.array(start)


def straight_on(base: np.ndarray, distance: float) -> list[Leg]:
    return [Leg(base[0] + distance, base[1], 0.0, 1)] * 2


def test_a_drive_tolerates_interleaved_actions_of_a_learner(
    simulator: Simulator, in_the_open: np.ndarray
) -> None:
    tracker = BaseTracker(straight_on(in_the_open, 1.0), in_the_open)
    rng, noise = np.random.default_rng(0), np.zeros(2)
    for step in range(120):
        action = np.zeros(act.SIZE)
        action[act.GRIP] = -1.0
        if not tracker.step(simulator.state([0]), action):
            break
        if step % 6 == 0:
            noise = rng.uniform(-0.8, 0.8, 2)
        if step % 6 < 2:
            action[act.BASE] = noise
        simulator.step([0], action[None])
    else:
        pytest.fail("it does not arrive")
    goal = in_the_open + np.array([1.0, 0.0, 0.0])
    assert math.dist(simulator.state([0]).base[0, :2], goal[:2]) < 0.1


def test_a_base_too_far_from_its_path_is_off_plan(
    simulator: Simulator, in_the_open: np.ndarray
) -> None:
    world, action = simulator.state([0]), np.zeros(act.SIZE)
    for shift, turn in ((0.25, 0.0), (0.0, 0.8)):
        start = in_the_open + np.array([0.0, shift, turn])
        legs = [Leg(start[0] + math.cos(turn), start[1] + math.sin(turn), turn, 1)] * 2
        with pytest.raises(OffPlan):
            BaseTracker(legs, start).step(world, action)


def test_a_base_whose_way_back_to_the_path_is_blocked_is_off_plan(
    simulator: Simulator, in_the_open: np.ndarray
) -> None:
    world, action = simulator.state([0]), np.zeros(act.SIZE)
    scene = look(episode(LAYOUT_A, tuple(in_the_open.tolist())), world)
    x, y = in_the_open[:2]
    start = in_the_open + np.array([0.0, 0.15, 0.0])
    post = Bodies(
        np.array([BOX]),
        np.array([[x + 0.7, y + 0.25, 0.6]]),
        np.eye(3)[None],
        np.full((1, 3), 0.6),
    )
    post.half[:, :2] = 0.02
    arm = scene.arm
    for objects, free in ((NOTHING, True), (post, False)):
        blocked = make_footprint(LAYOUT_A, arm, objects)
        assert blocked.margin(*in_the_open) > 0.0
        tracker = BaseTracker(straight_on(start, 1.0), start, lambda found=blocked: found)
        assert tracker.step(dataclasses.replace(world, base=start[None]), action)
        if free:
            assert tracker.step(world, action)
        else:
            with pytest.raises(OffPlan):
                tracker.step(world, action)


def test_distances_on_the_floor_agree_with_dijkstra() -> None:
    rng = np.random.default_rng(2)
    disc = rng.uniform(0.0, 1.0, (80, 100))
    least, goal = 0.4, (31, 20)
    disc[2 * goal[1], 2 * goal[0]] = 1.0
    cost = cost_to_go(disc, 0.0, 0.0, 0.05 * (goal[0] + 0.5), 0.05 * (goal[1] + 0.5), least)
    expected = np.full((40, 50), np.inf)
    queue = [(0.0, goal[1], goal[0])]
    expected[goal[1], goal[0]] = 0.0
    while queue:
        c, iy, ix = heapq.heappop(queue)
        for jy in range(max(iy - 1, 0), min(iy + 2, 40)):
            for jx in range(max(ix - 1, 0), min(ix + 2, 50)):
                new = c + 0.05 * math.hypot(jy - iy, jx - ix)
                if disc[2 * jy, 2 * jx] >= least and new < expected[jy, jx] - 1e-9:
                    expected[jy, jx] = new
                    heapq.heappush(queue, (new, jy, jx))
    np.testing.assert_allclose(cost, expected, atol=1e-6)
    assert np.isinf(expected).any() and np.isfinite(expected).sum() > 300
