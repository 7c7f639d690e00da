"""Start states taken from recorded runs, and the practice weights of start states."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from toy_training import SETTINGS, Silent

from skills.core import sensors
from skills.demos import store
from skills.envs.batch import SkillBatch
from skills.envs.options import EnvOptions
from skills.envs.training import TrainingVecEnvFactory
from skills.starts.source import StartSource
from tpsrl import cli
from tpsrl.errors import UserError
from tpsrl.rl.envs.vec_env import EpisodeStats
from tpsrl.rl.envs.worker_pool import WorkerEnvPool
from tpsrl.rl.run import checkpoint
from tpsrl.rl.run.practice import Practice
from tpsrl.rl.run.trainer import Trainer, TrainSchedule, TrainTask, load_latest
from tpsrl.training import demos

FEW = ["num_episodes=2", "num_objects=12", "processes=1", "camera=false", "disturbed=0"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of two runs of the scripted Pick, with five recorded states each."""
    out = tmp_path_factory.mktemp("runs") / "pick"
    words = ["demos", "pick", *FEW, "agent=scripted", "num=2", "states=5", f"out={out}"]
    assert cli.main(words) == 0
    return out


def test_a_start_along_a_run_has_the_recorded_observation(runs: Path) -> None:
    source = StartSource("pick", f"along:{runs}", num_objects=12)
    assert source.groups == 10
    options = EnvOptions.of("pick", starts=f"along:{runs}", num_objects=12)
    options = dataclasses.replace(options, inputs=options.inputs.complete())
    batch = SkillBatch(options, options.simulator(1))
    shown = [recording.demonstration for recording in store.read(runs)]
    lines = (runs / "along" / "states.jsonl").read_text().splitlines()
    columns, held = options.inputs.layout(), 0
    # These sensors restart with the episode, as does the map of the third.
    begins = np.r_[columns[sensors.TRAIL], columns[sensors.ELAPSED]]
    restarted = np.r_[begins, columns[sensors.EXPLORED]]
    for row, line in enumerate(map(json.loads, lines)):
        step = int(line["stage"].removeprefix("step "))
        state = batch.reset([0], [source[row]])["state"][0]
        assert not state[begins].any()
        same = [
            np.delete(run.observation["state"][step] == state, restarted).all()
            for run in shown
            if len(run) > step
        ]
        assert any(same)
        assert batch.steps(0) == 0
        held += int(batch.world(0).held[0] >= 0)
    assert 0 < held < 10  # before the grasp and after it


def test_the_memory_of_the_task_is_restored_with_the_start(runs: Path) -> None:
    source = StartSource("pick", f"along:{runs}", num_objects=12)
    options = EnvOptions.of("pick", sensors="habitat", starts=f"along:{runs}", num_objects=12)
    batch = SkillBatch(options, options.simulator(1))
    for row in range(source.groups):
        start = source[row]
        batch.reset([0], [start])
        memory = batch.task_state([0]).memory
        begun = start.episode.objects[start.goal.object].pos
        # The memory has the first position of the object, not the current one.
        np.testing.assert_allclose(memory.initial_position[0], begun, atol=0.01)  # type: ignore[attr-defined]
        assert memory.picked[0] == (batch.world(0).held[0] == start.goal.object)  # type: ignore[attr-defined]


def test_a_memory_of_another_skill_is_refused(runs: Path) -> None:
    source = StartSource("pick", f"along:{runs}", num_objects=12)
    start = source[0]
    options = EnvOptions.of("pick", num_objects=12)
    batch = SkillBatch(options, options.simulator(1))
    assert start.memory is not None
    for memory, message in (
        ({}, "memory: .* missing or unknown"),
        ({**start.memory, "rest": np.zeros(2)}, r"memory: rest: is float64 \(2,\)"),
    ):
        with pytest.raises(UserError, match=message):
            batch.reset([0], [dataclasses.replace(start, memory=memory)])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["start_states=along:nowhere"], "no such folder"),
        (["start_states=along:"], "the folder is missing, as in along:DIR"),
        (["start_states=along:RUNS"], "no states before 'place'"),
    ],
)
def test_an_invalid_source_along_runs_is_refused(
    words: list[str], message: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [word.replace("RUNS", str(runs)) for word in words]
    assert cli.main(["train", "place", *given, f"out={tmp_path / 'out'}"]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_states_cannot_be_recorded_with_format_lerobot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["demos", "pick", "states=3", "format=lerobot", f"out={tmp_path / 'x'}"]
    assert cli.main(words) == 2
    assert "states: 3, but format=lerobot stores none; nearest: 0" in capsys.readouterr().err


# -- practice weights -----------------------------------------------------------------------------


def test_starts_are_drawn_by_the_weights_of_their_groups(runs: Path) -> None:
    source = StartSource("pick", f"own:0.5,along:{runs}:0.5", num_objects=12, num_episodes=2)
    assert source.groups == 12
    weights = np.zeros(12)
    weights[[1, 5, 11]] = 1.0, 3.0, 1.0
    source.weigh(weights)
    rng = np.random.default_rng(0)
    groups = [source.group(source.draw(rng)[0]) for _ in range(200)]
    counts = np.bincount(groups, minlength=12)
    assert set(np.flatnonzero(counts)) == {1, 5, 11}
    assert 70 < counts[1] < 130  # the share of the part is unchanged
    assert 0.6 < counts[5] / (counts[5] + counts[11]) < 0.9


def test_with_equal_weights_all_starts_are_drawn(runs: Path) -> None:
    drawn = []
    for weighed in (False, True):
        source = StartSource("pick", f"along:{runs}", num_objects=12)
        if weighed:
            source.weigh(np.ones(10))
        rng = np.random.default_rng(1)
        drawn.append(np.bincount([source.draw(rng)[0] for _ in range(300)], minlength=10))
    assert (drawn[0] > 10).all() and (drawn[1] > 10).all()


def stats(group: int, success: bool) -> EpisodeStats:
    return EpisodeStats(0, group, 5, 0.0, success, "end", start_group=group)


def test_starts_with_success_rate_one_half_are_practised_most() -> None:
    practice = Practice([("own", 4)], 0.02)
    np.testing.assert_allclose(practice.weights, 0.27)
    for _ in range(40):
        practice.add([stats(0, True), stats(1, False), stats(2, True), stats(2, False)])
    good, bad, half, new = practice.weights
    assert new == pytest.approx(0.27) and half > 0.24
    assert good < 0.05 and bad < 0.05
    assert min(good, bad) >= 0.02
    assert practice.mastered == pytest.approx(0.5, abs=0.05)


def test_old_successes_are_forgotten() -> None:
    practice = Practice([("own", 1)], 0.02)
    practice.add([stats(0, True)] * 100)
    practice.add([stats(0, False)] * 40)
    assert practice.mastered < 0.05


def test_success_rates_are_reported_for_each_part_of_the_starts(runs: Path) -> None:
    starts = f"own:0.5,rearranged:0.2,along:{runs}:0.3"
    parts = StartSource("pick", starts, num_objects=12, num_episodes=2).parts
    assert parts == (("own", 2), ("rearranged", 2), (f"along:{runs}:all", 10))
    practice = Practice(parts, 0.02)
    assert practice.by_part() == {}
    practice.add([stats(0, True)] * 30 + [stats(4, True), stats(13, False)] * 30)
    assert practice.by_part() == pytest.approx({"own": 1.0, parts[2][0]: 0.5}, abs=0.05)


def test_workers_draw_starts_by_the_weights() -> None:
    factory = TrainingVecEnvFactory(EnvOptions.of("pick", num_objects=12, num_episodes=3))
    pool = WorkerEnvPool(factory, 2, 2)
    try:
        assert pool.spec.start_parts == (("own", 3),) and pool.spec.start_groups == 3
        pool.weigh(np.array([0.0, 0.0, 1.0]))
        pool.reset()
        starts = pool.group.array("start_index")
        assert [int(start) % 1008 for start in starts] == [2, 2]
    finally:
        pool.close()


def test_practice_resumes_from_a_checkpoint(tmp_path: Path) -> None:
    factory = TrainingVecEnvFactory(
        EnvOptions.of("pick", num_objects=12, num_episodes=3, horizon=6), desynchronise=True
    )
    settings = dataclasses.replace(SETTINGS, practice="success", steps=24 * 4)
    found = []
    for parts in (1, 2):
        out = tmp_path / str(parts)
        trainer = Trainer(
            settings, TrainSchedule(validation_episodes=0), out, TrainTask(factory), Silent()
        )
        for _ in range(2):
            trainer._update(False)
        if parts == 2:
            trainer.save()
            trainer.close()
            trainer = Trainer(
                settings, TrainSchedule(validation_episodes=0), out, TrainTask(factory), Silent()
            )
            trainer.resume(load_latest(out))
        rows = [trainer._update(False) for _ in range(2)]
        trainer.close()
        found.append([(row["mastered"], row["learner"], row["ended"]) for row in rows])
    assert found[0] == found[1]
    assert all(row[0] < 0.5 for row in found[0])  # episodes of six steps do not succeed


def test_first_episodes_end_at_different_times() -> None:
    for desynchronised in (False, True):
        options = EnvOptions.of("pick", num_objects=12, num_episodes=3, horizon=50)
        factory = TrainingVecEnvFactory(options, desynchronise=desynchronised)
        env = factory(range(6))
        env.reset(range(6))
        gone = [env._batch.steps(home) for home in range(6)]
        env.close()
        assert (len(set(gone)) > 3) == desynchronised and max(gone) < 50


def test_a_teacher_begins_as_a_clone_of_its_recorded_runs(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def record(settings: demos.DemosSettings) -> None:
        assert (settings.num, settings.agent, settings.states) == (2, "scripted", 12)
        shutil.copytree(runs, str(settings.out))

    monkeypatch.setattr(demos, "record", record)
    words = ["train", "pick", "preset=teacher", "preset.along=2", f"out={tmp_path / 'run'}"]
    assert cli.main([*words, "preset.policy.encoder=nature_cnn"]) == 2
    assert "preset.clone: runs are recorded without images" in capsys.readouterr().err
    words += ["preset.num_envs=4", "preset.num_steps=8", "preset.min_batch=4", "preset.steps=32"]
    words += ["preset.clone=2000", "preset.collector=sync", "processes=0", "threads=1"]
    assert cli.main([*words, *FEW[:2], "validation_episodes=0", "logger=none"]) == 0
    clone = checkpoint.load(tmp_path / "run" / "clone" / checkpoint.FOLDER / checkpoint.BEST)
    trained = checkpoint.load(tmp_path / "run" / checkpoint.FOLDER / checkpoint.LATEST)
    # Only the critic is trained at first (`preset.ppo.value_warm_up`).
    assert trained.steps == 32
    assert torch.equal(*(each.tensors["policy.trunk.embed.0.weight"] for each in (clone, trained)))


def test_the_sensors_of_a_teacher_are_recorded(runs: Path) -> None:
    names = [name for name, _ in store.read_note(runs).sensors]
    assert {*sensors.TEACHER} <= {*names}
