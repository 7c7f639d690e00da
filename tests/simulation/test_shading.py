import math

import mujoco
import numpy as np
import pytest
from furnished_scene import ROBOT_POSE, furnished_model

from tpsrl.errors import UserError
from tpsrl.render.cameras import THIRD_PERSON_FOV_DEG, Sphere, look_at, third_person_camera
from tpsrl.render.shading import Shader

ROOMS = (-2.8, -8.0, 4.5, 1.0)
FLOOR = '<geom name="floor" type="plane" size="0 0 1" rgba=".5 .5 .5 1"/>'


def scene(geoms: str):
    model = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{geoms}</worldbody></mujoco>")
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    return model, data


def render(scene_, camera, cutaway=None, **options):
    model, data = scene_
    shader = Shader(model.geom_type, cutaway=cutaway, floor_bounds=(0, 0, 0, 0))
    geoms = (data.geom_xpos, data.geom_xmat, model.geom_size, model.geom_rgba)
    options = {"height": 90, "width": 120, **options}
    return shader.render(*geoms, camera.pos, camera.mat, **options).astype(int)


def test_an_image_has_the_requested_shape_and_is_reproducible():
    model = furnished_model()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    shader = Shader(model.geom_type)
    x, y, yaw = ROBOT_POSE
    camera = look_at((x - 2 * math.cos(yaw), y - 2 * math.sin(yaw), 2.2), (x, y, 0.7))
    geoms = (data.geom_xpos, data.geom_xmat, model.geom_size, model.geom_rgba)
    first = shader.render(*geoms, camera.pos, camera.mat, height=70, width=90)
    assert first.shape == (70, 90, 3) and first.dtype == np.uint8
    assert np.array_equal(first, shader.render(*geoms, camera.pos, camera.mat, height=70, width=90))
    assert len(np.unique(first.reshape(-1, 3), axis=0)) > 100


@pytest.mark.parametrize("kind", ["box", "sphere", "cylinder", "capsule"])
def test_a_shape_is_drawn_in_its_colour_at_its_place(kind):
    things = scene(FLOOR + f'<geom type="{kind}" pos="0 0 .5" size=".3 .3 .3" rgba=".8 .1 .1 1"/>')
    picture = render(things, look_at((-2, 0, 1.2), (0, 0, 0.5)))
    red, green, blue = picture[45, 60]
    assert red > 1.8 * green and red > 1.8 * blue
    assert np.ptp(picture[5, 5]) < 30


def test_a_box_is_brighter_above_than_on_its_side():
    box = '<geom type="box" pos="0 0 .5" size=".4 .4 .5" rgba=".6 .6 .6 1"/>'
    camera = look_at((-2.5, 0, 2.0), (-0.4, 0, 1.0))
    grey = render(scene(FLOOR + box), camera).mean(axis=2)
    assert grey[41, 60] > 1.15 * grey[55, 60]


def test_a_box_in_the_air_casts_a_shadow():
    box = '<geom type="box" pos="0 0 1" size=".4 .4 .05" rgba=".6 .6 .6 1"/>'
    camera, focus = look_at((-2.5, 0, 2.0), (0, 0, 0.5)), np.array([0, 0, 0.5])
    with_shadow = render(scene(FLOOR + box), camera, focus=focus)
    without = render(scene(FLOOR + box), camera, focus=focus, shadows=False)
    darker = (without - with_shadow).mean(axis=2)
    assert darker.min() >= 0
    assert 100 < (darker > 20).sum() < 2000


def test_a_flat_face_has_an_outline_only_at_its_border():
    wall = '<geom type="box" pos="2 0 0" size=".1 .8 .8" rgba=".6 .6 .6 1"/>'
    picture = render(scene(wall), look_at((0, 0, 0), (1, 0, 0)), shadows=False).mean(axis=2)
    face = picture[25:65, 40:80]
    assert np.abs(np.diff(face, axis=1)).max() < 3
    border = picture[45, 14:106]
    assert border.min() < 0.9 * face.min()


def test_hidden_and_transparent_geoms_are_left_out():
    ball = '<geom type="sphere" size=".3" rgba=".8 .1 .1 {}"/>'
    camera = look_at((-2, 0, 0), (0, 0, 0))
    hidden = render(scene(ball.format(1)), camera, hide=np.array([True]))
    assert np.array_equal(hidden, render(scene(ball.format(0)), camera))
    assert not np.array_equal(hidden, render(scene(ball.format(1)), camera))


def test_only_groups_between_camera_and_focus_are_cut_away():
    front = '<geom type="box" pos="1 {} 1" size=".05 1 1" rgba=".1 .8 .1 1"/>'
    back = '<geom type="box" pos="4 0 1" size=".05 3 1" rgba=".1 .1 .8 1"/>'
    ball = '<geom type="sphere" pos="2 0 1" size=".3" rgba=".8 .1 .1 1"/>'
    things = scene(front.format(0) + front.format(2.5) + back + ball)
    camera = look_at((0, 0, 1), (2, 0, 1))
    options = {"shadows": False}
    plain = render(things, camera, **options)
    assert plain[45, 60].argmax() == 1
    focus = np.array([2.0, 0, 1])
    options["focus"] = focus
    apart = render(things, camera, np.array([0, 1, 2, -1]), **options)
    expected = render(things, camera, hide=np.array([1, 0, 0, 0], bool), **options)
    assert np.array_equal(apart, expected)
    assert apart[45, 60].argmax() == 0
    together = render(things, camera, np.array([0, 0, 2, -1]), **options)
    expected = render(things, camera, hide=np.array([1, 1, 0, 0], bool), **options)
    assert np.array_equal(together, expected)


def test_markers_are_visible_through_obstacles():
    wall = scene('<geom type="box" pos="2 0 0" size=".1 2 2" rgba=".5 .5 .5 1"/>')
    camera = look_at((0, 0, 0), (1, 0, 0))

    def green(x: float | None) -> int:
        markers = [] if x is None else [Sphere((x, 0, 0), 0.2, (0.0, 1.0, 0.0))]
        picture = render(wall, camera, markers=markers)
        return int(picture[45, 60, 1] - picture[45, 60, 0])

    assert green(None) < 10 < green(3.0) < green(1.0) - 40


def test_markers_behind_the_camera_are_not_drawn():
    wall = scene('<geom type="box" pos="2 0 0" size=".1 2 2"/>')
    camera = look_at((0, 0, 0), (1, 0, 0))
    marker = Sphere((-1.0, 0, 0), 0.2, (0.0, 1.0, 0.0))
    assert np.array_equal(render(wall, camera, markers=[marker]), render(wall, camera))


def test_supersampling_smooths_edges():
    ball = scene('<geom type="sphere" size=".5" rgba="0 0 0 1"/>')
    camera = look_at((-2, 0, 0), (0, 0, 0))

    def mixed(supersample: int) -> int:
        row = render(ball, camera, supersample=supersample, shadows=False).mean(axis=2)
        return int(((row > 60) & (row < 170)).sum())

    assert mixed(2) > mixed(1) + 20


def test_unknown_geom_type_is_a_user_error():
    with pytest.raises(UserError, match="geom type"):
        Shader(np.array([7]))


def in_picture(camera, point) -> bool:
    right, up, back = camera.mat.T @ (np.asarray(point) - camera.pos)
    tan_half = math.tan(math.radians(THIRD_PERSON_FOV_DEG) / 2)
    return bool(-back > 0 and abs(right) < -back * tan_half and abs(up) < -back * tan_half * 0.75)


def test_third_person_camera_keeps_robot_and_workspace_in_view():
    rng = np.random.default_rng(0)
    for _ in range(200):
        x, y = rng.uniform([-2.3, -7.5], [4.0, 0.5])
        yaw, aside = rng.uniform(-math.pi, math.pi), rng.uniform(-1.0, 1.0)
        cup = (x + 0.8 * math.cos(yaw + aside), y + 0.8 * math.sin(yaw + aside), 0.8)
        camera = third_person_camera((x, y, yaw), cup, ROOMS)
        assert in_picture(camera, cup)
        assert in_picture(camera, (x, y, 0.0)) and in_picture(camera, (x, y, 1.1))
        assert np.linalg.norm(camera.pos - (x, y, 0.5)) > 1.9
        assert -3.2 < camera.pos[0] < 4.9 and -8.4 < camera.pos[1] < 1.4


def test_third_person_camera_is_upright_beside_and_slightly_behind_the_robot():
    camera = third_person_camera((0.5, -3.0, 0.7), (1.0, -2.5, 0.8), ROOMS)
    offset = camera.pos[:2] - (0.5, -3.0)
    assert -1.5 < offset @ (math.cos(0.7), math.sin(0.7)) < -0.5
    assert abs(offset @ (-math.sin(0.7), math.cos(0.7))) > 1.5
    assert np.allclose(camera.mat.T @ camera.mat, np.eye(3))
    assert np.linalg.det(camera.mat) == pytest.approx(1.0)
    assert camera.mat[2, 0] == pytest.approx(0.0) and camera.mat[2, 1] > 0


def test_third_person_camera_moves_smoothly_to_its_new_pose():
    start, end = ((0.0, -3.0, 0.0), (1, -3, 0.8)), ((0.5, -2.0, 2.0), (0.3, -1.5, 0.8))
    camera = third_person_camera(*start, ROOMS)
    for _ in range(100):
        before = camera.pos
        camera = third_person_camera(*end, ROOMS, previous=camera)
        assert np.linalg.norm(camera.pos - before) < 0.4
    assert np.linalg.norm(camera.pos - before) < 1e-3
    assert in_picture(camera, end[1])


def test_look_at_straight_down_is_a_valid_orientation():
    mat = look_at((0, 0, 3), (0, 0, 0)).mat
    assert np.allclose(mat.T @ mat, np.eye(3)) and np.allclose(mat[:, 2], (0, 0, 1))
