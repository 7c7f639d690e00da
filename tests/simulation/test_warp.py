"""The warp engine on its CPU device, tested against the C engine and its single-home functions.

Kernels are compiled at their first use, which takes some minutes, and kept in warp's cache.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from homes import (
    DRAWER,
    FRIDGE,
    HOLD,
    IDLE,
    LAYOUT_B,
    UP,
    before_handle,
    box_in_front,
    driving,
    episode,
    move_arm,
    on_floor,
    posture_above,
    posture_towards,
    repeat,
    roomiest,
)
from torch.utils._python_dispatch import TorchDispatchMode

import tpsrl.sim
from skills.envs.options import EnvOptions
from skills.envs.training import TrainingVecEnvFactory
from skills.starts import dataset
from skills.starts.source import start_episodes
from tpsrl.errors import RunError, UserError
from tpsrl.sim.control import command
from tpsrl.sim.home_model import MUTABLE_FIELDS
from tpsrl.sim.mjcf.home import SUBSTEPS
from tpsrl.sim.mujoco_home import FORCE_RISE_N
from tpsrl.sim.mujoco_sim import MujocoSimulator
from tpsrl.sim.warp import checks
from tpsrl.world import action as act
from tpsrl.world.fetch import HEAD_CAMERA_FAR_M
from tpsrl.world.floor import floor_map, main_floor, random_base_pose
from tpsrl.world.handles import handle
from tpsrl.world.objects import object_kind
from tpsrl.world.state import JOINTS, WorldState

if checks.missing():
    pytest.skip(f"needs {checks.INSTALL}", allow_module_level=True)

import mujoco_warp
import warp as wp

from tpsrl.sim.warp import arrays, starts
from tpsrl.sim.warp.batch import WarpBatch
from tpsrl.sim.warp.command import command as command_kernel
from tpsrl.sim.warp.simulator import WarpSimulator

Moves = Callable[[MujocoSimulator], None]


# -- the same moves on both ------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Recording:
    """Actions of the C engine from a start state, and the resulting states."""

    begin: starts.BatchStart
    actions: list[np.ndarray]
    states: list[WorldState]


def record(before: Moves, moves: Moves) -> Recording:
    """Brings a home to a start state by `before` and records the actions of `moves`."""
    simulator = tpsrl.sim.make(slots=12)
    assert isinstance(simulator, MujocoSimulator)
    before(simulator)
    begin = starts.start_of(simulator.home, simulator.homes[0])
    actions: list[np.ndarray] = []
    states: list[WorldState] = []
    step = simulator.step

    def watched(env_ids: list[int], given: np.ndarray) -> None:
        actions.append(given[0].copy())
        step(env_ids, given)
        states.append(simulator.state([0]))

    simulator.step = watched  # type: ignore[method-assign, assignment]
    moves(simulator)
    return Recording(begin, actions, states)


def grasp() -> Recording:
    """Records a box grasped from above, lifted, driven away and dropped."""

    def top(simulator: MujocoSimulator) -> np.ndarray:
        state = simulator.state([0])
        return state.object_pos[0, 0] + object_kind("003_cracker_box").half[2] * UP

    def over(simulator: MujocoSimulator) -> None:
        simulator.reset([0], [box_in_front(LAYOUT_B)])
        move_arm(simulator, posture_above(simulator.state([0]).base[0], top(simulator) + 0.04 * UP))

    def take(simulator: MujocoSimulator) -> None:
        base = simulator.state([0]).base[0]
        move_arm(simulator, posture_above(base, top(simulator)), grip=1.0)
        repeat(simulator, HOLD, 3)
        move_arm(simulator, posture_above(base, top(simulator) + 0.03 * UP), grip=1.0)
        repeat(simulator, driving(-0.3, HOLD), 10)
        repeat(simulator, IDLE, 15)

    return record(over, take)


def pull(marker: str, speed: float, steps: int) -> Recording:
    """Records a door or drawer that is grasped at its face, pulled open, held and released."""

    def ahead(simulator: MujocoSimulator, gap: float) -> np.ndarray:
        where, base = handle(box_in_front().layout, marker), simulator.state([0]).base[0]
        normal = where.normal(0.0)
        return posture_towards(base, where.point(0.0) + gap * normal, -normal)

    def before(simulator: MujocoSimulator) -> None:
        simulator.reset([0], [before_handle(marker)])
        move_arm(simulator, ahead(simulator, 0.03))

    def open_it(simulator: MujocoSimulator) -> None:
        move_arm(simulator, ahead(simulator, -0.01), grip=1.0)
        repeat(simulator, HOLD, 3)
        repeat(simulator, driving(-speed, HOLD), steps)
        repeat(simulator, HOLD, 8)
        repeat(simulator, IDLE, 5)
        repeat(simulator, driving(-speed), 8)

    return record(before, open_it)


def test_a_grasp_a_drawer_and_a_door_behave_as_in_the_c_engine() -> None:
    runs = [grasp(), pull(DRAWER, 0.2, 20), pull(FRIDGE, 0.15, 12)]
    steps = max(len(run.actions) for run in runs)
    assert steps < 90
    batch = WarpBatch(len(runs))
    batch.begin(range(len(runs)), [run.begin for run in runs])
    held, held_joint = set(), set()
    for step in range(steps):
        actions = [run.actions[min(step, len(run.actions) - 1)] for run in runs]
        batch.step(torch.from_numpy(np.stack(actions)))
        world = batch.state()
        for home, run in enumerate(runs):
            if step >= len(run.states):
                continue
            wanted = run.states[step]
            # A landing box amplifies a float32 rounding difference and comes to rest elsewhere.
            limits = dict.fromkeys(("base", "arm", "ee_pos", "joints", "marker_pos"), 1e-3)
            for name, limit in (limits | {"object_pos": 1e-2}).items():
                ours, theirs = getattr(wanted, name)[0], getattr(world, name)[home].numpy()
                np.testing.assert_allclose(theirs, ours, 0, limit, err_msg=f"{name} {step}")
            for name in ("held", "held_joint", "violation"):
                assert getattr(world, name)[home] == getattr(wanted, name)[0], (name, step)
            away = abs(float(world.force_total[home]) - wanted.force_total[0])
            assert away < FORCE_RISE_N, step
            held.add(int(world.held[home]))
            held_joint.add(int(world.held_joint[home]))
    assert held == {-1, 0}
    assert held_joint == {-1, JOINTS.index(DRAWER), JOINTS.index(FRIDGE)}
    assert world.joints[1, JOINTS.index(DRAWER)] > 0.1 and world.joints[2, 0] > 0.1


def test_homes_of_different_apartments_behave_and_look_as_in_the_c_engine() -> None:
    names = ("v3_sc3_staging_00", "v3_sc1_staging_12", "v3_sc0_staging_05", "v3_sc2_staging_10")
    kinds = ("003_cracker_box", "002_master_chef_can", "013_apple", "024_bowl")
    begun = []
    for name, kind in zip(names, kinds, strict=True):
        layout = f"replica_cad/{name}"
        x, y = roomiest(layout)
        begun.append(episode(layout, (x, y, 0.3), on_floor(kind, x + 0.9, y, lift=0.05)))
    one, batch = tpsrl.sim.make(num_envs=4, slots=12), WarpBatch(4)
    one.reset(range(4), begun)
    batch.reset(range(4), begun)
    rng = np.random.default_rng(0)
    for _ in range(20):
        actions = rng.uniform(-0.6, 0.6, (4, act.SIZE))
        one.step(range(4), actions)
        batch.step(torch.from_numpy(actions))
    wanted, world = one.state(range(4)), batch.state()
    for name in ("base", "base_velocity", "arm", "ee_pos", "object_pos"):
        found = getattr(world, name).numpy()
        np.testing.assert_allclose(found, getattr(wanted, name), rtol=0, atol=1e-3, err_msg=name)
    for size in (64, 128):
        away = batch.depth(size, size).numpy() - one.depth(range(4), size, size)
        assert (np.abs(away) * HEAD_CAMERA_FAR_M < 0.01).mean() > 0.998


def test_environments_have_the_same_observations_and_rewards_on_both_engines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPSRL_CACHE", str(tmp_path))
    monkeypatch.setattr(dataset, "BASE_EPISODES", 2)
    drawn = start_episodes("pick", range(4), "val", 0, 4, processes=1)
    given = {"num_objects": 4, "starts": drawn, "depth": (16, 16), "horizon": 6}
    homes = [
        TrainingVecEnvFactory(EnvOptions.of("pick", engine=engine, **given), seed=5)(range(2))
        for engine in ("mujoco", "warp")
    ]
    ours, theirs = (one.reset(range(2)) for one in homes)
    rng = np.random.default_rng(1)
    for _ in range(7):  # the last step is the first of the next episodes
        for name, values in ours.items():
            near = np.isclose(theirs[name], values, rtol=0, atol=1e-3)
            assert near.mean() > 0.998, name
        actions = rng.uniform(-0.5, 0.5, (2, act.SIZE)).astype(np.float32)
        one, other = (pool.step(range(2), actions) for pool in homes)
        np.testing.assert_allclose(other.reward, one.reward, rtol=0, atol=1e-4)
        np.testing.assert_array_equal(other.truncated, one.truncated)
        ours, theirs = one.observation, other.observation


class HostReads(TorchDispatchMode):
    """Names the operations that wait for a device, as they copy values to the processor."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, indices = func.name(), args[1] if len(args) > 1 else ()
        by_mask = name.startswith("aten::index") and any(
            isinstance(one, torch.Tensor) and one.dtype == torch.bool
            for one in (indices if isinstance(indices, list | tuple) else ())
        )
        if by_mask or name in ("aten::_local_scalar_dense", "aten::nonzero"):
            self.names.append(name)
        return func(*args, **(kwargs or {}))


def test_steps_on_the_device_equal_those_of_the_c_engine_and_do_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPSRL_CACHE", str(tmp_path))
    monkeypatch.setattr(dataset, "BASE_EPISODES", 2)
    given = {"num_objects": 4, "num_episodes": 2, "depth": 16, "sensors": "teacher", "horizon": 5}
    given |= {"settings": {"way": 6.0, "hand": 4.0, "near": 1.0, "grip": 0.1}, "critic": True}
    ours, theirs = (
        TrainingVecEnvFactory(
            EnvOptions.of("pick", engine=engine, **given), seed=5, device_starts=3
        ).on_device(range(2))
        for engine in ("mujoco", "warp")
    )
    ours.reset()
    with torch.inference_mode():  # as in trainings, also before a reset
        theirs.reset()
        theirs.step(torch.zeros(2, act.SIZE))
    ours.step(torch.zeros(2, act.SIZE))
    shown = ours.reset()
    with torch.inference_mode():
        other = theirs.reset()
    rng = np.random.default_rng(1)
    reads = HostReads()
    for _ in range(7):  # two of them are in the next episodes
        for name, values in shown.items():
            near = np.isclose(other[name].numpy(), values.numpy(), rtol=0, atol=1e-3)
            assert near.mean() > 0.998, name
        actions = torch.from_numpy(rng.uniform(-0.5, 0.5, (2, act.SIZE)).astype(np.float32))
        done = ours.step(actions)
        with torch.inference_mode(), reads:
            found = theirs.step(actions)
        np.testing.assert_allclose(found.reward.numpy(), done.reward.numpy(), rtol=0, atol=1e-4)
        assert torch.equal(found.truncated, done.truncated)
        shown, other = done.observation, found.observation
    assert reads.names == []
    assert ours.episodes()[0].start_index == theirs.episodes()[0].start_index
    for env in (ours, theirs):
        env.close()


# -- parts -----------------------------------------------------------------------------------------


def test_commands_and_base_filter_agree_with_those_of_a_single_home() -> None:
    rng, layout, count = np.random.default_rng(0), LAYOUT_B, 400
    floor = floor_map(layout)
    base = np.array([random_base_pose(layout, rng) for _ in range(count)])
    base[:, :2] += rng.normal(0.0, 0.05, (count, 2))  # some too close to obstacles
    assert (main_floor(layout)).any()
    arm = rng.uniform(-1.0, 1.0, (count, 7))
    target = arm + rng.uniform(-0.12, 0.12, (count, 7))
    actions = rng.uniform(-1.3, 1.3, (count, act.SIZE))
    qpos = np.concatenate([base, arm], axis=1)
    ramp, velocity = np.empty((count, SUBSTEPS, 7)), np.empty((count, 3))
    wanted_target = target.copy()
    for row in range(count):
        command(
            actions[row],
            base[row],
            arm[row],
            wanted_target[row],
            ramp[row],
            velocity[row],
            True,
            floor.distance,
            *floor.origin,
        )

    def on_device(values: np.ndarray) -> wp.array:
        return wp.array(values.astype(np.float32), dtype=float, device="cpu")

    moved, out = on_device(target), (on_device(ramp * 0), on_device(velocity * 0))
    maps = on_device(np.stack([floor.distance * 0 + 9.0, floor.distance]))
    of = wp.array(np.ones(count, dtype=np.int32), dtype=int, device="cpu")
    given = [on_device(actions), on_device(qpos), 0, 3, moved, True, maps, of, *floor.origin]
    wp.launch(command_kernel, count, inputs=given, outputs=list(out), device="cpu")
    np.testing.assert_allclose(moved.numpy(), wanted_target, atol=1e-5)
    np.testing.assert_allclose(out[0].numpy(), ramp, atol=1e-5)
    away = np.abs(out[1].numpy() - velocity)
    limited = np.abs(np.hypot(*velocity[:, :2].T) - 2.5 * np.abs(np.clip(actions[:, 8], -1, 1)))
    assert 20 < (limited > 0.05).sum() < count  # many are filtered
    # A comparison in the search may have another result in float32.
    assert (away.max(axis=1) < 1e-3).mean() > 0.99


def test_fields_changed_by_an_episode_are_written_to_the_device() -> None:
    only_c = {"dof_M0", "dof_length", "geom_rgba", "bvh_child", "bvh_nodeid", "bvh_aabb"}
    assert set(starts.MODEL_FIELDS) == set(MUTABLE_FIELDS) - only_c
    home = tpsrl.sim.make(slots=12)
    assert isinstance(home, MujocoSimulator)
    sizes = dict.fromkeys(starts.MODEL_FIELDS, 2)
    model = mujoco_warp.put_model(home.home.model, batch_sizes=sizes)
    assert {len(getattr(model, name)) for name in sizes} == {2}
    assert set(arrays.STATE_FIELDS) <= set(starts.DATA_FIELDS)


@pytest.mark.parametrize(
    ("room", "message"),
    [
        (
            {"constraints": 24},
            r"environment 1 \(episode test\) has too many constraints \(room for 24",
        ),
        ({"contacts": 2}, r"environment 1 \(episode test\) has too many contacts \(room for 2"),
    ],
)
def test_dropped_constraints_end_the_run_and_name_the_environment(
    room: dict[str, int], message: str
) -> None:
    x, y = roomiest(LAYOUT_B)
    empty = episode(LAYOUT_B, (x, y, 0.0))
    cans = [on_floor("002_master_chef_can", x + 0.7, y + 0.2 * k) for k in (-1, 0, 1)]
    batch = WarpBatch(2, **room)
    batch.reset([0, 1], [empty, episode(LAYOUT_B, (x, y, 0.0), *cans)])
    with pytest.raises(RunError, match=message):
        for _ in range(10):
            batch.step(torch.from_numpy(np.stack([IDLE, IDLE])))
        batch.check()


def test_a_home_that_is_not_finite_ends_the_run() -> None:
    batch = WarpBatch(2)
    batch.reset([0, 1], [box_in_front(), box_in_front()])
    batch.qvel[1, 0] = torch.nan
    batch.step(torch.from_numpy(np.stack([IDLE, IDLE])))
    with pytest.raises(RunError, match=r"environment 1 .* is not finite"):
        batch.check()


def test_homes_must_be_reset_and_cannot_be_frozen() -> None:
    with pytest.raises(UserError, match="num_envs: must be at least 1, got 0"):
        WarpBatch(0)
    with pytest.raises(UserError, match="step: environment 0 has not been reset"):
        WarpBatch(2).step(torch.zeros(2, act.SIZE))
    simulator = WarpSimulator(1, slots=12)
    simulator.reset([0], [box_in_front()])
    twin = MujocoSimulator(1, slots=12)
    twin.reset([0], [box_in_front()])
    with pytest.raises(UserError, match=r"^engine: 'warp' cannot take exact snapshots"):
        simulator.snapshot(0)
    with pytest.raises(UserError, match=r"^engine: 'warp' cannot take exact snapshots"):
        simulator.restore(0, twin.snapshot(0))
