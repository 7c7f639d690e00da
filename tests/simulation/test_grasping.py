import dataclasses
import math

import numpy as np
import pytest
from homes import LAYOUT_A, episode, on_floor, roomiest

from skills.core.interface import SkillGoal
from skills.navigate.scripted import _legs_to_face
from skills.pick.scripted import ScriptedPick
from skills.scripted import folding
from skills.scripted.reset_arm import ScriptedResetArm, StraightResetArm
from tpsrl.motion.arm.rest_poses import (
    MOST_VIEW,
    RESET_RAD,
    blocked_view,
    hidden_share,
    postures_about,
    reach_cost,
)
from tpsrl.motion.base.stances import ahead, find_stances
from tpsrl.motion.scene import Scene, hold, look
from tpsrl.motion.suction import grasps
from tpsrl.motion.suction.grasps import plan_pick, reach_to_come
from tpsrl.sim.base import Simulator
from tpsrl.sim.datasets import load
from tpsrl.world import action as act
from tpsrl.world.collision import NO_BODIES, REST, ArmChecker
from tpsrl.world.episode import Episode, ObjectPlacement
from tpsrl.world.fetch import REST_EE
from tpsrl.world.geometry import wrap_angle
from tpsrl.world.kinematics import cup_pose
from tpsrl.world.layouts import placed_receptacles, resolve
from tpsrl.world.objects import object_kind
from tpsrl.world.state import WorldState

MARGIN_M = 0.02
FORMER_REST = np.array([-0.363, -1.203, 0.785, 0.807, -0.291, 2.05, 0.0])


@pytest.fixture(scope="module")
def groceries() -> Episode:
    return load("prepare_groceries", "val", 1, seed=0, num_objects=12)[0]


def start(simulator: Simulator, home: Episode) -> tuple[Scene, WorldState]:
    simulator.reset([0], [home])
    world = simulator.state([0])
    return look(home, world), world


def before_the_fridge(simulator: Simulator, groceries: Episode) -> tuple[Scene, Episode]:
    """Returns scene and episode with the robot where Navigate would stop for the first target."""
    scene, _ = start(simulator, groceries)
    target = groceries.targets[0]
    reach = plan_pick(scene, target.object, np.array(target.goal), 0.5)
    assert reach is not None
    home = dataclasses.replace(groceries, robot_start=tuple(reach.first.tolist()))
    return start(simulator, home)[0], home


# -- resting ---------------------------------------------------------------------------------------


def test_the_rest_posture_has_a_lower_reach_cost_than_the_former_one() -> None:
    # A difference of 0.08 rad at the slowest joint is six control steps, and six on the way back.
    assert reach_cost(REST) < reach_cost(FORMER_REST) - 0.08
    assert blocked_view(REST) < 0.15


def test_postures_about_rest_are_quickly_reached_free_and_far_apart(
    simulator: Simulator, groceries: Episode
) -> None:
    scene, _ = before_the_fridge(simulator, groceries)
    checker = scene.checker(scene.base)
    found = postures_about(scene, checker, MARGIN_M)
    assert 3 <= len(found) <= 6
    for q in found:
        assert np.linalg.norm(cup_pose(q)[0] - REST_EE) < 0.15
        assert np.abs(q - scene.arm).max() <= RESET_RAD + 1e-9
        assert checker.free(q, MARGIN_M)
    apart = [np.abs(a - b)[:6].max() for i, a in enumerate(found) for b in found[:i]]
    assert min(apart) > 0.15


def test_there_are_no_postures_about_rest_if_all_collide(
    simulator: Simulator, groceries: Episode
) -> None:
    scene, _ = start(simulator, groceries)
    walled = dataclasses.replace(scene.checker(scene.base))
    everything = scene.obstacles()
    everything = dataclasses.replace(everything, half=np.full_like(everything.half, 9.0))
    assert postures_about(scene, ArmChecker(walled.spheres, everything), MARGIN_M) == []
    assert len(postures_about(scene, ArmChecker(walled.spheres, NO_BODIES), MARGIN_M)) == 6


def test_an_arm_in_front_of_the_camera_blocks_its_view(simulator: Simulator) -> None:
    home = episode(LAYOUT_A, (*roomiest(LAYOUT_A), 0.0), on_floor("003_cracker_box", 0.0, 0.0))
    scene = dataclasses.replace(start(simulator, home)[0], arm=REST)
    raised = np.array([0.0, -1.2, 0.0, 1.9, 0.0, -0.6, 0.0])
    assert blocked_view(raised) > 0.5 > MOST_VIEW > blocked_view(REST)
    assert hidden_share(scene, np.stack([REST, REST + 0.01])) == 0.0
    assert hidden_share(scene, np.stack([raised, raised + 0.01])) == 1.0
    assert 0.0 < hidden_share(scene, np.stack([REST, raised, REST])) < 1.0
    box = hold(0, object_kind("003_cracker_box"), np.array([0.1, 0.0, 0.0]), np.eye(3))
    holding = dataclasses.replace(scene, held=box)
    path = np.stack([raised, REST])
    plain, late = folding._cost(scene, path, 1e9), folding._cost(scene, path, 0.0)
    assert late == pytest.approx(plain * 6.0)
    assert folding._cost(holding, path, 1e9) > 1.2 * plain


# -- the reset of the arm --------------------------------------------------------------------------


def reset(simulator: Simulator, home: Episode) -> int:
    """Runs the skill that resets the arm and returns the number of steps."""
    world, policy = simulator.state([0]), ScriptedResetArm()
    policy.begin(home, SkillGoal(), world)
    for step in range(50):
        action = policy.act(world)
        if action[act.STOP] > 0:
            return step
        assert np.all(action[act.BASE] == 0.0)
        simulator.step([0], action[None])
        world = simulator.state([0])
    return 50


def test_the_straight_reset_returns_all_joints_to_rest(
    simulator: Simulator, groceries: Episode
) -> None:
    simulator.reset([0], [groceries])
    turn, policy = np.zeros((1, act.SIZE)), StraightResetArm()
    turn[0, act.ARM] = [-0.5, 0.2, -1.0, 0.4, 1.0, -0.6, 1.0]
    for _ in range(40):
        simulator.step([0], turn)
    wound = np.abs(simulator.state([0]).arm[0] - REST).max()
    policy.begin(groceries, SkillGoal(), simulator.state([0]))
    for _ in range(50):
        action = policy.act(simulator.state([0]))
        assert np.all(action[act.BASE] == 0.0) and np.abs(action).max() <= 1.0
        if action[act.STOP] > 0:
            break
        simulator.step([0], action[None])
    assert wound > 0.3
    assert np.abs(simulator.state([0]).arm[0] - REST).max() < 0.05


def test_the_reset_ends_in_a_posture_near_the_next_grasp(
    simulator: Simulator, groceries: Episode
) -> None:
    scene, home = before_the_fridge(simulator, groceries)
    before = reach_to_come(scene, home)
    assert before is not None and before.first is scene.base
    steps = reset(simulator, home)
    after_scene = look(home, simulator.state([0]))
    after = reach_to_come(after_scene, home)
    assert 0 < steps <= 50 and after is not None
    assert np.linalg.norm(simulator.state([0]).ee_pos[0] - scene_point(after_scene, REST_EE)) < 0.15
    assert after.steps < before.steps - 10
    assert np.abs(after_scene.position - scene.position).max() < 0.01
    checker = after_scene.checker(after_scene.base)
    assert checker.clearance(after_scene.arm) > 0.02
    # A second reset, from a nearer posture, does not make the next grasp longer.
    reset(simulator, home)
    again = reach_to_come(look(home, simulator.state([0])), home)
    assert again is not None and again.steps < after.steps + 5


def scene_point(scene: Scene, point: np.ndarray) -> np.ndarray:
    """Returns the world position of a point (3,) of the base frame."""
    x, y, yaw = scene.base
    c, s = math.cos(yaw), math.sin(yaw)
    return np.array([x + c * point[0] - s * point[1], y + s * point[0] + c * point[1], point[2]])


def test_an_arm_at_rest_does_not_move_if_no_grasp_follows(simulator: Simulator) -> None:
    home = episode(LAYOUT_A, (*roomiest(LAYOUT_A), 0.0))
    start(simulator, home)
    assert reset(simulator, home) == 0


# -- grasps ----------------------------------------------------------------------------------------


def in_the_fridge(groceries: Episode, *places: tuple[str, float, float]) -> Episode:
    """Returns an episode with an apple in the middle of the fridge's shelf, others around it."""
    shelf = next(r for r in placed_receptacles(*resolve(groceries.layout)) if r.name == "fridge")
    x, y, _ = shelf.pos
    objects = [
        ObjectPlacement(
            name,
            (x + dx, y + dy, shelf.surface + object_kind(name).half[2] + 0.002),
            (1.0, 0.0, 0.0, 0.0),
            "fridge",
        )
        for name, dx, dy in (("013_apple", 0.0, 0.0), *places)
    ]
    return dataclasses.replace(groceries, objects=tuple(objects), targets=())


def test_blocking_neighbours_are_pushed_aside_only_in_the_actual_grasp(
    simulator: Simulator, groceries: Episode
) -> None:
    free = in_the_fridge(groceries)
    scene, _ = start(simulator, free)
    assert plan_pick(scene, 0, None) is not None
    ring = [
        ("003_cracker_box", 0.12 * math.cos(a), 0.12 * math.sin(a))
        for a in np.arange(0.0, 2 * math.pi, math.pi / 3)
    ]
    walled, _ = start(simulator, dataclasses.replace(in_the_fridge(groceries, *ring)))
    # Foreseeing the grasp is not worth the search; the actual grasp goes through the neighbours.
    assert plan_pick(walled, 0, None, drive=False) is None
    found = plan_pick(walled, 0, None)
    assert found is not None
    touch = walled.checker(found.stance, touching=0).clearance(found.there)
    assert touch < 0.0


def test_more_arm_postures_to_choose_from_do_not_lengthen_a_plan(
    simulator: Simulator, groceries: Episode
) -> None:
    scene, home = before_the_fridge(simulator, groceries)
    target = home.targets[0]
    arms = postures_about(scene, scene.checker(scene.base), MARGIN_M)
    goal = np.array(target.goal)
    alone = plan_pick(scene, target.object, goal, drive=False)
    choice = plan_pick(scene, target.object, goal, drive=False, arms=lambda: arms)
    assert alone is not None and choice is not None
    assert choice.steps <= alone.steps + 1e-9
    assert any(np.array_equal(choice.arm, arm) for arm in (scene.arm, *arms))


def test_the_plan_for_placing_is_cached_while_no_object_moves(
    simulator: Simulator, groceries: Episode
) -> None:
    scene, _ = start(simulator, groceries)
    index, goal = groceries.targets[0].object, np.array(groceries.targets[0].goal)
    first = grasps.later_of(scene, index, goal)
    elsewhere = dataclasses.replace(scene, base=ahead(scene.base, -0.3), arm=FORMER_REST)
    assert grasps.later_of(elsewhere, index, goal) is first
    ScriptedPick().begin(groceries, SkillGoal(object=index), simulator.state([0]))
    again = grasps.later_of(scene, index, goal)
    ScriptedPick().begin(groceries, SkillGoal(object=index), simulator.state([0]))
    assert grasps.later_of(scene, index, goal) is again
    # The cache is cleared for another episode, even for an equal one.
    same = dataclasses.replace(groceries)
    ScriptedPick().begin(same, SkillGoal(object=index), simulator.state([0]))
    first = grasps.later_of(scene, index, goal)
    assert first is not again
    moved = dataclasses.replace(scene, position=scene.position + 0.05)
    assert grasps.later_of(moved, index, goal) is not first
    assert grasps.later_of(scene, index, goal + 0.01) is not grasps.later_of(scene, index, goal)


def test_few_stances_are_followed_by_a_search_on_a_finer_grid(
    simulator: Simulator, groceries: Episode, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = {f"cab_push_point_{i}": 0.48 for i in (4, 5, 6, 7)}
    home = dataclasses.replace(groceries, articulation={**groceries.articulation, **wide})
    scene, _ = start(simulator, home)
    sink = next(r for r in placed_receptacles(*resolve(home.layout)) if r.name == "sink")
    point = np.array(sink.pos)
    close = find_stances(scene, scene.footprint(scene.arm), point, False)
    monkeypatch.setattr("tpsrl.motion.base.stances._FEW", 0)
    rough = find_stances(scene, scene.footprint(scene.arm), point, False)
    assert len(rough.first) < 25 < len(close.first)


def test_suction_starts_only_while_neighbours_are_clear_of_the_cups_rim(
    simulator: Simulator, groceries: Episode
) -> None:
    home = in_the_fridge(groceries, ("002_master_chef_can", 0.0, 0.2))
    scene, world = start(simulator, home)
    pick = ScriptedPick()
    pick.begin(home, SkillGoal(object=0), world)
    pick.phase, pick.grip = "contact", -1.0
    apple, can = scene.position[:2]
    towards = (can - apple) / np.linalg.norm(can - apple)
    radius = object_kind("013_apple").half[0]
    for gap, sucks in ((0.02, True), (0.05, False)):
        pick.world = dataclasses.replace(world, ee_pos=(apple - (radius + gap) * towards)[None])
        assert (pick.still()[act.GRIP] > 0) == sucks
    # If the apple is 3 cm from the can, suction starts only after arrival.
    between = dataclasses.replace(world, object_pos=world.object_pos.copy())
    half = object_kind("002_master_chef_can").half[0]
    between.object_pos[0, 1, :2] = (apple + (radius + 0.02 + 0.03 + half) * towards)[:2]
    for gap, sucks in ((0.02, False), (0.001, True)):
        ee = apple + (radius + gap) * towards
        pick.world = dataclasses.replace(between, ee_pos=ee[None])
        assert (pick.still()[act.GRIP] > 0) == sucks


# -- Navigate --------------------------------------------------------------------------------------


def test_a_robot_in_place_with_a_wrong_heading_turns_on_the_spot(simulator: Simulator) -> None:
    x, y = roomiest(LAYOUT_A)
    scene, _ = start(simulator, episode(LAYOUT_A, (x, y, 0.0)))
    for off in (0.5, -1.0, 2.5):
        goal = np.array([x + math.cos(off), y + math.sin(off), 0.8])
        (leg,) = _legs_to_face(scene, goal)
        assert (leg.x, leg.y) == (x, y) and abs(wrap_angle(leg.heading - off)) < 1e-9
    assert _legs_to_face(scene, np.array([x + 1.0, y + 0.1, 0.8])) == []
