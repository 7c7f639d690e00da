import collections
import dataclasses
import gzip
import json
import math
import os
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from homes import IDLE

import tpsrl.sim
from tpsrl.errors import UserError
from tpsrl.runtime import temporaries
from tpsrl.sim import datasets
from tpsrl.sim.settle import settle
from tpsrl.world.episode import Episode, load_episodes, save_episodes
from tpsrl.world.floor import BASE_RADIUS, floor_map
from tpsrl.world.generator import VERSION, Source, make_episode
from tpsrl.world.geometry import quat_matrix
from tpsrl.world.layouts import load_layout_set, placed_receptacles, resolve
from tpsrl.world.objects import TIDY_HOUSE, object_kind
from tpsrl.world.placement import Crowd, Prism, draw_on, footprint, gap
from tpsrl.world.scenarios import load_scenario

COUNT = 21
TIDY = load_scenario("tidy_house")


@pytest.fixture(scope="module")
def episodes() -> list[Episode]:
    made, _ = datasets.generate(Source(TIDY, "val"), range(COUNT), processes=1)
    return made


# -- Tidy House episodes -----------------------------------------------------------------------


def test_an_episode_has_30_objects_of_the_nine_kinds_and_5_targets(episodes: list[Episode]) -> None:
    for episode in episodes:
        assert len(episode.objects) == 30
        assert {o.name for o in episode.objects} <= set(TIDY_HOUSE)
        assert len({t.object for t in episode.targets}) == 5
        assert episode.articulation == {}


def test_21_validation_episodes_cover_the_21_validation_layouts(episodes: list[Episode]) -> None:
    names = {f"replica_cad/{lay.name}" for lay in load_layout_set("replica_cad").split("val")}
    assert {e.layout for e in episodes} == names


def test_objects_and_goals_are_on_their_named_receptacles(episodes: list[Episode]) -> None:
    for episode in episodes:
        receptacles = placed_receptacles(*resolve(episode.layout))
        places = [(o.receptacle, o.pos, o.name) for o in episode.objects]
        for t in episode.targets:
            places.append((t.receptacle, t.goal, episode.objects[t.object].name))
        for receptacle, pos, name in places:
            bottom = np.array(pos) - (0, 0, object_kind(name).half[2])
            # An object that extends over an edge may slip a little before it is at rest.
            fits = [
                abs(bottom[2] - r.surface) < 0.03
                and (np.abs(r.rotation.T @ (bottom - r.pos))[:2] < r.half[:2] + 0.03).all()
                for r in receptacles
                if r.name == receptacle
            ]
            assert any(fits), (episode.id, receptacle, name)


def test_object_centres_are_uniform_up_to_the_edges_of_a_receptacle(
    episodes: list[Episode],
) -> None:
    where = []
    for episode in episodes:
        receptacles = placed_receptacles(*resolve(episode.layout))
        table = next(r for r in receptacles if r.name == "table_1")
        for o in episode.objects:
            if o.receptacle == "table_1":
                local = table.rotation.T @ (np.array(o.pos) - table.pos)
                where.append((local / table.half)[:2])
    assert len(where) > 40
    assert np.abs(np.mean(where, axis=0)).max() < 0.3
    assert 0.85 < np.abs(where).max() < 1.05
    assert np.std(where, axis=0) == pytest.approx([1 / math.sqrt(3)] * 2, abs=0.12)


def test_every_instance_of_a_receptacle_is_equally_likely(episodes: list[Episode]) -> None:
    counts = collections.Counter(o.receptacle for e in episodes for o in e.objects)
    shares = {name: count / (30 * COUNT) for name, count in counts.items()}
    assert shares["chair"] == pytest.approx(2 / 9, abs=0.05)  # two chairs per apartment
    others = [share for name, share in shares.items() if name != "chair"]
    assert len(others) == 7 and others == pytest.approx([1 / 9] * 7, abs=0.05)


def test_a_goal_may_be_on_the_receptacle_of_its_start(episodes: list[Episode]) -> None:
    same = [e.objects[t.object].receptacle == t.receptacle for e in episodes for t in e.targets]
    assert 0 < sum(same) < len(same) / 3


def test_all_objects_of_an_episode_may_have_the_same_shape() -> None:
    boxes = dataclasses.replace(TIDY, clutter=["003_cracker_box"])
    (made,), _ = datasets.generate(Source(boxes, "val"), [0], processes=1)
    assert sum(o.name == "003_cracker_box" for o in made.objects) >= 25


def test_objects_keep_apart(episodes: list[Episode]) -> None:
    for episode in episodes:
        prisms = []
        for o in episode.objects:
            turn = quat_matrix(o.quat)
            yaw, kind = math.atan2(turn[1, 0], turn[0, 0]), object_kind(o.name)
            prisms.append(footprint(kind, o.pos[0], o.pos[1], yaw, o.pos[2] - kind.half[2]))
        for i, first in enumerate(prisms):
            for second in prisms[:i]:
                level = first.low < second.high and second.low < first.high
                assert not level or gap(first.corners, second.corners) > -0.002


def test_the_robot_starts_on_the_free_floor(episodes: list[Episode]) -> None:
    for episode in episodes:
        x, y, _ = episode.robot_start
        assert floor_map(episode.layout).clearance(x, y) >= BASE_RADIUS - 0.03


def test_objects_stay_at_the_positions_of_their_episode(episodes: list[Episode]) -> None:
    simulator = tpsrl.sim.make(slots=30)
    for episode in episodes[:7]:
        simulator.reset([0], [episode])
        for _ in range(30):
            simulator.step([0], IDLE[None])
        state = simulator.state([0])
        placed = np.array([o.pos for o in episode.objects])
        assert np.abs(state.object_pos[0] - placed).max() < 0.002
        assert state.force_total[0] == 0.0


def test_training_homes_get_episodes_of_12_objects() -> None:
    source = Source(TIDY, "train", seed=4, num_objects=12)
    made, _ = datasets.generate(source, range(3), processes=1)
    assert [len(e.objects) for e in made] == [12, 12, 12]
    families = {resolve(e.layout)[1].family for e in made}
    assert families <= {"sc0", "sc1", "sc2"}


def test_tidy_house_episodes_are_unchanged_since_this_version(episodes: list[Episode]) -> None:
    # Generated episodes may change only together with VERSION, which identifies cached episodes.
    first = episodes[0]
    assert VERSION == 7
    assert [(o.name[:3], o.receptacle) for o in first.objects[:3]] == [
        ("010", "sofa"),
        ("024", "counter_right"),
        ("007", "table_1"),
    ]
    assert [t.receptacle for t in first.targets] == [
        "counter_right",
        "tv_stand",
        "tv_stand",
        "counter_left",
        "sink",
    ]
    assert first.robot_start == pytest.approx((0.1425, -0.8325, -2.198953), abs=1e-6)


# -- determinism -------------------------------------------------------------------------------


def test_an_episode_depends_on_its_index_only(episodes: list[Episode]) -> None:
    made, _ = datasets.generate(Source(TIDY, "val"), [9, 4], processes=1)
    assert made == [episodes[9], episodes[4]]


def test_two_processes_make_the_same_episodes_as_one(
    episodes: list[Episode], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "_WORTH_A_PROCESS", 2)
    made, _ = datasets.generate(Source(TIDY, "val"), range(4), processes=2)
    assert made == episodes[:4]


def test_another_seed_makes_other_episodes(episodes: list[Episode]) -> None:
    made, _ = datasets.generate(Source(TIDY, "val", seed=1), [0], processes=1)
    assert made[0].objects != episodes[0].objects
    assert made[0].id != episodes[0].id


def test_an_episode_is_drawn_again_until_it_settles() -> None:
    simulator = tpsrl.sim.make(slots=30)
    answers = iter(["start: an object moved", "goal: an object tilted"])

    def fussy(draft: Episode) -> Episode | str:
        return next(answers, None) or settle(simulator, draft)

    made, reasons = make_episode(Source(TIDY, "val"), 0, fussy)
    first, _ = make_episode(Source(TIDY, "val"), 0, lambda d: settle(simulator, d))
    assert made.objects != first.objects
    assert reasons["start: an object moved"] == reasons["goal: an object tilted"] == 1


# -- drafts that do not settle are refused ---------------------------------------------------------


def changed(episode: Episode, index: int, **fields: object) -> Episode:
    objects = list(episode.objects)
    objects[index] = dataclasses.replace(objects[index], **fields)
    return dataclasses.replace(episode, objects=tuple(objects))


def test_settling_refuses_objects_that_fall_topple_or_overlap(episodes: list[Episode]) -> None:
    simulator = tpsrl.sim.make(slots=30)
    good = episodes[0]
    assert isinstance(settle(simulator, good), Episode)
    x, y, z = good.objects[0].pos
    fallen = settle(simulator, changed(good, 0, pos=(x, y, z + 0.1)))
    assert str(fallen).startswith("start: an object moved (objects[0], ")
    inside = settle(simulator, changed(good, 0, pos=(x, y, z - 0.1)))
    assert str(inside).startswith("start: overlap (objects[0] (")
    lying = changed(good, 0, pos=(x, y, 3.0), quat=(0.7071, 0.7071, 0.0, 0.0))
    assert str(settle(simulator, lying)).startswith("start: an object")
    goal = dataclasses.replace(good.targets[0], goal=good.objects[7].pos)
    taken = dataclasses.replace(good, targets=(goal, *good.targets[1:]))
    reason = str(settle(simulator, taken)).partition(" (")[0]
    assert reason in ("goal: overlap", "goal: an object moved")


# -- placement ---------------------------------------------------------------------------------


def square(x: float, y: float, half: float = 0.5) -> np.ndarray:
    return np.array([[-half, -half], [half, -half], [half, half], [-half, half]]) + np.array([x, y])


def test_the_gap_of_squares_is_their_distance_or_depth() -> None:
    assert gap(square(0, 0), square(1.3, 0.2)) == pytest.approx(0.3)
    assert gap(square(0, 0), square(0.8, 0.1)) == pytest.approx(-0.2)
    assert gap(square(0, 0), square(0, 0, 0.1)) == pytest.approx(-0.6)


def test_the_gap_is_positive_exactly_for_polygons_that_are_apart() -> None:
    rng = np.random.default_rng(2)
    apart = 0
    for _ in range(300):
        a = footprint(object_kind("003_cracker_box"), 0, 0, rng.uniform(-3, 3), 0).corners
        x, y = rng.uniform(-0.15, 0.15, 2)
        b = footprint(object_kind("004_sugar_box"), x, y, rng.uniform(-3, 3), 0).corners
        steps = np.linspace(0, 1, 60)
        grid = np.stack(np.meshgrid(steps, steps), axis=-1).reshape(-1, 2)
        fill = a[0] + grid[:, :1] * (a[1] - a[0]) + grid[:, 1:] * (a[3] - a[0])
        inside = np.ones(len(fill), dtype=bool)
        for p, q in zip(b, np.roll(b, -1, axis=0), strict=True):
            inside &= np.cross(np.append(q - p, 0), np.c_[fill - p, 0 * fill[:, 0]])[:, 2] >= 0
        separation = gap(a, b)
        if abs(separation) > 0.006:
            assert (separation > 0) == (not inside.any())
        apart += separation > 0
    assert 50 < apart < 290


def test_a_crowd_accepts_prisms_beside_and_above_but_not_overlapping() -> None:
    crowd = Crowd([Prism(square(0, 0), 0.0, 1.0)])
    assert not crowd.fits(Prism(square(0.9, 0), 0.5, 2.0), 0.01)
    assert crowd.fits(Prism(square(1.1, 0), 0.5, 2.0), 0.01)
    assert not crowd.fits(Prism(square(1.1, 0), 0.5, 2.0), 0.2)
    assert crowd.fits(Prism(square(0.2, 0), 1.0, 2.0), 0.01)  # stands on top
    crowd.add(Prism(square(0.2, 0), 1.0, 2.0))
    assert not crowd.fits(Prism(square(0.3, 0), 1.5, 1.8), 0.01)


def test_draws_on_a_receptacle_are_uniform_over_its_box_or_region() -> None:
    receptacles = placed_receptacles(*resolve("replica_cad/v3_sc0_staging_05"))
    table = next(r for r in receptacles if r.name == "table_1")
    rng = np.random.default_rng(0)
    for region in (1.0, 0.5):
        points = np.array([draw_on(table, rng, region) for _ in range(2000)])
        local = (points - table.pos[:2]) @ table.rotation[:2, :2] / table.half[:2] / region
        assert np.abs(local).max() <= 1.0
        quarters = np.histogram2d(*local.T, bins=2)[0]
        assert quarters.min() > 440
        assert np.abs(local).max(axis=0) == pytest.approx([1.0, 1.0], abs=0.01)


# -- files and the cache -----------------------------------------------------------------------


def test_a_dataset_is_loaded_as_it_was_saved(episodes: list[Episode], tmp_path: Path) -> None:
    path = tmp_path / "deep" / "set.jsonl.gz"
    save_episodes(path, episodes)
    assert load_episodes(path) == episodes
    assert [p.name for p in path.parent.iterdir()] == ["set.jsonl.gz"]


def lines_of(episodes: list[Episode], tmp_path: Path) -> list[dict]:
    path = tmp_path / "whole.jsonl.gz"
    save_episodes(path, episodes[:3])
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


TARGET = {"object": 1, "goal": [0, 0, 0], "receptacle": "sofa"}


def replaced(field: str, value: object) -> Callable[[list[dict]], None]:
    return lambda lines: lines[2].__setitem__(field, value)


def of_object(field: str, value: object) -> Callable[[list[dict]], None]:
    return lambda lines: lines[2]["objects"][1].__setitem__(field, value)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda lines: lines[2].pop("layout"), r"line 3: layout: is missing"),
        (replaced("robot_start", [0.0, math.nan, 0.0]), r"line 3 is not JSON"),
        (
            replaced("robot_start", [0.0, 1e30, 0.0]),
            r"line 3: robot_start\[1\]: must be a number <= 1000.0, got 1e\+30",
        ),
        (
            of_object("pos", [0.0, 1.0]),
            r"line 3: objects\[1\].pos: must be a list of length 3, got",
        ),
        (
            replaced("articulation", {"fridge_push_point": 1000.0}),
            "line 3: articulation: fridge_push_point: must be between 0 and .*, got 1000",
        ),
        (replaced("articulation", {"fridge": 1}), "line 3: articulation: unknown value 'fridge'"),
        (
            replaced("layout", "replica_cad/nope"),
            "line 3: layout: unknown value 'replica_cad/nope'",
        ),
        (replaced("layout", "replica_cad/v3_sc0_staging_00~9"), "line 3: layout: unknown value"),
        (replaced("layout", "nowhere/nope"), "line 3: layout set: unknown value 'nowhere'"),
        (replaced("id", "a\x1b[31mb\n"), "line 3: id: .* has unprintable characters"),
        (replaced("id", "a" * 400), "line 3: id: must be a string of length <= 300, got 'aaa"),
        (of_object("name", "zzz"), r"line 3: objects\[1\].name: unknown value 'zzz' .valid: "),
        (of_object("quat", [0, 0, 0, 0]), r"line 3: objects\[1\].quat: .* is not a rotation"),
        (of_object("receptacle", "soffa"), "line 3: objects.*unknown value 'soffa'; did you mean"),
        (
            lambda lines: lines[2]["objects"].extend(lines[1]["objects"]),
            "must be at most 30, got 60",
        ),
        (
            lambda lines: lines[0].update(num_episodes="3"),
            "line 1: num_episodes: must be an integer, got '3'",
        ),
        (lambda lines: lines[0].update(num_episodes=10**7), "num_episodes: .* <= 1000000, got"),
        (lambda lines: lines.append(lines[2]), "has more than the 3 episodes of line 1"),
        (replaced("targets", [TARGET, TARGET]), r"targets.object: 1 has two goals"),
        (replaced("targets", [{"object": 30, "goal": [0, 0, 0], "receptacle": "sofa"}]), "0 to 29"),
        (lambda lines: lines.__setitem__(3, lines[2]), "line 4: id: '.*' is the id of line 3 too"),
        (lambda lines: lines.pop(), "is truncated: 2 of 3 episodes"),
        (lambda lines: lines.pop(0), "is not a tpsrl-episode/1 file"),
        (lambda lines: lines[0].update(format="tpsrl-episode/9"), "is not a tpsrl-episode/1 file"),
        (lambda lines: lines.clear(), "is not a tpsrl-episode/1 file"),
    ],
)
def test_a_damaged_dataset_is_refused_with_line_and_field(
    episodes: list[Episode],
    tmp_path: Path,
    damage: Callable[[list[dict]], None],
    message: str,
) -> None:
    lines = lines_of(episodes, tmp_path)
    damage(lines)
    path = tmp_path / "set.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    with pytest.raises(UserError, match=message):
        load_episodes(path)


def test_broken_files_are_refused(episodes: list[Episode], tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl.gz"
    save_episodes(path, episodes)
    whole = path.read_bytes()
    for data, message in (
        (whole[:-500], "corrupt or truncated"),
        (whole[:2000] + b"\0" * 40 + whole[2040:], "corrupt or truncated|line . is not JSON"),
        (b"plain text", "line 1 is not JSON"),
        (b"", "is not a tpsrl-episode/1 file|corrupt"),
        (gzip.compress(b"\xff\xfe{", mtime=0), "line 1 is not JSON"),
        (gzip.compress(b'{"format": "tpsrl', mtime=0), "line 1 is not JSON"),
    ):
        path.write_bytes(data)
        with pytest.raises(UserError, match=message):
            load_episodes(path)
    with pytest.raises(UserError, match="cannot read"):
        load_episodes(tmp_path / "absent.jsonl.gz")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"\n" * 2**24, "line 1 is not JSON"),
        (b"0\n" * 2**22, "is not a tpsrl-episode/1 file"),
        (b"%s\n[" + b"[]," * 2**22, "line 2 has more than 1,048,576 bytes"),
        (b"%s\n" + b"0\n" * 2**22, "line 2: must be a record, got 0"),
    ],
)
def test_a_file_that_unpacks_to_huge_text_is_refused_at_its_first_bad_line(
    text: bytes, message: str, tmp_path: Path
) -> None:
    header = json.dumps({"format": "tpsrl-episode/1", "num_episodes": 1}).encode()
    path = tmp_path / "set.jsonl.gz"
    path.write_bytes(gzip.compress(text.replace(b"%s", header), compresslevel=1))
    tracemalloc.start()
    with pytest.raises(UserError, match=message):
        load_episodes(path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2**24


def test_an_unwritable_path_leaves_nothing(episodes: list[Episode], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        save_episodes(tmp_path / "file" / "set.jsonl.gz", episodes)
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="cannot write"):
        save_episodes(tmp_path / "folder", episodes)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TPSRL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_cache_grows_and_no_episode_is_generated_twice(
    cache: Path, episodes: list[Episode], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    generate = datasets.generate

    def counting(source: Source, indices: range, *rest: Any) -> object:
        made.extend(indices)
        return generate(source, indices, *rest)

    monkeypatch.setattr(datasets, "generate", counting)
    for count in (2, 3, 2):
        assert datasets.load("tidy_house", "val", count, seed=0, num_objects=12) is not None
    assert made == [0, 1, 2]
    assert len(list(cache.rglob("*.jsonl.gz"))) == 1


def test_a_damaged_cache_is_regenerated_with_a_warning(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = datasets.load("tidy_house", "val", 1, num_objects=12)
    (file,) = cache.rglob("*.jsonl.gz")
    file.write_bytes(file.read_bytes()[:-40])
    assert datasets.load("tidy_house", "val", 1, num_objects=12) == first
    assert "generating the episodes again" in capsys.readouterr().err
    assert load_episodes(file) == first


def test_an_unwritable_cache_names_the_variable_that_moves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TPSRL_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(datasets, "generate", None)  # nothing is generated before the error
    with pytest.raises(UserError, match=r"^TPSRL_CACHE: cannot write into .*; set TPSRL_CACHE to"):
        datasets.load("tidy_house", "val", 1, num_objects=12)


def test_without_a_writable_home_folder_the_cache_is_a_temporary_folder(
    episodes: list[Episode],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "home").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TPSRL_CACHE", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(temporaries, "_LONGEST", 999)
    made = [(episodes[:1], collections.Counter[str]())]
    monkeypatch.setattr(datasets, "generate", lambda *_: made.pop())
    for _ in range(2):  # the second time from the cache
        with temporaries.own():
            assert datasets.load("tidy_house", "val", 1, num_objects=12) == episodes[:1]
    place = tmp_path / f"tpsrl_cache_{os.getuid()}"
    assert len(list(place.glob("*.jsonl.gz"))) == 1
    assert f"episodes are cached in {place}, since" in capsys.readouterr().err


def test_the_cache_path_may_start_with_a_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/homes/me")
    for value in ("~/.cache/tpsrl", ""):
        monkeypatch.setenv("TPSRL_CACHE", value)
        assert datasets.cache_folder() == Path("/homes/me/.cache/tpsrl/episodes")
    monkeypatch.setenv("TPSRL_CACHE", "~nobody_at_all/x")
    with pytest.raises(UserError, match=r"^TPSRL_CACHE: '~nobody_at_all' names an unknown user"):
        datasets.cache_folder()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"split": "vall"}, "did you mean 'val'"),
        ({"seed": -1}, "seed: must be at least 0"),
        ({"num_objects": 31}, "num_objects: must be between 5 and 30"),
        ({"num_objects": 4}, "num_objects: must be between 5 and 30"),
    ],
)
def test_a_source_out_of_range_is_refused(fields: dict, message: str) -> None:
    source = dataclasses.replace(Source(TIDY, "val"), **fields)
    with pytest.raises(UserError, match=message):
        datasets.generate(source, [0], processes=1)
