"""Ant and humanoid locomotion: reward formula, episode ends and threads."""

import math

import numpy as np
import pytest

from tpsrl import cli
from tpsrl.errors import UserError
from tpsrl.rl.bench import running
from tpsrl.rl.bench.running import RUNNING_TASKS, TERMS
from tpsrl.rl.bench.running_env import FRAMES, RunningVecEnv, RunningVecEnvFactory

TASKS = sorted(RUNNING_TASKS)


def stepped(task: str, frames: int, threads: int = 1, **options) -> tuple[RunningVecEnv, list]:
    """Steps three robots by random actions, some out of range; returns environment and results."""
    env = RunningVecEnvFactory(task, threads=threads, **options)([0, 1, 2])
    env.reset([0, 1, 2])
    rng, results = np.random.default_rng(1), []
    for _ in range(frames):
        actions = rng.normal(0.0, 0.8, (3, env.model.nu))
        results.append((env.step([0, 1, 2], actions), actions))
    return env, results


def slow_reward(env: RunningVecEnv, row: int, action: np.ndarray, mean: bool) -> float:
    """Computes equation 1 of Liang et al. 2018, appendix C, in scalar arithmetic."""
    pose, task = env.pose(np.array([row])), RUNNING_TASKS[env._factory.task]
    w, x, y, z = pose.quaternion[0]
    forward = np.array([1 - 2 * (y * y + z * z), 2 * (x * y + w * z)])  # of the torso's x axis
    heading = forward[0] / math.hypot(*forward)
    total = task.alive + pose.velocity[0, 0]
    total += 0.5 * (1.0 if heading > 0.8 else heading / 0.8)
    total += 0.05 if 1 - 2 * (x * x + y * y) > 0.93 else 0.0
    torque = work = 0.0
    for motor, wanted in enumerate(action):
        used = min(max(wanted, -1.0), 1.0)
        torque += abs(used * env.body.torque[motor])
        work += used**2
    share = 1 / len(action) if mean else 1.0
    total -= share * (4.0 * torque / max(env.body.torque) + 0.5 * work)
    for (low, high), angle in zip(env.body.joint_range, pose.joints[0], strict=True):
        total -= 0.2 if abs(2 * (angle - low) / (high - low) - 1) > 0.99 else 0.0
    return total - sum(pose.contact[0])


@pytest.mark.parametrize("costs", ["mean", "sum"])
@pytest.mark.parametrize("task", TASKS)
def test_rewards_agree_with_the_papers_equation(task: str, costs: str) -> None:
    env = RunningVecEnvFactory(task, costs=costs)([0, 1, 2])
    env.reset([0, 1, 2])
    rng, touched = np.random.default_rng(1), 0
    for _ in range(40):
        action = rng.normal(0.0, 0.8, (3, env.model.nu))
        done = env.step([0, 1, 2], action)
        for row in np.flatnonzero(~(done.terminated | done.truncated)):
            expected = slow_reward(env, row, action[row], costs == "mean")
            assert done.reward[row] == pytest.approx(expected, abs=1e-5)
            touched += env.pose(np.array([row])).contact.sum()
    assert touched  # some feet touched the ground
    env.close()


@pytest.mark.parametrize("task", TASKS)
def test_fallen_robots_are_reset_and_others_after_the_frame_limit(task: str) -> None:
    env, _ = stepped(task, 2)
    env._physics[0, 3] = RUNNING_TASKS[task].fallen_m - 0.1  # height of the torso
    if task == "humanoid":  # on its back, so that the legs stay above the ground
        env._physics[0, 4:8] = math.sqrt(0.5), 0.0, -math.sqrt(0.5), 0.0
    env._counts[1, 0] = FRAMES - 1
    done = env.step([0, 1, 2], np.zeros((3, env.model.nu)))
    assert done.terminated.tolist() == [True, False, False]
    assert done.truncated.tolist() == [False, True, False]
    assert [episode.ended_by for episode in done.episodes] == ["fallen", "timeout"]
    assert [set(episode.terms) for episode in done.episodes] == [set(TERMS)] * 2
    assert done.final is not None and done.final["state"].shape == (
        1,
        *env.spec.observations["state"],
    )
    assert env._counts[:, 0].tolist() == [0, 0, 3]
    env.close()


def test_threads_and_a_restored_snapshot_do_not_change_results() -> None:
    env, results = stepped("ant", 12)
    other, again = stepped("ant", 12, threads=2)
    for (one, _), (two, _) in zip(results, again, strict=True):
        assert np.array_equal(one.reward, two.reward)
        assert np.array_equal(one.observation["state"], two.observation["state"])
    arrays, note = env.snapshot(1)
    other.restore(0, arrays, note)
    action = np.full((1, env.model.nu), 0.3)
    for _ in range(3):
        one, two = env.step([1], action), other.step([0], action)
        assert np.array_equal(one.reward, two.reward)
    with pytest.raises(UserError, match="physics of the snapshot does not fit"):
        other.restore(0, arrays | {"physics": np.zeros(3)}, note)
    env.close()
    other.close()


def test_roll_pitch_and_yaw_are_recovered_from_the_quaternion() -> None:
    roll, pitch, yaw = 0.3, -0.7, 2.5
    half = np.array([roll, pitch, yaw]) / 2
    (cr, cp, cy), (sr, sp, sy) = np.cos(half), np.sin(half)
    quaternion = [
        cr * cp * cy + sr * sp * sy, sr * cp * cy - cr * sp * sy,
        cr * sp * cy + sr * cp * sy, cr * cp * sy - sr * sp * cy,
    ]  # fmt: skip
    found = running.angles(np.array([quaternion]))
    np.testing.assert_allclose(np.ravel(found), [roll, pitch, yaw])


def test_the_command_trains_writes_reports_and_refuses_bad_settings(tmp_path, capsys) -> None:
    out = tmp_path / "out"
    words = ["bench", "locomotion", "tasks=ant", f"out={out}", "threads=1"]
    tiny = ["ant.num_envs=4", "ant.num_steps=128", "ant.steps=1024", "ant.ppo.epochs=1"]
    assert cli.main([*words, *tiny]) == 0
    assert {path.name for path in out.iterdir()} >= {"locomotion.json", "locomotion.png", "ant"}
    assert "3000: not reached" in capsys.readouterr().out
    for more, message in (
        ([], "contains a training; choose another out"),
        (["tasks=ant,ant"], "tasks: ant,ant contains a duplicate"),
        (["ant.policy.encoder=resnet18"], "ant.policy.encoder: resnet18, but there is no camera"),
    ):
        assert cli.main([*words, *tiny, *more]) == 2
        assert message in capsys.readouterr().err
