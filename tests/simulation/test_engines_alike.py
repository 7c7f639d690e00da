"""The behaviour that all engines share: mujoco, warp where installed, and Habitat where configured.

`TPSRL_HABITAT_PYTHON` is a Python interpreter with habitat_sim, `TPSRL_HABITAT_DATA` the folder
that contains habitat-lab's `data/`. Without both, the cases for Habitat are skipped.
"""

import math
import os
from collections.abc import Iterator

import numpy as np
import pytest
from homes import HOLD, IDLE, LAYOUT_A, UP, box_in_front, driving, episode, posture_above, roomiest

import tpsrl.sim
from tpsrl.errors import UserError
from tpsrl.render.cameras import Sphere
from tpsrl.sim.base import Simulator
from tpsrl.sim.habitat.settings import HabitatSettings
from tpsrl.sim.warp import checks
from tpsrl.world import action as act
from tpsrl.world.fetch import REST_ARM
from tpsrl.world.kinematics import cup_pose
from tpsrl.world.objects import object_kind
from tpsrl.world.reach import point_to_base

PYTHON, DATA = (os.environ.get(f"TPSRL_HABITAT_{name}", "") for name in ("PYTHON", "DATA"))
WARP = pytest.mark.skipif(bool(checks.missing()), reason=f"needs {checks.INSTALL}")
REAL = pytest.mark.skipif(not (PYTHON and DATA), reason="TPSRL_HABITAT_PYTHON, _DATA are not set")


def make(engine: str) -> Simulator:
    habitat = HabitatSettings(PYTHON, DATA, colour=True)
    return tpsrl.sim.make(engine, num_envs=2, slots=12, habitat=habitat)


@pytest.fixture(
    scope="module",
    params=["mujoco", pytest.param("warp", marks=WARP), pytest.param("habitat", marks=REAL)],
)
def simulator(request: pytest.FixtureRequest) -> Iterator[Simulator]:
    made = make(request.param)
    yield made
    made.close()


def repeat(simulator: Simulator, action: np.ndarray, steps: int) -> None:
    for _ in range(steps):
        simulator.step([0], action[None])


def move_arm(simulator: Simulator, before: np.ndarray, after: np.ndarray, grip: float) -> None:
    """Moves the arm from one posture to another, interpolating all joints evenly."""
    steps = math.ceil(float(np.abs(after - before).max()) / act.ARM_DELTA_RAD)
    action = IDLE.copy()
    action[act.ARM], action[act.GRIP] = (after - before) / steps / act.ARM_DELTA_RAD, grip
    repeat(simulator, action, steps)


def test_a_home_begins_in_the_state_of_its_episode(simulator: Simulator) -> None:
    x, y = roomiest(LAYOUT_A)
    joints = {"cab_push_point_4": 0.1, "cab_push_point_5": 0.3, "fridge_push_point": 1.0}
    begun = box_in_front()
    begun = episode(LAYOUT_A, (x, y, 0.7), *begun.objects, articulation=joints)
    simulator.reset([1], [begun])
    world = simulator.state([1])
    assert world.base[0] == pytest.approx([x, y, 0.7], abs=1e-5)
    assert world.arm[0] == pytest.approx(REST_ARM, abs=1e-5)
    assert world.object_pos[0, 0] == pytest.approx(begun.objects[0].pos, abs=1e-5)
    assert world.joints[0] == pytest.approx([1.0, 0.1, 0.3, 0.0, 0.0], abs=1e-4)
    assert (world.held[0], world.held_joint[0], world.step[0]) == (-1, -1, 0)
    cup = point_to_base(world.base[0], world.ee_pos[0])
    assert cup == pytest.approx(cup_pose(np.array(REST_ARM))[0], abs=1e-3)
    assert np.isnan(world.object_pos[0, 1:]).all()


def test_the_arm_moves_by_its_action(simulator: Simulator) -> None:
    simulator.reset([0], [box_in_front()])
    action = IDLE.copy()
    action[act.ARM] = 3.0, -0.5, 0.25, 0.0, 1.0, -1.0, 0.5  # beyond 1 counts as 1
    repeat(simulator, action, 10)
    repeat(simulator, IDLE, 10)
    moved = simulator.state([0]).arm[0] - REST_ARM
    wanted = 10 * act.ARM_DELTA_RAD * np.clip(action[act.ARM], -1.0, 1.0)
    assert moved == pytest.approx(wanted, abs=5e-3)


def test_the_base_moves_by_its_action_and_other_homes_stay_unchanged(simulator: Simulator) -> None:
    simulator.reset([0, 1], [box_in_front(), box_in_front()])
    still = simulator.state([1])
    repeat(simulator, driving(-0.5), 4)
    turning = IDLE.copy()
    turning[act.BASE] = 0.0, 1.0
    turning[act.STOP] = 1.0  # does not affect the world
    repeat(simulator, turning, 3)
    assert simulator.state([0]).base_velocity[0, 2] > 2.0
    turning[act.BASE] = 0.0
    repeat(simulator, turning, 13)  # the base of one engine has inertia
    world, (x, y) = simulator.state([0]), roomiest(LAYOUT_A)
    assert world.base[0] == pytest.approx([x - 2 * act.STEP_M, y, 3 * act.STEP_RAD], abs=2e-3)
    assert world.step[0] == 20
    for name in ("base", "arm", "object_pos", "step"):
        np.testing.assert_array_equal(getattr(simulator.state([1]), name), getattr(still, name))


def test_an_object_touched_by_the_gripping_cup_is_held_until_release(simulator: Simulator) -> None:
    begun = box_in_front()
    simulator.reset([0], [begun])
    world = simulator.state([0])
    top = world.object_pos[0, 0] + object_kind(begun.objects[0].name).half[2] * UP
    over = posture_above(world.base[0], top + 0.08 * UP)
    on = posture_above(world.base[0], top, over)
    move_arm(simulator, np.array(REST_ARM), over, -1.0)
    move_arm(simulator, over, on, 1.0)
    repeat(simulator, HOLD, 5)
    assert simulator.state([0]).held[0] == 0
    move_arm(simulator, on, over, 1.0)
    lifted = simulator.state([0])
    assert lifted.held[0] == 0 and not lifted.violation[0]
    assert lifted.object_pos[0, 0, 2] - world.object_pos[0, 0, 2] == pytest.approx(0.08, abs=0.03)
    repeat(simulator, IDLE, 30)
    fallen = simulator.state([0])
    assert fallen.held[0] == -1
    assert fallen.object_pos[0, 0, 2] < lifted.object_pos[0, 0, 2] - 0.04


def test_bad_input_is_refused(simulator: Simulator) -> None:
    simulator.reset([0], [box_in_front()])
    with pytest.raises(UserError, match=r"actions: shape is \(1, 3\), expected \(1, 11\)"):
        simulator.step([0], np.zeros((1, 3)))
    with pytest.raises(UserError, match="actions: not finite"):
        simulator.step([0], np.full((1, act.SIZE), np.nan))
    box = box_in_front().objects[0]
    with pytest.raises(
        UserError, match="episode test: objects: 13 given, this home has room for 12"
    ):
        simulator.reset([0], [episode(LAYOUT_A, (0.0, 0.0, 0.0), *[box] * 13)])


def test_depth_and_colour_are_rendered_from_the_camera_poses(simulator: Simulator) -> None:
    begun, other = box_in_front(), make("mujoco")
    simulator.reset([0], [begun])
    other.reset([0], [begun])
    ours, theirs = (one.depth([0], 64, 64)[0] for one in (other, simulator))
    assert theirs.dtype == np.float32 and theirs.shape == (64, 64)
    assert theirs.min() >= 0.0 and theirs.max() <= 1.0
    scans = [one.laser([0])[0] for one in (other, simulator)]
    assert np.median(np.abs(scans[0] - scans[1])) < 0.05
    away = 10.0 * np.abs(ours - theirs)
    # Habitat's meshes of arm and furniture differ from our primitives; the floor is the same.
    assert np.median(away) < 0.03 and np.median(away[-16:]) < 0.01
    green = Sphere(begun.objects[0].pos, 0.05, (0.0, 1.0, 0.0))
    for camera, size in (("third_person", (120, 160)), ("head", (64, 64))):
        plain = simulator.render(0, camera, *size)
        marked = simulator.render(0, camera, *size, markers=[green])
        assert plain.shape == (*size, 3) and plain.dtype == np.uint8 and plain.std() > 5
        assert 1 < (plain != marked).any(axis=-1).sum() < 0.1 * plain.shape[0] * plain.shape[1]
    with pytest.raises(UserError, match=r"camera: unknown value 'third'.*third_person"):
        simulator.render(0, "third")
    other.close()
