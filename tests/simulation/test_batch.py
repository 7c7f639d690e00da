"""Batch simulators: the behaviour that both engines, mujoco and warp, share."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from homes import (
    HOLD,
    IDLE,
    LAYOUT_A,
    LAYOUT_B,
    box_in_front,
    driving,
    episode,
    on_floor,
    roomiest,
)

import tpsrl.sim
from tpsrl.errors import UserError
from tpsrl.sim.batch.base import BatchSimulator
from tpsrl.sim.mujoco_sim import MujocoSimulator
from tpsrl.sim.warp import checks
from tpsrl.world import action as act
from tpsrl.world.episode import Episode
from tpsrl.world.fetch import CLEARANCE_RANGE_M, LASER_RAYS, REST_ARM

WARP = pytest.mark.skipif(bool(checks.missing()), reason=f"needs {checks.INSTALL}")


@pytest.fixture(scope="module", params=["mujoco", pytest.param("warp", marks=WARP)])
def batch(request: pytest.FixtureRequest) -> Iterator[BatchSimulator]:
    made = tpsrl.sim.make_batch(request.param, num_envs=3, slots=12)
    yield made
    made.close()


def begun() -> list[Episode]:
    """Returns three episodes in two apartments, with one, two and no objects."""
    x, y = roomiest(LAYOUT_B)
    can = on_floor("002_master_chef_can", x + 0.6, y + 0.1)
    return [
        box_in_front(),
        episode(LAYOUT_B, (x, y, 0.4), can, on_floor("013_apple", x - 0.8, y)),
        episode(LAYOUT_A, (*roomiest(LAYOUT_A), 1.0), articulation={"fridge_push_point": 0.5}),
    ]


def stacked(*actions: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.stack(actions))


def test_homes_begin_in_the_states_of_their_episodes(batch: BatchSimulator) -> None:
    episodes = begun()
    batch.reset([0, 1, 2], episodes)
    world = batch.state()
    starts = np.array([one.robot_start for one in episodes])
    np.testing.assert_allclose(world.base.numpy(), starts, atol=1e-5)
    np.testing.assert_allclose(world.arm.numpy(), np.array([REST_ARM] * 3), atol=1e-5)
    for home, one in enumerate(episodes):
        placed = np.array([o.pos for o in one.objects]).reshape(-1, 3)
        found = world.object_pos[home].numpy()
        np.testing.assert_allclose(found[: len(placed)], placed, atol=1e-5)
        assert np.isnan(found[len(placed) :]).all()
    assert world.joints[:, 0].tolist() == [0.0, 0.0, 0.5]
    assert world.held.tolist() == [-1] * 3 and world.step.tolist() == [0] * 3


def test_actions_of_one_home_do_not_affect_the_others(batch: BatchSimulator) -> None:
    batch.reset([0, 1, 2], begun())
    turning = IDLE.copy()
    turning[act.BASE] = 0.0, 1.0
    for _ in range(4):
        batch.step(stacked(driving(-0.5), IDLE, turning))
    for _ in range(8):
        batch.step(stacked(IDLE, IDLE, IDLE))
    world, starts = batch.state(), np.array([one.robot_start for one in begun()])
    moved = world.base.numpy() - starts
    assert moved[0] == pytest.approx([-2 * act.STEP_M, 0.0, 0.0], abs=2e-3)
    assert moved[1] == pytest.approx(np.zeros(3), abs=1e-3)
    assert moved[2] == pytest.approx([0.0, 0.0, 4 * act.STEP_RAD], abs=2e-3)
    assert world.step.tolist() == [12] * 3


def test_a_frozen_home_keeps_its_state_and_resumes_from_it(
    batch: BatchSimulator,
) -> None:
    batch.reset([0, 1, 2], begun())
    plan = [driving(-0.4), driving(0.2), IDLE, driving(0.3)]
    straight = []
    for action in plan:
        batch.step(stacked(action, action, action))
        straight.append(batch.state().base[1].clone())
    batch.reset([0, 1, 2], begun())
    stay = torch.tensor([True, False, True])
    for action, wanted in zip(plan, straight, strict=True):
        before = [values.clone() for values in (batch.state().base[1], batch.state().arm[1])]
        for _ in range(2):
            batch.step(stacked(IDLE, driving(1.0), IDLE), stay)
        assert torch.equal(batch.state().base[1], before[0])
        assert torch.equal(batch.state().arm[1], before[1])
        batch.step(stacked(action, action, action), ~stay)
        assert torch.equal(batch.state().base[1], wanted)
    assert batch.state().step.tolist() == [8, 4, 8]


def test_resetting_one_home_leaves_the_others_unchanged(batch: BatchSimulator) -> None:
    episodes = begun()
    batch.reset([0, 1, 2], episodes)
    for _ in range(3):
        batch.step(stacked(*[driving(-0.5)] * 3))
    others = batch.state().base[[0, 1]].clone()
    batch.reset([2], [episodes[0]])
    world = batch.state()
    assert torch.equal(world.base[[0, 1]], others)
    assert world.base[2].tolist() == pytest.approx(episodes[0].robot_start, abs=1e-5)
    assert world.step.tolist() == [3, 3, 0]
    assert not world.object_pos[2, 0].isnan().any()


def test_depth_agrees_with_the_depth_caster(batch: BatchSimulator) -> None:
    batch.reset([0, 1, 2], begun())
    one = tpsrl.sim.make(num_envs=3, slots=12)
    one.reset(range(3), begun())
    for size in ((64, 64), (48, 96)):
        seen = batch.depth(*size)
        assert seen.dtype == torch.float32 and tuple(seen.shape) == (3, *size)
        away = 10.0 * np.abs(seen.numpy() - one.depth(range(3), *size))
        assert (away < 0.01).mean() > 0.998


def test_bad_input_is_refused(batch: BatchSimulator) -> None:
    batch.reset([0, 1, 2], begun())
    with pytest.raises(UserError, match=r"actions: shape is \(2, 11\), expected \(3, 11\)"):
        batch.step(stacked(IDLE, IDLE))
    box = box_in_front().objects[0]
    with pytest.raises(
        UserError, match="episode test: objects: 13 given, this home has room for 12"
    ):
        batch.reset([0], [episode(LAYOUT_A, (0.0, 0.0, 0.0), *[box] * 13)])


def test_an_engine_without_a_batch_is_refused() -> None:
    with pytest.raises(UserError, match=r"^engine: 'habitat' has no batch simulator; use"):
        tpsrl.sim.make_batch("habitat")
    made = tpsrl.sim.make_batch("mujoco", slots=12)
    assert made.num_envs == 1 and made.capabilities == MujocoSimulator(slots=12).capabilities


def test_laser_agrees_with_that_of_a_simulator(batch: BatchSimulator) -> None:
    batch.reset([0, 1, 2], begun())
    one = tpsrl.sim.make(num_envs=3, slots=12)
    one.reset(range(3), begun())
    found = batch.laser()
    assert found.dtype == torch.float32
    away = np.abs(found.numpy() - one.laser(range(3)))
    assert away.shape == (3, LASER_RAYS) and (away < 0.01).mean() > 0.998


def test_homes_restart_in_prepared_states(batch: BatchSimulator) -> None:
    episodes = begun()
    batch.reset([0, 1, 2], [episodes[0]] * 3)
    batch.prepare(episodes)
    for _ in range(3):
        batch.step(stacked(*[driving(-0.5)] * 3))
    kept = batch.state().base[1].clone()
    batch.restart(torch.tensor([True, False, True]), torch.tensor([1, 0, 2]))
    world = batch.state()
    assert torch.equal(world.base[1], kept) and world.step.tolist() == [0, 3, 0]
    assert world.base[0].tolist() == pytest.approx(episodes[1].robot_start, abs=1e-5)
    assert world.joints[2, 0] == 0.5 and world.object_pos[2].isnan().all()
    batch.reset([0, 1, 2], [episodes[1], episodes[0], episodes[2]])
    wanted = batch.state()
    for name in ("object_pos", "arm", "joints", "ee_pos"):
        found = getattr(world, name)[[0, 2]]
        assert torch.allclose(found, getattr(wanted, name)[[0, 2]], equal_nan=True), name


def test_clearances_and_velocities_agree_with_those_of_a_simulator(batch: BatchSimulator) -> None:
    x, y = roomiest(LAYOUT_A)
    box = dataclasses.replace(box_in_front().objects[0], pos=(0.0, 0.0, 0.0))
    can, apple = on_floor("002_master_chef_can", x + 0.45, y), on_floor("013_apple", x + 0.4, y)
    apple = dataclasses.replace(apple, pos=(x + 0.6, y + 0.1, 0.9))  # it falls
    batch.reset([0], [episode(LAYOUT_A, (x, y, 0.4))])
    beside = batch.state().ee_pos[0].double().numpy() + np.array((0.0, 0.25, -0.1))
    plum = dataclasses.replace(apple, name="018_plum", pos=tuple(beside.tolist()))
    held = dataclasses.replace(episode(LAYOUT_A, (x, y, 0.4), box, can, plum), held=0)
    falls = episode(LAYOUT_A, (x, y, 0.4), can, apple)
    episodes = [held, falls, episode(LAYOUT_A, (x, y, 2.0))]
    batch.reset([0, 1, 2], episodes)
    one = tpsrl.sim.make(num_envs=3, slots=12)
    one.reset(range(3), episodes)
    targets = np.array([0, 1, -1])
    points = np.array([can.pos, apple.pos, (x, y, 0.5)]) + np.array((0.03, 0.02, 0.1))
    for _ in range(2):
        given = torch.from_numpy(targets)
        for found, wanted in (
            (batch.clearance(given), one.clearance(range(3), targets)),
            (
                batch.neighbours(given, torch.from_numpy(points)),
                one.neighbours(range(3), targets, points),
            ),
            (batch.object_velocity(given), one.object_velocity(range(3), targets)),
        ):
            assert found.dtype == torch.float32
            np.testing.assert_allclose(found.numpy(), wanted, atol=2e-3)
        moving = np.stack([HOLD, driving(0.5), IDLE])
        batch.step(torch.from_numpy(moving))
        one.step(range(3), moving)
    assert np.abs(one.object_velocity(range(3), targets)[1, 2]) > 0.1
    near = one.clearance(range(3), targets)[..., 3] < CLEARANCE_RANGE_M
    assert near[0, -1] and near[1].sum() >= 2
