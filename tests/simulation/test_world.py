import mujoco
import numpy as np
import pytest
from homes import DRAWER, LAYOUT_A, LAYOUT_B, box_in_front, episode, on_floor, pick_up, roomiest
from scipy import spatial

import tpsrl.sim
from tpsrl.errors import UserError
from tpsrl.sim.home_model import MUTABLE_FIELDS, load_home_model
from tpsrl.sim.mjcf.home import home_spec
from tpsrl.world.episode import Episode
from tpsrl.world.fetch import ARM, CAPSULES
from tpsrl.world.floor import (
    ABSENT,
    CELL_M,
    CLOSED,
    FloorMap,
    Joints,
    floor_map,
    layout_obstacles,
    main_floor,
    rounded,
)
from tpsrl.world.geometry import quat_matrix
from tpsrl.world.handles import handle
from tpsrl.world.kinematics import LOWER, UPPER, arm_frames
from tpsrl.world.layouts import link_pose, load_layout_set, placed_receptacles, resolve
from tpsrl.world.objects import object_kind, object_kinds
from tpsrl.world.scenarios import load_scenario
from tpsrl.world.slots import PRIMITIVES
from tpsrl.world.state import JOINTS

# Fields that mujoco-warp 3.17 declares as array("*", ...) in its Model, read from
# mujoco_warp/_src/types.py of the wheel.
WARP_BATCHED_FIELDS = {
    "body_gravcomp",
    "body_inertia",
    "body_invweight0",
    "body_ipos",
    "body_iquat",
    "body_mass",
    "body_pos",
    "body_quat",
    "body_subtreemass",
    "dof_armature",
    "dof_damping",
    "dof_dampingpoly",
    "dof_frictionloss",
    "dof_invweight0",
    "dof_solimp",
    "dof_solref",
    "eq_data",
    "eq_solimp",
    "eq_solref",
    "geom_aabb",
    "geom_adhesion",
    "geom_dataid",
    "geom_friction",
    "geom_gap",
    "geom_margin",
    "geom_matid",
    "geom_pos",
    "geom_quat",
    "geom_rbound",
    "geom_rgba",
    "geom_size",
    "geom_solimp",
    "geom_solmix",
    "geom_solref",
    "geom_surfacevel",
    "jnt_actfrcrange",
    "jnt_axis",
    "jnt_margin",
    "jnt_pos",
    "jnt_range",
    "jnt_solimp",
    "jnt_solref",
    "jnt_stiffness",
    "jnt_stiffnesspoly",
}
# Only MuJoCo C has bounding volume trees over bodies and the inertia kept from compilation.
# dof_length, shared by all worlds in mujoco-warp, only weighs rotations when bodies fall asleep.
C_ENGINE_FIELDS = {"bvh_child", "bvh_nodeid", "bvh_aabb", "dof_M0", "dof_length"}


def array_fields(model: mujoco.MjModel) -> dict[str, np.ndarray]:
    names = (n for n in dir(model) if not n.startswith("_"))
    fields = {n: getattr(model, n) for n in names}
    return {n: v.copy() for n, v in fields.items() if isinstance(v, np.ndarray)}


@pytest.mark.parametrize("name", sorted(object_kinds()))
def test_a_resized_slot_equals_a_compiled_one_in_every_field(name: str) -> None:
    kind = object_kind(name)
    home = load_home_model("replica_cad", 12)
    slot = 3
    spec = home_spec(home.layout_set, home.capacity)
    for primitive in PRIMITIVES:
        geom = spec.geom(f"slot_{slot}/{primitive}")
        geom.mass = 0.0
    geom = spec.geom(f"slot_{slot}/{kind.primitive}")
    geom.size, geom.mass, geom.rgba = kind.size, kind.mass, (*kind.rgb, 1.0)
    geom.margin = 0.0
    compiled = array_fields(spec.compile())
    # Damping of the slots is set once, after compilation.
    compiled["dof_damping"] = home.model.dof_damping
    resized = home.model.__copy__()
    home.apply_object(resized, slot, kind)
    for field, value in array_fields(resized).items():
        np.testing.assert_allclose(value, compiled[field], rtol=1e-6, atol=1e-9, err_msg=field)


def test_mutable_fields_are_exactly_those_that_an_episode_changes() -> None:
    simulator = tpsrl.sim.make(slots=12)
    pristine = array_fields(simulator.home.model)
    changed = set()
    for chosen in (box_in_front(LAYOUT_A), box_in_front(LAYOUT_B)):
        simulator.reset([0], [chosen])
        pick_up(simulator)
        now = array_fields(simulator.homes[0].model)
        changed |= {n for n, v in now.items() if not np.array_equal(v, pristine[n])}
    # No layout of ReplicaCAD turns fridge and counter, the only two bodies left as bodies.
    assert changed | {"body_quat"} == set(MUTABLE_FIELDS)


def test_mujoco_warp_can_batch_every_mutable_field() -> None:
    assert set(MUTABLE_FIELDS) - C_ENGINE_FIELDS <= WARP_BATCHED_FIELDS


def test_a_change_of_layout_keeps_no_state_of_the_previous_one() -> None:
    x, y = roomiest(LAYOUT_B)
    there = episode(LAYOUT_B, (x, y, 0.5), on_floor("010_potted_meat_can", x + 0.6, y))
    used = tpsrl.sim.make(slots=12)
    used.reset([0], [box_in_front(LAYOUT_A)])
    used.step([0] * 1, np.zeros((1, 11)))
    for _ in range(40):  # until everything except the robot sleeps
        used.step([0], np.zeros((1, 11)))
    assert used.homes[0].data.ntree_awake == 1
    fresh = tpsrl.sim.make(slots=12)
    for simulator in (used, fresh):
        simulator.reset([0], [there])
        for _ in range(3):
            simulator.step([0], np.zeros((1, 11)))
    for field in ("geom_xpos", "geom_xmat", "xpos", "xmat", "qpos", "qvel", "site_xpos"):
        old, new = (getattr(s.homes[0].data, field) for s in (used, fresh))
        np.testing.assert_array_equal(old, new, err_msg=field)
    np.testing.assert_array_equal(used.depth([0]), fresh.depth([0]))


# Fridge and drawers closed, partly open, and wide open.
OPENINGS = (CLOSED, (0.6, 0.1, 0.3, 0.0, 0.45), (1.7, 0.49, 0.49, 0.49, 0.49))


@pytest.mark.parametrize("joints", OPENINGS)
@pytest.mark.parametrize("layout", [LAYOUT_A, LAYOUT_B])
def test_geoms_have_the_poses_of_the_layout(layout: str, joints: Joints) -> None:
    simulator = tpsrl.sim.make(slots=12)
    simulator.reset([0], [opened(layout, joints)])
    model, data = simulator.homes[0].model, simulator.homes[0].data
    obstacles = layout_obstacles(layout, joints)
    for i, name in enumerate(obstacles.names):
        geom = model.geom(name).id
        np.testing.assert_allclose(data.geom_xpos[geom], obstacles.centre[i], atol=1e-9)
        turn = data.geom_xmat[geom].reshape(3, 3)
        np.testing.assert_allclose(turn, obstacles.rotation[i], atol=1e-9)


@pytest.mark.parametrize("layout", [LAYOUT_A, LAYOUT_B])
def test_link_poses_agree_with_the_engine(layout: str) -> None:
    simulator = tpsrl.sim.make(slots=12)
    layouts, chosen = resolve(layout)
    rng = np.random.default_rng(4)
    for _ in range(4):
        limits = [layouts.link(marker)[1].range[1] for marker in JOINTS]
        joints = tuple(rng.uniform(0.0, limits).tolist())
        simulator.reset([0], [opened(layout, joints)])
        state, data = simulator.state([0]), simulator.homes[0].data
        np.testing.assert_array_equal(state.joints[0], joints)
        for i, marker in enumerate(JOINTS):
            name, link = layouts.link(marker)
            origin, rotation = chosen.poses[name].pos, quat_matrix(chosen.poses[name].quat)
            pos, turn = link_pose(link, joints[i])
            found = data.body(link.name)
            np.testing.assert_allclose(origin + rotation @ pos, found.xpos, atol=1e-9)
            np.testing.assert_allclose(rotation @ turn, found.xmat.reshape(3, 3), atol=1e-9)
            point = origin + rotation @ (pos + turn @ link.marker)
            np.testing.assert_allclose(point, state.marker_pos[0, i], atol=1e-9)
            grip = handle(layout, marker)
            np.testing.assert_allclose(grip.pose(joints[i])[0], found.xpos, atol=1e-9)
            np.testing.assert_allclose(grip.pose(joints[i])[1], rotation @ turn, atol=1e-12)


def opened(layout: str, joints: Joints) -> Episode:
    """Returns an episode with doors and drawers at given positions and the robot in the open."""
    articulation = dict(zip(JOINTS, joints, strict=True))
    return episode(layout, (*roomiest(layout), 0.0), articulation=articulation)


def test_the_tree_over_the_furniture_finds_the_same_contacts_as_all_pairs() -> None:
    home = load_home_model("replica_cad", 12)
    rng = np.random.default_rng(5)
    found = 0
    for layout in (LAYOUT_A, LAYOUT_B):
        model = home.model.__copy__()
        home.apply_layout(model, resolve(layout)[1])
        for slot, kind in enumerate(list(object_kinds().values())[:12]):
            home.apply_object(model, slot, kind)
        model.opt.enableflags &= ~int(mujoco.mjtEnableBit.mjENBL_SLEEP)
        data = mujoco.MjData(model)
        (x0, y0), (x1, y1) = home.layout_set.floor
        for _ in range(40):
            mujoco.mj_resetData(model, data)
            data.qpos[home.base_qpos] = rng.uniform((x0, y0, -3), (x1, y1, 3))
            data.qpos[home.arm_qpos] = rng.uniform(-1.5, 1.5, 7)
            for start in home.slot_qpos:
                data.qpos[start : start + 3] = rng.uniform((x0, y0, 0), (x1, y1, 1.2))
            pairs = []
            for flag in (0, int(mujoco.mjtDisableBit.mjDSBL_MIDPHASE)):
                model.opt.disableflags = flag
                mujoco.mj_forward(model, data)
                used = (model.geom_margin[data.contact.geom] >= 0.0).all(axis=1)
                pairs.append(sorted(map(tuple, data.contact.geom[used].tolist())))
            assert pairs[0] == pairs[1]
            found += len(pairs[0])
    assert found > 500


def test_contact_geoms_of_the_arm_agree_with_the_capsules_of_its_kinematics() -> None:
    home = load_home_model("replica_cad", 12)
    data = mujoco.MjData(home.model)
    rng = np.random.default_rng(8)
    links = [joint.name for joint in ARM]
    pos, rot = np.empty((7, 3)), np.empty((7, 3, 3))
    for _ in range(20):
        posture = rng.uniform(np.maximum(LOWER, -3), np.minimum(UPPER, 3))
        data.qpos[home.arm_qpos] = posture
        mujoco.mj_kinematics(home.model, data)
        arm_frames(posture, pos, rot)
        for name, start, end, _radius in CAPSULES:
            link = links.index(name)
            ends = [pos[link] + rot[link] @ point for point in (start, end)]
            geom = data.geom(name)
            axis = geom.xmat.reshape(3, 3)[:, 2]
            np.testing.assert_allclose(geom.xpos, np.mean(ends, axis=0), atol=1e-9)
            along = (ends[1] - ends[0]) / np.linalg.norm(ends[1] - ends[0])
            np.testing.assert_allclose(np.abs(axis @ along), 1.0, atol=1e-9)


def test_splits_follow_the_families_of_layouts() -> None:
    layouts = load_layout_set("replica_cad")
    assert len(layouts.split("train")) == 63
    assert {lay.family for lay in layouts.split("val")} == {"sc3"}
    assert not {"sc3"} & {lay.family for lay in layouts.split("train")}


def test_an_unknown_split_or_layout_is_refused_with_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'val'"):
        load_layout_set("replica_cad").split("vall")
    with pytest.raises(UserError, match="did you mean 'v3_sc3_staging_07'"):
        resolve("replica_cad/v3_sc3_stagin_07")


def test_an_unknown_number_of_slots_is_refused_with_the_nearest() -> None:
    with pytest.raises(UserError, match="nearest: 12"):
        load_home_model("replica_cad", 14)


def test_every_layout_has_the_open_receptacles_of_tidy_house() -> None:
    layouts = load_layout_set("replica_cad")
    for layout in layouts.layouts.values():
        names = {r.name for r in placed_receptacles(layouts, layout)}
        assert set(load_scenario("tidy_house").clutter_on) <= names


def test_a_receptacle_contains_its_centre_and_nothing_beyond_its_half_extents() -> None:
    layouts, layout = resolve(LAYOUT_A)
    for receptacle in placed_receptacles(layouts, layout):
        assert receptacle.contains(receptacle.pos)
        for axis in range(3):
            edge = receptacle.rotation[:, axis] * receptacle.half[axis]
            assert receptacle.contains(receptacle.pos + 0.99 * edge)
            assert not receptacle.contains(receptacle.pos + 1.01 * edge)


@pytest.mark.parametrize("joints", OPENINGS)
@pytest.mark.parametrize("layout", [LAYOUT_A, LAYOUT_B])
def test_the_floor_map_measures_the_distance_to_the_nearest_box(
    layout: str, joints: Joints
) -> None:
    floor, obstacles = floor_map(layout, joints=joints), layout_obstacles(layout, joints)
    filled = []
    for centre, turn, half in zip(
        obstacles.centre, obstacles.rotation, obstacles.half, strict=True
    ):
        axes = [np.linspace(-h, h, max(2, int(h / 0.01))) for h in half]
        points = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 3) @ turn.T + centre
        filled.append(points[(points[:, 2] > 0.05) & (points[:, 2] < 1.5), :2])
    boxes = spatial.cKDTree(np.concatenate(filled))
    cells = np.argwhere(main_floor(layout, joints))
    rng = np.random.default_rng(0)
    anywhere = cells[rng.integers(len(cells), size=200)]
    spots = cell_centres(floor, cells)
    handles = [handle(layout, m).point(q)[:2] for m, q in zip(JOINTS, joints, strict=True)]
    near = cells[np.concatenate([nearest(spots, point, 40) for point in handles])]
    for x, y in cell_centres(floor, np.concatenate([anywhere, near])):
        distance = boxes.query([x, y])[0]
        # A partly covered cell counts as full, and tilted boxes count with their whole outline.
        assert distance - 0.06 <= floor.clearance(x, y) <= distance + 0.02


def cell_centres(floor: FloorMap, cells: np.ndarray) -> np.ndarray:
    """Returns points (n, 2) of cells (n, 2), given as rows and columns."""
    return np.array(floor.origin) + (cells[:, ::-1] + 0.5) * CELL_M


def nearest(spots: np.ndarray, point: np.ndarray, count: int) -> np.ndarray:
    """Returns the rows of `spots` (n, 2) that are nearest to a point."""
    return np.argsort(np.linalg.norm(spots - point, axis=1))[:count]


def test_the_map_of_an_open_drawer_is_exact_around_it() -> None:
    joints = (ABSENT, ABSENT, 0.4, ABSENT, ABSENT)
    gone = floor_map(LAYOUT_A, joints=(ABSENT,) * 5)
    floor = floor_map(LAYOUT_A, joints=joints)
    boxes = handle(LAYOUT_A, DRAWER).boxes(0.4)
    checked = 0
    for iy, ix in np.argwhere(floor.distance < gone.distance):
        x, y = cell_centres(floor, np.array([[iy, ix]]))[0]
        found = []
        for centre, turn, half in zip(boxes.centre, boxes.rotation, boxes.half, strict=True):
            local = np.abs(turn.T @ (np.array([x, y, centre[2]]) - centre))[:2] - half[:2]
            outside = np.hypot(*np.maximum(local, 0.0))
            found.append(outside if outside > 0.0 else local.max())
        assert floor.distance[iy, ix] == pytest.approx(min(found), abs=1e-5)
        checked += 1
    assert checked > 500


def test_a_map_without_doors_and_drawers_is_at_least_as_free() -> None:
    shut, gone = floor_map(LAYOUT_A), floor_map(LAYOUT_A, joints=(ABSENT,) * 5)
    assert (gone.distance >= shut.distance - 1e-6).all()
    freed = gone.distance - shut.distance
    assert freed.max() > 0.04  # the door is 5.5 cm thick
    names = layout_obstacles(LAYOUT_A, (ABSENT,) * 5).names
    links = {link.name for body in resolve(LAYOUT_A)[0].bodies.values() for link in body.links}
    assert not links & {name.split("/")[0] for name in names}
    one = layout_obstacles(LAYOUT_A, (ABSENT, 0.0, 0.0, 0.0, 0.0))
    all_of_them = layout_obstacles(LAYOUT_A)
    left_out = set(all_of_them.names) - set(one.names)
    assert left_out == {"top_door/door"}
    assert one.num_links == all_of_them.num_links - 1


def test_doors_and_drawers_are_closed_by_default() -> None:
    shut = floor_map(LAYOUT_B)
    np.testing.assert_array_equal(shut.distance, floor_map(LAYOUT_B, joints=CLOSED).distance)
    np.testing.assert_array_equal(main_floor(LAYOUT_B), main_floor(LAYOUT_B, CLOSED))
    # Drawn by distance instead of by cells, the maps differ by the size of a cell only.
    ajar = floor_map(LAYOUT_B, joints=(0.0, 0.0, 1e-9, 0.0, 0.0))
    assert np.abs(ajar.distance - shut.distance)[shut.distance > 0.0].max() < 2 * CELL_M


def test_joint_positions_are_rounded_to_two_hundredths() -> None:
    assert rounded([0.009, -0.009, 0.0, 0.004, 0.0]) == CLOSED
    assert str(rounded([-0.001] * 5)[0]) == "0.0"
    assert rounded(np.array([1.2208, 0.451, 0.449, 0.03, 0.011])) == pytest.approx(
        (1.22, 0.46, 0.44, 0.04, 0.02)
    )
    assert rounded([ABSENT, 0.1, 0.1, 0.1, 0.1])[0] == ABSENT


def test_batched_quaternion_matrices_agree_with_mujoco() -> None:
    quats = np.random.default_rng(0).normal(size=(5, 4))
    many = quat_matrix(quats)
    for quat, turn in zip(quats, many, strict=True):
        expected = np.empty(9)
        mujoco.mju_quat2Mat(expected, quat / np.linalg.norm(quat))
        np.testing.assert_allclose(turn.ravel(), expected, atol=1e-12)
