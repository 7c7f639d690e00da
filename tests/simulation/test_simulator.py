import collections
import dataclasses
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from homes import (
    HOLD,
    IDLE,
    LAYOUT_A,
    LAYOUT_B,
    arm_on_object,
    box_in_front,
    driving,
    episode,
    holding,
    in_drawer,
    on_floor,
    pull_drawer,
    repeat,
    roomiest,
    take_drawer,
)

import tpsrl.sim
from tpsrl.errors import UserError
from tpsrl.sim.base import Snapshot
from tpsrl.sim.base_filter import filter_velocity
from tpsrl.sim.contacts import largest_force
from tpsrl.sim.mujoco_sim import MujocoSimulator
from tpsrl.world import action as act
from tpsrl.world.action import CONTROL_HZ
from tpsrl.world.episode import Episode, ObjectPlacement
from tpsrl.world.fetch import BASE_RADIUS, REST_ARM, REST_EE
from tpsrl.world.floor import CELL_M, CLOSED, FloorMap, cells_to, floor_map
from tpsrl.world.generator import robot_start
from tpsrl.world.geometry import quat_matrix
from tpsrl.world.layouts import load_layout_set
from tpsrl.world.reach import point_to_base

STEPS = 60


def make(**options: object) -> MujocoSimulator:
    simulator = tpsrl.sim.make(slots=12, **options)
    assert isinstance(simulator, MujocoSimulator)
    return simulator


@pytest.fixture(scope="module")
def simulator() -> MujocoSimulator:
    return make(num_envs=2)


# -- snapshots ---------------------------------------------------------------------------------


def just_reset(simulator: MujocoSimulator) -> None:
    simulator.reset([0], [box_in_front()])


def all_asleep(simulator: MujocoSimulator) -> None:
    simulator.reset([0], [box_in_front()])
    repeat(simulator, IDLE, 40)
    assert simulator.homes[0].data.ntree_awake == 1  # only the robot never sleeps


def in_mid_air(simulator: MujocoSimulator) -> None:
    x, y = roomiest(LAYOUT_A)
    falling = [
        on_floor("005_tomato_soup_can", x + 0.7, y, lift=0.8),
        on_floor("003_cracker_box", x + 0.7, y + 0.04, lift=1.1),
        on_floor("013_apple", x + 0.72, y - 0.02, lift=0.5),
    ]
    simulator.reset([0], [episode(LAYOUT_A, (x, y, 0.0), *falling)])
    repeat(simulator, IDLE, 5)
    assert simulator.state([0]).object_pos[0, 1, 2] > 0.5


def arm_on_furniture(simulator: MujocoSimulator) -> None:
    """Drives the stretched arm of the robot against furniture."""
    x, y = roomiest(LAYOUT_A)
    simulator.reset([0], [episode(LAYOUT_A, (x, y, 0.0))])
    drive = IDLE.copy()
    drive[act.BASE] = 0.6, 0.05
    for _ in range(300):
        simulator.step([0], drive[None])
        if simulator.state([0]).force[0] > 100:
            return
    raise AssertionError("the arm met nothing")


def holding_a_drawer(simulator: MujocoSimulator) -> None:
    """Pulls a drawer with a bowl inside, up to the middle of the motion."""
    take_drawer(simulator, in_drawer("024_bowl"))
    repeat(simulator, driving(-0.2, HOLD), 12)
    assert simulator.homes[0].held_joint >= 0


def letting_a_drawer_go(simulator: MujocoSimulator) -> None:
    """Releases a drawer while the cup is still on its face."""
    take_drawer(simulator)
    pull_drawer(simulator)
    repeat(simulator, IDLE, 2)
    home = simulator.homes[0]
    assert home.held_joint == -1 and np.isclose(home.model.geom_margin[home._home.cup_geom], -1.0)


def held_from_the_start(simulator: MujocoSimulator) -> None:
    simulator.reset([0], [dataclasses.replace(box_in_front(), held=0)])


SITUATIONS = {
    f.__name__: f
    for f in (
        just_reset,
        holding,
        holding_a_drawer,
        letting_a_drawer_go,
        held_from_the_start,
        all_asleep,
        in_mid_air,
        arm_on_object,
        arm_on_furniture,
    )
}


def some_actions() -> np.ndarray:
    """Returns actions (STEPS, 11) that drive, wave and release the grip at the end."""
    rng = np.random.default_rng(3)
    actions = np.repeat(rng.uniform(-1, 1, (STEPS // 6, act.SIZE)), 6, axis=0)
    actions[:, act.BASE] *= 0.3
    actions[:, act.GRIP] = np.where(np.arange(STEPS) < 40, 1.0, -1.0)
    return actions


def everything(simulator: MujocoSimulator, env: int) -> dict[str, bytes]:
    """Returns state, depth image and snapshot arrays of a home."""
    state = simulator.state([env])
    seen = {f.name: np.asarray(getattr(state, f.name)) for f in dataclasses.fields(state)}
    seen["depth"] = simulator.depth([env])
    seen |= simulator.snapshot(env).arrays
    return {name: value.tobytes() for name, value in seen.items()}


def differences(a: dict[str, bytes], b: dict[str, bytes]) -> list[str]:
    return sorted(k for k in a.keys() | b.keys() if a.get(k) != b.get(k))


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_restored_home_has_the_same_future_bit_for_bit(
    simulator: MujocoSimulator, situation: str
) -> None:
    SITUATIONS[situation](simulator)
    snapshot = simulator.snapshot(0)
    future = []
    for action in some_actions():
        simulator.step([0], action[None])
        future.append(everything(simulator, 0))
    # Home 1 is in another state, in another apartment and with other objects.
    x, y = roomiest(LAYOUT_B)
    other = [on_floor("024_bowl", x + 0.7, y), on_floor("004_sugar_box", x, y + 0.8)]
    simulator.reset([1], [episode(LAYOUT_B, (x, y, 1.0), *other)])
    repeat(simulator, some_actions()[0], 10, env=1)
    for env in (0, 1):
        simulator.restore(env, snapshot)
        for step, action in enumerate(some_actions()):
            simulator.step([env], action[None])
            assert differences(everything(simulator, env), future[step]) == [], (env, step)


ELSEWHERE = """
import json, sys
import numpy as np
sys.path[:0] = sys.argv[3:]
from test_simulator import everything, make, some_actions
from tpsrl.sim.base import Snapshot
from tpsrl.world.episode import Episode
with np.load(sys.argv[1], allow_pickle=False) as stored:
    arrays = {name: stored[name] for name in stored.files}
record = json.loads(str(arrays.pop("episode")))
simulator = make()
simulator.restore(0, Snapshot(str(arrays.pop("engine")), Episode.from_json(record), arrays))
for action in some_actions():
    simulator.step([0], action[None])
end = {k: np.frombuffer(v, np.uint8) for k, v in everything(simulator, 0).items()}
np.savez(sys.argv[2], **end)
"""


def test_a_snapshot_has_the_same_future_in_another_process(
    simulator: MujocoSimulator, tmp_path: Path
) -> None:
    holding(simulator)
    snapshot = simulator.snapshot(0)
    np.savez(
        tmp_path / "snapshot.npz",
        **snapshot.arrays,
        engine=np.array(snapshot.engine),
        episode=np.array(json.dumps(snapshot.episode.to_json())),
    )
    for action in some_actions():
        simulator.step([0], action[None])
    arguments = ["snapshot.npz", "end.npz", *map(str, Path(__file__).parents[:2])]
    subprocess.run([sys.executable, "-c", ELSEWHERE, *arguments], cwd=tmp_path, check=True)
    with np.load(tmp_path / "end.npz") as stored:
        theirs = {name: stored[name].tobytes() for name in stored.files}
    assert differences(theirs, everything(simulator, 0)) == []


def test_a_snapshot_of_another_engine_or_size_is_refused(simulator: MujocoSimulator) -> None:
    just_reset(simulator)
    snapshot = simulator.snapshot(0)
    foreign = Snapshot("mujoco-1.0/1", snapshot.episode, snapshot.arrays)
    with pytest.raises(UserError, match=r"engine is 'mujoco-1\.0/1'"):
        simulator.restore(0, foreign)
    with pytest.raises(UserError, match="same slots"):
        tpsrl.sim.make(slots=30).restore(0, snapshot)


def filled(name: str, value: float, at: Any = ...) -> tuple[str, Callable[[Any], np.ndarray]]:
    """Returns the name of a snapshot's array and a function that overwrites values in it."""

    def change(values: np.ndarray) -> np.ndarray:
        changed = values.copy()
        changed[at] = value
        return changed

    return name, change


FAR = 10**8
DAMAGED = (
    *(filled(f"model/{name}", FAR) for name in ("bvh_child", "bvh_nodeid")),
    filled("model/bvh_child", 0),  # a cycle
    *(filled(f"data/{name}", FAR) for name in ("body_awake_ind", "dof_awake_ind", "tree_asleep")),
    *(filled(f"data/{name}", -FAR) for name in ("parent_awake_ind", "moment_colind")),
    *(filled(f"data/{name}", FAR) for name in ("moment_rowadr", "moment_rownnz", "body_awake")),
    filled("data/tree_asleep", 0),
    filled("data/tree_awake", 2),
    *(filled(f"scalar/{name}", FAR) for name in ("nv_awake", "nbody_awake", "nparent_awake")),
    filled("scalar/ntree_awake", -1),
    filled("scalar/time", np.inf),
    *(filled(f"data/{name}", np.nan) for name in ("qpos", "qvel", "ctrl", "xpos")),
    filled("data/qpos", 1e300),
    filled("model/body_mass", 0.0),
    filled("model/geom_size", np.nan),
    filled("model/eq_data", np.inf),
    *(filled("home/integers", value, at) for value, at in ((3, 0), (-2, 0), (9, 1), (-2, 2))),
    *(filled("home/integers", value, at) for value, at in ((-1, 3), (2, 4))),
    filled("home/forces", np.nan),
    *(("data/qvel", change) for change in (np.float32, lambda v: v[:-1], lambda v: v[0])),
    ("home/integers", lambda v: v.astype(float)),
    ("scalar/time", lambda v: np.array("noon")),
)


@pytest.mark.parametrize(("name", "change"), DAMAGED)
def test_a_damaged_snapshot_is_refused_with_the_name_of_the_array(
    simulator: MujocoSimulator, name: str, change: Callable[[Any], np.ndarray]
) -> None:
    just_reset(simulator)
    snapshot = simulator.snapshot(0)
    arrays = snapshot.arrays | {name: np.asarray(change(snapshot.arrays[name]))}
    message = f"snapshot: .*{name.partition('_row')[0].partition('_col')[0]}"
    with pytest.raises(UserError, match=message) as error:
        simulator.restore(0, dataclasses.replace(snapshot, arrays=arrays))
    assert len(str(error.value)) < 200 and "\n" not in str(error.value)
    simulator.restore(0, snapshot)


def test_a_snapshot_with_other_arrays_is_refused(simulator: MujocoSimulator) -> None:
    just_reset(simulator)
    snapshot = simulator.snapshot(0)
    more = snapshot.arrays | {"model/body_parentid": np.zeros(3, np.int32)}
    less = {name: values for name, values in snapshot.arrays.items() if name != "data/qpos"}
    for arrays, name in ((more, "model/body_parentid"), (less, "data/qpos"), ({}, "and [0-9]+ mo")):
        with pytest.raises(UserError, match=f"snapshot: .*{name}.*missing or unknown"):
            simulator.restore(0, dataclasses.replace(snapshot, arrays=arrays))


def test_a_snapshot_may_have_another_tree_over_static_bodies(
    simulator: MujocoSimulator,
) -> None:
    just_reset(simulator)
    snapshot = simulator.snapshot(0)
    child = snapshot.arrays["model/bvh_child"].copy()
    child[0] = child[0, ::-1]
    arrays = snapshot.arrays | {"model/bvh_child": child}
    simulator.restore(0, dataclasses.replace(snapshot, arrays=arrays))
    again = simulator.snapshot(0).arrays
    assert all(np.array_equal(again[name], values) for name, values in arrays.items())


def test_a_snapshot_holds_all_persistent_arrays_of_the_engine(simulator: MujocoSimulator) -> None:
    just_reset(simulator)
    header = Path(mujoco.__file__).parent / "include/mujoco/mjxmacro.h"
    body = header.read_text().split("#define MJDATA_POINTERS")[1].split("#define")[0]
    declared = {line.split(",")[1].strip() for line in body.splitlines() if line.count(",") >= 3}
    data = simulator.homes[0].data
    filled = {n for n in declared if isinstance(getattr(data, n, None), np.ndarray)}
    filled = {n for n in filled if getattr(data, n).size}
    assert len(filled) > 60
    assert {f"data/{n}" for n in filled} <= simulator.snapshot(0).arrays.keys()


# -- independence ------------------------------------------------------------------------------


def test_stepping_one_home_leaves_the_others_untouched(simulator: MujocoSimulator) -> None:
    simulator.reset([0, 1], [box_in_front(), box_in_front(LAYOUT_B)])
    repeat(simulator, IDLE, 3)
    before = everything(simulator, 0)
    for action in some_actions():
        simulator.step([1], action[None])
    simulator.reset([1], [box_in_front()])
    assert differences(before, everything(simulator, 0)) == []


def test_homes_stepped_together_equal_homes_stepped_alone(simulator: MujocoSimulator) -> None:
    alone = make()
    starts = [box_in_front(), box_in_front(LAYOUT_B)]
    simulator.reset([1, 0], starts)
    for action in some_actions()[:20]:
        simulator.step([1, 0], np.stack([action, -action]))
    together = [everything(simulator, env) for env in (1, 0)]
    for start, sign, expected in zip(starts, (1, -1), together, strict=True):
        alone.reset([0], [start])
        for action in some_actions()[:20]:
            alone.step([0], sign * action[None])
        assert differences(everything(alone, 0), expected) == []


# -- bad input ---------------------------------------------------------------------------------


def test_actions_of_a_wrong_shape_or_not_finite_are_refused(simulator: MujocoSimulator) -> None:
    just_reset(simulator)
    with pytest.raises(UserError, match=r"shape is \(1, 10\), expected \(1, 11\)"):
        simulator.step([0], np.zeros((1, 10)))
    bad = IDLE.copy()
    bad[3] = np.nan
    before = everything(simulator, 0)
    with pytest.raises(UserError, match="not finite"):
        simulator.step([0], bad[None])
    assert differences(before, everything(simulator, 0)) == []


def test_an_object_inside_furniture_is_refused_by_name(simulator: MujocoSimulator) -> None:
    sofa = simulator.home.model.geom("sofa/seat")
    x, y = roomiest(LAYOUT_A)
    just_reset(simulator)
    inside = simulator.homes[0].data.geom_xpos[sofa.id] + 0.02
    buried = ObjectPlacement("024_bowl", tuple(inside), (1, 0, 0, 0), "sofa")
    with pytest.raises(UserError, match=r"objects\[0\] \(024_bowl\) overlaps sofa/"):
        simulator.reset([0], [episode(LAYOUT_A, (x, y, 0.0), buried)])


def test_a_robot_inside_furniture_is_refused_by_name(simulator: MujocoSimulator) -> None:
    just_reset(simulator)
    sofa = simulator.homes[0].data.geom("sofa/seat").xpos
    with pytest.raises(UserError, match=r"the robot \(.*\) overlaps sofa/"):
        simulator.reset([0], [episode(LAYOUT_A, (sofa[0], sofa[1], 0.0))])


def test_more_objects_than_slots_are_refused(simulator: MujocoSimulator) -> None:
    x, y = roomiest(LAYOUT_A)
    bowls = [ObjectPlacement("024_bowl", (i, 50.0, 1.0), (1, 0, 0, 0), "") for i in range(13)]
    with pytest.raises(UserError, match="objects: 13 given, this home has room for 12"):
        simulator.reset([0], [episode(LAYOUT_A, (x, y, 0.0), *bowls)])


def test_a_home_takes_any_mixture_of_shapes(simulator: MujocoSimulator) -> None:
    x, y = roomiest(LAYOUT_A)
    for name in ("004_sugar_box", "005_tomato_soup_can", "013_apple"):
        row = [on_floor(name, x + 0.5, y - 0.6 + 0.1 * i) for i in range(12)]
        simulator.reset([0], [episode(LAYOUT_A, (x, y, 0.0), *row)])
        for _ in range(20):
            simulator.step([0], IDLE[None])
        placed = np.array([o.pos for o in row])
        assert np.abs(simulator.state([0]).object_pos[0, :12] - placed).max() < 0.005


def test_an_unknown_object_is_refused_with_the_nearest(simulator: MujocoSimulator) -> None:
    x, y = roomiest(LAYOUT_A)
    strange = ObjectPlacement("024_bow", (x, y, 1.0), (1, 0, 0, 0), "floor")
    with pytest.raises(UserError, match="did you mean '024_bowl'"):
        simulator.reset([0], [episode(LAYOUT_A, (x, y, 0.0), strange)])


# -- actions -----------------------------------------------------------------------------------


def free_robot(simulator: MujocoSimulator) -> None:
    x, y = roomiest(LAYOUT_A)
    simulator.reset([0], [episode(LAYOUT_A, (x, y, 0.0))])


def test_the_rest_arm_puts_the_cup_near_the_rest_point(simulator: MujocoSimulator) -> None:
    free_robot(simulator)
    state = simulator.state([0])
    cup = point_to_base(state.base[0], state.ee_pos[0])
    assert np.linalg.norm(cup - REST_EE) < 0.06


def test_an_arm_action_moves_each_joint_by_its_delta(simulator: MujocoSimulator) -> None:
    free_robot(simulator)
    wave = IDLE.copy()
    wave[act.ARM] = 1, 0.5, 1, 1, -1, -1, 0.25
    repeat(simulator, wave, 20)
    repeat(simulator, IDLE, 10)
    moved = simulator.state([0]).arm[0] - REST_ARM
    np.testing.assert_allclose(moved, 20 * act.ARM_DELTA_RAD * wave[act.ARM], atol=2e-3)


def test_a_moving_arm_follows_its_target_within_a_few_millimetres(
    simulator: MujocoSimulator,
) -> None:
    free_robot(simulator)
    reach = IDLE.copy()
    reach[1], reach[3] = 1.0, -0.5
    posture = make()
    for _ in range(40):
        simulator.step([0], reach[None])
        home = simulator.homes[0]
        posture.reset([0], [home.episode])
        posture.homes[0].data.qpos[posture.home.arm_qpos] = home.arm_target
        mujoco.mj_kinematics(posture.homes[0].model, posture.homes[0].data)
        wanted = point_to_base(posture.state([0]).base[0], posture.state([0]).ee_pos[0])
        state = simulator.state([0])
        assert np.linalg.norm(point_to_base(state.base[0], state.ee_pos[0]) - wanted) < 0.004


def test_actions_beyond_one_count_as_one(simulator: MujocoSimulator) -> None:
    ends = []
    for scale in (1.0, 5.0):
        free_robot(simulator)
        wave = scale * np.ones(act.SIZE)
        wave[act.BASE] = -scale
        repeat(simulator, wave, 3)
        ends.append(everything(simulator, 0))
    assert differences(*ends) == []


def test_full_speed_is_83_millimetres_and_4_8_degrees_per_step() -> None:
    simulator = make(filter_base=False)
    free_robot(simulator)
    drive = IDLE.copy()
    drive[act.BASE] = 0.4, 0.0
    repeat(simulator, drive, 12)
    before = simulator.state([0]).base[0]
    repeat(simulator, drive, 1)
    step = simulator.state([0]).base[0] - before
    assert np.hypot(*step[:2]) == pytest.approx(0.4 * 2.5 / 30, rel=0.01)
    free_robot(simulator)
    turn = IDLE.copy()
    turn[act.BASE] = 0.0, 1.0
    repeat(simulator, turn, 12)
    before = simulator.state([0]).base[0]
    repeat(simulator, turn, 1)
    step = simulator.state([0]).base[0] - before
    assert step[2] == pytest.approx(2.5 / 30, rel=0.01)


def test_the_stop_part_of_an_action_does_not_affect_the_world(simulator: MujocoSimulator) -> None:
    ends = []
    for stop in (0.0, 1.0):
        free_robot(simulator)
        action = IDLE.copy()
        action[act.STOP] = stop
        repeat(simulator, action, 2)
        ends.append(everything(simulator, 0))
    assert differences(*ends) == []


def test_an_object_falls_with_the_acceleration_of_gravity(simulator: MujocoSimulator) -> None:
    x, y = roomiest(LAYOUT_A)
    for name in ("007_tuna_fish_can", "021_bleach_cleanser", "026_sponge", "013_apple"):
        dropped = on_floor(name, x + 0.9, y, lift=1.0)
        simulator.reset([0], [episode(LAYOUT_A, (x, y, 0.0), dropped)])
        repeat(simulator, IDLE, 9)
        fallen = dropped.pos[2] - simulator.state([0]).object_pos[0, 0, 2]
        # Semi-implicit Euler: n substeps fall g h^2 n (n + 1) / 2.
        assert fallen == pytest.approx(9.81 / 120**2 * 36 * 37 / 2, rel=1e-3), name


# -- the base and the free floor ---------------------------------------------------------------


def wild_drives(simulator: MujocoSimulator, count: int) -> tuple[float, float]:
    """Returns least clearance (m) and greatest force (N) of random drives over the free floor.

    A drive ends at its first contact, because the filter does not control the effect of a
    colliding arm on the base.
    """
    rng = np.random.default_rng(11)
    floor = floor_map(LAYOUT_A)
    least, most = np.inf, 0.0
    for _ in range(count):
        start = episode(LAYOUT_A, robot_start(LAYOUT_A, CLOSED, rng))
        simulator.reset([0], [start])
        drive = IDLE.copy()
        drive[act.BASE] = rng.uniform(-1, 1), rng.uniform(-0.3, 0.3)
        for _ in range(15):
            simulator.step([0], drive[None])
            x, y, _yaw = simulator.homes[0].base
            least = min(least, floor.clearance(x, y))
            most = max(most, simulator.homes[0].force)
            if simulator.homes[0].force > 0.0:
                break
    return least, most


def test_the_filtered_base_stays_on_the_free_floor(simulator: MujocoSimulator) -> None:
    least, _ = wild_drives(simulator, 200)
    # The base's disc of 0.3 m, less two cells of the grid.
    assert least > BASE_RADIUS - 0.05


@pytest.mark.parametrize("yaw", [0.5, 1.2, 1.5, 1.57, 1.7, 2.2])
def test_a_filtered_base_that_slides_along_a_wall_stops_at_the_next_one(yaw: float) -> None:
    """The room is 4 m x 4 m; one end narrows to a bay 1.25 m wide on the left."""
    blocked = np.ones((180, 180), np.bool_)
    blocked[10:170, 10:170] = False
    blocked[120:, 60:] = True  # beyond y = 3 m, except for x < 1.5 m
    metres = CELL_M * (cells_to(blocked) - cells_to(~blocked))
    floor = FloorMap((0.0, 0.0), metres.astype(np.float32))
    x, y, least = 1.9, 0.6, np.inf
    for _ in range(200):
        speed = 2.5 * math.cos(yaw), 2.5 * math.sin(yaw)
        vx, vy = filter_velocity(floor.distance, *floor.origin, x, y, *speed, BASE_RADIUS)
        assert math.hypot(vx, vy) <= 2.5 + 1e-9
        x, y = x + vx / CONTROL_HZ, y + vy / CONTROL_HZ
        least = min(least, floor.clearance(x, y))
    assert least > BASE_RADIUS - 0.03
    assert y > 2.55  # at the narrow end of the room, or in the bay
    if yaw == 2.2:
        assert x < 1.25 and y > 3.5


def test_the_unfiltered_base_collides_with_furniture() -> None:
    least, most = wild_drives(make(filter_base=False), 60)
    assert least < BASE_RADIUS - 0.05
    assert most > 500


# -- forces ------------------------------------------------------------------------------------


def force(pairs: list[tuple[int, int]], normal: list[float], held: int = -1) -> float:
    """Computes `largest_force` of 3D contacts; geoms 0 and 1 are the robot, 2 the floor."""
    robot = np.array([True, True, False, False, False, False])
    rows = np.repeat(np.array(normal) / 4, 4)  # four edges of a pyramid
    address = 4 * np.arange(len(pairs))
    dim = np.full(len(pairs), 3)
    return largest_force(np.array(pairs), dim, address, rows, robot, 2, held)


def test_force_is_that_of_the_strongest_contact() -> None:
    assert force([(0, 3), (4, 1)], [50.0, 70.0]) == pytest.approx(70.0)


def test_robot_contacts_with_floor_itself_and_held_object_do_not_count() -> None:
    assert force([(0, 2), (0, 1), (0, 5)], [500.0, 500.0, 500.0], held=5) == 0.0
    assert force([(0, 5)], [500.0], held=4) == pytest.approx(500.0)


def test_contacts_of_objects_count_including_those_of_the_held_object() -> None:
    assert force([(3, 4), (2, 5)], [400.0, 500.0]) == pytest.approx(500.0)
    assert force([(3, 5), (1, 4)], [400.0, 300.0], held=5) == pytest.approx(400.0)


def test_force_of_a_control_step_is_the_largest_of_its_physics_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulator = make()
    x, y = roomiest(LAYOUT_A)
    simulator.reset([0], [episode(LAYOUT_A, (x, y, 0.0), on_floor("024_bowl", x + 0.7, y))])
    forces = iter([5.0, 700.0, 3.0, 1.0])
    monkeypatch.setattr("tpsrl.sim.mujoco_home.largest_force", lambda *args: next(forces))
    simulator.step([0], IDLE[None])
    assert simulator.state([0]).force[0] == 700.0


def test_rises_of_force_by_more_than_20_newtons_are_summed() -> None:
    def total(*forces: float) -> float:
        home = make().homes[0]
        for newton in forces:
            home._count_force(newton)
        assert home.force == forces[-1]
        return home.force_total

    assert total(0, 50, 50, 50) == pytest.approx(50.0)
    assert total(0, 50, 10, 60) == pytest.approx(100.0)
    # One rise from 0 to 30; the last rise of 15 is too small.
    assert total(0, 15, 30, 45) == pytest.approx(30.0)
    assert total(100, 130, 0, 20) == pytest.approx(130.0)


def test_a_contact_without_constraint_rows_does_not_count() -> None:
    robot = np.array([True, False, False])
    pairs, dim, address = np.array([[0, 2]]), np.array([3]), np.array([-1])
    assert largest_force(pairs, dim, address, np.zeros(0), robot, 1, -1) == 0.0


def test_a_lasting_push_against_a_wall_counts_as_one_rise_of_force() -> None:
    simulator = make(filter_base=False)
    start, newton = at_a_wall(), 1000.0
    simulator.reset([0], [start])
    push = IDLE.copy()
    # The force of the velocity actuator is gain times velocity error.
    gain = simulator.home.model.actuator("base_x").gainprm[0]
    push[8] = -newton / gain / act.BASE_LINEAR_MPS
    repeat(simulator, push, 90)
    state = simulator.state([0])
    # The base's upright cylinder touches a wall in two points.
    assert state.force[0] == pytest.approx(newton / 2, rel=0.03)
    total = state.force_total[0]
    assert total >= newton / 2 - 20.0
    repeat(simulator, push, 10)
    assert simulator.state([0]).force_total[0] == total


def at_a_wall() -> Episode:
    """Returns an episode with the robot's back 2 cm from the middle of a long wall.

    The arm points away from the wall.
    """
    layouts = load_layout_set("replica_cad")
    floor = floor_map(LAYOUT_A)
    for wall in sorted(layouts.walls, key=lambda w: -max(w.half[:2])):
        along = wall.yaw if wall.half[0] > wall.half[1] else wall.yaw + np.pi / 2
        for side in (1, -1):
            normal = side * np.array([-np.sin(along), np.cos(along)])
            x, y = np.array(wall.pos[:2]) + normal * (min(wall.half[:2]) + 0.29)
            inside = floor.clearance(x + normal[0] * 0.3, y + normal[1] * 0.3) > 0.5
            if inside and floor.clearance(x, y) > 0.26:
                return episode(LAYOUT_A, (x, y, float(np.arctan2(*normal[::-1]))))
    raise AssertionError("no wall stands free")


def test_shapes_and_body_poses_agree_with_the_geoms_of_the_engine() -> None:
    simulator, start = make(), box_in_front()
    simulator.reset([0], [start])
    for _ in range(30):
        simulator.step([0], np.full((1, act.SIZE), 0.5))
    one = simulator.homes[0]
    poses, shapes = simulator.body_poses(0), simulator.shapes(0)
    assert poses.dtype == np.float32 and poses.shape[1] == 7
    named = {one.model.geom(g).name: g for g in range(one.model.ngeom)}
    for shape in shapes:
        if shape.part == "object":
            slot = int(shape.name.split("_")[0])
            geom = named[f"slot_{slot}/{shape.kind}"]
        else:
            geom = named[shape.name]
        place, turn = np.array(shape.pos), quat_matrix(shape.quat)
        if shape.body >= 0:
            body = poses[shape.body].astype(np.float64)
            place = body[:3] + quat_matrix(body[3:]) @ place
            turn = quat_matrix(body[3:]) @ turn
        np.testing.assert_allclose(place, one.data.geom_xpos[geom], atol=1e-5)
        np.testing.assert_allclose(turn, one.data.geom_xmat[geom].reshape(3, 3), atol=1e-5)
    parts = collections.Counter(shape.part for shape in shapes)
    assert parts["robot"] == 12 and parts["object"] == len(start.objects)
    assert parts["wall"] > 20 and parts["furniture"] > 50
