"""Demonstrations as a LeRobot dataset."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from skills.demos import lerobot
from skills.demos.recording import Recording
from skills.demos.store import DemosNote
from tpsrl import cli
from tpsrl.rl.imitation.dataset import Demonstration
from tpsrl.world import action as act

SENSORS = (("arm", 7), ("holding", 1))
LENGTHS = (4, 1, 6)


def recordings(camera: bool = True) -> list[Recording]:
    """Returns random recordings with labels beyond their range and depth over its full range."""
    rng, found = np.random.default_rng(3), []
    for number, length in enumerate(LENGTHS):
        seen = {"state": rng.normal(size=(length, 8)).astype(np.float32)}
        if camera:
            seen["depth"] = rng.integers(0, 10_001, (length, 5, 7)).astype(np.uint16)
            seen["depth"][0, 0, :2] = 0, 10_000
        label, done = rng.uniform(-1.1, 1.1, (2, length, act.SIZE)).astype(np.float32)
        shown = Demonstration(seen, label, rng.random(length) < 0.6, done)
        found.append(Recording(shown, number, "success" if number else "timeout"))
    return found


def note(camera: bool = True) -> DemosNote:
    return DemosNote("open_fridge", SENSORS, (5, 7) if camera else None)


def written(folder: Path, camera: bool = True) -> DemosNote:
    writer = lerobot.LeRobotWriter(folder, note(camera))
    given = recordings(camera)
    writer.add(given[:2])
    writer.add(given[2:])
    return writer.finish()


def frames(name: str) -> np.ndarray:
    return np.concatenate([getattr(one.demonstration, name) for one in recordings()])


# -- statistics --------------------------------------------------------------------------------


def test_combined_statistics_of_episodes_are_those_of_all_frames() -> None:
    every = [one.demonstration for one in recordings()]
    for name in ("state", "depth"):
        arrays = [one.observation[name] for one in every]
        found = lerobot.together([lerobot.stats_of(values) for values in arrays])
        whole = lerobot.stats_of(np.concatenate(arrays))
        for key in ("min", "max", "mean", "std"):
            np.testing.assert_allclose(found[key], whole[key], rtol=1e-9)
            assert found[key].shape == ((8,) if name == "state" else (1, 1, 1))
        assert found["count"].tolist() == [sum(LENGTHS)]
        assert (found["min"] <= found["q01"]).all() and (found["q99"] <= found["max"]).all()
    values = every[0].observation["state"]
    np.testing.assert_allclose(lerobot.stats_of(values)["q50"], np.median(values, 0), rtol=1e-6)


def test_a_depth_image_is_read_back_in_16_bits() -> None:
    image = np.arange(35, dtype=np.uint16).reshape(5, 7) * 1871
    opened = Image.open(io.BytesIO(lerobot._tiff(image)))
    assert opened.mode == "I;16"
    np.testing.assert_array_equal(np.array(opened), image)


def test_every_number_of_an_action_has_a_name() -> None:
    assert len(lerobot.ACTIONS) == len(set(lerobot.ACTIONS)) == act.SIZE
    assert lerobot.ACTIONS[act.GRIP] == "grip" and lerobot.ACTIONS[act.STOP] == "stop"


# -- the files ---------------------------------------------------------------------------------

_REASON = "pyarrow comes with the extra 'lerobot', which development does not need"


def table(path: Path) -> Any:
    return pytest.importorskip("pyarrow.parquet", reason=_REASON).read_table(path)


def test_a_dataset_has_the_files_of_the_format(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason=_REASON)
    done = written(tmp_path)
    assert (done.episodes, done.frames, done.ended) == (3, 11, {"success": 2, "timeout": 1})
    files = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
    assert files == [
        "data/chunk-000/file-000.parquet",
        "meta/episodes/chunk-000/file-000.parquet",
        "meta/info.json",
        "meta/stats.json",
        "meta/tasks.parquet",
    ]
    info = json.loads((tmp_path / "meta" / "info.json").read_text())
    assert (info["codebase_version"], info["robot_type"], info["fps"]) == ("v3.0", "fetch", 30)
    assert (info["total_episodes"], info["total_frames"], info["total_tasks"]) == (3, 11, 1)
    assert info["splits"] == {"train": "0:3"}
    features = info["features"]
    assert features["observation.state"]["names"] == [*(f"arm_{i}" for i in range(7)), "holding"]
    assert features["observation.depth"]["shape"] == [5, 7, 1]
    assert features["observation.depth"]["info"] == {"is_depth_map": True, "depth_unit": "mm"}
    assert features["action"]["shape"] == [act.SIZE]
    assert [name for name in features if name.startswith("action")] == ["action"]
    stats = json.loads((tmp_path / "meta" / "stats.json").read_text())
    assert stats.keys() == features.keys()
    assert stats["observation.depth"]["max"] == [[[10_000.0]]]


def test_frames_are_read_back_as_recorded(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason=_REASON)
    written(tmp_path)
    found = table(tmp_path / "data/chunk-000/file-000.parquet").to_pydict()
    np.testing.assert_array_equal(
        np.array(found["observation.state"], np.float32),
        np.concatenate([r.demonstration.observation["state"] for r in recordings()]),
    )
    np.testing.assert_array_equal(np.float32(found["action"]), frames("label").clip(-1.0, 1.0))
    np.testing.assert_array_equal(np.float32(found["taken_action"]), frames("action"))
    assert found["label_valid"] == frames("valid").tolist()
    images = [np.array(Image.open(io.BytesIO(i["bytes"]))) for i in found["observation.depth"]]
    depth = np.concatenate([r.demonstration.observation["depth"] for r in recordings()])
    np.testing.assert_array_equal(images, depth)  # the unit of recorded depth is 1 mm
    assert found["index"] == list(range(11))
    assert found["frame_index"] == [*range(4), 0, *range(6)]
    assert found["episode_index"] == [0] * 4 + [1] + [2] * 6
    assert set(found["task_index"]) == {0}
    np.testing.assert_allclose(found["timestamp"], np.array(found["frame_index"]) / 30.0, atol=1e-6)


def test_columns_have_the_types_given_in_info(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason=_REASON)
    written(tmp_path)
    features = json.loads((tmp_path / "meta/info.json").read_text())["features"]
    schema = table(tmp_path / "data/chunk-000/file-000.parquet").schema
    assert schema.names == list(features)
    types = {"float32": "float", "int64": "int64", "bool": "bool"}
    for name, feature in features.items():
        kind = str(schema.field(name).type)
        if feature["dtype"] == "image":
            assert kind == "struct<bytes: binary, path: string>"
        elif feature["shape"] == [1]:
            assert kind == types[feature["dtype"]]
        else:
            size = feature["shape"][0]
            assert kind.startswith("fixed_size_list<") and kind.endswith(f"[{size}]")
            assert str(schema.field(name).type.value_type) == types[feature["dtype"]]


def test_images_of_other_cameras_are_separate_columns(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason=_REASON)
    rng = np.random.default_rng(0)
    sizes = {"head_rgb": (5, 7), "hand_depth": (4, 4), "hand_semantic": (4, 4)}
    seen = {
        "state": rng.normal(size=(3, 8)).astype(np.float32),
        "head_rgb": rng.integers(0, 256, (3, 5, 7, 3)).astype(np.uint8),
        "hand_depth": rng.integers(0, 10_001, (3, 4, 4)).astype(np.uint16),
        "hand_semantic": rng.integers(0, 7, (3, 4, 4)).astype(np.uint8),
    }
    numbers = np.zeros((3, act.SIZE), np.float32)
    shown = Demonstration(seen, numbers, np.ones(3, bool), numbers)
    writer = lerobot.LeRobotWriter(tmp_path, DemosNote("pick", SENSORS, None, cameras=sizes))
    writer.add([Recording(shown, 0, "success")])
    writer.finish()
    features = json.loads((tmp_path / "meta/info.json").read_text())["features"]
    assert features["observation.images.head_rgb"]["shape"] == [5, 7, 3]
    assert features["observation.hand_depth"]["info"]["is_depth_map"]
    assert features["observation.hand_semantic"]["info"]["classes"][0] == "nothing"
    stats = json.loads((tmp_path / "meta/stats.json").read_text())
    mean = np.array(stats["observation.images.head_rgb"]["mean"])
    np.testing.assert_allclose(mean[:, 0, 0], seen["head_rgb"].mean((0, 1, 2)) / 255.0)
    found = table(tmp_path / "data/chunk-000/file-000.parquet").to_pydict()
    for name in sizes:
        column = found[lerobot.column_of(name)]
        images = [np.array(Image.open(io.BytesIO(image["bytes"]))) for image in column]
        np.testing.assert_array_equal(images, seen[name])


def test_episode_metadata_contains_file_positions_and_task(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason=_REASON)
    written(tmp_path)
    episodes = table(tmp_path / lerobot.EPISODES).to_pylist()
    assert [row["length"] for row in episodes] == list(LENGTHS)
    assert [row["dataset_from_index"] for row in episodes] == [0, 4, 5]
    assert [row["dataset_to_index"] for row in episodes] == [4, 5, 11]
    assert [row["ended_by"] for row in episodes] == ["timeout", "success", "success"]
    assert all(row["tasks"] == ["open fridge"] for row in episodes)
    assert episodes[2]["stats/action/count"] == [6]
    tasks = parquet.read_table(tmp_path / lerobot.TASKS)
    assert tasks.to_pydict() == {"task_index": [0], "task": ["open fridge"]}
    assert json.loads(tasks.schema.metadata[b"pandas"])["index_columns"] == ["task"]
    groups = parquet.ParquetFile(tmp_path / "data/chunk-000/file-000.parquet").metadata
    assert [groups.row_group(i).num_rows for i in range(3)] == list(LENGTHS)


def test_a_full_file_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow", reason=_REASON)
    monkeypatch.setattr(lerobot, "_FILE_MB", 1e-6)
    monkeypatch.setattr(lerobot, "_CHUNK_FILES", 2)
    written(tmp_path)
    episodes = table(tmp_path / lerobot.EPISODES).to_pylist()
    places = [(row["data/chunk_index"], row["data/file_index"]) for row in episodes]
    assert places == [(0, 0), (0, 1), (1, 0)]
    for (chunk, file), length in zip(places, LENGTHS, strict=True):
        path = tmp_path / lerobot.DATA.format(chunk_index=chunk, file_index=file)
        assert table(path).num_rows == length


def test_a_dataset_without_a_camera_has_no_depth(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason=_REASON)
    written(tmp_path, camera=False)
    info = json.loads((tmp_path / "meta/info.json").read_text())
    assert "observation.depth" not in info["features"]


def test_without_pyarrow_the_format_is_refused_and_no_files_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, module, None)
    out = tmp_path / "folder" / "here"
    assert cli.main(["demos", "pick", "format=lerobot", f"out={out}"]) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert "format: lerobot needs pyarrow; install the extra 'lerobot'" in printed
    assert list(tmp_path.iterdir()) == []
