import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from toy_device_env import ToyDeviceFactory
from toy_training import ENVS, SETTINGS, STEPS, Silent, rows, trainer
from toy_vec_env import ToyVecEnvFactory

from tpsrl.errors import UserError
from tpsrl.rl.distributed.group import OthersLostError, reaching_others
from tpsrl.rl.envs.serial_pool import SerialEnvPool
from tpsrl.rl.envs.supervision import FaultTolerance
from tpsrl.rl.policy.settings import PolicySettings
from tpsrl.rl.run import curves, metrics
from tpsrl.rl.run import trainer as trainers
from tpsrl.rl.run.assembly import assemble
from tpsrl.rl.run.trainer import TrainSchedule, TrainTask, load_latest
from tpsrl.runtime.processes import Terminated


@pytest.fixture(scope="module", autouse=True)
def undrawn() -> Iterator[None]:
    """Disables curves, whose drawing takes longer than these trainings (see `test_curves.py`)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curves, "draw", lambda *arguments: None)
        yield


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Metrics of an uninterrupted training."""
    out = tmp_path_factory.mktemp("whole")
    whole = trainer(out)
    assert whole.train() == ""
    whole.close()
    return rows(out)


def test_every_rollout_has_a_record(uninterrupted: list[dict[str, Any]]) -> None:
    assert [row["update"] for row in uninterrupted] == list(range(1, 11))
    assert [row["steps"] for row in uninterrupted] == [24 * n for n in range(1, 11)]
    last = uninterrupted[-1]
    assert last["episodes"] > 0 and 0.0 <= last["success"] <= 1.0
    for name in ("kl", "clip_fraction", "entropy", "entropy_coef", "explained_variance"):
        assert isinstance(last["learner"][name], float)
    rates = [row["learner"]["learning_rate"] for row in uninterrupted]
    assert rates == sorted(rates, reverse=True) and rates[0] == 2.5e-4


def test_the_fault_tolerance_follows_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = []

    def noting(*args: Any, **others: Any) -> Any:
        passed.extend(a for a in args if isinstance(a, FaultTolerance))
        return assemble(*args, **others)

    monkeypatch.setattr(trainers, "assemble", noting)
    trainer(tmp_path, settings=dataclasses.replace(SETTINGS, hang_s=7.0, max_failures=3)).close()
    assert passed == [FaultTolerance(hang_s=7.0, max_failures=3)]
    assert passed[0].launch_s == 300.0


def test_experience_collected_ahead_is_one_update_old(tmp_path: Path) -> None:
    one = trainer(tmp_path, settings=dataclasses.replace(SETTINGS, collector="overlap", steps=120))
    one.train()
    one.close()
    learned = [row["learner"] for row in rows(tmp_path)]
    ages = [found["age"] for found in learned]  # two updates for steps in flight
    assert ages[0] == 0.0 and all(1.0 <= age <= 1.0 + ENVS / (ENVS * STEPS) for age in ages[1:])
    assert learned[0]["correction"] == 1.0
    assert all(found["correction"] != 1.0 for found in learned[1:])


def test_times_of_the_phases_sum_to_the_elapsed_time(tmp_path: Path) -> None:
    one = trainer(tmp_path)
    one.train()
    one.close()
    records = list(metrics.read(tmp_path))
    for before, row in zip([{"seconds": 0.0}, *records], records, strict=False):
        spent = row["seconds"] - before["seconds"]
        assert sum(row["time"].values()) == pytest.approx(spent, abs=0.002)
        assert row["time"].keys() >= {"simulation", "rendering", "inference", "learning", "waiting"}


@pytest.mark.parametrize("stop", ["SIGTERM", "SIGINT"])
def test_a_stopped_training_resumes_as_if_uninterrupted(
    tmp_path: Path, uninterrupted: list[dict[str, Any]], stop: str
) -> None:
    handler = signal.getsignal(getattr(signal, stop))
    first = trainer(tmp_path, Silent(4, lambda: os.kill(os.getpid(), getattr(signal, stop))))
    assert first.train() == stop
    first.close()
    assert signal.getsignal(getattr(signal, stop)) == handler
    assert len(rows(tmp_path)) == 4
    second = trainer(tmp_path)
    second.resume(load_latest(tmp_path))
    assert second.train() == ""
    second.close()
    assert rows(tmp_path) == uninterrupted


@pytest.mark.parametrize(
    ("name", "expected"),
    [("SIGTERM", Terminated), ("SIGINT", KeyboardInterrupt), ("SIGUSR1", OthersLostError)],
)
def test_a_rank_that_loses_the_others_after_a_signal_ends_by_the_signal(
    tmp_path: Path, name: str, expected: type[BaseException]
) -> None:
    one = trainer(tmp_path, Silent(4, lambda: os.kill(os.getpid(), getattr(signal, name))))

    def lost(thing: Any) -> list[Any]:
        if one.updates == 4:
            with reaching_others("lost another rank"):
                raise RuntimeError("connection closed by peer")
        return [thing]

    one.group.gather = lost  # type: ignore[method-assign]
    with pytest.raises(expected):
        one.train()
    one.close()


def test_sigusr1_saves_a_checkpoint_and_training_continues(
    tmp_path: Path, uninterrupted: list[dict[str, Any]]
) -> None:
    watcher = Silent(4, lambda: os.kill(os.getpid(), signal.SIGUSR1))
    one = trainer(tmp_path, watcher)
    steps = []
    save = one.save

    def noted() -> None:
        steps.append(one.updates)
        save()

    one.save = noted  # type: ignore[method-assign]
    assert one.train() == ""
    one.close()
    assert steps == [4, 10]
    assert any("saved" in text for text in watcher.messages)
    assert rows(tmp_path) == uninterrupted


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a killed training with a checkpoint of an earlier update."""
    out = tmp_path_factory.mktemp("killed") / "out"
    child = os.fork()
    if not child:
        try:
            at_once = TrainSchedule(validation_episodes=0, checkpoint_minutes=0.0)
            ends = Silent(4, lambda: os.kill(os.getpid(), signal.SIGKILL))
            trainer(out, ends, schedule=at_once).train()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert 1 <= load_latest(out).get("updates", int) < len(rows(out)) == 4
    with (out / metrics.METRICS).open("a") as file:
        file.write('{"update": 11, "st')  # a partially written line
    return out


@pytest.mark.parametrize("processes", [0, 2])
def test_a_killed_training_resumes_bit_for_bit(
    tmp_path: Path, killed: Path, uninterrupted: list[dict[str, Any]], processes: int
) -> None:
    out = tmp_path / "out"
    shutil.copytree(killed, out)
    second = trainer(out, processes=processes)
    second.resume(load_latest(out))
    second.train()
    second.close()
    assert rows(out) == uninterrupted


def test_a_training_on_a_device_resumes_with_new_episodes(tmp_path: Path) -> None:
    settings = dataclasses.replace(SETTINGS, collector="device")
    first = dataclasses.replace(settings, steps=5 * STEPS * ENVS)
    trainer(tmp_path, settings=first, task=TrainTask(ToyDeviceFactory())).train()
    saved = load_latest(tmp_path)
    with pytest.raises(UserError, match=r"preset\.collector: this collector cannot continue"):
        trainer(tmp_path / "other").resume(saved)
    watcher = Silent()
    second = trainer(tmp_path, watcher, settings=settings, task=TrainTask(ToyDeviceFactory()))
    second.resume(saved)
    second.train()
    assert [row["update"] for row in rows(tmp_path)] == list(range(1, 11))
    assert rows(tmp_path)[-1]["steps"] == settings.steps
    assert "collector=device does not save environments: all episodes restart" in watcher.messages


def test_the_best_policy_of_the_validations_is_kept(tmp_path: Path) -> None:
    count = 4
    one = trainer(
        tmp_path,
        schedule=TrainSchedule(validate_every=2 * STEPS * ENVS, validation_episodes=count),
        task=TrainTask(
            ToyVecEnvFactory(),
            lambda starts: SerialEnvPool(ToyVecEnvFactory(order=(*starts,), stride=count), count),
        ),
    )
    one.train()
    one.close()
    results = [row["validation"] for row in rows(tmp_path) if "validation" in row]
    assert len(results) == 5
    assert all(result["episodes"] == count for result in results)
    best = max(results, key=lambda r: (r["success"], r["return"]))
    found = json.loads(json.dumps(load_latest(tmp_path).get("best", dict)))
    assert (found["success"], found["return"]) == (best["success"], best["return"])
    assert (
        tmp_path / "checkpoints" / "best.safetensors"
    ).stat().st_size < one.latest.stat().st_size


def validated(make: Callable[[Sequence[int]], SerialEnvPool]) -> dict[str, Any]:
    """Returns options of a training with five validations."""
    schedule = TrainSchedule(validate_every=2 * STEPS * ENVS, validation_episodes=4)
    return {"schedule": schedule, "task": TrainTask(ToyVecEnvFactory(), make)}


def validation_pool(starts: Sequence[int]) -> SerialEnvPool:
    return SerialEnvPool(ToyVecEnvFactory(order=(*starts,), stride=4), 4)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Metrics of a training with uninterrupted validations."""
    out = tmp_path_factory.mktemp("validated")
    one = trainer(out, **validated(validation_pool))
    one.train()
    one.close()
    return rows(out)


@pytest.mark.parametrize("at", [1, 3, 5])  # of five validations, the last is after all steps
def test_a_training_stopped_during_a_validation_resumes_with_it(
    tmp_path: Path, whole: list[dict[str, Any]], at: int
) -> None:
    made: list[int] = []

    def make(starts: Sequence[int]) -> SerialEnvPool:
        made.append(len(starts))
        if len(made) == at:
            os.kill(os.getpid(), signal.SIGTERM)
        return validation_pool(starts)

    first = trainer(tmp_path, **validated(make))
    assert first.train() == "SIGTERM"
    first.close()
    assert len(made) == at
    assert len(rows(tmp_path)) == 2 * at - 1
    second = trainer(tmp_path, **validated(make))
    second.resume(load_latest(tmp_path))
    assert second.train() == ""
    second.close()
    assert len(made) == 5 + 1
    assert rows(tmp_path) == whole


@pytest.mark.parametrize("bad", [(2,), (0, 1, 2)])
def test_environments_that_fail_in_a_validation_do_not_end_the_training(
    tmp_path: Path, uninterrupted: list[dict[str, Any]], bad: tuple[int, ...]
) -> None:
    made: list[tuple[int, ...]] = []

    def make(starts: Sequence[int]) -> SerialEnvPool:
        made.append(tuple(starts))
        size = len(starts)
        return SerialEnvPool(ToyVecEnvFactory("raise", order=made[-1], stride=size, bad=bad), size)

    options: dict[str, Any] = {
        "schedule": TrainSchedule(validate_every=5 * STEPS * ENVS, validation_episodes=4),
        "task": TrainTask(ToyVecEnvFactory(), make),
    }
    watcher = Silent(5, lambda: os.kill(os.getpid(), signal.SIGTERM))
    first = trainer(tmp_path, watcher, **options)
    assert first.train() == "SIGTERM"
    first.close()
    assert sum("is skipped" in line for line in watcher.messages) == len(bad)
    made.clear()
    second = trainer(tmp_path, **options)
    second.resume(load_latest(tmp_path))
    assert second.train() == ""
    second.close()
    records = rows(tmp_path)
    if len(bad) == 1:
        assert made == [(0, 1, 3)]  # known from the checkpoint
        found = [row.pop("validation")["lost"] for row in records if "validation" in row]
        assert found == [{"count": 1, "starts": [2]}] * 2
    else:
        name = "validation_given_up"
        found = [row.pop(name)["lost"] for row in records if name in row]
        assert [set(lost["starts"]) >= set(bad) for lost in found] == [True, True]
        assert watcher.messages[-1].startswith("validation aborted: ")
    assert records == uninterrupted


def test_a_checkpoint_of_another_training_is_refused(tmp_path: Path) -> None:
    one = trainer(tmp_path)
    one.train()
    one.close()
    found = load_latest(tmp_path)
    wider = PolicySettings(encoder="state", lstm_layers=1, lstm_width=16)
    others = {
        "has another network": dataclasses.replace(SETTINGS, policy=wider),
        "num_envs: 4, but the checkpoint has 3": dataclasses.replace(SETTINGS, num_envs=4),
    }
    for problem, settings in others.items():
        other = trainer(tmp_path / "other", settings=settings)
        with pytest.raises(UserError, match=problem):
            other.resume(found)
        other.close()
    lacking = {
        "has no 'steps'": {k: v for k, v in found.note.items() if k != "steps"},
        "learner: None parameters in the checkpoint": found.note | {"ppo": {}},
    }
    for problem, note in lacking.items():
        other = trainer(tmp_path / "other")
        with pytest.raises(UserError, match=problem):
            other.resume(dataclasses.replace(found, note=note))
        other.close()
    with pytest.raises(UserError, match="no checkpoint"):
        load_latest(tmp_path / "absent")


@pytest.mark.parametrize("command", ["train", "bench train"])
def test_the_help_of_training_does_not_import_torch(command: str) -> None:
    code = (
        "import sys; from tpsrl import cli; "
        f"assert cli.main({[*command.split(), '--help']!r}) == 0; "
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert f"usage: tpsrl {command}" in done.stdout
