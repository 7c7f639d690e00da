"""Height maps built from depth images of the camera."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import mujoco
import numpy as np
import pytest
from homes import LAYOUT_A, box_in_front, driving, episode, on_floor, roomiest

from skills.envs.environment import SkillEnv
from skills.envs.options import EnvOptions
from skills.starts.source import StartSource
from tpsrl.errors import UserError
from tpsrl.rl.envs.vec_env import MAP
from tpsrl.sim.mujoco_sim import MujocoSimulator
from tpsrl.world import action as act
from tpsrl.world.height_map import CELL_M, HIGHEST_M, SHAPE, SIDE, HeightMaps

TURN = np.zeros(act.SIZE)
TURN[act.BASE], TURN[act.GRIP] = (0.0, 1.0), -1.0


@pytest.fixture(scope="module")
def one() -> MujocoSimulator:
    return MujocoSimulator(1, slots=12)


def looked(
    simulator: MujocoSimulator, maps: HeightMaps, action: np.ndarray, steps: int, side: int = 64
) -> np.ndarray:
    """Returns what a map shows after `steps` depth images."""
    for step in range(steps):
        if step:
            simulator.step([0], action[None])
        world = simulator.state([0])
        maps.look([0], simulator.depth([0], side, side), world, step > 0)
    return maps.show([0], simulator.state([0]).base)[0]


def columns(simulator: MujocoSimulator, points: np.ndarray) -> Iterator[list[float]]:
    """Yields the heights of all surfaces above points (n, 2) of the floor, by MuJoCo's own rays."""
    home = simulator.homes[0]
    for x, y in points:
        heights, z = [], 3.0
        while z > 0.0:
            geom = np.zeros(1, np.int32)
            start = np.array([x, y, z])
            far = mujoco.mj_ray(
                home.model, home.data, start, np.array([0.0, 0.0, -1.0]), None, 1, -1, geom
            )
            if geom[0] < 0:
                break
            z -= far
            if not simulator.home.robot_geom[geom[0]]:
                heights.append(z)
            z -= 1e-4
        yield heights


def cells(base: np.ndarray) -> np.ndarray:
    """Returns the world positions (SIDE, SIDE, 2) of the middles of a map's cells."""
    along = (SIDE / 2 - np.arange(SIDE) - 0.5) * CELL_M
    x, y = np.meshgrid(along, along, indexing="ij")
    c, s = math.cos(base[2]), math.sin(base[2])
    return np.stack([base[0] + c * x - s * y, base[1] + s * x + c * y], axis=-1)


@pytest.mark.parametrize("start", range(3))
def test_heights_agree_with_the_surfaces_in_their_cells(one: MujocoSimulator, start: int) -> None:
    """Each cell has the height of a top in it, or of a front up to the highest point seen."""
    source = StartSource("pick", split="val", num_objects=12, num_episodes=4)
    one.reset([0], [source[start].episode])
    shown = looked(one, HeightMaps(1), TURN, 60, side=128)
    base = one.state([0]).base[0]
    middle, seen = cells(base), shown[1] > 0.0
    assert seen.mean() > 0.3
    right = [
        is_height_there(one, middle[row, column], shown[0, row, column] * HIGHEST_M)
        for row, column in zip(*np.nonzero(seen), strict=True)
    ]
    assert np.mean(right) > 0.99


def is_height_there(simulator: MujocoSimulator, point: np.ndarray, height: float) -> bool:
    """Returns whether a surface in the cell around a point (2,) has a top or front at a height."""
    # The cell's border is included, because rounding assigns its points to neighbouring cells.
    offsets = np.linspace(-0.75, 0.75, 9) * CELL_M
    around = np.array([[a, b] for a in offsets for b in offsets])
    # Most hits are in the middle.
    around = point + around[np.argsort(np.linalg.norm(around, axis=1))]
    is_top = abs(height) < 0.02 or any(
        abs(top - height) < 0.02 for tops in columns(simulator, around) for top in tops
    )
    return is_top or has_front(simulator, point, height)


def has_front(simulator: MujocoSimulator, point: np.ndarray, height: float) -> bool:
    """Returns whether a level ray through the cell around a point (2,) ends in the cell."""
    home, geom = simulator.homes[0], np.zeros(1, np.int32)
    for angle in np.arange(0.0, 2 * math.pi, math.pi / 4):
        along = np.array([math.cos(angle), math.sin(angle), 0.0])
        for aside in np.linspace(-0.75, 0.75, 9) * CELL_M:
            start = np.array([*point, height]) - 1.5 * CELL_M * along
            start += aside * np.array([-along[1], along[0], 0.0])
            far = mujoco.mj_ray(home.model, home.data, start, along, None, 1, -1, geom)
            if 0.0 <= far < 3.0 * CELL_M and not simulator.home.robot_geom[geom[0]]:
                return True
    return False


def test_mapped_heights_keep_their_world_position_when_the_base_moves(one: MujocoSimulator) -> None:
    x, y = roomiest(LAYOUT_A)
    one.reset([0], [box_in_front(ahead=1.0)])
    maps = HeightMaps(1)
    looked(one, maps, driving(0.0), 2, side=128)
    for _ in range(40):  # turns away without further images
        one.step([0], TURN[None])
    world = one.state([0])
    shown = maps.show([0], world.base)[0]
    middle = cells(world.base[0])
    away = np.linalg.norm(middle - np.array([x + 1.0, y]), axis=-1)
    row, column = np.unravel_index(np.argmin(away), away.shape)
    top = one.state([0]).object_pos[0, 0, 2] * 2
    assert shown[0, row, column] * HIGHEST_M == pytest.approx(top, abs=0.02)
    assert shown[1, row, column] > 0.0


def test_cells_fade_with_age_and_are_forgotten_outside_the_map(one: MujocoSimulator) -> None:
    one.reset([0], [box_in_front()])
    maps = HeightMaps(1)
    shown = looked(one, maps, driving(0.0), 2)
    now = shown[1] == 1.0
    assert now.any()
    blind = np.ones((1, 64, 64), np.float32)  # nothing within sight
    world = one.state([0])
    for _ in range(50):
        maps.look([0], blind, world, True)
    later = maps.show([0], world.base)[0]
    np.testing.assert_allclose(later[1][now], math.exp(-0.5), atol=1e-5)
    far = dataclasses.replace(world, base=world.base + np.array([[10.0, 0.0, 0.0]]))
    maps.look([0], blind, far, True)
    maps.look([0], blind, world, True)  # and back
    assert not maps.show([0], world.base).any()


def test_the_robot_does_not_map_itself_or_its_held_object(one: MujocoSimulator) -> None:
    x, y = roomiest(LAYOUT_A)
    for held in (-1, 0):
        home = episode(LAYOUT_A, (x, y, 0.0), on_floor("003_cracker_box", x + 0.6, y))
        one.reset([0], [dataclasses.replace(home, held=held)])
        rng = np.random.default_rng(0)
        maps = HeightMaps(1)
        for step in range(60):
            action = np.append(rng.uniform(-1.0, 1.0, 7), [1.0 if held == 0 else -1.0, 0, 0, -1])
            one.step([0], action[None])
            maps.look([0], one.depth([0], 64, 64), one.state([0]), step > 0)
        shown = maps.show([0], one.state([0]).base)[0]
        middle = cells(one.state([0]).base[0])
        box = np.linalg.norm(middle - np.array([x + 0.6, y]), axis=-1) < 0.2
        inside = np.linalg.norm(middle - np.array([x, y]), axis=-1) < 1.0
        high = shown[0] * HIGHEST_M > 0.05
        assert not (high & inside & ~(box & (held < 0))).any()


def test_a_lower_height_replaces_a_higher_one_that_is_old(one: MujocoSimulator) -> None:
    one.reset([0], [box_in_front(ahead=1.0)])
    maps = HeightMaps(1)
    before = looked(one, maps, driving(0.0), 3)
    start = int(one.home.slot_qpos[0])
    one.homes[0].data.qpos[start] += 5.0
    mujoco.mj_kinematics(one.homes[0].model, one.homes[0].data)
    world, depth = one.state([0]), one.depth([0], 64, 64)
    high = before[0] * HIGHEST_M > 0.15
    assert high.any()
    for _ in range(20):
        maps.look([0], depth, world, True)
    assert (maps.show([0], world.base)[0, 0][high] * HIGHEST_M > 0.15).all()
    for _ in range(20):
        maps.look([0], depth, world, True)
    assert not (maps.show([0], world.base)[0, 0][high] * HIGHEST_M > 0.15).any()


def test_environments_observe_the_map_and_snapshots_restore_it(one: MujocoSimulator) -> None:
    options: dict[str, Any] = {"depth": 32, "height_map": True, "num_episodes": 1, "split": "val"}
    env = SkillEnv("pick", num_objects=12, **options)
    shown, _ = env.reset(options={"start": 0})
    assert shown[MAP].shape == SHAPE and env.observation_space[MAP].contains(shown[MAP])
    frozen = None
    for step in range(12):
        if step == 6:
            frozen = env.snapshot()
        shown, *_ = env.step(TURN)
    assert frozen is not None
    expected = shown
    env.restore(frozen)
    for _ in range(6):
        shown, *_ = env.step(TURN)
    np.testing.assert_array_equal(shown[MAP], expected[MAP])
    env.close()


def test_a_height_map_requires_a_depth_camera() -> None:
    with pytest.raises(UserError, match="height_map: needs a depth camera"):
        EnvOptions.of("pick", height_map=True)


def test_a_damaged_map_is_refused() -> None:
    maps = HeightMaps(1)
    good = maps.to_arrays(0)
    for name, values, message in (
        ("height", good["height"][:5], "array height is missing or of another shape"),
        ("seen", good["seen"] * np.nan, "array seen is damaged"),
    ):
        with pytest.raises(UserError, match=message):
            maps.restore(0, {**good, name: values})
