"""The laser scanner on the base, and the policies that use it."""

import dataclasses
import math
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch
from homes import (
    DRAWER,
    FRIDGE,
    LAYOUT_A,
    before_handle,
    box_in_front,
    episode,
    move_arm,
    posture_above,
    roomiest,
)
from kinematic_home import Drive, Fold, Grab, KinematicHome, Put, make_episode
from tiny_policies import policy as untrained
from tiny_policies import save

from planner.execution.executor import Executor
from planner.execution.limits import execution_limits
from skills.core import sensors
from skills.core.inputs import PolicyInputs
from skills.core.interface import SkillGoal, sensed
from skills.envs import episodes
from skills.envs.batch import SkillBatch
from skills.envs.environment import SkillEnv
from skills.envs.options import EnvOptions
from skills.policies.learned import LearnedPolicy
from skills.registry import get, planned
from skills.starts.start import Start
from tpsrl.errors import UserError
from tpsrl.sim.laser import Laser
from tpsrl.sim.mujoco_sim import MujocoSimulator
from tpsrl.world import action as act
from tpsrl.world.fetch import LASER_FOV_DEG, LASER_POS, LASER_RANGE_M, LASER_RAYS

LOW_DRAWER = "cab_push_point_4"  # the only drawer at the height of the scanner
ANGLES = Laser(np.zeros(0, int), np.zeros(0, bool)).angles


@pytest.fixture(scope="module")
def two() -> MujocoSimulator:
    return MujocoSimulator(2, slots=12)


def by_rays(simulator: MujocoSimulator, env: int = 0) -> np.ndarray:
    """Returns the scan by MuJoCo's own rays, which pass through the robot."""
    home = simulator.homes[env]
    model, data = home.model, home.data
    base = simulator.state([env]).base[0]
    skipped = simulator.home.robot_geom
    found = np.full(LASER_RAYS, LASER_RANGE_M)
    c, s = math.cos(base[2]), math.sin(base[2])
    eye = np.array([base[0] + c * LASER_POS[0], base[1] + s * LASER_POS[0], 0.0])
    eye[2] = data.xpos[simulator._base_body, 2] + LASER_POS[2]
    geom, far = np.zeros(1, np.int32), 0.0
    for ray, angle in enumerate(ANGLES):
        turn = base[2] + angle
        along = np.array([math.cos(turn), math.sin(turn), 0.0])
        gone, point = 0.0, eye.copy()
        while gone < LASER_RANGE_M:
            far = mujoco.mj_ray(model, data, point, along, None, 1, -1, geom)
            if geom[0] < 0:
                break
            gone += far
            if not skipped[geom[0]]:
                found[ray] = min(gone, LASER_RANGE_M)
                break
            gone += 1e-6
            point = eye + gone * along
    return found


def test_rays_cover_the_field_of_view_from_right_to_left() -> None:
    assert len(ANGLES) == LASER_RAYS
    assert (np.diff(ANGLES) > 0.0).all()
    np.testing.assert_allclose(ANGLES, -ANGLES[::-1], atol=1e-12)
    # A ray is in the middle of its share of the field of view.
    widest = math.degrees(ANGLES[-1])
    assert 0.94 * LASER_FOV_DEG / 2 < widest < LASER_FOV_DEG / 2
    assert np.degrees(np.diff(ANGLES)).max() < 1.5 * LASER_FOV_DEG / LASER_RAYS


@pytest.mark.parametrize("at", [0, 1, 2, 3, 4, 5])
def test_a_scan_agrees_with_mujoco_rays(two: MujocoSimulator, at: int) -> None:
    rng = np.random.default_rng(at)
    box = box_in_front()
    x, y, _ = box.robot_start
    turned = dataclasses.replace(box, robot_start=(x, y, float(rng.uniform(-3.0, 3.0))))
    handle = before_handle([FRIDGE, DRAWER][at % 2], 0.9, joint=0.1 * (at // 2))
    two.reset([0, 1], [turned, handle])
    scans = two.laser([0, 1])
    assert scans.shape == (2, LASER_RAYS) and scans.dtype == np.float32
    for env, scan in enumerate(scans):
        expected = by_rays(two, env)
        np.testing.assert_allclose(scan, expected, atol=1e-4)
        assert np.ptp(expected) > 0.5
    np.testing.assert_array_equal(two.laser([1])[0], scans[1])


def test_a_scan_turns_with_the_base(two: MujocoSimulator) -> None:
    """The left rays hit a box to the left of the robot; after a turn, the right rays hit it."""
    box = box_in_front(ahead=0.9)
    x, y, _ = box.robot_start
    x0, y0, z0 = box.objects[0].pos
    stack = dataclasses.replace(box.objects[0], pos=(x0, y0, z0 + 0.22))  # as high as the scanner
    objects = [box.objects[0], stack]
    nearest = []
    for yaw in (-0.6, 0.6):
        one = dataclasses.replace(box, robot_start=(x, y, yaw), objects=tuple(objects))
        none = dataclasses.replace(box, robot_start=(x, y, yaw), objects=())
        two.reset([0, 1], [one, none])
        scans = two.laser([0, 1])
        nearest.append(float(ANGLES[np.argmax(scans[1] - scans[0])]))
    assert nearest[0] == pytest.approx(0.75, abs=0.3) and nearest[1] == pytest.approx(
        -0.75, abs=0.3
    )


def test_the_robot_is_not_scanned_even_with_the_arm_before_the_scanner(
    two: MujocoSimulator,
) -> None:
    x, y = roomiest(LAYOUT_A)
    two.reset([0, 1], [episode(LAYOUT_A, (x, y, 0.0))] * 2)
    before = two.laser([0])[0].copy()
    height = LASER_POS[2]
    base = two.state([0]).base[0]
    move_arm(two, posture_above(base, np.array([x + 0.7, y, height])))
    cup = two.state([0]).ee_pos[0]
    assert cup == pytest.approx([x + 0.7, y, height], abs=0.05)
    assert np.abs(two.laser([0])[0] - before).max() < 0.02
    assert before.min() > 0.3


def test_an_open_drawer_is_scanned(two: MujocoSimulator) -> None:
    shut = before_handle(LOW_DRAWER, 1.3)
    two.reset([0, 1], [shut, dataclasses.replace(shut, articulation={LOW_DRAWER: 0.3})])
    scans = two.laser([0, 1])
    for env, scan in enumerate(scans):
        np.testing.assert_allclose(scan, by_rays(two, env), atol=1e-4)
    ahead = np.abs(ANGLES) < 0.1
    np.testing.assert_allclose((scans[0] - scans[1])[ahead], 0.3, atol=0.02)


# -- policies that use the laser ------------------------------------------------------------------


@pytest.mark.parametrize("skill", planned())
def test_fetch_sensors_are_the_habitat_ones_with_laser_and_velocity(
    two: MujocoSimulator, skill: str
) -> None:
    definition = get(skill).definition
    habitat, fetch = (PolicyInputs.of(skill, choice) for choice in ("habitat", "fetch"))
    assert {*habitat.sensors, "velocity", sensors.LASER} <= set(fetch.sensors)
    assert not fetch.privileged
    batch = SkillBatch(EnvOptions.of(skill, sensors="fetch"), two)
    record = box_in_front()
    goal = SkillGoal(0, record.objects[0].pos, FRIDGE)
    if definition.begins_holding:
        record = dataclasses.replace(record, held=0)
    starts = [Start(record, goal)] * 2
    shown = batch.reset([0, 1], starts)["state"]
    place = fetch.layout()[sensors.LASER]
    np.testing.assert_array_equal(shown[:, place], two.laser([0, 1]))
    action = np.zeros((1, act.SIZE))
    action[0, act.BASE] = 0.0, 1.0
    for _ in range(5):
        stepped = batch.step([1], action).observation["state"]
    np.testing.assert_array_equal(stepped[0, place], two.laser([1])[0])
    assert np.abs(stepped[0, place] - shown[1, place]).max() > 0.01


def driver(folder: Path) -> Path:
    """Saves an untrained navigation policy with laser input as a checkpoint."""
    network, deploy = untrained("navigate", "fetch")
    return save(folder / "navigate.safetensors", network, deploy)


def test_a_laser_policy_observes_the_laser_readings_of_its_environment(
    two: MujocoSimulator, tmp_path: Path
) -> None:
    policy = LearnedPolicy("navigate", driver(tmp_path), sample=False)
    assert policy.sees_laser and policy.depth_size is None
    record = box_in_front()
    x, y, _ = record.robot_start
    start = Start(record, SkillGoal(position=(x + 3.0, y, 0.8)))
    one = MujocoSimulator(1, slots=12)
    env = SkillEnv("navigate", simulator=one, starts=[start], sensors="fetch", horizon=4)
    seen: list[np.ndarray] = []
    network = policy._network.policy
    acts = network.act

    def watched(shown: dict[str, torch.Tensor], *rest: torch.Tensor) -> object:
        seen.append(shown["state"][0].numpy().copy())
        return acts(shown, *rest)

    network.act = watched  # type: ignore[assignment, method-assign]
    shown: list[np.ndarray] = []
    try:
        watch = lambda env: shown.append(env.batch.observe([0])["state"][0])  # noqa: E731
        (result,) = episodes.run(env, policy, [0], watch)
    finally:
        del network.act
    assert result.steps == len(seen) == len(shown) - 1
    np.testing.assert_allclose(seen, shown[:-1], atol=1e-6)
    place = env.inputs.layout()[sensors.LASER]
    assert np.ptp(seen[0][place]) > 0.1
    with pytest.raises(UserError, match="measured: missing; the policy of navigate needs it"):
        policy.act(env.world)
    env.close()


class ScannedHome(KinematicHome):
    """Home without physics whose scans contain the number of scans so far."""

    scans = 0

    def laser(self, env_ids: list[int]) -> np.ndarray:
        self.scans += 1
        return np.full((len(env_ids), LASER_RAYS), self.scans, np.float32)


class LookingDrive(Drive):
    """Navigation policy that ignores its laser input but records it."""

    asks_engine = True

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[float] = []

    def measure(self, simulator: ScannedHome, env_id: int) -> sensors.Readings:
        return sensors.Readings(laser=simulator.laser([env_id]))

    def act(
        self,
        world: object,
        depth: np.ndarray | None = None,
        measured: sensors.Readings | None = None,
    ) -> np.ndarray:
        assert depth is None and measured is not None and measured.laser.shape == (1, LASER_RAYS)
        self.seen.append(float(measured.laser[0, 0]))
        return super().act(world)


def test_a_laser_policy_in_a_plan_receives_a_scan_at_every_step() -> None:
    home, drive = ScannedHome(), LookingDrive()
    policies = {"navigate": drive, "pick": Grab(), "place": Put()}
    executor = Executor(home, policies, reset_arm=Fold(), limits=execution_limits())
    trace = executor.run(make_episode())
    assert trace.success and home.scans > 20
    assert drive.seen == list(range(1, home.scans + 1))  # no other policy took a scan


def test_only_policies_that_use_depth_or_laser_receive_them(two: MujocoSimulator) -> None:
    two.reset([0], [box_in_front()])

    class Blind:
        depth_size = None

    class Looking(Blind):
        depth_size, asks_engine = (4, 6), True

        def measure(self, simulator: MujocoSimulator, env_id: int) -> sensors.Readings:
            return sensors.Readings(laser=simulator.laser([env_id]))

    assert sensed(Blind(), two, 0) == (None,)  # type: ignore[arg-type]
    depth, measured = sensed(Looking(), two, 0)  # type: ignore[arg-type]
    np.testing.assert_array_equal(depth, two.depth([0], 4, 6)[0])
    np.testing.assert_array_equal(measured.laser, two.laser([0]))
