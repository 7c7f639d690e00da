import dataclasses
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import yaml
from rich.console import Console
from test_bank import numbers, written
from test_skill_evaluator import Fake, recorded

import skills.gym  # noqa: F401
import tpsrl.sim
from eval.analysing.schema import SkillReport
from eval.running.skill_evaluator import evaluate_skill
from eval.settings import SkillSettings
from skills.envs.environment import SkillEnv
from skills.envs.options import EnvOptions
from skills.envs.training import TrainingVecEnvFactory
from skills.starts import dataset, mixture
from skills.starts.bank import Bank, BankWriter, ExitState
from skills.starts.source import StartSource, start_episodes
from skills.starts.start import receptacle
from tpsrl import config
from tpsrl.cli import main
from tpsrl.errors import UserError
from tpsrl.rl.envs.pool import step_all
from tpsrl.rl.envs.serial_pool import SerialEnvPool
from tpsrl.rl.envs.worker_pool import WorkerEnvPool
from tpsrl.rl.run import metrics
from tpsrl.world import action as act
from tpsrl.world.state import WorldState

STATES, STEPS = 5, 7


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TPSRL_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(dataset, "BASE_EPISODES", 2)
        patch.setattr(dataset, "_FEW", 2)
        yield


@pytest.fixture(scope="module")
def exits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[WorldState]]:
    """Bank of real homes in which Pick can start, and the recorded worlds."""
    simulator = tpsrl.sim.make(slots=12)
    folder, worlds = tmp_path_factory.mktemp("bank"), []
    writer = BankWriter(folder)
    starts = start_episodes("pick", range(STATES), "train", 0, 4, processes=1)
    for number, start in enumerate(starts):
        simulator.reset([0], [start.episode])
        for _ in range(STEPS):
            simulator.step([0], np.random.default_rng(number).uniform(-1, 1, (1, act.SIZE)))
        worlds.append(simulator.state([0]))
        state = ExitState(
            "navigate", "nav obj_0", True, "pick", "pick obj_0", start.goal, simulator.snapshot(0)
        )
        writer.add(state.snapshot, state.note())
    writer.finish({"version": "0.1", "slots": 12, "num_objects": 4})
    return folder / "navigate", worlds


def same(one: WorldState, other: WorldState) -> bool:
    names = [field.name for field in dataclasses.fields(one)]
    return all(
        np.array_equal(getattr(one, name), getattr(other, name), equal_nan=True) for name in names
    )


# -- parsing --------------------------------------------------------------------------------------


def test_a_mixture_is_parsed_into_parts_and_weights() -> None:
    shares = mixture.parse("own:0.5, bank:out/b/navigate:succeeded:0.3 ,bank:x:1e-1")
    assert [(s.folder, s.only, s.weight) for s in shares] == [
        (None, "all", 0.5),
        (Path("out/b/navigate"), "succeeded", 0.3),
        (Path("x"), "all", 0.1),
    ]
    assert mixture.proportions(shares) == pytest.approx([5 / 9, 3 / 9, 1 / 9])
    assert mixture.proportions(mixture.parse("own,bank:x,bank:y,bank:x:failed")) == [0.25] * 4
    [alone] = mixture.parse("bank:x:failed")
    assert (alone.folder, alone.only, alone.weight) == (Path("x"), "failed", 1.0)
    wide = mixture.parse("own:1,near:4:2,near:0.5:1")
    assert [(s.folder, s.within, s.weight) for s in wide] == [
        (None, None, 1.0),
        (None, 4.0, 2.0),
        (None, 0.5, 1.0),
    ]


def test_a_part_can_be_limited_to_a_receptacle() -> None:
    text = "own@fridge:0.5,own:0.1,near:4@sink:0.1,rearranged@fridge:0.2,bank:x:failed@sofa:0.1"
    shares = mixture.parse(text)
    assert [share.receptacle for share in shares] == ["fridge", "", "sink", "fridge", "sofa"]
    assert [share.weight for share in shares] == [0.5, 0.1, 0.1, 0.2, 0.1]
    assert shares[2].within == 4.0 and shares[3].rearranged and shares[4].only == "failed"
    whole = mixture.whole_paths(text)
    assert [dataclasses.replace(s, folder=None) for s in mixture.parse(whole)] == [
        dataclasses.replace(s, folder=None) for s in shares
    ]
    assert mixture.is_mixture("own@fridge") and mixture.parse("own@fridge")[0].weight == 1.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bnk:x/pick", r"starts: unknown value 'bnk:x/pick'; did you mean 'bank:DIR/SKILL'"),
        ("own,", "starts: unknown value ''"),
        ("own:0.3,bank:x", "give each part a weight"),
        ("own:0,bank:x:1", "'own:0': the weight must be above 0 and at most 1e\\+09"),
        ("own:nan,bank:x:1", "'own:nan': the weight must be"),
        ("own:inf,bank:x:1", "'own:inf': the weight must be"),
        ("own:1e308,rearranged:1e308", "'own:1e308': the weight must be"),
        ("own:half", "'half' is not a weight; try own:0.5"),
        ("near", "'near': metres must be above 0 and at most 50, such as near:4"),
        ("near:far", "'near:far': metres must be"),
        ("near:-2", "'near:-2': metres must be"),
        ("near:4:half", "'half' is not a weight; try own:0.5, near:4:0.5"),
        ("near:4:0.5,near:4.0:1", "a part is repeated"),
        ("own@:0.5", "'own@:0.5': the receptacle is missing, as in own@fridge"),
        ("own@fridge:much", "'much' is not a weight; try own:0.5"),
        ("own@fridge,own@fridge:0.5", "give each part a weight"),
        ("own@fridge:0.2,own@fridge:0.5", "a part is repeated"),
        ("bank:x:suceeded:0.5", "unknown value 'suceeded'; did you mean 'succeeded'"),
        ("bank::0.5", "the folder is missing, as in bank:DIR/SKILL"),
        ("bank:x:0.1,own:0.2,bank:x:all:0.3", "a part is repeated"),
    ],
)
def test_an_invalid_mixture_is_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        mixture.parse(text)


def test_a_file_is_not_taken_for_a_mixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a,b:c.npz").write_text("")
    found = [mixture.is_mixture(t) for t in ("starts.npz", "a,b:c.npz", None, "own", "own,bank:x")]
    assert found == [False, False, False, True, True]
    assert mixture.is_mixture("bank:x") and not mixture.is_mixture(tmp_path / "x:y")


def test_paths_of_a_mixture_are_made_absolute_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = mixture.whole_paths("own:0.3,near:4:1,bank:b/navigate:failed:0.3,bank:../c:0.1")
    assert text == (
        f"own:0.3,near:4.0:1.0,bank:{tmp_path}/b/navigate:failed:0.3,bank:{tmp_path.parent}/c:all:0.1"
    )
    assert mixture.whole_paths(text) == text
    (tmp_path / "a,b").mkdir()
    monkeypatch.chdir(tmp_path / "a,b")
    with pytest.raises(UserError, match="a,b/x contains one of , : @; move the folder"):
        mixture.whole_paths("own,bank:x")


def test_a_number_is_split_by_largest_remainders() -> None:
    assert mixture.split(10, [0.5, 0.3, 0.2]) == [5, 3, 2]
    assert mixture.split(10, [1 / 3] * 3) == [4, 3, 3]
    assert mixture.split(1, [0.4, 0.6]) == [0, 1]


# -- drawing -----------------------------------------------------------------------------------


def test_a_single_bank_is_drawn_from_like_a_file(tmp_path: Path) -> None:
    folder = written(tmp_path, 6)
    source = StartSource("pick", f"bank:{folder}")
    rng, twin = np.random.default_rng(3), np.random.default_rng(3)
    for _ in range(20):
        index, start = source.draw(rng)
        assert index == int(twin.integers(6)) and numbers([start]) == [index]
    with pytest.raises(UserError, match="6 is out of range, must be between 0 and 5"):
        source[6]
    assert numbers([source.in_turn(8)]) == [2]


def test_starts_from_a_bank_can_be_limited_to_a_receptacle(tmp_path: Path) -> None:
    folder = written(tmp_path, 6)
    every = Bank(folder, "pick")
    names = [receptacle(start) for start in every]
    source = StartSource("pick", f"bank:{folder}@{names[2]}")
    kept = [row for row, name in enumerate(names) if name == names[2]]
    assert numbers(source.first(None)) == numbers([every[row] for row in kept])
    with pytest.raises(UserError, match="starts about a receptacle: unknown value 'nowhere'"):
        StartSource("pick", f"bank:{folder}@nowhere")


def test_parts_of_a_mixture_are_drawn_according_to_their_weights(tmp_path: Path) -> None:
    first, second = written(tmp_path / "a", 4), written(tmp_path / "b", 3)
    spec = f"own:0.5,bank:{first}:0.3,bank:{second}:succeeded:0.2"
    source = StartSource("pick", spec, num_objects=4, num_episodes=2)
    source.prepare(processes=1)
    rng, count = np.random.default_rng(0), 400
    drawn = [source.draw(rng) for _ in range(count)]
    for part, weight in enumerate((0.5, 0.3, 0.2)):
        found = [(index, start) for index, start in drawn if index % 3 == part]
        # Five standard deviations of the binomial distribution.
        assert abs(len(found) - count * weight) < 5 * math.sqrt(count * weight * (1 - weight))
        assert all((start.snapshot is None) == (part == 0) for _, start in found)
        if part:
            assert numbers(start for _, start in found) == [index // 3 for index, _ in found]
    # Two of the states are successes.
    assert {index // 3 for index, _ in drawn if index % 3 == 2} == {0, 1}
    again = StartSource("pick", spec, num_objects=4, num_episodes=2)
    rng = np.random.default_rng(0)
    assert [again.draw(rng)[0] for _ in range(50)] == [index for index, _ in drawn[:50]]
    for index, start in drawn[:10]:
        assert again[index].episode == start.episode


def test_parts_for_different_homes_are_refused(tmp_path: Path) -> None:
    first = written(tmp_path / "a", 2)
    second = written(tmp_path / "b", 2, slots=30)
    third = written(tmp_path / "c", 2, engine="other")
    with pytest.raises(UserError, match=r"b/navigate has homes of 30 objects in engine kinematic"):
        StartSource("pick", f"bank:{first},bank:{second}")
    with pytest.raises(UserError, match="homes of 12 objects in engine other"):
        StartSource("pick", f"bank:{first},bank:{third}")
    with pytest.raises(UserError, match=r"num_objects: 30 is out of range, must be at most 12"):
        StartSource("pick", f"own,bank:{first}")
    StartSource("pick", f"own,bank:{first}", num_objects=12)


# -- in environments ---------------------------------------------------------------------------


def test_an_environment_starts_in_exit_states_of_a_bank(
    exits: tuple[Path, list[WorldState]],
) -> None:
    folder, worlds = exits
    env = gymnasium.make("tpsrl/Pick-v0", depth=None, starts=f"bank:{folder}", horizon=3)
    core = env.unwrapped
    assert isinstance(core, SkillEnv)
    for seed in range(3):
        _, info = env.reset(seed=seed)
        assert same(core.world, worlds[info["start"]])
        state = core.batch.task_state([0])
        # Steps and forces before the start do not count.
        assert core.world.step[0] == STEPS and state.steps[0] == 0
        assert state.force_sum[0] == 0.0 and state.force_total[0] == core.world.force_total[0]
    ends = [env.step(np.zeros(act.SIZE, dtype=np.float32))[3] for _ in range(3)]
    assert ends == [False, False, True]


def test_a_vector_starts_in_exit_states_of_a_bank(exits: tuple[Path, list[WorldState]]) -> None:
    envs = gymnasium.make_vec(
        "tpsrl/Pick-v0",
        2,
        vectorization_mode="vector_entry_point",
        vector_kwargs={},
        depth=None,
        starts=f"own:0.5,bank:{exits[0]}:0.5",
        num_objects=4,
        num_episodes=1,
    )
    shown, _ = envs.reset(seed=0)
    assert np.isfinite(shown["state"]).all()
    envs.close()


def test_a_bank_of_another_engine_is_refused_before_the_run(tmp_path: Path) -> None:
    folder = written(tmp_path, 2)
    with pytest.raises(UserError, match="was recorded with engine 'kinematic', this one is 'mujo"):
        SkillEnv("pick", starts=f"bank:{folder}")
    with pytest.raises(UserError, match="was recorded with engine 'kinematic'"):
        TrainingVecEnvFactory(EnvOptions.of("pick", starts=f"bank:{folder}")).prepare(1)


def training(folder: Path) -> TrainingVecEnvFactory:
    options: dict[str, Any] = {"starts": f"own:0.4,bank:{folder}:0.6", "num_objects": 4}
    return TrainingVecEnvFactory(EnvOptions.of("pick", **options, num_episodes=2, horizon=3), 5)


def test_environments_restored_from_a_checkpoint_draw_the_same_starts(
    exits: tuple[Path, list[WorldState]],
) -> None:
    made = training(exits[0])
    made.prepare(1)
    one, other = SerialEnvPool(made, 2), SerialEnvPool(made, 2)
    one.reset(), other.reset()
    actions = np.random.default_rng(1).uniform(-1, 1, (40, 2, act.SIZE)).astype(np.float32)
    for action in actions[:7]:
        step_all(one, action)
    arrays, note = one.snapshot()
    other.restore(arrays, json.loads(json.dumps(note)))
    seen = []
    for action in actions[7:]:
        ours, theirs = step_all(one, action), step_all(other, action)
        assert theirs.episodes == ours.episodes
        np.testing.assert_array_equal(theirs.observation["state"], ours.observation["state"])
        seen += [episode.start_index % 2 for episode in ours.episodes]
    assert set(seen) == {0, 1}


def test_environments_in_workers_have_the_same_episodes(
    exits: tuple[Path, list[WorldState]],
) -> None:
    # The reduced number of base episodes does not reach the workers, so only the bank is used.
    made = dataclasses.replace(
        training(exits[0]), options=EnvOptions.of("pick", starts=f"bank:{exits[0]}", horizon=3)
    )
    serial, workers = SerialEnvPool(made, 3), WorkerEnvPool(made, 3, 2)
    try:
        serial.reset(), workers.reset()
        for turn in range(12):
            action = np.random.default_rng(turn).uniform(-1, 1, (3, act.SIZE)).astype(np.float32)
            ours, theirs = step_all(serial, action), step_all(workers, action)
            assert theirs.episodes == ours.episodes
            np.testing.assert_array_equal(theirs.observation["state"], ours.observation["state"])
    finally:
        workers.close()


# -- in commands -------------------------------------------------------------------------------


def train(what: str, *overrides: str) -> int:
    tiny = ["num_envs=2", "num_steps=8", "policy.encoder=state", "policy.lstm_width=8"]
    few = ["processes=0", "threads=1", "num_objects=4", "num_episodes=1", "validation_episodes=0"]
    return main(["train", what, *few, *(f"preset.{key}" for key in tiny), *overrides])


def test_a_training_starts_from_a_bank_and_resumes_with_the_same_bank(
    exits: tuple[Path, list[WorldState]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = exits[0]
    monkeypatch.chdir(folder.parent)
    out = tmp_path / "out"
    starts = ["start_states=own:0.5,bank:navigate:0.5", "validation_starts=bank:navigate"]
    rest = [f"out={out}", "validation_episodes=7", "preset.steps=32"]
    assert train("pick", *starts, *rest) == 0
    written_down = yaml.safe_load((out / "config.yaml").read_text())
    assert written_down["start_states"] == f"own:0.5,bank:{folder}:all:0.5"
    assert written_down["validation_starts"] == f"bank:{folder}:all:1.0"
    assert [*metrics.read(out)][-1]["validation"]["episodes"] == 7  # more than there are states
    monkeypatch.chdir(tmp_path)
    assert train(f"resume={out}", "preset.steps=64", "validation_episodes=0") == 0
    assert [*metrics.read(out)][-1]["steps"] == 64
    index = folder / "index.json"
    before = index.read_text()
    index.write_text(before.replace(Bank(folder, "pick").digest, "0" * 12))
    capsys.readouterr()
    assert train(f"resume={out}", "preset.steps=80") == 2
    index.write_text(before)
    assert "has changed since the training began (000000000000," in capsys.readouterr().err


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["start_states=bank:nowhere/navigate"], "bank:"),
        (["start_states=own", "starts=own:1"], "start_states: 'own' and starts=own:1 contradict"),
        (["validation_starts=own,bank:x"], "validation_starts: 'own,bank:x' has several parts"),
    ],
)
def test_invalid_start_states_are_refused_before_a_training_begins(
    overrides: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("pick", f"out={tmp_path / 'out'}", *overrides) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_task_without_objects_has_no_rearranged_start_states() -> None:
    with pytest.raises(UserError, match=r"^start_states: pointnav has no rearranged .*: own$"):
        StartSource("pointnav", "own:0.5,rearranged:0.5")


def test_a_skill_is_evaluated_from_exit_states_of_another(tmp_path: Path) -> None:
    writer = BankWriter(tmp_path / "bank")
    for number in range(4):
        start = recorded(number)
        assert start.snapshot is not None
        state = ExitState("navigate", "nav", True, "pick", "pick", start.goal, start.snapshot)
        writer.add(state.snapshot, state.note())
    writer.finish({"version": "0.1", "slots": 12, "num_objects": 3})
    spec = f"bank:{tmp_path}/bank/navigate"

    def report(*overrides: str) -> SkillReport:
        given = ["skill=pick", f"starts={spec}", "processes=1", f"out={tmp_path}/out", *overrides]
        return evaluate_skill(
            config.load(SkillSettings, config.parse(given)), Console(quiet=True), Fake
        )

    whole = report()
    assert (whole.num_episodes, whole.success.mean) == (4, 0.5)  # odd episodes stand still
    assert (whole.starts, whole.num_objects) == (spec, 3)
    assert report("num_episodes=3", "replace=true").success.mean == 2 / 3
    with pytest.raises(UserError, match="starts: 4 given, 5 requested"):
        report("num_episodes=5")


def test_a_mixture_is_evaluated_in_proportion_to_its_weights(tmp_path: Path) -> None:
    folder = written(tmp_path, 3)
    source = StartSource("pick", f"own:0.75,bank:{folder}:0.25", split="val", num_objects=4)
    assert source.first(0) == [] and len(source.first(1)) == 1  # one part then has no episode
    starts = source.first(4, processes=1)
    assert [start.snapshot is None for start in starts] == [True, True, True, False]
    assert [start.episode for start in starts[:3]] == [
        start.episode for start in start_episodes("pick", range(3), "val", 0, 4, processes=1)
    ]


def test_exit_states_of_a_scenario_serve_a_training_and_an_evaluation(tmp_path: Path) -> None:
    bank, out = tmp_path / "bank", tmp_path / "out"
    few = ["num_episodes=1", "processes=1", "scenario.num_objects=12"]
    few += ["protocol.limits.episode_steps=350"]  # for the first object
    assert main(["bank", "tidy_house", *few, f"out={bank}"]) == 0
    index = json.loads((bank / "navigate" / "index.json").read_text())
    assert index["slots"] == 12 and index["next"]["pick"]["succeeded"] >= 1
    spec = f"bank:{bank}/navigate"
    assert train("pick", f"start_states={spec}", f"out={out}", "preset.steps=32") == 0
    shared = [f"starts={spec}", "num_episodes=1", "processes=1"]
    assert main(["eval", "pick", *shared, f"out={tmp_path}/eval"]) == 0
    report = json.loads((tmp_path / "eval" / "report.json").read_text())
    assert report["success"]["mean"] == 1.0
