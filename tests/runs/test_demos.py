"""Demonstrations: recording, storage, selection and cloning, partly by the command line."""

import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from skills import registry
from skills.core import sensors
from skills.core.inputs import PolicyInputs
from skills.core.interface import SkillGoal
from skills.demos import disturbing, selecting, store
from skills.demos.disturbing import Disturbed, Hesitant
from skills.demos.recording import (
    Acting,
    Actors,
    Recorder,
    RecorderFactory,
    Recording,
    RecordJob,
)
from skills.envs.environment import SkillEnv
from skills.envs.options import EnvOptions
from skills.envs.training import TrainingVecEnvFactory
from skills.policies import pretrained
from skills.policies.deployed import Deployment
from skills.policies.learned import LearnedPolicy
from skills.starts.start import Start
from tpsrl import cli
from tpsrl.errors import UserError
from tpsrl.rl.imitation.dataset import DEPTH_UNIT, Demonstration
from tpsrl.rl.policy.actor_critic import ActorCritic
from tpsrl.rl.policy.settings import PolicySettings
from tpsrl.rl.run import checkpoint
from tpsrl.world import action as act
from tpsrl.world.state import WorldState

FILE = Path(__file__).parents[1] / "taught_skill.py"
NAME, HORIZON = "come_here", 40
SIDE = 32
PRETRAINED = pretrained.FOLDER / "place.safetensors"
ALONE = Actors(disturbed=0.0, hesitation=0)
NETWORK = PolicySettings(
    encoder="state", state_width=8, lstm_layers=1, lstm_width=8, previous_action=False,
    initial_std=1e-4, min_std=1e-5,
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def taught() -> Iterator[None]:
    """Registers the skill of `taught_skill` for the tests of this module."""
    path = list(sys.path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(registry.VARIABLE, "")
        registry.load_modules(str(FILE))
        yield
    registry.unregister(NAME)
    sys.modules.pop("taught_skill", None)
    sys.path[:] = path


def near(index: int, **changes: Any) -> Start:
    from taught_skill import near_start

    return near_start(index, **changes)


def recorder(homes: int = 2, starts: Sequence[Start] | None = None, **options: Any) -> Recorder:
    given = EnvOptions.of(NAME, depth=(SIDE, SIDE), starts=starts, num_objects=0, **options)
    return Recorder(RecorderFactory(given, homes))


@pytest.fixture(scope="module")
def two_homes() -> Recorder:
    return recorder()


def record(by: Recorder, count: int, actors: Actors = ALONE, seed: int = 0) -> dict[int, Recording]:
    found = list(by.record(RecordJob(tuple(range(count)), actors, seed)))
    assert len(found) == count
    return {recording.number: recording for recording in found}


def sensed(recording: Recording) -> dict[str, np.ndarray]:
    """Returns the sensor readings of an episode by name."""
    places = PolicyInputs.of(NAME).complete().layout()
    state = recording.demonstration.observation["state"]
    return {name: state[:, place] for name, place in places.items()}


def wanted(recording: Recording) -> np.ndarray:
    """Returns the teacher's labels (T, 11), computed from the compass readings that it follows."""
    from taught_skill import HereDemonstrator

    compass = sensed(recording)["compass"].astype(np.float64)
    out = np.full((len(compass), act.SIZE), 0.0)
    out[:, act.GRIP] = out[:, act.STOP] = -1.0
    for row, (distance, cosine, sine) in enumerate(compass):
        if distance < 0.2:
            out[row, act.STOP] = 1.0
        else:
            angle = float(np.arctan2(sine, cosine))
            out[row, act.BASE] = HereDemonstrator.move(None, None, distance, angle)  # type: ignore[arg-type]
    return out


# -- actors ---------------------------------------------------------------------------------------


def test_the_teacher_acts_and_every_state_has_its_label(two_homes: Recorder) -> None:
    for recording in record(two_homes, 3).values():
        shown = recording.demonstration
        assert recording.ended_by == "success" and 5 < len(shown) < HORIZON
        np.testing.assert_allclose(shown.label, wanted(recording), atol=2e-3)
        mask = registry.get(NAME).definition.mask()
        np.testing.assert_array_equal(shown.action[:, mask], shown.label[:, mask])
        assert not shown.action[:, act.ARM].any()
        expected = np.arange(len(shown)) % 5 != 4
        np.testing.assert_array_equal(shown.valid, expected)
        assert shown.label[-1, act.STOP] == 1.0


def test_recorded_observations_are_those_of_the_environment() -> None:
    start = near(3)
    by = recorder(1, [start])
    (recording,) = record(by, 1).values()
    shown = recording.demonstration
    columns = by.inputs.places(PolicyInputs.of(NAME, "fetch"))
    env = SkillEnv(NAME, starts=[start], depth=(SIDE, SIDE), sensors="fetch", num_objects=0)
    seen, _ = env.reset(options={"start": 0})
    assert np.ptp(sensed(recording)[sensors.LASER]) > 0.0
    for row in range(len(shown)):
        state = shown.observation["state"][row]
        assert state.dtype == seen["state"].dtype
        np.testing.assert_allclose(state[columns], seen["state"], atol=1e-5)
        kept = shown.observation["depth"][row] * np.float32(DEPTH_UNIT)
        assert np.abs(kept - seen["depth"]).max() <= 0.51 * DEPTH_UNIT
        seen, *_ = env.step(shown.action[row])
    env.close()


def test_an_episode_does_not_depend_on_the_number_of_homes_and_jobs(two_homes: Recorder) -> None:
    actors = Actors(disturbed=0.7, noise=0.5, lapses=0.5)
    ours, one = record(two_homes, 5, actors, seed=3), recorder(homes=1)
    for numbers in ((4, 1), (0, 2, 3)):
        for recording in one.record(RecordJob(numbers, actors, 3)):
            mine = ours[recording.number]
            assert mine.ended_by == recording.ended_by
            assert_same(mine.demonstration, recording.demonstration)
    others = record(two_homes, 2, actors, seed=4)
    assert not np.array_equal(
        others[0].demonstration.observation["state"], ours[0].demonstration.observation["state"]
    )


def assert_same(one: Demonstration, other: Demonstration) -> None:
    for name in ("label", "valid", "action"):
        mine, theirs = getattr(one, name), getattr(other, name)
        np.testing.assert_array_equal(mine, theirs)
        assert mine.dtype == theirs.dtype
    assert one.observation.keys() == other.observation.keys()
    for name, values in one.observation.items():
        np.testing.assert_array_equal(values, other.observation[name])
        assert values.dtype == other.observation[name].dtype


def test_a_share_of_the_episodes_is_disturbed_with_unchanged_labels(
    two_homes: Recorder,
) -> None:
    found = record(
        two_homes, 10, Actors(disturbed=0.5, noise=1.0, lapses=1.0, hesitation=0), seed=1
    )
    off = []
    for recording in found.values():
        shown = recording.demonstration
        np.testing.assert_allclose(shown.label, wanted(recording), atol=2e-3)
        off.append(float(np.abs(shown.action - shown.label)[:, act.BASE].max()))
        np.testing.assert_array_equal(shown.action[:, act.STOP], shown.label[:, act.STOP])
    clean = sum(value == 0.0 for value in off)
    assert 2 <= clean <= 8 and max(off) > 0.5


def test_an_episode_ends_at_its_horizon_or_once_the_teacher_is_lost() -> None:
    behind = near(0, aside=3.0)
    (timeout,) = record(recorder(1, [behind], horizon=3), 1).values()
    assert (timeout.ended_by, len(timeout.demonstration)) == ("timeout", 3)
    assert not timeout.demonstration.valid.any()
    still = dataclasses.replace(behind, goal=near(0, aside=np.pi).goal)
    chosen = Actors(disturbed=0.0)
    by = recorder(1, [still], horizon=200)
    by._seats[0]._demonstrator.act = lambda world: np.zeros(act.SIZE)  # type: ignore[attr-defined]
    (lost,) = record(by, 1, chosen).values()
    assert (lost.ended_by, len(lost.demonstration)) == ("lost", 60)


def student(folder: Path, bias: float, choice: str = "fetch", stop: float = -3.0) -> Path:
    """Saves a policy that turns by `bias` and calls stop by `stop` as a checkpoint."""
    options = EnvOptions.of(NAME, depth=None, sensors=choice, num_objects=0)
    homes = TrainingVecEnvFactory(options)([0])
    spec = dataclasses.replace(homes.spec, initial_mean=(), initial_std=())
    homes.close()
    torch.manual_seed(0)
    policy = ActorCritic(spec, NETWORK)
    with torch.no_grad():
        policy.action_head.mean.bias[act.BASE.stop - 1] = bias
        policy.action_head.mean.bias[act.STOP] = stop
    tensors, note = checkpoint.policy_part(policy)
    path = folder / "latest.safetensors"
    checkpoint.save(path, tensors, {**note, "deploy": Deployment(options.inputs, False).to_json()})
    return path


def test_a_student_acts_and_the_teacher_labels_its_states(
    two_homes: Recorder, tmp_path: Path
) -> None:
    path = student(tmp_path, 2.0)
    for recording in record(two_homes, 3, Actors(path, takeover=0.0)).values():
        shown = recording.demonstration
        assert recording.ended_by == "timeout" and len(shown) == HORIZON
        np.testing.assert_allclose(shown.action[:, act.BASE.stop - 1], np.tanh(2.0), atol=0.02)
        np.testing.assert_allclose(shown.label, wanted(recording), atol=2e-3)


def test_a_student_acts_in_recordings_as_it_does_alone(two_homes: Recorder, tmp_path: Path) -> None:
    path = student(tmp_path, 0.5)
    (recording,) = record(two_homes, 1, Actors(path, takeover=0.0)).values()
    shown = recording.demonstration
    found = checkpoint.load(path)
    policy, names = checkpoint.load_policy(found), found.get("deploy", dict)["sensors"]
    columns = two_homes.inputs.places(PolicyInputs(NAME, tuple(names)))
    memory, previous = policy.initial_memory(1), torch.zeros(1, act.SIZE)
    for row in range(5):
        state = torch.from_numpy(shown.observation["state"][row : row + 1, columns])
        with torch.inference_mode():
            step = policy.act({"state": state}, previous, memory, torch.tensor([row == 0]))
        assert step.memory is not None
        memory = step.memory
        mean = step.mean[0, act.BASE].numpy()
        np.testing.assert_allclose(shown.action[row, act.BASE], mean, atol=1e-3)


def test_a_teacher_takes_over_from_a_student_until_the_end(
    two_homes: Recorder, tmp_path: Path
) -> None:
    steps = []
    path = student(tmp_path, 2.0)
    for recording in record(two_homes, 6, Actors(path, takeover=1.0)).values():
        shown = recording.demonstration
        led = np.isclose(shown.action[:, act.BASE.stop - 1], np.tanh(2.0), atol=0.02)
        own = (shown.action == shown.label)[:, act.BASE].all(1)
        step = int(np.argmax(own & ~led)) if (own & ~led).any() else len(shown)
        assert led[:step].all() and own[step:].all()
        assert step <= HORIZON // 2
        steps.append(step)
    assert len(set(steps)) > 2


def test_labels_before_a_takeover_are_valid_only_with_relabel(
    two_homes: Recorder, tmp_path: Path
) -> None:
    path = student(tmp_path, 2.0)
    for relabel in (False, True):
        found = record(two_homes, 6, Actors(path, takeover=1.0, relabel=relabel)).values()
        shares = []
        for recording in found:
            shown = recording.demonstration
            led = np.isclose(shown.action[:, act.BASE.stop - 1], np.tanh(2.0), atol=0.02)
            own = (shown.action == shown.label)[:, act.BASE].all(1)
            step = int(np.argmax(own & ~led)) if (own & ~led).any() else len(shown)
            shares.append(shown.valid[:step].any())
            assert shown.valid[step:].any() and (relabel or not shown.valid[:step].any())
        assert any(shares) == relabel


def test_episodes_in_which_a_policy_succeeds_are_left_out(tmp_path: Path) -> None:
    stops = student(tmp_path, 0.0, stop=3.0)
    far = near(0)
    x, y, _ = far.episode.robot_start
    there = dataclasses.replace(far, goal=SkillGoal(position=(x + 0.05, y, 0.0)))
    given = EnvOptions.of(NAME, depth=(SIDE, SIDE), starts=[there, far], num_objects=0)
    alone = record(Recorder(RecorderFactory(given, 2)), 8, Actors(stops, takeover=0.0))
    failed = {number for number, one in alone.items() if one.ended_by != "success"}
    assert 0 < len(failed) < 8
    job = RecordJob(tuple(range(8)), ALONE, 0)
    recorder = Recorder(RecorderFactory(given, 2, failed_by=stops))
    found = {one.number: one for one in recorder.record(job)}
    assert found.keys() == failed
    whole = record(Recorder(RecorderFactory(given, 2)), 8)
    for number, one in found.items():
        assert one.ended_by == "success"
        assert_same(one.demonstration, whole[number].demonstration)


def test_an_agent_that_stops_gives_no_further_labels(two_homes: Recorder) -> None:
    worlds = []

    class GivesUp:
        depth_size = None

        def act(self, world: WorldState, depth: None) -> np.ndarray:
            worlds.append(world)
            return np.where(np.arange(act.SIZE) == act.STOP, 1.0, 0.0)

    agent = Acting(GivesUp(), two_homes._batch.simulator, 0)  # type: ignore[arg-type]
    world = two_homes._batch.world(0)
    labels = [agent.label(world) for _ in range(3)]
    assert [valid for _, valid in labels] == [True, False, False] and len(worlds) == 1


def test_lapses_last_several_steps_and_keep_grip_and_stop() -> None:
    expert = np.full(act.SIZE, 0.3)
    expert[act.GRIP], expert[act.STOP] = 1.0, -1.0
    does = Disturbed(np.random.default_rng(0), noise=0.0, lapses=1.0)
    done = np.array([does(expert) for _ in range(600)])
    assert (done[:, act.GRIP] == 1.0).all() and (done[:, act.STOP] == -1.0).all()
    assert np.abs(done).max() <= 1.0
    still = ~done[:, act.ARM].any(1)
    pushed = np.r_[False, (done[1:] == done[:-1]).all(1)] & ~still
    assert 0.15 < still.mean() < 0.55 and 0.15 < pushed.mean() < 0.55
    runs = np.diff(np.flatnonzero(np.diff(np.r_[False, still, False].astype(int))))[::2]
    assert runs.min() >= disturbing.SEGMENT_STEPS[0]
    clean = Disturbed(np.random.default_rng(0), noise=0.0, lapses=0.0)
    np.testing.assert_array_equal(clean(expert), expert)


def test_a_hesitant_actor_delays_each_switch_once() -> None:
    hesitant = Hesitant(np.random.default_rng(1), most=4)
    expert = np.zeros((30, act.SIZE))
    expert[:, act.GRIP], expert[:, act.STOP] = -1.0, -1.0
    expert[10:, act.GRIP] = expert[20:, act.STOP] = 1.0
    done = np.array([hesitant(row, row) for row in expert])
    for part, when in ((act.GRIP, 10), (act.STOP, 20)):
        turned = int(np.argmax(done[:, part] > 0))
        assert when <= turned <= when + 4
        assert (done[:turned, part] < 0).all() and (done[turned:, part] > 0).all()
    others = [part for part in range(act.SIZE) if part not in (act.GRIP, act.STOP)]
    np.testing.assert_array_equal(done[:, others], expert[:, others])


# -- the store ---------------------------------------------------------------------------------


def made_up(lengths: Sequence[int], camera: bool = True) -> list[Recording]:
    """Returns recordings of random numbers, with depth over its full range."""
    rng = np.random.default_rng(2)
    found = []
    for number, length in enumerate(lengths):
        seen = {"state": rng.normal(size=(length, 6)).astype(np.float32)}
        if camera:
            depth = rng.integers(0, 10_001, (length, 5, 7)).astype(np.uint16)
            depth[0, 0, :3] = 0, 10_000, 0
            seen["depth"] = depth
        label, action = rng.normal(size=(2, length, act.SIZE)).astype(np.float32)
        valid = rng.random(length) < 0.5
        ended_by = "success" if number % 2 else "timeout"
        shown = Demonstration(seen, label, valid, action)
        found.append(Recording(shown, 10 + number, ended_by))
    return found


def written(folder: Path, recordings: Sequence[Recording], shard: int = 2, **note: Any) -> Path:
    camera = "depth" in recordings[0].demonstration.observation
    given = {"skill": NAME, "sensors": (("compass", 3), ("velocity", 3)), **note}
    about = store.DemosNote(**{"depth": (5, 7) if camera else None, **given})
    writer = store.DemosWriter(folder, about)
    for first in range(0, len(recordings), shard):
        writer.add(recordings[first : first + shard])
    writer.finish()
    return folder


@pytest.mark.parametrize("camera", [True, False])
def test_demonstrations_are_stored_bit_for_bit(tmp_path: Path, camera: bool) -> None:
    recordings = made_up((4, 1, 9, 3, 3), camera)
    folder = written(tmp_path, recordings, made={"seed": 3, "expert": "mine"})
    assert sorted(path.name for path in folder.iterdir()) == [
        "demos.json", "episodes-00000.npz", "episodes-00001.npz", "episodes-00002.npz",
    ]  # fmt: skip
    note = store.read_note(folder)
    assert (note.skill, note.depth) == (NAME, (5, 7) if camera else None)
    assert note.sensors == (("compass", 3), ("velocity", 3))
    assert (note.episodes, note.frames) == (5, 20)
    assert note.ended == {"timeout": 3, "success": 2}
    assert note.made == {"seed": 3, "expert": "mine"}
    found = list(store.read(folder))
    assert [(r.number, r.ended_by) for r in found] == [(r.number, r.ended_by) for r in recordings]
    for one, other in zip(found, recordings, strict=True):
        assert_same(one.demonstration, other.demonstration)


def rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def recompressed(path: Path, change: Callable[[dict[str, np.ndarray]], None]) -> None:
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    change(arrays)
    np.savez_compressed(path, **arrays)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "demos.json").unlink(), "no demonstrations in"),
        (lambda f: rewrite(f / "demos.json", lambda b: b[:40]), "demos.json is not JSON"),
        (
            lambda f: rewrite(
                f / "demos.json", lambda b: b.replace(b'"format": 1', b'"format": 9')
            ),
            "has another format",
        ),
        (
            lambda f: rewrite(f / "demos.json", lambda b: b.replace(b'"skill"', b'"skil"')),
            "demos.json: skill: is missing",
        ),
        (lambda f: (f / "episodes-00001.npz").unlink(), "has 3 episodes, must have 5"),
        (
            lambda f: rewrite(f / "episodes-00001.npz", lambda b: b[: len(b) // 2]),
            "episodes-00001.npz is damaged",
        ),
        (lambda f: rewrite(f / "episodes-00000.npz", lambda b: b""), "00000.npz is damaged"),
        (
            lambda f: rewrite(f / "episodes-00000.npz", lambda b: b[:200] + bytes(40) + b[240:]),
            "00000.npz is damaged",
        ),
        (
            lambda f: recompressed(f / "episodes-00000.npz", lambda a: a.pop("valid")),
            "00000.npz is damaged",
        ),
        (
            lambda f: recompressed(
                f / "episodes-00000.npz", lambda a: a.update(label=a["label"][:-2])
            ),
            "00000.npz is damaged",
        ),
        *(
            (
                lambda f, name=name, new=new: recompressed(
                    f / "episodes-00000.npz", lambda a: a.update({name: new(a[name])})
                ),
                "00000.npz is damaged",
            )
            for name, new in (
                ("lengths", lambda a: a * np.nan),
                ("depth", lambda a: np.full(a.shape, np.nan)),
                ("state", lambda a: a * np.float32(np.inf)),
                ("label", lambda a: a.astype(str)),
                ("state", lambda a: a.astype(np.float64)),
                ("state", lambda a: a.astype(">f4")),
                ("state", lambda a: a[:, :-1]),
                ("state", lambda a: a[0]),
                ("label", lambda a: a[:, :3]),
                ("action", lambda a: a * np.float32(np.nan)),
                ("depth", lambda a: a[:, :4]),
                ("depth", lambda a: a[..., None]),
                ("depth", lambda a: np.full(a.shape, 9999, np.uint16)),
                ("valid", lambda a: a[:, None]),
                ("lengths", lambda a: a[:, None]),
                ("lengths", lambda a: a - a[0]),
                ("lengths", lambda a: a[:0]),
                ("lengths", lambda a: np.array([-1, sum(a) + 1])),
                ("lengths", lambda a: a * 2**62),
                ("number", lambda a: a[:1]),
                ("ended_by", lambda a: np.array([3.0, 4.0])),
            )
        ),
    ],
)
def test_damaged_demonstrations_are_refused_with_the_file_in_one_line(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    folder = written(tmp_path, made_up((4, 1, 9, 3, 3)))
    damage(folder)
    with pytest.raises(UserError, match=message) as error:
        list(store.read(folder))
    assert "\n" not in str(error.value) and str(error.value).startswith("demos: ")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sensors", [["compass", 0]]),
        ("depth", [5, 10**9]),
        ("ended", {"success": -3}),
        ("more", 1),
    ],
)
def test_a_note_with_invalid_entries_is_refused(tmp_path: Path, key: str, value: object) -> None:
    folder = written(tmp_path, made_up((4, 1)))
    note = json.loads((folder / "demos.json").read_text())
    (folder / "demos.json").write_text(json.dumps({**note, key: value}))
    with pytest.raises(UserError, match=rf"^out: .*demos\.json: .*{key}"):
        store.read_note(folder, "out")


def test_a_folder_without_episodes_is_refused(tmp_path: Path) -> None:
    note = store.DemosNote(NAME, (("compass", 3),), None)
    store.DemosWriter(tmp_path, note).finish()
    with pytest.raises(UserError, match=r"demos: .* contains no episodes"):
        list(store.read(tmp_path))


def test_an_unfinished_folder_is_refused(tmp_path: Path) -> None:
    writer = store.DemosWriter(tmp_path, store.DemosNote(NAME, (("compass", 3),), None))
    writer.add(made_up((3,), camera=False))
    with pytest.raises(UserError, match="no demonstrations in"):
        store.read_note(tmp_path)


# -- selecting ---------------------------------------------------------------------------------


def test_requested_sensors_are_selected_in_their_order(tmp_path: Path) -> None:
    recordings = made_up((4, 2))
    folder = str(written(tmp_path, recordings))
    for names, columns in (
        (("velocity", "compass"), [3, 4, 5, 0, 1, 2]),
        (("compass",), [0, 1, 2]),
    ):
        for depth in ((5, 7), None):
            found = selecting.load([folder, folder], PolicyInputs(NAME, names, depth))
            assert len(found) == 4
            for one, other in zip(found[2:], recordings, strict=True):
                given = other.demonstration
                state = given.observation["state"][:, columns]
                np.testing.assert_array_equal(one.observation["state"], state)
                assert ("depth" in one.observation) == (depth is not None)
                np.testing.assert_array_equal(one.label, given.label)


@pytest.mark.parametrize(
    ("note", "options", "message"),
    [
        ({"skill": "pick"}, {}, "demos: .* contains demonstrations of pick, not of come_here"),
        ({}, {"depth": (8, 8)}, "depth: 8, but .* has"),
        ({}, {"sensors": ("compass", "laser")}, "sensors: .* has no 'laser'; it has compass, vel"),
        (
            {"sensors": (("compass", 4), ("velocity", 2))},
            {},
            "demos: .* has sensors unknown to come_here; record it again",
        ),
        (
            {"sensors": (("compas", 3), ("velocity", 3))},
            {"sensors": ("velocity",)},
            "sensors unknown to come_here",
        ),
    ],
)
def test_incompatible_demonstrations_are_refused(
    tmp_path: Path, note: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    folder = str(written(tmp_path, made_up((3,)), **note))
    wanted = PolicyInputs(NAME, **{"sensors": ("compass", "velocity"), "depth": (5, 7), **options})
    with pytest.raises(UserError, match=message) as error:
        selecting.load([folder], wanted)
    assert "\n" not in str(error.value)


# -- the commands ------------------------------------------------------------------------------

FEW = ["processes=1", f"skill_modules={FILE}"]
TINY = [
    "preset.policy.encoder=state", "preset.policy.state_width=16", "preset.policy.lstm_width=16",
    "preset.cloning.batch_frames=64", "preset.cloning.learning_rate=5e-3", "sensors=fetch",
    "threads=1",
]  # fmt: skip


def demos(out: Path, *words: str) -> Path:
    given = ["demos", NAME, *FEW, f"depth={SIDE}", *(words or ["num=16"]), f"out={out}"]
    assert cli.main(given) == 0
    return out


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, taught: None) -> Path:
    return demos(tmp_path_factory.mktemp("demos") / "here")


def tree(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_demos_writes_a_folder_with_a_note_of_its_origin(recorded: Path) -> None:
    note = store.read_note(recorded)
    assert (note.skill, note.episodes, note.depth) == (NAME, 16, (SIDE, SIDE))
    held = PolicyInputs.of(NAME).complete()
    assert note.sensors == tuple(held.sizes().items())
    assert (note.made["seed"], note.made["num"], note.made["disturbed"]) == (0, 16, 0.6)
    assert note.made["demonstrator"] == "taught_skill:HereDemonstrator"
    found = list(store.read(recorded))
    assert [recording.number for recording in found] == list(range(16))
    assert sum(len(recording.demonstration) for recording in found) == note.frames
    assert sum(note.ended.values()) == 16 and note.ended["success"] >= 8
    shards = ["here/episodes-00000.npz", "here/episodes-00001.npz"]
    assert tree(recorded.parent) == ["here", "here/demos.json", *shards]


def test_format_lerobot_writes_the_same_episodes_as_a_lerobot_dataset(
    tmp_path: Path, recorded: Path
) -> None:
    reason = "pyarrow comes with the extra 'lerobot', which development does not need"
    parquet = pytest.importorskip("pyarrow.parquet", reason=reason)
    out = demos(tmp_path / "here", "num=2", "format=lerobot")
    found = parquet.read_table(out / "data/chunk-000/file-000.parquet").to_pydict()
    expected = [one.demonstration.action for one in store.read(recorded) if one.number < 2]
    np.testing.assert_array_equal(np.float32(found["taken_action"]), np.concatenate(expected))
    assert json.loads((out / "meta/info.json").read_text())["total_episodes"] == 2


def test_recordings_are_the_same_for_any_number_of_workers(tmp_path: Path, recorded: Path) -> None:
    again = demos(tmp_path / "two", "num=16", "processes=2")
    for one, other in zip(store.read(again), store.read(recorded), strict=True):
        assert one.number == other.number
        assert_same(one.demonstration, other.demonstration)


def test_clone_fits_a_policy_that_acts_and_initializes_a_training(
    tmp_path: Path, recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "clone"
    words = ["clone", NAME, *FEW, *TINY, f"demos={recorded},{recorded}", "frames=9000"]
    rounds = ["rounds=1", "round_episodes=2", "validations=2", "validation_episodes=0"]
    assert cli.main([*words, *rounds, f"out={out}"]) == 0
    printed = capsys.readouterr().out
    assert "32 episodes" in printed and "round 1: " in printed
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [row["episodes"] for row in rows] == [32, 34]
    assert rows[1]["round"]["number"] == 1 and sum(rows[1]["round"]["ended"].values()) == 2
    assert rows[1]["steps"] >= 9000
    assert rows[1]["learner"]["distance"] < rows[0]["learner"]["distance"]
    best = checkpoint.load(out / "checkpoints" / "best.safetensors")
    assert best.note["cloned"] == {"demos": [str(recorded)] * 2, "episodes": 32, "seed": 0}
    assert_acts(out)
    again = tmp_path / "again"
    more = ["frames=2000", "rounds=2", *rounds[1:], f"init={out}", f"out={again}"]
    assert cli.main([*words[:-1], *more]) == 0
    rows = [json.loads(line) for line in (again / "metrics.jsonl").read_text().splitlines()]
    # An initialized policy acts from the first round.
    assert [row["round"]["number"] for row in rows] == [1, 2]
    trained = tmp_path / "trained"
    tuned = ["preset=fine_tune", "preset.num_envs=2", "preset.num_steps=16", "preset.steps=64"]
    few = ["preset.ppo.minibatches=2", "preset.ppo.value_warm_up=0"]
    begun = ["train", NAME, f"init={out}", *tuned, *few]
    rest = ["processes=0", "threads=1", "validation_episodes=0", "logger=none"]
    assert cli.main([*begun, *rest, f"skill_modules={FILE}", f"out={trained}"]) == 0
    note = checkpoint.load(trained / "checkpoints" / "latest.safetensors").note
    assert note["steps"] == 64 and note["deploy"]["sensors"] == best.note["deploy"]["sensors"]


def assert_acts(out: Path) -> None:
    """Asserts that the cloned policy acts alone and reacts to its observations."""
    policy = LearnedPolicy(NAME, out, sample=False)
    assert policy.sees_laser and policy.depth_size is None
    env = SkillEnv(NAME, starts=[near(0, aside=0.5), near(0, aside=-0.5)], num_objects=0)
    turns = []
    for start in (0, 1):
        env.reset(options={"start": start})
        policy.begin(env.episode, env.goal, env.world)
        action = policy.act(env.world, None, policy.measure(env.batch.simulator, 0))
        assert action.shape == (act.SIZE,) and np.abs(action).max() <= 1.0
        turns.append(float(action[act.BASE.stop - 1]))
    env.close()
    assert turns[0] - turns[1] > 0.05  # towards the goal, left or right


def test_a_finished_recording_or_cloning_is_not_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, cloned = tmp_path / "demos", tmp_path / "cloned"
    words = ["demos", NAME, *FEW, f"depth={SIDE}", "num=2", f"out={out}"]
    few = [*TINY, "frames=200", "validation_episodes=0", "validations=1", f"depth={SIDE}"]
    fit = ["clone", NAME, *FEW, *few, f"demos={out}", f"out={cloned}"]
    for line, folder, what in ((words, out, "these"), (fit, cloned, "this policy")):
        assert cli.main(line) == 0
        before = {p: p.stat().st_mtime_ns for p in folder.rglob("*")}
        capsys.readouterr()
        assert cli.main(line) == 0
        assert f"{folder} already contains {what}; choose another out" in capsys.readouterr().out
        assert {p: p.stat().st_mtime_ns for p in folder.rglob("*")} == before
        assert cli.main([*line, "seed=5"]) == 2  # other settings
        assert f"{folder} " in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)  # the same folders by other paths
    assert cli.main([*fit[:-2], "demos=demos", "out=cloned"]) == 0
    assert "cloned already contains this policy" in capsys.readouterr().out


def test_a_cloning_keeps_the_best_of_its_validations(tmp_path: Path, recorded: Path) -> None:
    words = ["clone", NAME, *FEW, *TINY, f"demos={recorded}", "frames=2000", f"out={tmp_path}"]
    assert cli.main([*words, "validations=2", "validation_episodes=2"]) == 0
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    found = [row["validation"] for row in rows]
    assert [one["episodes"] for one in found] == [2, 2]
    best = checkpoint.load(tmp_path / "checkpoints" / "best.safetensors").note
    quality = [(one["success"], one["return"]) for one in found]
    kept = best["validation"]["success"], best["validation"]["return"]
    assert kept == max(quality)
    assert {"config.yaml", "metrics.jsonl", "curve.png"} <= set(tree(tmp_path))


def test_a_policy_with_a_camera_is_cloned_and_acts(tmp_path: Path, recorded: Path) -> None:
    camera = [
        "preset.policy.encoder=se_resnet9", "preset.policy.encoder_width=4",
        "preset.policy.visual_width=8", f"depth={SIDE}", "sensors=habitat", "threads=1",
        "preset.policy.state_width=8", "preset.policy.lstm_width=8",
    ]  # fmt: skip
    few = ["frames=100", "validation_episodes=0", "validations=1"]
    out = tmp_path / "seeing"
    assert cli.main(["clone", NAME, *FEW, *camera, *few, f"demos={recorded}", f"out={out}"]) == 0
    policy = LearnedPolicy(NAME, out, sample=False)
    assert policy.depth_size == (SIDE, SIDE) and not policy.asks_engine
    env = SkillEnv(NAME, starts=[near(0)], depth=(SIDE, SIDE), num_objects=0)
    shown, _ = env.reset(options={"start": 0})
    policy.begin(env.episode, env.goal, env.world)
    assert np.abs(policy.act(env.world, shown["depth"])).max() <= 1.0
    env.close()


def test_a_policy_of_several_cameras_is_cloned_with_rounds_and_acts(tmp_path: Path) -> None:
    seen = f"cameras=head_rgb:{SIDE},hand_depth:{SIDE}"
    given = ["demos", NAME, *FEW, seen, "num=3", f"out={tmp_path / 'demos'}"]
    assert cli.main(given) == 0
    assert store.read_note(tmp_path / "demos").cameras.keys() == {"head_rgb", "hand_depth"}
    words = [
        "preset.policy.encoder=nature_cnn", "preset.policy.encoder_width=4",
        "preset.policy.visual_width=8", "preset.policy.state_width=8",
        "preset.policy.lstm_width=8", "sensors=habitat", "threads=1", "frames=100", "rounds=1",
        "round_episodes=2", "validations=1", "validation_episodes=1", seen,
    ]  # fmt: skip
    out = tmp_path / "seeing"
    line = ["clone", NAME, *FEW, *words, f"demos={tmp_path / 'demos'}", f"out={out}"]
    assert cli.main(line) == 0
    policy = LearnedPolicy(NAME, out, sample=False)
    assert policy.pictures == ("head_rgb", "hand_depth") and policy.depth_size is None
    norms = [t for n, t in checkpoint.newest(out).tensors.items() if n.endswith("norm.pictures")]  # type: ignore[union-attr]
    assert norms and all(int(pictures) >= 100 for pictures in norms)


REFUSED: list[tuple[list[str], str]] = [
    (["demos"], "choose one of navigate, "),
    (["demos", "come_her"], "skill: unknown value 'come_her'; did you mean 'come_here'"),
    (["demos", "pointnav"], "skills.pointnav: there is no demonstrator"),
    (["demos", NAME, "num=0"], "num: "),
    (["demos", NAME, "disturbed=1.5"], "disturbed: "),
    (["demos", NAME, "format=lerobt"], "format: unknown value 'lerobt'; did you mean"),
    (["demos", NAME, "out={full}"], "full already exists; delete it, or choose another"),
    (["demos", NAME, "out={file}"], "file already exists"),
    (["demos", NAME, "out={file}/x"], "out: cannot write into '"),
    (["demos", NAME, "start_states={tmp}/none.npz", "out={out}"], "none.npz"),
    (["demos", NAME, "failed_by=nowhere", "out={out}"], "failed_by: there is no"),
    (["demos", "pick", "failed_by=pretrained", "camera=false", "out={out}"], "nearest: true"),
    (["demos", "pick", "failed_by=pretrained", "depth=32", "out={out}"], "nearest: 128"),
    (
        ["demos", "pick", f"failed_by={PRETRAINED}", "out={out}"],
        f"failed_by: {PRETRAINED} is a policy for place; train one with `tpsrl train pick`",
    ),
    (["clone", NAME, "out={out}"], "demos: name a folder; record one with `tpsrl demos"),
    (["clone", "pointnav", "demos=x", "out={out}"], "skills.pointnav: there is no demonstrator"),
    (["clone", NAME, "demos={tmp}/nowhere", "out={out}"], "demos: no demonstrations in"),
    (["clone", NAME, "demos={full}", "out={out}"], "demos: no demonstrations in"),
    (
        ["clone", NAME, "demos={pick}", "out={out}"],
        "contains demonstrations of pick, not of come_here",
    ),
    (["clone", NAME, "demos={good}", "out={out}"], "depth: 64, but"),
    (["clone", NAME, "demos={poor}", "depth=32", "sensors=fetch", "out={out}"], "has no 'l"),
    (["clone", NAME, "demos={good}", "depth=32", "out={cloned}"], "contains a policy; choose"),
    (["clone", NAME, "demos={good}", "init={tmp}/no", "out={out}"], "init: no checkpoint"),
    (
        ["clone", NAME, "demos={good}", "preset.policy.encoder=resnet19", "out={out}"],
        "preset.policy.encoder: unknown value 'resnet19'; did you mean 'resnet18'",
    ),
]


def test_invalid_settings_are_refused_in_one_line_and_leave_no_files(
    tmp_path: Path, recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "cloned" / "checkpoints").mkdir(parents=True)
    written(_made(tmp_path / "pick"), made_up((3,)), skill="pick")
    written(_made(tmp_path / "poor"), made_up((3,)), depth=(32, 32))
    places = {"tmp": tmp_path, "good": recorded, "out": tmp_path / "out"}
    places |= {name: tmp_path / name for name in ("full", "file", "pick", "poor", "cloned")}
    before = tree(tmp_path)
    wrong = []
    for words, message in REFUSED:
        capsys.readouterr()
        code = cli.main([word.format(**places) for word in words])
        printed = capsys.readouterr().err
        is_a_line = printed.count("\n") == 1 and printed.startswith("tpsrl: error: ")
        if code != 2 or not is_a_line or message not in printed or tree(tmp_path) != before:
            wrong.append((words, code, printed))
    assert wrong == []
    assert (tmp_path / "file").read_text() == "mine"


def _made(folder: Path) -> Path:
    os.mkdir(folder)
    return folder
