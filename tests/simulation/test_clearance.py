"""Distances between points of the robot's body and its surroundings."""

import dataclasses
import math

import mujoco
import numpy as np
import pytest
from homes import LAYOUT_A, box_in_front, episode, on_floor, posture_above, roomiest

from skills.core import sensors
from skills.core.inputs import PolicyInputs
from skills.envs.batch import SkillBatch
from skills.envs.options import EnvOptions
from skills.registry import get
from skills.starts.source import StartSource
from tpsrl import config, sim
from tpsrl.errors import UserError
from tpsrl.sim.mujoco_sim import MujocoSimulator
from tpsrl.training.settings import TrainingSettings
from tpsrl.training.task import env_options
from tpsrl.world.fetch import (
    CLEARANCE_POINTS,
    CLEARANCE_RANGE_M,
    CLEARANCE_ROWS,
    HAND_POINTS,
    HELD_POINTS,
)
from tpsrl.world.geometry import quat_matrix
from tpsrl.world.objects import object_kind

STEP_M = 0.004  # between samples of a surface
HALF_M = object_kind("003_cracker_box").half[2]
BODY = slice(0, len(CLEARANCE_POINTS))


@pytest.fixture(scope="module")
def one() -> MujocoSimulator:
    return MujocoSimulator(1, slots=12)


def measured(simulator: MujocoSimulator, target: int = -1) -> tuple[np.ndarray, np.ndarray]:
    """Returns vectors (points, 3) and distances (points,)."""
    found = simulator.clearance([0], np.array([target]))[0]
    return found[:, :3], found[:, 3]


def points(simulator: MujocoSimulator) -> np.ndarray:
    """Returns the world positions of the points of the body."""
    data = simulator.homes[0].data
    return np.array([
        data.body(body).xpos + data.body(body).xmat.reshape(3, 3) @ local
        for body, local in CLEARANCE_POINTS
    ])  # fmt: skip


def to_box(size: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Returns distances (n,) from places (n, 3), in a box's frame, to samples of its faces.

    The samples of a face form a grid, so the nearest sample has the nearest coordinate on each
    axis.
    """
    lines = [np.linspace(-s, s, max(2, math.ceil(2 * s / STEP_M))) for s in size]
    along = np.array([
        np.abs(line[:, None] - places[:, axis]).min(axis=0) for axis, line in enumerate(lines)
    ])  # fmt: skip
    to_face = np.abs(np.abs(places.T) - size[:, None])
    faces = [np.where(np.eye(3, dtype=bool)[axis, :, None], to_face, along) for axis in range(3)]
    return np.linalg.norm(faces, axis=1).min(axis=0)


def to_cylinder(size: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Returns distances (n,) from places (n, 3), in a cylinder's frame, to surface samples."""
    radius, half = size[0], size[1]
    angles = np.arange(0.0, 2 * math.pi, STEP_M / radius)
    heights = np.linspace(-half, half, max(2, math.ceil(2 * half / STEP_M)))
    radii = np.append(np.arange(0.0, radius, STEP_M), radius)
    a, z = (grid.ravel() for grid in np.meshgrid(angles, heights))
    parts = [np.column_stack([radius * np.cos(a), radius * np.sin(a), z])]
    a, r = (grid.ravel() for grid in np.meshgrid(angles, radii))
    for end in (-half, half):
        parts.append(np.column_stack([r * np.cos(a), r * np.sin(a), np.full_like(a, end)]))
    samples = np.concatenate(parts)
    return np.array([np.linalg.norm(samples - place, axis=1).min() for place in places])


def by_samples(simulator: MujocoSimulator) -> np.ndarray:
    """Returns distances (points,) to samples of all surfaces with which the robot can collide."""
    home, model, data = simulator.homes[0], simulator.homes[0].model, simulator.homes[0].data
    found = np.full(len(CLEARANCE_POINTS), CLEARANCE_RANGE_M)
    where = points(simulator)
    for geom in range(model.ngeom):
        free = model.geom_contype[geom] == 0 and model.geom_conaffinity[geom] == 0
        slot = simulator.home.geom_slot[geom]
        speck = slot >= 0 and model.geom_margin[geom] < 0.0
        if free or speck or simulator.home.robot_geom[geom] or (slot == home.held and slot >= 0):
            continue
        if geom == simulator.home.floor_geom:
            continue
        turn, centre = data.geom_xmat[geom].reshape(3, 3), data.geom_xpos[geom]
        reach = model.geom_rbound[geom] + CLEARANCE_RANGE_M
        if np.linalg.norm(where - centre, axis=1).min() > reach:
            continue
        is_box = model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_BOX
        distance = to_box if is_box else to_cylinder
        found = np.minimum(found, distance(model.geom_size[geom], (where - centre) @ turn))
    return found


@pytest.mark.parametrize("skill", ["pick", "open_fridge", "open_drawer"])
def test_distances_are_those_to_the_nearest_surface(one: MujocoSimulator, skill: str) -> None:
    source = StartSource(skill, split="val", num_objects=12, num_episodes=4)
    felt = 0
    for seed in range(4):
        one.reset([0], [source[seed].episode])
        rng = np.random.default_rng(seed)
        for _ in range(8):
            action = np.append(rng.uniform(-1.0, 1.0, 7), [1.0, 0.5, 0.0, -1.0])
            one.step([0], action[None])
        towards, distance = measured(one)
        expected = by_samples(one)
        outside = distance[BODY] > 0.0
        np.testing.assert_allclose(distance[BODY][outside], expected[outside], atol=0.003)
        near = distance < CLEARANCE_RANGE_M
        np.testing.assert_allclose(np.linalg.norm(towards[near], axis=1), 1.0, atol=1e-5)
        assert not towards[~near].any()
        felt += int(near.sum())
    assert felt > 4


def test_vectors_point_to_the_surface_in_the_frame_of_the_base(one: MujocoSimulator) -> None:
    x, y = roomiest(LAYOUT_A)
    for yaw in (0.0, 2.0):
        ahead = np.array([math.cos(yaw), math.sin(yaw)])
        box = on_floor("003_cracker_box", *(np.array([x, y]) + 0.45 * ahead))
        turned = dataclasses.replace(box, quat=(math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2)))
        one.reset([0], [episode(LAYOUT_A, (x, y, yaw), turned)])
        towards, distance = measured(one)
        front = CLEARANCE_POINTS.index(("base", (0.25, 0.0, 0.2)))
        np.testing.assert_allclose(towards[front], [1.0, 0.0, 0.0], atol=0.02)
        assert 0.1 < distance[front] < 0.2


def test_the_target_object_is_ignored_by_points_of_the_hand_only(one: MujocoSimulator) -> None:
    one.reset([0], [box_in_front()])
    box = one.state([0]).object_pos[0, 0]
    one.homes[0].data.qpos[one.home.arm_qpos] = posture_above(
        one.state([0]).base[0], box + np.array([0.0, 0.0, 0.2])
    )
    mujoco.mj_kinematics(one.homes[0].model, one.homes[0].data)
    _, of_all = measured(one)
    _, left_out = measured(one, target=0)
    hand = slice(0, HAND_POINTS)
    assert of_all[0] < 0.2 and left_out[0] == pytest.approx(CLEARANCE_RANGE_M)
    assert (left_out[hand] >= of_all[hand]).all()
    np.testing.assert_array_equal(left_out[HAND_POINTS:], of_all[HAND_POINTS:])


def test_a_held_object_counts_as_part_of_the_robot(one: MujocoSimulator) -> None:
    x, y = roomiest(LAYOUT_A)
    boxes = [on_floor("003_cracker_box", x + ahead, y) for ahead in (0.6, 1.2)]
    one.reset([0], [dataclasses.replace(episode(LAYOUT_A, (x, y, 0.0), *boxes), held=0)])
    np.testing.assert_allclose(measured(one)[1], CLEARANCE_RANGE_M)
    # The other box is placed 0.1 m below the held box.
    start = int(one.home.slot_qpos[1])
    below = one.state([0]).object_pos[0, 0] - np.array([0.0, 0.0, 0.1 + 4 * HALF_M])
    one.homes[0].data.qpos[start : start + 3] = below + np.array([0.0, 0.0, 2 * HALF_M])
    mujoco.mj_kinematics(one.homes[0].model, one.homes[0].data)
    centre, far = measured(one)[1][-HELD_POINTS:]
    assert centre == pytest.approx(0.1 + HALF_M, abs=1e-3)
    assert far == pytest.approx(0.1, abs=1e-3)


def test_neighbours_are_the_loose_objects_nearest_to_cup_and_goal(one: MujocoSimulator) -> None:
    x, y = roomiest(LAYOUT_A)
    boxes = [on_floor("003_cracker_box", x + ahead, y) for ahead in (0.6, 0.9, 1.6)]
    one.reset([0], [episode(LAYOUT_A, (x, y, 0.0), *boxes)])
    placed = one.state([0]).object_pos[0]
    half_x = object_kind("003_cracker_box").half[0]
    # The cup is 0.15 m above the first box; the goal is the position of that box.
    one.homes[0].data.qpos[one.home.arm_qpos] = posture_above(
        one.state([0]).base[0], placed[0] + np.array([0.0, 0.0, 0.15 + HALF_M])
    )
    mujoco.mj_kinematics(one.homes[0].model, one.homes[0].data)
    free = one.neighbours([0], np.array([-1]), placed[:1])[0]
    assert free[0, 2] == pytest.approx(-1.0, abs=0.05)
    assert free[0, 3] == pytest.approx(0.15, abs=0.02)
    assert free[1, 3] < 0.0  # inside the box itself
    cup, goal, own = one.neighbours([0], np.array([0]), placed[:1])[0]
    assert cup[0] > 0.5 and free[0, 3] < cup[3] < CLEARANCE_RANGE_M
    np.testing.assert_array_equal(own, free[0])  # the target is the nearest of all
    assert free[2].tolist() == [0.0, 0.0, 0.0, np.float32(CLEARANCE_RANGE_M)]
    held = one.homes[0]
    held.held = 0
    np.testing.assert_array_equal(one.neighbours([0], np.array([0]), placed[:1])[0, 2], own)
    held.held = -1
    np.testing.assert_allclose(goal, [1.0, 0.0, 0.0, 0.3 - half_x], atol=2e-3)
    both = np.array([2]), placed[2:]
    assert one.neighbours([0], *both)[0, 1].tolist() == [0.0, 0.0, 0.0, np.float32(0.4)]


def test_with_a_margin_other_objects_appear_nearer_to_the_hand(one: MujocoSimulator) -> None:
    wary = MujocoSimulator(1, slots=12, object_margin=0.03)
    x, y = roomiest(LAYOUT_A)
    boxes = [on_floor("003_cracker_box", x + ahead, y) for ahead in (0.6, 0.85)]
    for simulator in (one, wary):
        simulator.reset([0], [episode(LAYOUT_A, (x, y, 0.0), *boxes)])
        placed = simulator.state([0]).object_pos[0]
        simulator.homes[0].data.qpos[simulator.home.arm_qpos] = posture_above(
            simulator.state([0]).base[0], placed[0] + np.array([0.0, 0.0, 0.1 + HALF_M])
        )
        mujoco.mj_kinematics(simulator.homes[0].model, simulator.homes[0].data)
    (_, plain), (_, nearer) = measured(one, target=0), measured(wary, target=0)
    near = plain[:HAND_POINTS] < CLEARANCE_RANGE_M
    assert near.any()
    np.testing.assert_allclose((plain - nearer)[:HAND_POINTS][near], 0.03, atol=1e-6)
    np.testing.assert_array_equal(plain[HAND_POINTS:], nearer[HAND_POINTS:])
    found = [each.neighbours([0], np.array([0]), placed[:1])[0, :, 3] for each in (one, wary)]
    assert (found[0] < CLEARANCE_RANGE_M).all()
    np.testing.assert_allclose(found[0] - found[1], [0.03, 0.03, 0.0], atol=1e-6)


def test_a_margin_that_cannot_be_is_refused() -> None:
    with pytest.raises(UserError, match=r"object_margin: must be between 0 and 0.4, got -0.1"):
        EnvOptions.of("pick", object_margin=-0.1)
    for engine in ("habitat", "warp"):
        with pytest.raises(UserError, match=f"object_margin: engine={engine} has none; nearest: 0"):
            sim.make(engine, object_margin=0.03)
        words = ["skill=pick", f"engine={engine}", "preset.object_margin=0.03"]
        with pytest.raises(UserError, match=f"preset.object_margin: engine={engine} has none"):
            env_options(config.load(TrainingSettings, config.parse(words)))


def test_distances_to_doors_follow_their_current_positions(one: MujocoSimulator) -> None:
    source = StartSource("open_fridge", split="val", num_episodes=1)
    one.reset([0], [source[0].episode])
    found = []
    for opened in (0.0, 0.4):
        one.homes[0].data.qpos[one.home.joint_qpos[0]] = opened
        mujoco.mj_kinematics(one.homes[0].model, one.homes[0].data)
        distance = measured(one)[1][BODY]
        outside = distance > 0.0
        np.testing.assert_allclose(distance[outside], by_samples(one)[outside], atol=0.004)
        found.append(distance)
    assert np.abs(found[1] - found[0]).max() > 0.05


def test_teachers_and_critics_observe_the_clearance(one: MujocoSimulator) -> None:
    for skill in ("navigate", "pick", "open_fridge"):
        shown_true = PolicyInputs.of(skill, "teacher")
        names = shown_true.sensors
        assert {*sensors.TEACHER} < {*names} and len({*names}) == len(names)
        known = sensors.known(get(skill).definition)
        assert known[sensors.CLEARANCE].privileged and known[sensors.SHAPE].privileged
        batch = SkillBatch(EnvOptions.of(skill, sensors="fetch", critic=True), one)
        assert batch.options.critic == shown_true
        source = StartSource(skill, split="val", num_objects=12, num_episodes=2)
        shown = batch.reset([0], [source[0]])
        column = shown_true.layout()[sensors.CLEARANCE]
        felt = shown["critic"][0, column].reshape(CLEARANCE_ROWS, 4)
        found = one.clearance([0], batch.task_state([0]).object)[0]
        closeness = np.clip(1.0 - found[:, 3] / CLEARANCE_RANGE_M, 0.0, 1.0)
        np.testing.assert_allclose(felt[:, 0], closeness**2, atol=1e-6)
        np.testing.assert_allclose(felt[:, 1:], closeness[:, None] * found[:, :3], atol=1e-6)


def test_the_shape_of_the_object_is_in_the_frame_of_the_base(one: MujocoSimulator) -> None:
    source = StartSource("pick", split="val", num_objects=12, num_episodes=2)
    batch = SkillBatch(EnvOptions.of("pick", sensors="teacher"), one)
    shown = batch.reset([0], [source[0]])["state"][0]
    column = batch.options.inputs.layout()[sensors.SHAPE]
    extent, x_axis, z_axis = np.split(shown[column], 3)
    index = source[0].goal.object
    np.testing.assert_allclose(extent, object_kind(source[0].episode.objects[index].name).half)
    turn = quat_matrix(one.state([0]).object_quat[0, index])
    yaw = one.state([0]).base[0, 2]
    c, s = math.cos(yaw), math.sin(yaw)
    inverse = np.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]])
    np.testing.assert_allclose(x_axis, inverse @ turn[:, 0], atol=1e-6)
    np.testing.assert_allclose(z_axis, inverse @ turn[:, 2], atol=1e-6)


def test_the_velocity_of_the_object_is_in_the_frame_of_the_base(one: MujocoSimulator) -> None:
    source = StartSource("pick", split="val", num_objects=12, num_episodes=2)
    batch = SkillBatch(EnvOptions.of("pick", sensors="teacher"), one)
    batch.reset([0], [source[0]])
    index = source[0].goal.object
    data, dof = one.homes[0].data, one.home.slot_dof[index]
    data.qvel[dof : dof + 6] = 0.1, -0.2, 0.3, 1.0, 2.0, -3.0
    model, body, expected = one.homes[0].model, one.home.slot_body[index], np.zeros(6)
    mujoco.mj_comVel(model, data)
    mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_XBODY, body, expected, 0)
    turning, moving = expected[:3], expected[3:]
    found = one.object_velocity([0, 0], np.array([index, -1]))
    np.testing.assert_allclose(found, [[*moving, *turning], [0.0] * 6], atol=1e-6)
    yaw = one.state([0]).base[0, 2]
    c, s = math.cos(yaw), math.sin(yaw)
    inverse = np.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]])
    shown = batch.restore(0, batch.snapshot(0))["state"][0]
    column = batch.options.inputs.layout()[sensors.MOTION]
    seen = np.concatenate([inverse @ moving, inverse @ turning])
    np.testing.assert_allclose(shown[column], seen, atol=1e-5)
