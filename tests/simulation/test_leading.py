import dataclasses
import math

import numpy as np
import pytest
from homes import LAYOUT_A, episode, roomiest

from tpsrl.motion.base.stances import ahead
from tpsrl.motion.base.tip_tracking import Lead, base_velocity, steps_of, tip_in_world, ways_back
from tpsrl.motion.tracking import Blocked, OffPlan
from tpsrl.sim.base import Simulator
from tpsrl.world import action as act
from tpsrl.world.collision import ARM_SPHERES, BOX, REST, TOOL, Bodies, Spheres
from tpsrl.world.footprint import Footprint, make_footprint
from tpsrl.world.kinematics import cup_pose
from tpsrl.world.reach import point_to_base, to_base

OUT = np.array([0.0, 0.5, 0.0, 0.3, 0.0, 0.8, 0.0])  # reaching far forward
TIP = cup_pose(OUT)[0]
BASE = np.array([*roomiest(LAYOUT_A), 0.0])
DEPTHS = np.array([0.1, 0.2, 0.3])
# The held object extends 0.1 m around the end of the tool.
BALL = ARM_SPHERES.plus(Spheres(np.array([TOOL]), np.array([[0.2, 0.0, 0.0]]), np.array([0.1])))


def among(*places: tuple[float, float]) -> Footprint:
    """Returns a footprint with stretched arm and posts at (x, y) from the cup, base frame."""
    centre = np.array([tip_in_world(BASE, TIP + np.array([x, y, 0.0])) for x, y in places])
    bodies = Bodies(
        np.full(len(places), BOX),
        centre.reshape(-1, 3),
        np.tile(np.eye(3), (len(places), 1, 1)),
        np.full((len(places), 3), 0.05),
    )
    return make_footprint(LAYOUT_A, OUT, bodies, BALL)


def come_back(way: np.ndarray) -> float:
    """Returns how far the tip moves back along a path, in m."""
    return float((tip_in_world(way[0], TIP) - tip_in_world(way[-1], TIP))[0])


def test_without_obstacles_the_base_drives_straight_back() -> None:
    ways = ways_back(among(), BASE, TIP, DEPTHS)
    assert len(ways) == 3
    for way, depth in zip(ways, DEPTHS, strict=True):
        np.testing.assert_array_equal(way[0], BASE)
        assert depth - 1e-6 <= come_back(way) < depth + 0.031
        np.testing.assert_allclose(way[-1], ahead(BASE, -come_back(way)), atol=1e-6)
    assert steps_of(ways[0]) < steps_of(ways[1]) < steps_of(ways[2]) < 20


def test_a_held_object_is_moved_around_posts_on_its_way_back() -> None:
    around = among((-0.25, 0.14), (-0.25, -0.3))
    straight = [around.margin(*ahead(BASE, -by)) for by in np.arange(0.0, 0.3, 0.02)]
    assert straight[0] > 0.0 and min(straight) < -0.005
    ways = ways_back(around, BASE, TIP, np.array([0.4]))
    assert len(ways) == 1 and come_back(ways[0]) >= 0.4
    assert min(around.margin(*pose) for pose in ways[0]) > -0.006
    # The path swerves to the free side and does not hit the other post.
    aside = [tip_in_world(pose, TIP)[1] - BASE[1] - TIP[1] for pose in ways[0]]
    assert min(aside) < -0.004
    assert max(np.abs(np.diff(ways[0][:, 2]))) < 0.1


def test_there_is_no_way_back_if_both_sides_are_blocked() -> None:
    assert (
        ways_back(among(*[(-0.25, y) for y in np.arange(-0.6, 0.61, 0.1)]), BASE, TIP, DEPTHS)[1:]
        == []
    )


def test_a_cup_that_is_not_ahead_of_the_axle_has_no_way_back() -> None:
    assert ways_back(among(), BASE, np.array([0.1, 0.5, 1.0]), DEPTHS) == []


def test_the_simulated_base_moves_the_tip_along_its_path(simulator: Simulator) -> None:
    home = episode(LAYOUT_A, tuple(BASE.tolist()))
    simulator.reset([0], [home])
    tip = cup_pose(REST)[0]
    # An S-shaped path, as around two neighbours.
    pose, way = BASE.copy(), [BASE.copy()]
    for aside in [0.0] * 4 + [0.5] * 6 + [-0.5] * 8 + [0.0] * 4:
        linear, angular = base_velocity(tip, 0.03 * np.array([-math.cos(aside), math.sin(aside)]))
        heading = pose[2] + angular / 2
        step = np.array([linear * math.cos(heading), linear * math.sin(heading), angular])
        pose = pose + step
        way.append(pose)
    lead = Lead(np.array(way), tip)
    places, steps = np.array([tip_in_world(at, tip)[:2] for at in way]), 0
    while True:
        world = simulator.state([0])
        velocity = lead.velocity(world)
        if velocity is None:
            break
        now = point_to_base(world.base[0], world.ee_pos[0])
        linear, angular = base_velocity(now, to_base(world.base[0], velocity))
        action = np.zeros(act.SIZE)
        action[act.GRIP] = -1.0
        action[act.BASE] = linear / act.BASE_LINEAR_MPS, angular / act.BASE_ANGULAR_RPS
        simulator.step([0], np.clip(action, -1.0, 1.0)[None])
        off = np.linalg.norm(places - simulator.state([0]).ee_pos[0, :2], axis=1).min()
        assert off < 0.02
        steps += 1
        assert steps < 80
    assert math.dist(world.ee_pos[0, :2], places[-1]) < 0.05
    assert abs(steps - steps_of(np.array(way))) < 8


def test_a_tip_off_its_path_is_off_plan_and_a_stuck_tip_is_blocked(simulator: Simulator) -> None:
    simulator.reset([0], [episode(LAYOUT_A, tuple(BASE.tolist()))])
    world, tip = simulator.state([0]), cup_pose(REST)[0]
    way = np.array([ahead(BASE, -by) for by in np.arange(0.0, 0.5, 0.03)])
    aside = dataclasses.replace(world, ee_pos=world.ee_pos + np.array([0.0, 0.1, 0.0]))
    with pytest.raises(OffPlan):
        Lead(way, tip).velocity(aside)
    pushing, lead = dataclasses.replace(world, force=np.array([50.0])), Lead(way, tip)
    with pytest.raises(Blocked):
        for _ in range(30):
            lead.velocity(pushing)
