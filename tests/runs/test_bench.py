import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_device_env import ToyDeviceFactory
from toy_vec_env import SPEC

from benchmarks import batch, pointnav_curves
from tpsrl import cli
from tpsrl.errors import UserError
from tpsrl.rl.bench import measure as bench
from tpsrl.rl.collection.collector import Collection
from tpsrl.rl.collection.rollout import Rollout
from tpsrl.rl.collection.settings import COLLECTORS
from tpsrl.rl.learning.settings import PPOSettings
from tpsrl.rl.policy.settings import PolicySettings
from tpsrl.rl.run.settings import TrainSettings

N, T = 3, 2


def collection(env: list[int], took_s: list[float]) -> Collection:
    rollout = Rollout(SPEC, N, N * T, 0)
    return Collection(
        rollout, len(env), [], {}, {}, np.array(env), np.array(took_s), np.zeros(0), []
    )


def bounds(name: str, env: list[int], took_s: list[float], learning: float) -> dict[str, object]:
    return bench._bounds(name, collection(env, took_s), learning, N)


def test_bounds_agree_with_those_computed_by_hand() -> None:
    env, took = [0, 1, 2, 2, 1, 0], [0.1, 0.2, 0.4, 0.1, 0.5, 0.3]
    # Steps per second of each environment: 2 / 0.4, 2 / 0.7, 2 / 0.5.
    ceiling = 5.0 + 2 / 0.7 + 4.0
    wanted = {
        "sync": 6 / (0.4 + 0.5 + 1.0),
        "nover": 6 / (0.7 + 1.0),
        "ver": 6 / (6 / ceiling + 1.0),
        "overlap": ceiling,
    }
    for name, bound in wanted.items():
        found = bounds(name, env, took, learning=1.0)
        assert found["bound"] == pytest.approx(bound)
        assert found["ceiling"] == pytest.approx(ceiling)
        assert found["steps"] == [2, 2, 2]


def test_an_environment_without_steps_does_not_count() -> None:
    found = bounds("ver", [0, 0, 1, 0, 1, 0], [0.1, 0.1, 0.2, 0.1, 0.2, 0.1], learning=0.0)
    assert found["ceiling"] == pytest.approx(10.0 + 5.0)
    assert found["steps"] == [4, 2, 0]


def test_a_step_counts_by_its_share_within_the_window() -> None:
    env, end, took = np.array([0, 0, 1, 1]), np.array([1.0, 3.0, 2.0, 9.0]), np.array([1, 2, 2, 4])
    # Environment 0 has half of its first step and half of its second in the window; environment 1
    # three quarters of one step.
    found = bench.ceiling_between(env, end, took, (0.5, 2.0), N)
    assert found == pytest.approx((0.5 + 0.5) / (0.5 + 1.0) + 0.75 / 1.5)


def test_collectors_are_measured_side_by_side(tmp_path: Path) -> None:
    settings = dataclasses.replace(
        TrainSettings(),
        num_envs=N,
        num_steps=T,
        policy=PolicySettings(encoder="state", lstm_layers=1, lstm_width=4, state_width=4),
        ppo=PPOSettings(epochs=1, minibatches=1),
    )
    schedule = bench.BenchSchedule(rollouts=2, turns=2, warm_up=1)
    report = bench.measure(list(COLLECTORS), settings, ToyDeviceFactory(), 3, schedule)
    report = json.loads(json.dumps(report))
    assert list(report["collectors"]) == ["sync", "nover", "ver", "overlap", "batch", "device"]
    for name, found in report["collectors"].items():
        assert len(found["rollouts"]) == 4
        assert found["samples"] == 4 * N * T
        assert found["took_s"] == pytest.approx(sum(row["took_s"] for row in found["rollouts"]))
        rates = found["samples_per_s"]
        assert rates["mean"] == pytest.approx(found["samples"] / found["took_s"])
        assert 0 < rates["mean"] <= rates["max"]
        least, mean, most = found["steps_of_environment"]
        assert least <= mean <= most and mean == T
        assert (least == most) or name in ("ver", "overlap")
        assert set(found["waits"]) == {"others", "inference", "learning"}
    bench.draw(report, tmp_path / "train.png", "toy")
    assert (tmp_path / "train.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["collector=verr"], "collector: unknown value 'verr'; did you mean 'ver'"),
        (["collector=ver,ver"], "collector: ver,ver contains a duplicate"),
        (["task=pik"], "task: unknown value 'pik'; did you mean 'pick'"),
        (["turns=0"], "turns: 0 is out of range"),
        (["preset.collector=foo"], "preset.collector: unknown value 'foo'"),
        (["preset.preempt=foo"], "preset.preempt: unknown value 'foo'"),
        (["preset.ppo.entropy_min=0.5"], "0.5 and 1.0 (preset.ppo.entropy_min and"),
        (["preset.policy.min_std=3"], "preset.policy.initial_std: 0.37 is not between 3.0 and"),
        (["preset.min_batch=99"], "preset.min_batch: 99 is more than the 32 environments"),
        (["preset.num_steps=1", "preset.ppo.minibatches=33"], "is more than the 32 steps of a"),
        (["preset.ppo.value_epochs=2"], "preset.ppo.value_epochs: there is no separate"),
        (["preset.ppo.imitation_coef=0.1"], "preset.ppo.imitation_coef: there are no demonstra"),
        (["preset.inference_workers=2", "processes=0"], "preset.inference_workers: 2 requires"),
        (["preset.policy.critic=true", "preset.policy.separate_value=true"], "separate_value: con"),
        (
            ["task=explore", "preset.ppo.teacher_coef=1"],
            "teacher: no teacher of explore is shipped",
        ),
        (["task=pick", "teacher=nowhere"], "teacher: there is no"),
        (["task=synthetic_busy", "teacher=out"], "teacher: synthetic_busy has no state to label"),
        (["task=synthetic_busy", "preset.policy.critic=true"], "synthetic_busy has no true state"),
        (
            ["task=synthetic_busy", "preset.num_envs=2000"],
            "must be at most 1024, since synthetic_busy",
        ),
    ],
)
def test_bad_settings_are_refused_in_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "bench"
    assert cli.main(["bench", "train", *arguments, f"out={out}"]) == 2
    error = capsys.readouterr().err
    assert message in error and len(error.splitlines()) == 1
    assert not out.exists()


@pytest.mark.parametrize("preset", ["cpu_fast", "teacher"])
def test_a_preset_with_a_privileged_critic_is_measured_with_a_skill(
    preset: str, tmp_path: Path
) -> None:
    words = f"task=open_fridge preset={preset} preset.num_envs=2 preset.num_steps=8"
    words += " preset.min_batch=1 preset.ppo.minibatches=1 collector=sync depth=32"
    words += " num_episodes=1 processes=0 threads=1 rollouts=1 turns=1 warm_up=1"
    assert cli.main(["bench", "train", *words.split(), f"out={tmp_path}"]) == 0
    report = json.loads((tmp_path / "train.json").read_text())
    assert report["collectors"]["sync"]["samples"] == 16


# -- batched homes --------------------------------------------------------------------------------


def test_batches_of_homes_are_measured_in_order_of_size(tmp_path: Path) -> None:
    given = ["engine=mujoco", "envs=2,1", "minutes=0.02", "objects=5", "episodes=1"]
    assert batch.main([*given, f"out={tmp_path}"]) == 0
    report = json.loads((tmp_path / "batch.json").read_text())
    assert report["engine"] == "mujoco" and set(report["versions"]) == {"mujoco", "torch"}
    assert [row["envs"] for row in report["rows"]] == [1, 2]
    for name in ("physics", "depth_64", "depth_128", "both_64", "both_128"):
        assert report["rows"][0][f"{name}_per_s"] > 0.0
    assert (tmp_path / "batch.png").stat().st_size > 1000


def test_invalid_numbers_of_homes_are_refused() -> None:
    for wrong in ("64,many", "0", ""):
        with pytest.raises(UserError, match=r"^envs: must be integers >= 1 such as 64,256, got"):
            batch.main([f"envs={wrong}"])


def test_curves_of_pointnav_are_averaged_and_fitted(tmp_path: Path) -> None:
    for samples, spl in pointnav_curves.PAPER:
        assert pointnav_curves.power_law(np.array([samples])) == pytest.approx(spl)
    ended = {"success": 200, "timeout": 100}
    rows: list[dict[str, Any]] = [
        {"update": k, "steps": 100 * k, "ended": ended} for k in range(1, 60)
    ]
    for row in rows[2:]:  # an older version recorded no metrics
        row["metrics"] = {"spl": 1.0 - 20.0 / row["steps"] ** 0.5}
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    samples, spl = pointnav_curves.read(tmp_path)
    assert samples[0] == 400 and len(samples) == 56
    both = [1.0 - 20.0 / steps**0.5 for steps in (300, 400)]
    assert spl[0] == pytest.approx(np.mean(both))
    assert pointnav_curves.exponent((samples, spl)) == pytest.approx(-0.5, abs=0.02)
    (tmp_path / "metrics.jsonl").write_text(json.dumps(rows[0]) + "\n")
    with pytest.raises(UserError, match="has no SPL of 500 episodes"):
        pointnav_curves.read(tmp_path)
