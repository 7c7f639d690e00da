import dataclasses
import math

import numpy as np
import pytest
from homes import LAYOUT_A, episode, roomiest

from skills.core.interface import SkillGoal
from skills.scripted.routine import Routine, Run
from tpsrl.motion.base.driving import Leg, drive_poses
from tpsrl.motion.base.stances import ahead
from tpsrl.motion.body import timing
from tpsrl.motion.body.timing import plan_together
from tpsrl.motion.scene import Scene, look
from tpsrl.sim.base import Simulator
from tpsrl.world import action as act
from tpsrl.world.collision import BOX, REST, Bodies
from tpsrl.world.episode import Episode
from tpsrl.world.kinematics import LOWER, UPPER
from tpsrl.world.objects import object_kind

OUT = np.array([0.0, 0.5, 0.0, 0.3, 0.0, 0.8, 0.0])  # reaching far forward


@pytest.fixture(scope="module")
def room(simulator: Simulator) -> Scene:
    """Scene with the robot at rest where there is most room, without other objects on the floor."""
    start = episode(LAYOUT_A, (*roomiest(LAYOUT_A), 0.0))
    simulator.reset([0], [start])
    return look(start, simulator.state([0]))


def with_a_post(scene: Scene, x: float, y: float, half: float = 0.05) -> Scene:
    """Returns the scene with a post, 1.2 m high, at a point of the base frame (base facing x)."""
    centre = np.array([[scene.base[0] + x, scene.base[1] + y, 0.6]])
    post = Bodies(np.array([BOX]), centre, np.eye(3)[None], np.array([[half, half, 0.6]]))
    return dataclasses.replace(scene, kinds=(object_kind("003_cracker_box"),), objects=post)


def forward(scene: Scene, distance: float) -> list[Leg]:
    x, y, yaw = ahead(scene.base, distance)
    return [Leg(x, y, yaw, 1 if distance > 0 else -1)] * 2


def collides(scene: Scene, legs: list[Leg], path: np.ndarray, delay: int) -> bool:
    """Returns whether there is a collision at one of the moments that the planner checks."""
    poses = list(drive_poses(scene.base, legs))
    arm = list(timing._arm_way(path))
    base_from, arm_from = max(-delay, 0), max(delay, 0)
    slack, every = timing._SLACK, timing._EVERY

    def at(way: list[np.ndarray], moment: int) -> np.ndarray:
        return way[min(max(moment, 0), len(way) - 1)]

    for moment in range(every, base_from + len(poses) + slack, every):
        posture = at(arm, moment - arm_from)
        for late in (-slack, 0, slack):
            if moment <= base_from and late != 0:
                continue  # the base has not started yet
            pose = at(poses, moment - base_from - late)
            there = dataclasses.replace(scene, base=pose)
            margin = scene.footprint(posture).margin(*pose)
            clearance = there.checker(pose).clearance(posture)
            floor, air = timing.MARGIN_M, 0.0
            if math.dist(pose[:2], scene.base[:2]) < timing._START_M:
                here = scene.footprint(scene.arm).margin(*scene.base)
                floor = min(floor, here - 0.003)
                air = min(air, scene.checker(scene.base).clearance(scene.arm) - 0.004)
            if margin < floor or clearance < air:
                return True
    return False


def delays(scene: Scene, legs: list[Leg], path: np.ndarray) -> list[int]:
    """Returns the delays that the planner tries, the quickest first."""
    base, arm = len(drive_poses(scene.base, legs)), len(timing._arm_way(path))
    found = [round(share * base) for share in timing._ARM_WAITS]
    found += [-round(share * arm) for share in timing._BASE_WAITS]
    return sorted(found, key=lambda d: max(base + max(-d, 0), arm + max(d, 0)))


def test_in_the_open_base_and_arm_start_at_once(room: Scene) -> None:
    plan = plan_together(room, forward(room, 0.5), np.stack([REST, OUT]))
    assert plan is not None and plan.delay == 0
    np.testing.assert_array_equal(plan.path, OUT[None])


def test_a_negligible_drive_does_not_delay_the_arm(room: Scene) -> None:
    path = np.stack([REST, OUT])
    for legs in (forward(room, 0.01), []):
        plan = plan_together(room, legs, path)
        assert plan is not None and plan.delay == 0


def test_a_plan_is_the_quickest_one_that_does_not_collide(room: Scene) -> None:
    rng = np.random.default_rng(5)
    chosen = []
    for _ in range(60):
        scene = with_a_post(room, rng.uniform(0.5, 1.5), rng.uniform(-0.7, 0.7))
        start, goal = REST.copy(), OUT.copy()
        goal[0] = rng.uniform(-1.2, 1.2)
        start[0] += rng.uniform(-0.5, 0.5)
        path = np.clip(np.stack([start, goal]), LOWER, UPPER)
        scene = dataclasses.replace(scene, arm=path[0])
        legs = forward(scene, rng.choice([-1, 1]) * rng.uniform(0.1, 0.8))
        if rng.random() < 0.5:
            x, y, yaw = scene.base
            legs.insert(0, Leg(x, y, yaw + rng.uniform(-0.8, 0.8), 1))
        tried = delays(scene, legs, path)
        free = [delay for delay in tried if not collides(scene, legs, path, delay)]
        plan = plan_together(scene, legs, path)
        assert (plan and plan.delay) == (free[0] if free else None)
        chosen.append(plan and plan.delay)
    # All kinds of results occur: at once, either part delayed, and no plan.
    assert 0 in chosen and None in chosen
    assert any(delay is not None and delay > 0 for delay in chosen)
    assert any(delay is not None and delay < 0 for delay in chosen)


def test_a_tight_start_does_not_delay_base_or_arm(room: Scene) -> None:
    path, legs = np.stack([REST, OUT]), forward(room, -0.5)
    scene = dataclasses.replace(room, arm=REST)
    places = np.arange(1.0, 0.5, -0.002)
    posts = (with_a_post(scene, x, 0.0, 0.02) for x in places)
    tight = next(p for p in posts if p.checker(p.base).clearance(REST) < -0.002)
    assert tight.checker(tight.base).clearance(REST) > -0.01
    plan = plan_together(tight, legs, path)
    assert plan is not None and plan.delay < len(drive_poses(tight.base, legs))
    # Farther on, the robot must keep clear.
    assert plan_together(with_a_post(scene, -0.2, -0.1, 0.02), legs, path) is None


def test_the_straight_arm_path_is_used_if_it_is_quicker(room: Scene) -> None:
    scene = dataclasses.replace(room, arm=REST)
    around = np.stack([REST, REST + np.array([0.0, -0.2, 0.0, 0.8, 0.0, 0.0, 0.0]), OUT])
    plan = plan_together(scene, forward(scene, 0.3), around)
    assert plan is not None and len(plan.path) == 1
    np.testing.assert_array_equal(plan.path[0], OUT)
    # With an obstacle, the arm does not move straight to its goal after the drive.
    post = with_a_post(scene, 1.15, 0.0, 0.03)
    straight = plan_together(post, forward(post, 0.3), np.stack([REST, OUT]), anywhere=True)
    assert straight is None or straight.delay < 0


def test_the_arm_follows_its_path_at_full_joint_speed() -> None:
    path = np.stack([REST, REST + 0.49, REST + np.array([0.49, 0, 0.49, 0, 0.49, 0, 0.49])])
    way = timing._arm_way(path)
    assert len(way) == 1 + 2 * 40
    assert np.abs(np.diff(way, axis=0)).max() <= act.ARM_DELTA_RAD + 1e-12
    np.testing.assert_allclose(way[[0, 40, 80]], path)


class DriveAndWave(Routine):
    """Routine that drives forward and stretches the arm, like the skills."""

    distance, posture = 0.6, OUT

    def run(self) -> Run:
        """See `Routine.run`."""
        legs = forward(self.look(), self.distance)
        yield from self.drive_and_follow(legs, self.posture[None])
        return True


def play(simulator: Simulator, start: Episode) -> tuple[int, Scene]:
    """Runs the routine to its end; returns steps and final scene."""
    simulator.reset([0], [start])
    world, routine = simulator.state([0]), DriveAndWave()
    routine.begin(start, SkillGoal(), world)
    while world.step[0] < 300:
        action = routine.act(world)
        if action[act.STOP] > 0:
            break
        simulator.step([0], action[None])
        world = simulator.state([0])
    assert world.force_total[0] == 0.0
    np.testing.assert_allclose(world.arm[0], OUT, atol=0.02)
    return int(world.step[0]), look(start, world)


def test_driving_and_moving_the_arm_take_no_longer_than_the_slower_of_both(
    simulator: Simulator,
) -> None:
    start = episode(LAYOUT_A, (*roomiest(LAYOUT_A), 0.0))
    steps, end = play(simulator, start)
    arm_steps = float(np.abs(OUT - REST).max()) / act.ARM_DELTA_RAD
    assert steps < arm_steps + 3
    assert end.base[0] - start.robot_start[0] == pytest.approx(0.6, abs=0.04)
