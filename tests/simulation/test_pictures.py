import dataclasses

import imageio.v2 as imageio
import numpy as np
import pytest
from homes import IDLE, LAYOUT_A, box_in_front, episode, on_floor, pick_up, repeat, roomiest

import tpsrl.sim
from eval.running.film import Film
from planner.execution.progress import StepInfo
from skills.core.conditions import Margin
from tpsrl.errors import UserError
from tpsrl.render.cameras import THIRD_PERSON_FOV_DEG
from tpsrl.sim.mujoco_sim import MujocoSimulator
from tpsrl.sim.pictures import _cutaway_groups
from tpsrl.world.action import BASE
from tpsrl.world.episode import Target
from tpsrl.world.objects import object_kind

SIZE = {"height": 90, "width": 120}


@pytest.fixture(scope="module")
def simulator() -> MujocoSimulator:
    return tpsrl.sim.make(slots=12)


def in_picture(simulator: MujocoSimulator, point: np.ndarray, height: int, width: int):
    """Returns row and column of a point in the last third-person image."""
    pose = simulator._pictures._last[0][1]
    right, up, back = pose.mat.T @ (point - pose.pos)
    scale = width / 2 / np.tan(np.radians(THIRD_PERSON_FOV_DEG) / 2) / -back
    return np.array([height / 2 - up * scale, width / 2 + right * scale])


@pytest.mark.parametrize("camera", ["third_person", "head"])
def test_an_image_is_in_colour_and_has_the_requested_size(simulator, camera):
    simulator.reset([0], [box_in_front()])
    picture = simulator.render(0, camera, height=70, width=96)
    assert picture.shape == (70, 96, 3) and picture.dtype == np.uint8
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 100


def test_an_unknown_camera_is_a_user_error(simulator):
    simulator.reset([0], [box_in_front()])
    with pytest.raises(UserError, match="third_person"):
        simulator.render(0, "third_persn")


def test_rendering_does_not_change_the_home(simulator):
    simulator.reset([0], [box_in_front()])
    repeat(simulator, IDLE, 3)
    before = simulator.snapshot(0).arrays
    for camera in ("third_person", "head"):
        simulator.render(0, camera, **SIZE)
    after = simulator.snapshot(0).arrays
    assert before.keys() == after.keys()
    assert [name for name in before if not np.array_equal(before[name], after[name])] == []


def test_two_images_of_one_state_are_the_same(simulator):
    simulator.reset([0], [box_in_front()])
    drive = IDLE.copy()
    drive[BASE] = 0.5, 0.5
    simulator.render(0, **SIZE)
    repeat(simulator, drive, 5)
    first = simulator.render(0, **SIZE)
    assert np.array_equal(first, simulator.render(0, **SIZE))


def test_the_camera_follows_smoothly_and_jumps_at_a_reset(simulator):
    there = box_in_front()
    x, y, _ = there.robot_start
    simulator.reset([0], [there])
    simulator.render(0, **SIZE)
    start = simulator._pictures._last[0][1].pos
    turned = dataclasses.replace(there, robot_start=(x, y, 1.2))
    simulator.homes[0].reset(turned)  # moves the robot without a reset of the camera
    simulator.homes[0].steps += 6
    simulator.render(0, **SIZE)
    moved = np.linalg.norm(simulator._pictures._last[0][1].pos - start)
    simulator.reset([0], [turned])
    simulator.render(0, **SIZE)
    belongs = np.linalg.norm(simulator._pictures._last[0][1].pos - start)
    assert 0.1 * belongs < moved < 0.4 * belongs


def test_a_held_object_is_drawn_at_the_cup(simulator):
    simulator.reset([0], [box_in_front()])
    pick_up(simulator)
    one = simulator.homes[0]
    kind = object_kind(one.episode.objects[0].name)
    geom = simulator.home.object_geom(0, kind)
    height, width = 180, 240
    shown = simulator.render(0, height=height, width=width).astype(int)
    one.model.geom_rgba[geom, 3] = 0.0
    without = simulator.render(0, height=height, width=width).astype(int)
    changed = np.argwhere(np.abs(shown - without).max(axis=2) > 60)
    cup = in_picture(simulator, one.cup_pos, height, width)
    middle = in_picture(simulator, one.data.geom_xpos[geom], height, width)
    assert len(changed) > 100
    assert np.linalg.norm(changed - cup, axis=1).min() < 4
    # The shadow and the parts hidden by the arm shift the median slightly away from the box.
    assert np.linalg.norm(np.median(changed, axis=0) - middle) < 12


def test_parked_objects_are_not_drawn(simulator):
    simulator.reset([0], [box_in_front()])
    one = simulator.homes[0]
    parked = simulator.home.slot_geom[one.num_objects :]
    before = simulator.render(0, **SIZE)
    one.data.geom_xpos[parked] = (*one.base[:2], 1.3)
    assert np.array_equal(simulator.render(0, **SIZE), before)


def test_walls_and_tall_furniture_can_be_hidden_but_not_receptacles(simulator):
    home = simulator.home
    groups = _cutaway_groups(home)
    names = [home.model.geom(geom).name for geom in range(home.model.ngeom)]

    def of(piece: str) -> set[int]:
        return {int(g) for name, g in zip(names, groups, strict=True) if name.startswith(piece)}

    assert of("table_01/") == of("sofa/") == of("kitchen_counter/") == of("drawer3/") == {-1}
    assert len(of("wall_cabinet_01/")) == 1 and of("wall_cabinet_01/") != of("wall_cabinet_02/")
    assert of("fridge/") == of("top_door/") != {-1}
    walls = [of(wall.name) for wall in home.layout_set.walls]
    assert len(set.union(*walls)) == len(walls) and -1 not in set.union(*walls)
    assert np.all(groups[home.robot_geom] == -1) and np.all(groups[home.geom_slot >= 0] == -1)


def info(step: int, number: int) -> StepInfo:
    return StepInfo(
        index=0,
        total=4,
        name="nav obj_0",
        action="nav(obj_0_003_cracker_box, robot_0)",
        skill="navigate",
        phase="skill",
        phase_step=step,
        phase_limit=300,
        episode_step=step,
        predicate="robot_at(obj_0_003_cracker_box, robot_0)",
        margin=Margin(False, -0.5, "m"),
        object=number,
    )


def test_a_film_is_a_playable_mp4_of_every_fourth_step(simulator, tmp_path):
    x, y = roomiest(LAYOUT_A)
    box = on_floor("003_cracker_box", x + 0.7, y)
    goal = Target(0, (x + 1.0, y, 0.5), "table_1")
    record = dataclasses.replace(episode(LAYOUT_A, (x, y, 0.0), box), targets=(goal,))
    simulator.reset([0], [record])
    path = tmp_path / "film.mp4"
    with Film(simulator, record, path, stride=4) as film:
        for step in range(1, 11):
            repeat(simulator, IDLE, 1)
            film.on_step(simulator.state([0]), info(step, 0))
        whole = film.frame(simulator.state([0]), info(10, 0))
    with imageio.get_reader(path, format="FFMPEG") as reader:
        frames = [np.asarray(picture) for picture in reader]
        assert reader.get_meta_data()["fps"] == 15
    assert len(frames) == 3
    assert frames[0].shape == whole.shape == (426, 720, 3)
    # Compression blurs the frames, but the scene is the same.
    assert np.abs(frames[-1].astype(int) - whole).mean() < 6
    assert [p.name for p in tmp_path.iterdir()] == ["film.mp4"]


def test_a_film_marks_goal_and_object_in_their_colours(simulator):
    x, y = roomiest(LAYOUT_A)
    box = on_floor("003_cracker_box", x + 0.7, y)
    goal = Target(0, (x + 0.9, y + 0.3, 0.5), "table_1")
    record = dataclasses.replace(episode(LAYOUT_A, (x, y, 0.0), box), targets=(goal,))
    simulator.reset([0], [record])
    film = Film(simulator, record, "unused.mp4", stride=1)

    def pixels(number: int) -> tuple[int, int]:
        picture = film.frame(simulator.state([0]), info(1, number))[:360, :480].astype(int)
        red, green, blue = picture[..., 0], picture[..., 1], picture[..., 2]
        greenish = (green > red + 60) & (green > blue + 60)
        pink = (red > green + 70) & (blue > green + 50)
        return int(greenish.sum()), int(pink.sum())

    plain, marked = pixels(-1), pixels(0)
    assert marked[0] > plain[0] + 50 and marked[1] > plain[1] + 30
