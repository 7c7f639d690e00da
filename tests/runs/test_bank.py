import dataclasses
import itertools
import json
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kinematic_home as fake
import numpy as np
import pytest
from rich.console import Console

from eval.running.bank import BankJob, KeptStates, exit_states, make_bank, run_episode
from eval.settings import BankSettings
from planner.execution.executor import Executor
from planner.execution.limits import ExecutionRules, execution_limits
from planner.execution.trace import Trace
from skills.core.interface import SkillGoal
from skills.starts import bank as banks
from skills.starts.bank import Bank, BankWriter, ExitState
from skills.starts.source import StartSource
from tpsrl import config
from tpsrl.errors import RunError, UserError
from tpsrl.sim.base import Snapshot
from tpsrl.sim.shards import Shard, ShardWriter
from tpsrl.world.episode import save_episodes

HEADER = {"version": "0.1", "slots": 12, "num_objects": 12}


@dataclasses.dataclass(frozen=True)
class Fake:
    """Builds workers with a home without physics; in odd episodes every grasp fails."""

    settings: BankSettings

    def __call__(self) -> Callable[[BankJob], KeptStates]:
        return self.work

    def work(self, job: BankJob) -> KeptStates:
        odd = int(job.episode.id[-1]) % 2 == 1
        policies = {
            "navigate": fake.Drive(),
            "pick": fake.Idle() if odd else fake.Grab(),
            "place": fake.Put(),
        }
        return run_episode(self.settings, fake.KinematicHome(), policies, fake.Fold(), job)


class Refusing(Fake):
    """Worker that finds its second episode invalid, after the first has been written."""

    def work(self, job: BankJob) -> KeptStates:
        if job.episode.id == "test/1":
            raise UserError("episode test/1: object 3 overlaps the sofa")
        return super().work(job)


class Dying(Fake):
    """Worker whose process is killed in its second episode."""

    def work(self, job: BankJob) -> KeptStates:
        if job.episode.id == "test/1":
            os.kill(os.getpid(), signal.SIGKILL)
        return super().work(job)


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    path = tmp_path / "data.jsonl.gz"
    episodes = [fake.make_episode(3, 2, id=f"test/{i}", split="train") for i in range(3)]
    save_episodes(path, episodes)
    return path


def made(
    dataset: Path, out: Path, *overrides: str, factory: Callable[[BankSettings], Any] = Fake
) -> dict[str, Any]:
    fixed = ["scenario=tidy_house", f"episodes={dataset}", f"out={out}", "processes=1"]
    settings = config.load(BankSettings, config.parse([*fixed, *overrides]))
    return make_bank(settings, Console(quiet=True), factory)


def trace(**policies: Any) -> Trace:
    """Returns the trace of an episode in the home without physics.

    The trace has snapshots, and the episode continues after timeouts.
    """
    acting = {"navigate": fake.Drive(), "pick": fake.Grab(), "place": fake.Put()} | policies
    executor = Executor(
        fake.KinematicHome(),
        acting,
        reset_arm=fake.Fold(),
        limits=execution_limits(),
        rules=ExecutionRules(snapshots=True, after_timeout=True),
    )
    return executor.run(fake.make_episode(3, 2))


def snapshot(number: int, engine: str = "kinematic") -> Snapshot:
    """Returns a state that contains its number."""
    arrays = {"base": np.array([number, 0.0, 0.0]), "cup": np.zeros(3), "held": np.array(-1)}
    arrays["objects"] = np.zeros((2, 3))
    return Snapshot(engine, fake.make_episode(2, 1, id=f"test/{number}"), arrays)


def written(
    folder: Path, count: int, skill: str = "navigate", engine: str = "kinematic", **header: Any
) -> Path:
    """Writes a bank of `count` states before Pick; every third state is from a failed skill."""
    writer = BankWriter(folder)
    for number in range(count):
        state = ExitState(
            skill=skill,
            stage="nav obj_0",
            succeeded=number % 3 != 2,
            next_skill="pick",
            next_stage="pick obj_0",
            goal=SkillGoal(0, (0.0, 2.0, 0.8)),
            snapshot=snapshot(number, engine),
        )
        writer.add(state.snapshot, state.note())
    writer.finish({**HEADER, **header})
    return folder / skill


def numbers(starts: Any) -> list[int]:
    return [int(start.snapshot.arrays["base"][0]) for start in starts]


# -- recorded states ------------------------------------------------------------------------------


def test_every_handoff_of_a_plan_is_an_exit_state_with_the_next_skill() -> None:
    whole = trace()
    states = list(exit_states(whole))
    assert [(s.skill, s.next_skill) for s in states] == [
        ("navigate", "pick"),
        ("pick", "navigate"),
        ("navigate", "place"),
        ("place", "navigate"),
        ("navigate", "pick"),
        ("pick", "navigate"),
        ("navigate", "place"),
    ]
    assert all(state.succeeded for state in states)
    for number, state in enumerate(states, start=1):
        stage = whole.stages[number]
        assert (state.next_stage, state.goal) == (stage.name, stage.goal)
        assert state.stage == whole.stages[number - 1].name
        np.testing.assert_array_equal(state.snapshot.arrays["base"], stage.before.base)
        assert int(state.snapshot.arrays["held"]) == stage.before.held
        assert (state.goal.grasp is None) == (stage.before.held < 0)


def test_a_stage_that_did_not_run_has_no_exit_state() -> None:
    whole = trace(pick=fake.Idle())
    states = list(exit_states(whole))
    assert [(s.skill, s.next_skill, s.succeeded) for s in states] == [
        ("navigate", "pick", True),
        ("pick", "navigate", False),
        ("navigate", "navigate", True),  # Place does not run with an empty hand
        ("navigate", "pick", True),
        ("pick", "navigate", False),
    ]
    assert whole.ended_by == "timeout" and whole.ignoring is not None
    ran = [stage for stage in whole.ignoring.stages if stage.reached]  # including after the timeout
    assert [stage.name for stage in whole.ignoring.stages if not stage.reached] == [
        "place obj_0",
        "place obj_1",
    ]
    assert [(s.stage, s.next_stage, s.goal) for s in states] == [
        (before.name, after.name, after.goal) for before, after in itertools.pairwise(ran)
    ]


# -- the run -----------------------------------------------------------------------------------


def test_a_bank_holds_the_exit_states_of_every_skill(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "bank"
    indices = made(dataset, out)
    assert {path.name for path in out.iterdir()} == {"config.yaml", "navigate", "pick", "place"}
    assert indices["navigate"] == json.loads((out / "navigate" / "index.json").read_text())
    assert indices["navigate"]["next"] == {
        "navigate": {"succeeded": 1, "failed": 0},
        "pick": {"succeeded": 6, "failed": 0},
        "place": {"succeeded": 4, "failed": 0},
    }
    assert indices["pick"]["next"] == {"navigate": {"succeeded": 4, "failed": 2}}
    assert indices["place"]["next"] == {"navigate": {"succeeded": 2, "failed": 0}}
    index = indices["pick"]
    assert (index["scenario"], index["split"], index["seed"]) == ("tidy_house", "train", 0)
    assert (index["agent"], index["protocol"], index["engine"]) == (
        "scripted",
        "habitat",
        "kinematic",
    )
    assert (index["slots"], index["num_objects"], index["states"]) == (30, 30, 6)
    found = Bank(out / "pick", "navigate")
    assert [start.episode.id[-1] for start in found] == ["0", "0", "1", "1", "2", "2"]


def test_states_are_loaded_bit_for_bit(dataset: Path, tmp_path: Path) -> None:
    made(dataset, tmp_path / "bank")
    expected = [s for s in exit_states(trace()) if (s.skill, s.next_skill) == ("navigate", "pick")]
    found = Bank(tmp_path / "bank" / "navigate", "pick")
    assert len(found) == 6
    for state, start in zip(expected, found, strict=False):
        assert start.goal == state.goal and start.snapshot is not None
        assert start.snapshot.engine == state.snapshot.engine
        for name, value in state.snapshot.arrays.items():
            again = start.snapshot.arrays[name]
            assert (again.dtype, again.shape) == (value.dtype, value.shape)
            assert again.tobytes() == value.tobytes()


def test_a_bank_can_keep_intermediate_states_of_each_skill(dataset: Path, tmp_path: Path) -> None:
    plain, more = made(dataset, tmp_path / "plain"), made(dataset, tmp_path / "more", "along=3")
    assert {k: v["states"] for k, v in more.items()} == {k: v["states"] for k, v in plain.items()}
    assert not list((tmp_path / "plain").rglob("along"))
    for skill in ("navigate", "pick"):
        source = StartSource(skill, f"along:{tmp_path / 'more' / skill}")
        found = [source[row] for row in range(source.groups)]
        assert found and all(start.memory is not None for start in found)
    picking = StartSource("pick", f"along:{tmp_path / 'more' / 'pick'}:failed")
    # In odd episodes every grasp fails. The robot continues after the timeout of the first Pick,
    # which ends the episode by the protocol, so states of the second Pick are kept as well.
    assert [picking[row].episode.id for row in range(picking.groups)] == ["test/1"] * 6


def test_a_bank_is_the_same_for_any_number_of_processes(dataset: Path, tmp_path: Path) -> None:
    outputs = []
    for processes in (1, 2):
        out = tmp_path / str(processes)
        made(dataset, out, f"processes={processes}")
        names = [path.relative_to(out) for path in sorted(out.glob("*/*"))]
        outputs.append({str(name): (out / name).read_bytes() for name in names})
    assert outputs[0] == outputs[1] and len(outputs[0]) == 9


@pytest.mark.parametrize(("only", "kept"), [("succeeded", 4), ("failed", 2)])
def test_a_bank_can_be_limited_to_succeeded_or_failed_states(
    dataset: Path, tmp_path: Path, only: str, kept: int
) -> None:
    indices = made(dataset, tmp_path / "bank", f"only={only}")
    assert indices["pick"]["states"] == kept
    assert ("place" in indices) == (only == "succeeded")


def test_without_after_timeout_an_episode_ends_with_its_first_timeout(
    dataset: Path, tmp_path: Path
) -> None:
    indices = made(dataset, tmp_path / "bank", "after_timeout=false")
    assert indices["pick"]["next"] == {"navigate": {"succeeded": 4, "failed": 0}}
    assert indices["navigate"]["next"]["pick"]["succeeded"] == 5


@pytest.mark.parametrize(
    ("factory", "error", "message", "overrides"),
    [
        (Refusing, UserError, "object 3 overlaps", ()),
        (Dying, RunError, "died", ("processes=2",)),
        (Fake, RunError, "no exit state was recorded", ("num_episodes=1", "only=failed")),
    ],
)
def test_a_failed_run_leaves_no_bank(
    dataset: Path,
    tmp_path: Path,
    factory: Any,
    error: type[Exception],
    message: str,
    overrides: tuple[str, ...],
) -> None:
    before = sorted(tmp_path.iterdir())
    with pytest.raises(error, match=message):
        made(dataset, tmp_path / "bank", *overrides, factory=factory)
    assert sorted(path for path in tmp_path.iterdir() if path.name[0] != ".") == before


def test_an_existing_folder_is_refused_unless_empty(dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "bank"
    out.mkdir()
    indices = made(dataset, out)  # an empty folder is accepted
    with pytest.raises(UserError, match=r"out: .*bank already exists; delete it, or choose"):
        made(dataset, out, "only=failed")
    # A run that was killed after its last episode finishes when repeated.
    left = tmp_path / ".bank.unfinished" / ".running"
    left.mkdir(parents=True)
    (left / "journal.jsonl").write_text("{}\n")
    assert made(dataset, out) == indices
    assert {path.name for path in tmp_path.iterdir()} - {dataset.name} == {"bank"}


# -- shards ------------------------------------------------------------------------------------


def test_a_shard_stores_arrays_of_any_kind(tmp_path: Path) -> None:
    arrays = {
        "scalar": np.array(3.5),
        "none": np.zeros((0, 4)),
        "flags": np.array([True, False, True]),
        "numbers": np.arange(6, dtype=np.int32).reshape(2, 3),
        "small": np.float32([np.nan, np.inf, -0.0]),
        "turned": np.arange(6.0).reshape(2, 3).T,
    }
    given = Snapshot("kinematic", fake.make_episode(), arrays)
    with ShardWriter(tmp_path / "a.npz") as writer:
        writer.add(given, {"row": 0})
        writer.add(given, {"row": 1})
    shard = Shard(tmp_path / "a.npz")
    again, note = shard.read(1)
    assert (len(shard), note, again.episode) == (2, {"row": 1}, given.episode)
    for name, value in arrays.items():
        np.testing.assert_array_equal(again.arrays[name], value)
        assert again.arrays[name].dtype == value.dtype
        assert again.arrays[name].flags.writeable
    with np.load(tmp_path / "a.npz", allow_pickle=False) as file:  # an ordinary npz file
        assert file["0.arrays"].dtype == np.uint8


def test_an_unfinished_shard_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), ShardWriter(tmp_path / "a.npz") as writer:
        writer.add(snapshot(0), {})
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


# -- reading -----------------------------------------------------------------------------------


def test_states_are_chosen_by_next_skill_and_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(banks, "_SHARD", 2)
    folder = written(tmp_path, 7)
    assert len(list(folder.glob("*.npz"))) == 4
    assert numbers(Bank(folder, "pick")) == list(range(7))
    assert numbers(Bank(folder, "pick", "succeeded")) == [0, 1, 3, 4, 6]
    assert numbers(Bank(folder, "pick", "failed")) == [2, 5]
    assert numbers(Bank(folder, "pick")[5:]) == [5, 6]


def grasped(**changes: list[float]) -> Callable[[dict[str, Any]], object]:
    """Returns a change of a state that adds a grasp to its goal."""
    grasp = {"centre": [0.1, 0.0, 0.0], "up": [0.0, 0.0, 1.0], **changes}
    return lambda home: home["note"]["goal"].update(grasp=grasp)


def rewritten(path: Path, change: Callable[[Any], object]) -> None:
    """Changes the content of a JSON file."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def unsound(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes the header of the first state in a bank's first shard."""
    path = folder / "states_0000.npz"
    with np.load(path) as file:
        members = {name: file[name] for name in file.files}
    header = json.loads(members["0.header"].tobytes())
    change(header)
    members["0.header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(path, **members)
    size = path.stat().st_size
    rewritten(folder / "index.json", lambda index: index["shards"][0].update(bytes=size))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda i: i.update(slots=13), "index.json: slots: must be 12 or 30, got 13"),
        (lambda i: i.update(num_objects=13), "index.json: num_objects: must be at most 12, got 13"),
        (lambda i: i.update(shard_states=0), "index.json: shard_states: must be an integer >= 1"),
        (lambda i: i.update(states=-5), "index.json: states: must be an integer >= 0, got -5"),
        (lambda i: i.update(shard_states=1), "1 shards cannot contain"),
        (lambda i: i.update(shards=[]), "0 shards cannot contain"),
        (lambda i: i["shards"][0].update(file="../../x.npz"), "x.npz is not in the folder"),
        (lambda i: i["shards"][0].update(file="x" * 999), r"shards\[0\].file: .* length <= 255"),
        (lambda i: i.pop("digest"), "index.json: digest: is missing"),
    ],
)
def test_an_invalid_index_is_refused(
    tmp_path: Path, change: Callable[[Any], object], message: str
) -> None:
    folder = written(tmp_path, 4)
    rewritten(folder / "index.json", change)
    with pytest.raises(UserError, match=f"starts: bank:.*navigate: .*{message}"):
        Bank(folder, "pick")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda h: h.update(engine="other"),
            "state 0 has engine 'other', index.json has 'kinematic'",
        ),
        (lambda h: h.pop("engine"), "state 0: engine: is missing"),
        (lambda h: h["arrays"].pop(), "is damaged or not a shard"),
        (lambda h: h["arrays"][0].__setitem__(2, [2, -1]), r"state 0: arrays\[0\]\[2\]\[1\]: must"),
        (lambda h: h["episode"].pop("layout"), "episode: layout: is missing"),
        (lambda h: h.update(note={}), "state 0: goal: must be a record, got None"),
        (lambda h: h["note"]["goal"].update(object=7), "state 0: goal.object: 7 is out of range"),
        (grasped(centre=[0.3, 0, 0]), "state 0: goal.grasp.centre: 0.3 m from the cup, must be at"),
        (grasped(up=[0, 0, 0.9]), "state 0: goal.grasp.up: must be a unit vector, has length 0.9"),
    ],
)
def test_a_damaged_state_is_refused_by_bank_and_file(
    tmp_path: Path, change: Callable[[Any], object], message: str
) -> None:
    folder = written(tmp_path, 4)
    unsound(folder, change)
    with pytest.raises(UserError, match=rf"starts: bank:.*states_0000\.npz.*{message}"):
        Bank(folder, "pick")[0]
    assert Bank(folder, "pick")[1].goal.object == 0


def test_a_bank_limits_its_number_of_open_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(banks, "_SHARD", 1)
    monkeypatch.setattr(banks, "_OPEN", 2)
    folder = written(tmp_path, 6)
    one, before = Bank(folder, "pick"), len(os.listdir("/proc/self/fd"))
    assert numbers(one) == list(range(6))
    assert len(os.listdir("/proc/self/fd")) == before + 2
    other = pickle.loads(pickle.dumps(one))
    assert numbers([other[3]]) == [3]
    one.close(), other.close()
    assert len(os.listdir("/proc/self/fd")) == before


def damage(folder: Path) -> Iterator[tuple[str, str]]:
    """Yields name and error of damage to a bank of one shard, undone after each step."""
    shard, states, index = (
        folder / "states_0000.npz",
        folder / "states.jsonl",
        folder / "index.json",
    )
    for path, change, message in (
        (shard, lambda b: b[:-50], r"states_0000.npz is incomplete \([\d,]+ of [\d,]+ bytes\)"),
        (shard, None, r"states_0000.npz is incomplete \(0 of"),
        (states, lambda b: b.split(b"\n", 1)[1], "states.jsonl has 3 states, must have 4"),
        (states, lambda b: b.replace(b"{", b"[", 1), "states.jsonl, line 1 is not JSON"),
        (states, lambda b: b.replace(b"true", b"1", 1), "line 1: succeeded: must be true or false"),
        (states, None, "no states.jsonl"),
        (index, lambda b: b[:40], "index.json is not JSON"),
        (index, lambda b: b.replace(b'"format": 1', b'"format": 9'), "format 9, written by tpsrl"),
        (index, None, "not a complete bank"),
    ):
        before = path.read_bytes()
        if change is None:
            path.unlink()
        else:
            path.write_bytes(change(before))  # type: ignore[no-untyped-call]
        yield path.name, message
        path.write_bytes(before)


def test_a_damaged_bank_is_refused_with_the_name_of_the_file(tmp_path: Path) -> None:
    folder = written(tmp_path, 4)
    for _, message in damage(folder):
        with pytest.raises(UserError, match=message):
            Bank(folder, "pick")
    shard = folder / "states_0000.npz"
    content = bytearray(shard.read_bytes())
    middle = content.index(b"0.arrays.npy") + 60
    content[middle : middle + 8] = bytes(8)
    shard.write_bytes(content)
    whole = Bank(folder, "pick")  # the size is unchanged
    with pytest.raises(UserError, match=r"states_0000.npz is damaged or not a shard"):
        whole[0]


def test_a_missing_part_of_a_bank_is_refused_with_the_existing_parts(tmp_path: Path) -> None:
    folder = written(tmp_path, 2)
    written(tmp_path, 1, "place")
    for path, skill, only, message in (
        (tmp_path / "nowhere" / "x", "pick", "all", "nowhere/x: no such folder"),
        (
            tmp_path,
            "pick",
            "all",
            "is a bank of several skills; choose one of them: bank:.*navigate, bank:.*place",
        ),
        (tmp_path / "navigat", "pick", "all", "value 'navigat'; did you mean 'navigate'"),
        (folder, "place", "all", "no states before 'place'; it has 2 before pick"),
        (folder, "pick", "failed", "no failed states before 'pick'; all 2 succeeded"),
        (folder, "pick", "fails", "unknown value 'fails'; did you mean 'failed'"),
    ):
        with pytest.raises(UserError, match=message):
            Bank(path, skill, only)  # type: ignore[arg-type]


def test_a_bank_of_another_engine_is_refused(tmp_path: Path) -> None:
    folder = written(tmp_path, 2, engine="mujoco-2.0/1")
    source = StartSource("pick", f"bank:{folder}")
    with pytest.raises(UserError, match=r"engine 'mujoco-2.0/1', this one is 'mujoco-3"):
        source.slots("mujoco")
