"""Pictures of one cast: depth, flat colours, classes and instances of the robot's cameras."""

import math

import mujoco
import numpy as np
import pytest
from furnished_scene import furnished_model, random_cameras
from homes import IDLE, LAYOUT_A, box_in_front, repeat

import tpsrl.sim
from tpsrl.render import flat, shading
from tpsrl.render.cameras import look_at
from tpsrl.render.caster import SPHERE, Caster
from tpsrl.render.flat import FlatPictures
from tpsrl.sim.classes import geom_categories, geom_classes, geom_instances
from tpsrl.sim.mujoco_sim import MujocoSimulator
from tpsrl.world.cameras import CLASSES, PICTURES
from tpsrl.world.categories import CATEGORIES
from tpsrl.world.fetch import GRIPPER, HEAD_CAMERA_FAR_M

SIDES = (40, 56)
OTHERS = ("rgb", "semantic", "instance", "category")


@pytest.fixture(scope="module")
def simulator() -> MujocoSimulator:
    made = tpsrl.sim.make(slots=12)
    made.reset([0], [box_in_front()])
    return made


def furnished() -> tuple[mujoco.MjModel, mujoco.MjData]:
    model = furnished_model()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    return model, data


def numbers(model):
    return np.arange(model.ngeom)


def taken(model, data, position, orientation, shape=SIDES, **wanted):
    tables = (numbers(model) % count + 1 for count in (255, 99, 16))
    pictures = FlatPictures(model.geom_type, *tables)
    geoms = (data.geom_xpos, data.geom_xmat, model.geom_size, model.geom_rgba)
    pictures.take(*geoms, position, orientation, shape, **wanted)
    return wanted


def seen(model, data, position, orientation, shape=SIDES):
    """Inverse depth and geom of each pixel, as the caster has them for shading."""
    inverse, ids = np.empty(shape, np.float32), np.empty(shape, np.int32)
    geoms = (data.geom_xpos, data.geom_xmat, model.geom_size)
    Caster(model.geom_type).surfaces(*geoms, position, orientation, inverse, ids)
    return inverse, ids


def room(*kinds: str, shape=SIDES):
    found = {
        "depth": np.empty(shape, np.float32),
        "rgb": np.empty((*shape, 3), np.uint8),
        "semantic": np.empty(shape, np.uint8),
        "instance": np.empty(shape, np.uint8),
        "category": np.empty(shape, np.uint8),
    }
    return {kind: found[kind] for kind in kinds}


@pytest.mark.parametrize("shape", [(64, 64), (33, 57), (128, 128)])
def test_depth_beside_other_pictures_equals_depth_alone_bit_for_bit(shape):
    model, data = furnished()
    caster, alone = Caster(model.geom_type), np.empty(shape, np.float32)
    for pose in random_cameras(40, seed=3):
        caster.depth(data.geom_xpos, data.geom_xmat, model.geom_size, *pose, alone)
        _, ids = seen(model, data, *pose, shape)
        # The process that compiles may round a sphere's roots otherwise than all that come later.
        sphere = model.geom_type[ids] == SPHERE
        for beside in ((), ("rgb",), ("semantic",), ("instance",), ("category",), OTHERS):
            depth = taken(model, data, *pose, shape, **room("depth", *beside, shape=shape))["depth"]
            assert np.array_equal(depth[~sphere], alone[~sphere])
            assert np.allclose(depth, alone, rtol=0.0, atol=2e-7)


def test_colour_is_the_geoms_colour_lit_by_its_normal():
    model, data = furnished()
    tan_half, worst = 1.0, []
    for position, orientation in random_cameras(12, seed=5):
        shown = taken(model, data, position, orientation, **room(*OTHERS))
        inverse, ids = seen(model, data, position, orientation)
        expected = np.zeros((*SIDES, 3))
        for r, c in np.argwhere(ids >= 0):
            g = ids[r, c]
            surface = shading._surface(
                r, c, 1.0 / inverse[r, c], g, model.geom_type, data.geom_xpos, data.geom_xmat,
                model.geom_size, position, orientation, tan_half, *SIDES,
            )  # fmt: skip
            bright = flat.AMBIENT + flat.DIFFUSE * float(np.dot(surface[3:], flat.LAMP))
            expected[r, c] = 255.0 * model.geom_rgba[g, :3] * bright
        assert np.array_equal(shown["semantic"], np.where(ids < 0, 0, ids % 255 + 1))
        assert np.array_equal(shown["category"], np.where(ids < 0, 0, ids % 16 + 1))
        assert np.array_equal(shown["instance"], np.where(ids < 0, 0, ids % 99 + 1))
        worst.append(np.abs(shown["rgb"] - expected).max(axis=2))
    # Within a float's rounding of an edge, a pixel may be of the box's other face.
    assert np.mean(np.array(worst) <= 1.0) > 0.999


def test_a_face_of_a_box_has_one_colour_and_its_faces_differ():
    xml = (
        '<mujoco><worldbody><geom type="box" size="1 1 1" rgba=".5 .5 .5 1"/></worldbody></mujoco>'
    )
    model = mujoco.MjModel.from_xml_string(xml)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    colours = []
    for axis in range(3):
        for sign in (-1, 1):
            at = np.zeros(3)
            at[axis] = 1.5 * sign
            pose = look_at(at, (0.0, 0.0, 0.0))
            shown = taken(model, data, pose.pos, pose.mat, **room("rgb"))["rgb"]
            (only,) = np.unique(shown.reshape(-1, 3), axis=0)
            colours.append(only[0])
    assert len(set(colours)) == 6 and min(np.diff(np.sort(colours))) > 2


def test_pixels_without_a_geom_are_black_and_of_class_nothing():
    model, data = furnished()
    up = np.array([[1.0, 0, 0], [0, -1.0, 0], [0, 0, -1.0]])
    shown = taken(model, data, np.array([0.0, 0.0, 50.0]), up, **room("depth", *OTHERS))
    assert np.all(shown["depth"] == 1.0)
    assert not any(shown[kind].any() for kind in OTHERS)
    assert CLASSES[0] == "nothing"


@pytest.mark.parametrize("camera", ["head", "hand"])
def test_semantic_pictures_agree_with_mujocos_rays(simulator, camera):
    home, model = simulator.homes[0], simulator.home.model
    classes, same = geom_classes(simulator.home), []
    pose = simulator._head_camera(home) if camera == "head" else simulator._hand_camera(home)
    shown = simulator.look([0], {f"{camera}_semantic": SIDES})[f"{camera}_semantic"][0]
    _, ids = seen(home.model, home.data, *pose)
    assert np.array_equal(shown, np.where(ids < 0, 0, classes[ids]))
    height, width = SIDES
    geom = np.zeros(1, dtype=np.int32)
    for row in range(height):
        for column in range(width):
            x, y = (2 * column + 1) / width - 1, (1 - (2 * row + 1) / height) * height / width
            ray = pose[1] @ np.array([x, y, -1.0])
            away = mujoco.mj_ray(home.model, home.data, pose[0], ray, None, 1, -1, geom)
            met = geom[0] >= 0 and away < HEAD_CAMERA_FAR_M
            same.append(shown[row, column] == (classes[geom[0]] if met else 0))
    assert np.mean(same) > 0.998
    names = {CLASSES[number] for number in np.unique(shown)}
    assert {"floor", "robot"} <= names if camera == "head" else "floor" in names
    assert model.ngeom == len(classes)


def test_geoms_have_the_class_of_their_body(simulator):
    home, classes = simulator.home, geom_classes(simulator.home)
    model = home.model
    for name, expected in (("floor", "floor"), ("cup", "robot"), ("slot_0/box", "object")):
        assert CLASSES[classes[model.geom(name).id]] == expected
    for wall in home.layout_set.walls:
        assert CLASSES[classes[model.geom(wall.name).id]] == "wall"
    assert set(classes[home.furniture_geom]) == {CLASSES.index("furniture")}
    doors = np.isin(model.geom_bodyid, home.marker_body)
    assert set(classes[doors]) == {CLASSES.index("door_or_drawer")}


def test_geoms_of_one_thing_are_one_instance(simulator):
    numbers, names = geom_instances(simulator.home)
    model = simulator.home.model
    assert simulator.instances == names and names[0] == "nothing" and len(names) < 256
    assert numbers.min() == 1 and len(set(names)) == len(names)
    expected = {
        "sofa/seat": "sofa", "sofa/back": "sofa", "chair_01_0/seat": "chair_01_0",
        "chair_01_1/seat": "chair_01_1", "fridge/top": "fridge", "top_door/door": "top_door",
        "drawer3/front": "drawer3", "slot_2/box": "object_2", "slot_2/cylinder": "object_2",
        "torso": "robot", "cup": "robot", "wall00": "wall", "wall09": "wall", "floor": "floor",
    }  # fmt: skip
    for geom, name in expected.items():
        assert names[numbers[model.geom(geom).id]] == name


def test_geoms_have_the_category_of_their_furniture(simulator):
    numbers, model = geom_categories(simulator.home), simulator.home.model
    expected = {
        "sofa/seat": "sofa", "chair_01_1/seat": "chair", "fridge/top": "fridge",
        "top_door/door": "fridge", "drawer1_top/front": "counter", "kitchen_counter/tap": "sink",
        "torso": "none", "wall00": "none", "floor": "none", "slot_2/box": "none",
    }  # fmt: skip
    names = ("none", *CATEGORIES)
    assert {geom: names[numbers[model.geom(geom).id]] for geom in expected} == expected
    assert set(numbers) == set(range(len(names)))


def test_an_instance_picture_shows_where_each_object_is():
    simulator = tpsrl.sim.make(slots=12)
    simulator.reset([0], [box_in_front(ahead=1.5)])
    shown = simulator.look([0], {"head_instance": SIDES, "head_semantic": SIDES})
    number = simulator.instances.index("object_0")
    mine = shown["head_instance"][0] == number
    assert mine.any()
    assert np.array_equal(mine, shown["head_semantic"][0] == CLASSES.index("object"))


def test_pictures_do_not_depend_on_other_homes_and_sizes():
    simulator = tpsrl.sim.make(num_envs=2, slots=12)
    simulator.reset([0, 1], [box_in_front(), box_in_front(LAYOUT_A, 0.5)])
    repeat(simulator, IDLE, 2, env=1)
    sizes = {name: (16 + 8 * (i % 2), 24) for i, name in enumerate(PICTURES)}
    both = simulator.look([1, 0], sizes)
    for name, sides in sizes.items():
        for row, env in enumerate((1, 0)):
            assert np.array_equal(both[name][row], simulator.look([env], {name: sides})[name][0])
    assert np.array_equal(both["head_depth"], simulator.depth([1, 0], *sizes["head_depth"]))


def test_the_hand_camera_has_the_pose_of_habitat_labs_arm_camera(simulator):
    """`look_at(offset, target, y) @ rotation_y(-90) @ rotation_z(90)` in the gripper's frame."""
    eye, target, up = np.array([0, 0, 0.1]), np.array([0.1, 0, 0]), np.array([0, 1.0, 0])
    back = (eye - target) / np.linalg.norm(eye - target)
    right = np.cross(up, back)
    looking = np.column_stack([right, np.cross(back, right), back])
    cosine, sine = math.cos(math.radians(-90)), math.sin(math.radians(-90))
    turn_y = np.array([[cosine, 0, sine], [0, 1, 0], [-sine, 0, cosine]])
    turn_z = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])
    home = simulator.homes[0]
    wrist = home.data.xmat[simulator.home.cup_body].reshape(3, 3)
    gripper = home.data.xpos[simulator.home.cup_body] + wrist @ np.array([GRIPPER, 0, 0])
    pos, mat = simulator._hand_camera(home)
    np.testing.assert_allclose(mat, wrist @ looking @ turn_y @ turn_z, atol=1e-12)
    np.testing.assert_allclose(pos, gripper + wrist @ eye, atol=1e-12)
