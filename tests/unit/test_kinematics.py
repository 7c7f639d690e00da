import mujoco
import numpy as np
import pytest

from tpsrl.sim.home_model import load_home_model
from tpsrl.world.collision import ARM_SPHERES, REST, ArmChecker, Bodies, distance_to
from tpsrl.world.fetch import CAPSULES, REST_EE
from tpsrl.world.footprint import posed_spheres
from tpsrl.world.kinematics import LOWER, UPPER, cup_pose, inverse
from tpsrl.world.reach import (
    CUP_AXIS,
    NO_OFFSET,
    SEEDS,
    best_posture,
    reachable,
    seeds_towards,
    stances,
    too_far,
)

NOTHING = Bodies(np.zeros(0, int), np.zeros((0, 3)), np.zeros((0, 3, 3)), np.zeros((0, 3)))
LAYOUT = "replica_cad/v3_sc3_staging_00"


def postures(count: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.uniform(np.maximum(LOWER, -3), np.minimum(UPPER, 3), (count, 7))


def test_forward_kinematics_equals_that_of_the_engine():
    home = load_home_model(capacity=12)
    data = mujoco.MjData(home.model)
    for q in postures(20):
        data.qpos[home.arm_qpos] = q
        mujoco.mj_kinematics(home.model, data)
        pos, turn = cup_pose(q)
        np.testing.assert_allclose(pos, data.site_xpos[home.cup_site], atol=1e-9)
        np.testing.assert_allclose(turn.ravel(), data.site_xmat[home.cup_site], atol=1e-9)


def test_rest_posture_is_inside_the_rest_tolerance():
    pos, turn = cup_pose(REST)
    assert np.linalg.norm(pos - REST_EE) < 0.06
    assert turn[2, 0] < -0.97  # the cup points down


def test_inverse_kinematics_moves_a_point_in_the_cups_frame_to_its_target():
    offset = np.array([0.07, 0.01, -0.02])
    up = np.array([-1.0, 0.0, 0.0])
    vertical = np.array([0.0, 0.0, 1.0])
    solved = 0
    for x in (0.6, 0.7):
        for y in (-0.2, 0.1):
            point = np.array([x, y, 0.8])
            ok, q = inverse(REST, point, up, vertical, REST, offset, 100, 0.3)
            if ok:
                pos, turn = cup_pose(q)
                solved += 1
                assert np.linalg.norm(pos + turn @ offset - point) < 0.003
                assert np.arccos(np.clip((turn @ up)[2], -1, 1)) < np.radians(1.6)
                assert np.all((q >= LOWER) & (q <= UPPER))
    assert solved == 4


def test_best_posture_is_the_nearest_of_the_free_ones():
    point = np.array([0.7, 0.1, 0.8])
    axis = np.array([0.0, 0.0, -1.0])
    scene = ArmChecker(ARM_SPHERES, NOTHING).arguments()
    seeds = seeds_towards(point)
    cost, q = best_posture(point, CUP_AXIS, axis, NO_OFFSET, seeds, scene, -1, 0.01, REST)
    assert cost == pytest.approx(np.abs(q - REST).max())
    for seed in seeds:
        ok, other = inverse(seed, point, CUP_AXIS, axis, REST, NO_OFFSET, 60, 0.3)
        if ok and ArmChecker(ARM_SPHERES, NOTHING).free(other, 0.01):
            turns = (other - REST)[[2, 4, 6]]
            other[[2, 4, 6]] -= 2 * np.pi * np.round(turns / (2 * np.pi))
            assert cost <= np.abs(other - REST).max() + 1e-9


def test_points_rejected_as_too_far_have_no_solution():
    rng = np.random.default_rng(1)
    far = 0
    for _ in range(60):
        point = rng.uniform([0.4, -0.5, 0.2], [1.3, 0.5, 1.5])
        pitch = rng.uniform(0, np.pi / 2)
        toward = np.arctan2(point[1], point[0])
        axis = np.array(
            [np.cos(pitch) * np.cos(toward), np.cos(pitch) * np.sin(toward), -np.sin(pitch)]
        )
        # The solver's tolerance of 3 mm and 1.5 degrees moves the wrist by up to 13 mm.
        nearer = point - 0.02 * point / np.linalg.norm(point)
        if too_far(point, axis) and too_far(nearer, axis):
            far += 1
            solutions = (
                inverse(s, point, CUP_AXIS, axis, s, NO_OFFSET, 100, 0.3)[0] for s in SEEDS
            )
            assert not any(solutions)
    assert far > 10


def test_spheres_of_the_planner_cover_the_arms_capsules():
    centre, radius = posed_spheres(REST)
    home = load_home_model(capacity=12)
    data = mujoco.MjData(home.model)
    data.qpos[home.arm_qpos] = REST
    mujoco.mj_kinematics(home.model, data)
    for name, _, _, r in CAPSULES[1:]:
        geom = home.model.geom(name).id
        half = home.model.geom_size[geom, 1]
        axis = data.geom_xmat[geom].reshape(3, 3)[:, 2]
        side = np.linalg.qr(np.column_stack([axis, np.eye(3)]))[0][:, 1]
        for t in np.linspace(-half, half, 9):
            surface = data.geom_xpos[geom] + t * axis + r * side
            assert (np.linalg.norm(centre - surface, axis=1) - radius).min() < 0.006


@pytest.mark.parametrize("kind", [0, 1])
def test_distance_to_a_body_equals_that_to_dense_samples_of_its_surface(kind):
    rng = np.random.default_rng(kind)
    half = np.array([0.1, 0.1, 0.2])
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    centre = np.array([0.3, -0.1, 0.5])
    angle = rng.uniform(0, 2 * np.pi, 40000)
    if kind:
        side = np.column_stack([np.cos(angle), np.sin(angle), rng.uniform(-2, 2, 40000)]) * 0.1
        lid = np.column_stack([np.cos(angle), np.sin(angle)]) * 0.1
        lid = lid * np.sqrt(rng.uniform(0, 1, 40000))[:, None]
        lids = [np.column_stack([lid, np.full(40000, z)]) for z in (-0.2, 0.2)]
        surface = np.vstack([side, *lids])
    else:
        faces = []
        for axis in range(3):
            for sign in (-1, 1):
                face = rng.uniform(-1, 1, (20000, 3)) * half
                face[:, axis] = sign * half[axis]
                faces.append(face)
        surface = np.vstack(faces)
    world = centre + surface @ turn.T
    for _ in range(30):
        p = centre + rng.uniform(-0.4, 0.4, 3)
        d = distance_to(kind, centre, turn, half, p)
        assert abs(abs(d) - np.linalg.norm(world - p, axis=1).min()) < 0.006
        local = turn.T @ (p - centre)
        inside = abs(local[2]) < 0.2 and (
            np.hypot(*local[:2]) < 0.1 if kind else np.all(np.abs(local[:2]) < 0.1)
        )
        assert (d < 0) == inside


def test_checker_ignores_the_target_for_the_tool_only():
    tip, _ = cup_pose(REST)
    box = Bodies(np.array([0]), tip[None], np.eye(3)[None], np.full((1, 3), 0.03))
    assert not ArmChecker(ARM_SPHERES, box).free(REST, 0.0)
    assert ArmChecker(ARM_SPHERES, box, target=0).free(REST, 0.0)
    elbow = Bodies(
        np.array([0]), np.array([[0.3, 0.0, 1.25]]), np.eye(3)[None], np.full((1, 3), 0.1)
    )
    assert not ArmChecker(ARM_SPHERES, elbow, target=0).free(REST, 0.0)


def test_open_surfaces_are_reachable_and_the_far_corner_is_not():
    assert reachable(LAYOUT, np.array([3.46, -4.2, 0.55]))  # the chair
    assert reachable(LAYOUT, np.array([-2.05, -1.0, 0.96]))  # the counter's front
    assert not reachable(LAYOUT, np.array([4.2, -7.8, 0.85]))  # table_01 in its corner
    assert not reachable(LAYOUT, np.array([1.5, -1.0, 2.2]))  # too high for the arm


def test_stances_face_the_point_from_the_free_floor():
    point = np.array([3.46, -4.2, 0.55])
    found = stances(LAYOUT, point)
    assert len(found) > 20
    bearing = np.arctan2(point[1] - found[:, 1], point[0] - found[:, 0])
    np.testing.assert_allclose(np.cos(bearing - found[:, 2]), 1.0, atol=1e-9)
