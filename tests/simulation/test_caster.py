import mujoco
import numpy as np
import pytest
from furnished_scene import furnished_model, random_cameras

from tpsrl.errors import UserError
from tpsrl.render.cameras import look_at
from tpsrl.render.caster import BOX, CAPSULE, CYLINDER, PLANE, SPHERE, Caster

ELLIPSOID = 4
SHAPES = {
    "box": '<geom type="box" size=".3 .2 .5" euler="20 30 40"/>',
    "sphere": '<geom type="sphere" size=".4"/>',
    "cylinder": '<geom type="cylinder" size=".3 .5" euler="20 30 40"/>',
    "capsule": '<geom type="capsule" size=".2 .4" euler="20 30 40"/>',
    "plane": '<geom type="plane" size=".6 .4 1" euler="20 10 40"/>',
    "infinite plane": '<geom type="plane" size="0 0 1" pos="0 0 -.5" euler="20 10 40"/>',
    "thin cylinder": '<geom type="cylinder" size=".01 .9" euler="80 30 10"/>',
    "disc": '<geom type="cylinder" size=".5 .004" euler="10 60 10"/>',
    "board": '<geom type="box" size=".7 .5 .004" euler="10 60 10"/>',
}


def compiled(geoms: str) -> tuple[mujoco.MjModel, mujoco.MjData]:
    model = mujoco.MjModel.from_xml_string(
        f'<mujoco><compiler angle="degree"/><worldbody>{geoms}</worldbody></mujoco>'
    )
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    return model, data


def cast(model, data, position, orientation, height=48, width=48, fov_deg=90.0):
    out = np.empty((height, width), np.float32)
    view = (data.geom_xpos, data.geom_xmat, model.geom_size, position, orientation)
    return Caster(model.geom_type).depth(*view, out, fov_deg)


def mujoco_depth(model, data, position, orientation, height=48, width=48, fov_deg=90.0):
    """Returns the depth image by MuJoCo's own rays, and the geom that each ray hits."""
    tan_half = np.tan(np.radians(fov_deg) / 2)
    x = tan_half * ((2 * np.arange(width) + 1) / width - 1)
    y = tan_half * (1 - (2 * np.arange(height) + 1) / height) * height / width
    rays = np.stack(np.broadcast_arrays(x[None], y[:, None], -1.0), axis=-1).reshape(-1, 3)
    lengths = np.linalg.norm(rays, axis=1)
    ids = np.empty(height * width, np.int32)
    distances = np.empty(height * width)
    directions = np.ascontiguousarray((rays / lengths[:, None]) @ orientation.T).reshape(-1)
    mujoco.mj_multiRay(
        model, data, position, directions, None, 1, -1, ids, distances, None, len(ids), 1e3
    )
    depth = np.where(ids < 0, 10.0, distances / lengths)
    return np.clip(depth / 10, 0, 1).reshape(height, width), ids.reshape(height, width)


def around(count: int, near: float, far: float, seed: int = 0):
    """Yields cameras at `near` to `far` metres from the origin that look roughly at it."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        direction = rng.normal(size=3)
        position = direction / np.linalg.norm(direction) * rng.uniform(near, far)
        pose = look_at(position, rng.normal(scale=0.3, size=3))
        yield pose.pos, pose.mat


def share_within_1_cm(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.mean(np.abs(a - b) * 10 < 0.01))


@pytest.mark.parametrize("shape", SHAPES)
def test_each_shape_agrees_with_mujoco_rays_from_all_sides(shape):
    model, data = compiled(SHAPES[shape])
    seen = 0.0
    for position, orientation in around(60, 0.75, 4.0):
        expected, _ = mujoco_depth(model, data, position, orientation)
        depth = cast(model, data, position, orientation)
        assert share_within_1_cm(depth, expected) > 0.997
        seen += float(np.mean(expected < 1))
    assert seen > 0.05


@pytest.mark.parametrize("shape", ["box", "sphere", "cylinder", "capsule"])
def test_a_camera_inside_a_shape_sees_its_inner_side(shape):
    model, data = compiled(SHAPES[shape])
    for position, orientation in around(30, 0.0, 0.15):
        expected, _ = mujoco_depth(model, data, position, orientation)
        depth = cast(model, data, position, orientation)
        assert expected.max() < 0.15
        assert share_within_1_cm(depth, expected) > 0.997


@pytest.mark.parametrize("shape", ["box", "cylinder", "capsule", "plane"])
def test_shapes_that_reach_behind_the_camera_are_clipped(shape):
    model, data = compiled(
        {
            "box": '<geom type="box" size="3 .2 .1"/>',
            "cylinder": '<geom type="cylinder" size=".2 3" euler="0 90 0"/>',
            "capsule": '<geom type="capsule" size=".2 3" euler="0 90 0"/>',
            "plane": '<geom type="plane" size="3 .5 1"/>',
        }[shape]
    )
    for i, (_, orientation) in enumerate(around(40, 1.0, 1.0)):
        position = np.array([0.1 * i - 2.0, 0.3, 0.31])
        expected, _ = mujoco_depth(model, data, position, orientation)
        assert share_within_1_cm(cast(model, data, position, orientation), expected) > 0.997


def test_furnished_scene_agrees_with_mujoco_rays_over_100_poses():
    model = furnished_model()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    shares = []
    for position, orientation in random_cameras(100, seed=0):
        expected, _ = mujoco_depth(model, data, position, orientation)
        shares.append(share_within_1_cm(cast(model, data, position, orientation), expected))
    assert np.mean(shares) > 0.998


@pytest.mark.parametrize(
    ("height", "width", "fov_deg"), [(1, 1, 90.0), (7, 5, 90.0), (30, 61, 50.0), (64, 40, 110.0)]
)
def test_any_resolution_and_field_of_view_agrees_with_mujoco_rays(height, width, fov_deg):
    model = furnished_model()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    shares = []
    for position, orientation in random_cameras(20, seed=1):
        arguments = (model, data, position, orientation, height, width, fov_deg)
        shares.append(share_within_1_cm(cast(*arguments), mujoco_depth(*arguments)[0]))
    assert np.mean(shares) > 0.998


def test_depth_is_planar_and_normalised():
    model, data = compiled('<geom type="box" pos="3 0 0" size="1 9 9"/>')
    pose = look_at((0, 0, 0), (1, 0, 0))
    assert np.allclose(cast(model, data, pose.pos, pose.mat), 0.2, atol=1e-6)


def test_depth_beyond_ten_metres_is_one():
    model, data = compiled('<geom type="box" pos="15 0 0" size="1 9 9"/>')
    pose = look_at((0, 0, 0), (1, 0, 0))
    assert np.all(cast(model, data, pose.pos, pose.mat) == 1.0)


def test_row_zero_is_at_the_top_and_column_zero_at_the_left():
    model, data = compiled('<geom type="sphere" pos="2 1 1" size=".3"/>')
    pose = look_at((0, 0, 0), (1, 0, 0))
    rows, columns = np.nonzero(cast(model, data, pose.pos, pose.mat) < 1)
    assert rows.max() < 24 and columns.max() < 24


def test_planes_are_not_seen_from_behind():
    model, data = compiled('<geom type="plane" size="0 0 1"/>')
    pose = look_at((0, 0, -1), (0.5, 0, 0))
    assert np.all(cast(model, data, pose.pos, pose.mat) == 1.0)


def test_ids_are_those_of_the_geoms_that_mujoco_rays_hit():
    model = furnished_model()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    caster = Caster(model.geom_type)
    ids, inverse = np.empty((48, 48), np.int32), np.empty((48, 48), np.float32)
    agree = []
    for position, orientation in random_cameras(20, seed=2):
        caster.surfaces(
            data.geom_xpos, data.geom_xmat, model.geom_size, position, orientation, inverse, ids
        )
        depth, expected = mujoco_depth(model, data, position, orientation)
        seen = depth < 1
        agree.append(np.mean(ids[seen] == expected[seen]))
        assert np.array_equal(ids < 0, inverse == np.float32(0.1))
    # Where two geoms share a face, either id is correct.
    assert np.mean(agree) > 0.97


def test_invisible_geoms_are_not_drawn():
    model, data = compiled(SHAPES["box"] + SHAPES["infinite plane"])
    pose = look_at((-3, 0, 0.5), (0, 0, 0))
    view = (data.geom_xpos, data.geom_xmat, model.geom_size, pose.pos, pose.mat)
    out = np.empty((16, 16), np.float32)
    caster = Caster(model.geom_type, visible=np.array([False, True]))
    without = caster.depth(*view, out).copy()
    assert np.array_equal(
        without, Caster(model.geom_type[1:]).depth(*(a[1:] for a in view[:3]), *view[3:], out)
    )
    assert not np.array_equal(without, Caster(model.geom_type).depth(*view, out))


def test_unknown_geom_types_are_refused_only_where_visible():
    kinds = np.array([PLANE, SPHERE, CAPSULE, CYLINDER, BOX, ELLIPSOID])
    with pytest.raises(UserError, match="geom type: unknown value '4'"):
        Caster(kinds)
    assert len(Caster(kinds, visible=kinds != ELLIPSOID).visible) == 5
