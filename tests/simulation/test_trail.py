"""The trail of cup and base over the last steps, an input for policies without memory."""

import math

import numpy as np
import pytest
from small_worlds import random_worlds, rows

from skills.core import sensors
from skills.envs.batch import SkillBatch
from skills.envs.options import EnvOptions
from skills.envs.trail import TRAIL_ARRAY, TRAIL_STEPS, Trail
from skills.starts.source import StartSource
from tpsrl.errors import UserError
from tpsrl.sim.mujoco_sim import MujocoSimulator
from tpsrl.world import action as act


def test_distances_are_from_averages_of_the_steps_before() -> None:
    runs = [random_worlds(np.random.default_rng(seed), 2) for seed in range(20)]
    trail = Trail(3)
    trail.begin([0, 2], runs[0])
    assert not trail.away([0, 2], runs[0]).any()
    for world in runs[1:]:
        trail.drive([0, 2], world)
    found = trail.away([0, 2], runs[-1])
    for row, steps in enumerate(TRAIL_STEPS[:2]):
        mean, kept = runs[0].ee_pos, math.exp(-1.0 / steps)
        for world in runs[1:]:
            mean = kept * mean + (1.0 - kept) * world.ee_pos
        np.testing.assert_allclose(found[:, row], runs[-1].ee_pos - mean, atol=1e-12)


def test_turns_are_measured_across_the_wrap_of_the_angle() -> None:
    before = rows(random_worlds(np.random.default_rng(0), 1), slice(0, 1))
    after = rows(random_worlds(np.random.default_rng(0), 1), slice(0, 1))
    before.base[0, 2], after.base[0, 2] = math.pi - 0.1, 0.1 - math.pi
    trail = Trail(1)
    trail.begin([0], before)
    assert trail.away([0], after)[0, 2, 2] == pytest.approx(0.2)


def test_the_trail_decays_at_rest_and_is_kept_in_snapshots() -> None:
    simulator = MujocoSimulator(2, slots=12)
    batch = SkillBatch(EnvOptions.of("pick", sensors="teacher"), simulator)
    source = StartSource("pick", split="val", num_objects=12, num_episodes=2)
    columns = batch.options.inputs.layout()
    batch.reset([0], [source[0]])
    drive = np.zeros((1, act.SIZE))
    drive[0, act.BASE] = 0.5, 0.0
    shown = [batch.step([0], drive).observation["state"][0] for _ in range(20)]
    trail = shown[-1][columns[sensors.TRAIL]]
    assert trail[6] > 0.02 and trail[3] > 0.02  # base and cup, forward along the base
    assert shown[-1][columns[sensors.ELAPSED]] == pytest.approx(20 / 300)
    snapshot = batch.snapshot(0)
    again = batch.restore(1, snapshot)["state"][0]
    np.testing.assert_array_equal(again, shown[-1])
    still = np.zeros((1, act.SIZE))
    for _ in range(200):
        rest = batch.step([0], still).observation["state"][0]
    assert np.abs(rest[columns[sensors.TRAIL]]).max() < 0.2 * np.abs(trail).max()
    snapshot.path[TRAIL_ARRAY] = np.zeros(9)
    with pytest.raises(UserError, match="path: array trail"):
        batch.restore(1, snapshot)
    del snapshot.path[TRAIL_ARRAY]
    with pytest.raises(UserError, match="path: array trail missing or unknown"):
        batch.restore(1, snapshot)
