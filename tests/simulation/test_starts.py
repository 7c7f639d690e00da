import dataclasses
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from homes import IDLE

import tpsrl.sim
from skills.core.interface import SkillGoal
from skills.envs.options import EnvOptions
from skills.envs.training import TrainingVecEnvFactory
from skills.registry import get, planned
from skills.starts import dataset
from skills.starts.recorded import load_starts, save_starts
from skills.starts.room import hanging
from skills.starts.source import StartSource, start_episodes
from skills.starts.start import Start, receptacle
from tpsrl.errors import UserError
from tpsrl.sim.base import Simulator
from tpsrl.sim.snapshots import save_snapshots
from tpsrl.world import action as act
from tpsrl.world.doors import joints_at
from tpsrl.world.handles import handle
from tpsrl.world.objects import object_kind
from tpsrl.world.scenarios import FRIDGE

COUNT = 40
DRAWER = "cab_push_point_5"
MARKERS = {
    "open_drawer": DRAWER,
    "close_drawer": DRAWER,
    "open_fridge": FRIDGE,
    "close_fridge": FRIDGE,
}


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TPSRL_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(dataset, "BASE_EPISODES", 8)
        yield


@pytest.fixture(scope="module")
def simulator() -> Simulator:
    return tpsrl.sim.make(slots=12)


def drawn(skill: str, count: int = COUNT, split: str = "val") -> list[Start]:
    return start_episodes(skill, range(count), split, num_objects=12, processes=1)


def facing_error(start: Start, point: np.ndarray) -> float:
    x, y, yaw = start.episode.robot_start
    error = math.atan2(point[1] - y, point[0] - x) - yaw
    return (error + math.pi) % (2 * math.pi) - math.pi


def away(start: Start, point: tuple[float, ...]) -> float:
    return math.hypot(*np.subtract(start.episode.robot_start[:2], point[:2]))


# -- the distributions -------------------------------------------------------------------------


def test_navigate_starts_3_metres_away_holding_an_object_in_a_sixth_of_cases() -> None:
    drawn_starts = drawn("navigate", 120)
    held = 0
    for start in drawn_starts:
        episode, goal = start.episode, start.goal
        target = episode.targets[0]
        holds = episode.held >= 0
        held += holds
        assert episode.held == (target.object if holds else -1)
        assert goal.object == (-1 if holds else target.object)
        wanted = target.goal if holds else episode.objects[target.object].pos
        assert goal.position == wanted
        assert math.dist((*episode.robot_start[:2], 0.0), wanted) > 3.0
    assert 8 <= held <= 34  # within 3 standard deviations of 20


def test_pick_and_place_start_within_2_metres_facing_the_goal_with_noise() -> None:
    errors = []
    for start in drawn("pick"):
        pos = start.episode.objects[start.goal.object].pos
        assert start.episode.held == -1
        assert away(start, pos) <= 2.0
        errors.append(facing_error(start, np.array(pos)))
    for start in drawn("place"):
        target = start.episode.targets[0]
        grasp = hanging(object_kind(start.episode.objects[target.object].name))
        assert start.goal == SkillGoal(target.object, target.goal, grasp=grasp)
        assert start.episode.held == target.object
        assert away(start, target.goal) <= 2.0
        errors.append(facing_error(start, np.array(target.goal)))
    # Collisions thin out the tails of the normal distribution, so the test only bounds its spread.
    assert 0.3 < np.std(errors) < 0.65
    assert abs(np.mean(errors)) < 0.2


def test_starts_can_be_nearer_or_farther_than_by_default() -> None:
    def distances(text: str) -> list[float]:
        source = StartSource("pick", text, split="val", num_objects=12, num_episodes=8)
        starts = [source[index] for index in range(COUNT)]
        return [away(s, s.episode.objects[s.goal.object].pos) for s in starts]

    nearer, own, farther = (distances(text) for text in ("near:1.2", "own", "near:6"))
    # Without free floor that near, the circle grows; 1.2 m suffice in most cases.
    assert np.quantile(nearer, 0.8) <= 1.2 < max(own) <= 2.0
    assert 3.0 < max(farther) <= 6.0 and np.mean(farther) > 1.5 * np.mean(own)
    with pytest.raises(UserError, match="near:3 is not available for close_fridge"):
        StartSource("close_fridge", "near:3")


def test_opening_can_start_on_either_side_of_the_handle() -> None:
    source = StartSource("open_drawer", "near:1.4", split="val", num_objects=12, num_episodes=8)
    starts = [source[index] for index in range(COUNT)]
    points = [handle(s.episode.layout, s.goal.marker).point(0.0) for s in starts]
    assert max(away(s, p) for s, p in zip(starts, points, strict=True)) <= 1.4
    errors = [facing_error(s, p) for s, p in zip(starts, points, strict=True)]
    assert abs(np.mean(errors)) < 0.2
    # habitat-lab's region is 0.14 m wide.
    sides = [s.episode.robot_start[1] - p[1] for s, p in zip(starts, points, strict=True)]
    assert min(sides) < -0.3 and max(sides) > 0.3


@pytest.mark.parametrize("skill", ["pick", "place"])
def test_starts_can_be_limited_to_one_receptacle(skill: str) -> None:
    where = {"split": "val", "num_objects": 12, "num_episodes": 8}
    own = StartSource(skill, "own", **where)
    rows = [row for row in range(8) if receptacle(own[row]) == receptacle(own[3])]
    source = StartSource(skill, f"own@{receptacle(own[3])}", **where)
    assert 0 < len(rows) < 8
    assert [source[row].episode.id for row in range(len(rows))] == [own[r].episode.id for r in rows]
    assert [start.goal for start in source.first(len(rows))] == [own[row].goal for row in rows]
    rng = np.random.default_rng(0)
    for index, start in (source.draw(rng) for _ in range(5)):
        assert receptacle(start) == receptacle(own[3])
        assert source[index].episode == start.episode
    with pytest.raises(UserError, match="unknown value 'frige'"):
        StartSource(skill, "own@frige", **where).first(1)


@pytest.mark.parametrize("skill", MARKERS)
def test_open_and_close_start_in_front_of_a_closed_or_open_handle(skill: str) -> None:
    marker = MARKERS[skill]
    joints = []
    for start in drawn(skill):
        episode = start.episode
        assert start.goal == SkillGoal(marker=marker)
        grip = handle(episode.layout, marker)
        joint = joints_at(episode.articulation)[grip.index]
        joints.append(joint)
        assert sum(q != 0.0 for q in joints_at(episode.articulation)) == (joint != 0.0)
        origin, turn = grip.pose(joint)
        if grip.slides:
            origin = origin + turn @ np.array(grip.link.marker)
            wanted = origin + turn @ (0.825 if "close" in skill else 0.875, 0.0, 0.0)
        else:
            origin = grip.origin
            wanted = origin + grip.rotation @ (1.0415, 0.0, 0.0)
        assert away(start, wanted) < (0.45 if skill == "close_fridge" else 0.2)
        assert abs(facing_error(start, origin)) < 1.9
    low, high = {
        "close_drawer": (0.4, 0.49),
        "close_fridge": (math.pi / 4, 2 * math.pi / 3),
    }.get(skill, (0.0, 0.0))
    assert low <= min(joints)
    assert max(joints) <= high
    # A hand fits behind the fridge's door up to about 1.5 rad in the validation layouts.
    assert max(joints) - min(joints) >= 0.45 * (high - low)


@pytest.mark.parametrize("skill", planned())
def test_nothing_touches_or_moves_at_a_start(skill: str, simulator: Simulator) -> None:
    for start in drawn(skill, 10):
        episode = start.episode
        simulator.reset([0], [episode])
        before = simulator.state([0])
        idle = IDLE.copy()
        idle[act.GRIP] = 1.0 if episode.held >= 0 else -1.0
        for _ in range(10):
            simulator.step([0], idle[None])
        after = simulator.state([0])
        assert after.held[0] == episode.held
        assert after.force_total[0] == 0.0
        assert np.abs(after.joints - before.joints).max() < 0.003
        assert np.nanmax(np.abs(after.object_pos - before.object_pos)) < 0.004


def test_objects_in_an_open_drawer_are_moved_with_it() -> None:
    for shut, wide in zip(drawn("open_drawer", 8), drawn("close_drawer", 8), strict=True):
        joint = wide.episode.articulation[DRAWER]
        grip = handle(wide.episode.layout, DRAWER)
        moved = np.subtract(wide.episode.objects[0].pos, shut.episode.objects[0].pos)
        assert moved == pytest.approx(grip.point(joint) - grip.point(0.0))
        assert wide.episode.objects[1:] == shut.episode.objects[1:]


# -- determinism and bad input -----------------------------------------------------------------


@pytest.mark.parametrize("skill", planned())
def test_a_start_depends_on_its_index_alone(skill: str) -> None:
    several = drawn(skill, 11)
    assert start_episodes(skill, [10], "val", num_objects=12) == several[10:]
    poses = {start.episode.robot_start for start in several}
    assert len(poses) == 11
    # The base episodes repeat, with other poses of the robot.
    assert several[8].episode.layout == several[0].episode.layout
    assert several[8].episode.objects[1:] == several[0].episode.objects[1:]


def test_skills_on_one_dataset_draw_different_poses() -> None:
    pick, place = drawn("pick", 8), drawn("place", 8)
    assert [s.episode.layout for s in pick] == [s.episode.layout for s in place]
    poses = {s.episode.robot_start for s in (*pick, *place)}
    assert len(poses) == 16
    again = dataclasses.replace(get("pick"), name="pick_again", seed=get("pick").draw_seed)
    same = again.start_states().obtain(again, range(8), "val", num_objects=12, processes=1)
    assert [s.episode.robot_start for s in same] == [s.episode.robot_start for s in pick]
    other = dataclasses.replace(again, seed=None)
    apart = other.start_states().obtain(other, range(8), "val", num_objects=12, processes=1)
    assert poses.isdisjoint(s.episode.robot_start for s in apart)


@pytest.mark.parametrize("skill", ["open_fridge", "close_fridge", "open_drawer", "close_drawer"])
def test_opening_and_closing_have_one_object_by_default(skill: str) -> None:
    [start] = start_episodes(skill, [0], "val", processes=1)
    assert len(start.episode.objects) == 1
    assert start.episode.objects[0].receptacle in ("fridge", "drawer_right_top")
    assert get("pick").start_states().num_objects == 30


def test_training_starts_are_in_training_layouts() -> None:
    assert all("_sc3_" not in s.episode.layout for s in drawn("pick", 3, "train"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("pik", 0, "val"), "skill: unknown value 'pik'; did you mean 'pick'"),
        (("pick", -1, "val"), "index: must be at least 0, got -1"),
        (("pick", 0, "vall"), "split: unknown value 'vall'; did you mean 'val'"),
        (("pick", 0, "val", -1), "seed: must be at least 0"),
        (("pick", 0, "val", 0, 31), "num_objects: must be between 1 and 30"),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments: tuple, message: str) -> None:
    with pytest.raises(UserError, match=message):
        skill, index, *rest = arguments
        start_episodes(skill, [index], *rest)


# -- recorded starts ---------------------------------------------------------------------------


def test_recorded_starts_are_loaded_and_restored_exactly(
    simulator: Simulator, tmp_path: Path
) -> None:
    recorded = []
    for start in drawn("place", 2):
        simulator.reset([0], [start.episode])
        idle = IDLE.copy()
        idle[act.GRIP], idle[act.BASE] = 1.0, 0.2
        for _ in range(7):
            simulator.step([0], idle[None])
        recorded.append(dataclasses.replace(start, snapshot=simulator.snapshot(0)))
    exit_state = simulator.state([0])
    save_starts(tmp_path / "exits.npz", recorded)
    loaded = load_starts(tmp_path / "exits.npz")
    assert [s.goal for s in loaded] == [s.goal for s in recorded]
    assert [s.episode for s in loaded] == [s.episode for s in recorded]
    assert loaded[1].snapshot is not None
    simulator.restore(0, loaded[1].snapshot)
    again = simulator.state([0])
    for field in dataclasses.fields(again):
        one, other = getattr(again, field.name), getattr(exit_state, field.name)
        np.testing.assert_array_equal(one, other)


def test_files_without_valid_starts_are_refused(simulator: Simulator, tmp_path: Path) -> None:
    start = drawn("pick", 1)[0]
    with pytest.raises(UserError, match="number 0 has no snapshot"):
        save_starts(tmp_path / "none.npz", [start])
    simulator.reset([0], [start.episode])
    save_snapshots(tmp_path / "bare.npz", {0: simulator.snapshot(0)})
    with pytest.raises(UserError, match=r"bare\.npz: snapshot 0: goal: must be a record"):
        load_starts(tmp_path / "bare.npz")
    (tmp_path / "text.npz").write_text("starts")
    with pytest.raises(UserError, match="is not a snapshot file"):
        load_starts(tmp_path / "text.npz")
    with pytest.raises(UserError, match="cannot read"):
        load_starts(tmp_path / "absent.npz")


def changed_file(path: Path, change: Callable[[Any, Any], object]) -> None:
    """Changes the header or the arrays of the first start in a file of starts."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    header = json.loads(str(arrays["0|"]))
    change(header, arrays)
    np.savez(path, **{**arrays, "0|": np.array(json.dumps(header))})


def renamed_array(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    arrays["0|data/qqos"] = arrays.pop("0|data/qpos")


CHANGES = (
    (lambda h, a: h.update(engine=3), "snapshot 0: engine: must be a string, got 3"),
    (lambda h, a: h.update(episode=[]), "episode: must be a record"),
    (lambda h, a: h["episode"].update(layout="replica_cad/nowhere"), "layout"),
    (lambda h, a: h["episode"]["objects"][0].update(name="spoon"), "unknown value 'spoon'"),
    (lambda h, a: h["episode"].update(articulation={"door": 1.0}), "door"),
    (lambda h, a: h.update(note=None), "goal: must be a record"),
    (lambda h, a: h["note"].update(object=2**80), "goal.object: 1208925819614629174706176 is out"),
    (lambda h, a: h["note"].update(object=99), "goal.object: 99 is out of range"),
    (lambda h, a: h["note"].update(position=[1e300, 0, 0]), r"goal.position: 1e\+300 is out of"),
    (lambda h, a: h["note"].update(position=[1, 2]), "goal: position: must be a list of length 3"),
    (lambda h, a: h["note"].update(marker="fridge"), "goal.marker: unknown value 'fridge'"),
)
LATER = (
    (lambda h, a: h["note"].update(object=-1), "goal.object: missing; pick needs it"),
    (lambda h, a: h.update(engine="mujoco-1/1"), "engine is 'mujoco-1/1'"),
    (renamed_array, "data/qpos, data/qqos: missing or unknown"),
    (lambda h, a: a.update({"0|data/qpos": a["0|data/qpos"][:-1]}), "qpos has"),
    (lambda h, a: a.update({"0|data/qvel": a["0|data/qvel"] * np.nan}), "data/qvel: not finite"),
)


@pytest.fixture(scope="module")
def recorded_file(simulator: Simulator, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("starts") / "good.npz"
    start = drawn("pick", 1)[0]
    simulator.reset([0], [start.episode])
    save_starts(path, [dataclasses.replace(start, snapshot=simulator.snapshot(0))])
    return path


@pytest.mark.parametrize(("change", "message"), CHANGES)
def test_a_damaged_file_of_starts_is_refused_when_it_is_read(
    recorded_file: Path, tmp_path: Path, change: Callable[[Any, Any], object], message: str
) -> None:
    path = tmp_path / "starts.npz"
    shutil.copy(recorded_file, path)
    load_starts(path)
    changed_file(path, change)
    with pytest.raises(UserError, match=rf"starts: .*starts\.npz.*{message}") as error:
        load_starts(path)
    assert len(str(error.value)) < 600


@pytest.mark.parametrize(("change", "message"), LATER)
def test_incompatible_starts_are_refused_before_a_training(
    recorded_file: Path, tmp_path: Path, change: Callable[[Any, Any], object], message: str
) -> None:
    path = tmp_path / "starts.npz"
    shutil.copy(recorded_file, path)
    factory = TrainingVecEnvFactory(EnvOptions.of("pick", starts=path, slots=12))
    factory.prepare()
    changed_file(path, change)
    with pytest.raises(UserError, match=rf"starts: .*starts\.npz: snapshot 0: {message}"):
        factory.prepare()
