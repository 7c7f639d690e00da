"""Demonstrations as a LeRobot dataset, format v3.0.

Columns:

- `action` is the expert's label.
- `taken_action` is the action that was executed. (LeRobot would treat a name that begins with
  "action" as another output of a policy.)
- `label_valid` is whether the label is valid.
- `observation.depth` (head) and `observation.hand_depth` are 16-bit images in millimetres, the
  format of LeRobot for depth without video compression.
- `observation.images.head_rgb` and other colour columns are RGB images.
- `observation.head_semantic` and other class columns are images of class numbers.
"""

import dataclasses
import importlib
import io
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from skills.demos.recording import Recording
from skills.demos.store import DemosNote
from tpsrl.errors import UserError
from tpsrl.rl.envs import pictures
from tpsrl.rl.envs.pictures import kind_of, pictures_of
from tpsrl.rl.imitation.dataset import DEPTH_UNIT
from tpsrl.runtime import files
from tpsrl.world import action as act
from tpsrl.world.cameras import CLASSES
from tpsrl.world.categories import CATEGORIES
from tpsrl.world.fetch import ARM, HEAD_CAMERA_FAR_M

VERSION, ROBOT = "v3.0", "fetch"
STATE, ACTION = "observation.state", "action"
TAKEN, VALID = "taken_action", "label_valid"
ACTIONS = (*(joint.name for joint in ARM), "grip", "base_linear", "base_angular", "stop")
DATA = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
EPISODES = "meta/episodes/chunk-000/file-000.parquet"
TASKS, STATS, INFO = "meta/tasks.parquet", "meta/stats.json", "meta/info.json"

_COUNTERS = ("frame_index", "episode_index", "index", "task_index")
_MM = DEPTH_UNIT * HEAD_CAMERA_FAR_M * 1000.0  # millimetres per unit of recorded depth
_FILE_MB, _CHUNK_FILES = 100, 1000
_QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}

Stats = dict[str, np.ndarray]  # min, max, mean, std, quantiles and count of a feature


def check_installed() -> None:
    """Checks that the dependency of the format is installed.

    Raises:
        UserError: pyarrow is not installed; the message names the extra.
    """
    _imported("pyarrow.parquet")


class LeRobotWriter:
    """Writer of a dataset, episode by episode; `finish` completes the dataset.

    Args:
        folder: of the dataset
        note: skill and inputs, as for `skills.demos.store.DemosWriter`

    Raises:
        UserError: pyarrow is not installed.
    """

    def __init__(self, folder: Path, note: DemosNote) -> None:
        self.folder, self._note = folder, note
        self._arrow, self._parquet = _imported("pyarrow"), _imported("pyarrow.parquet")
        self._features = _features(note)
        self._task = note.skill.replace("_", " ")
        self._writer: Any = None
        self._path = folder
        self._files = self._frames = 0
        self._episodes: list[dict[str, Any]] = []
        self._stats: list[dict[str, Stats]] = []
        self._ended: Counter[str] = Counter()

    def add(self, recordings: Sequence[Recording]) -> None:
        """Writes episodes.

        Raises:
            UserError: a file cannot be written.
        """
        for recording in recordings:
            columns = _columns(recording, len(self._episodes), self._frames)
            table = self._table(columns)
            try:
                self._open(table.schema).write_table(table)  # one row group per episode
            except OSError as error:
                raise self._unwritten(error) from None
            self._note_episode(recording)
            self._stats.append({name: stats_of(values) for name, values in columns.items()})

    def finish(self) -> DemosNote:
        """Writes the metadata and returns the note with the numbers of episodes and frames.

        Raises:
            UserError: a file cannot be written.
        """
        pairs = zip(self._episodes, self._stats, strict=True)
        rows = [row | _flat(stats) for row, stats in pairs]
        try:
            self._close()
            self._write(EPISODES, self._arrow.Table.from_pylist(rows))
            self._write(TASKS, self._tasks())
        except OSError as error:
            raise self._unwritten(error) from None
        total = {name: together([s[name] for s in self._stats]) for name in self._features}
        files.write_json(self.folder / STATS, _plain(total))
        files.write_json(self.folder / INFO, self._info())
        return dataclasses.replace(
            self._note,
            episodes=len(rows),
            frames=self._frames,
            ended=dict(self._ended.most_common()),
        )

    def _note_episode(self, recording: Recording) -> None:
        chunk, file = divmod(self._files - 1, _CHUNK_FILES)
        length = len(recording.demonstration)
        self._episodes.append(
            {
                "episode_index": len(self._episodes),
                "tasks": [self._task],
                "length": length,
                "ended_by": recording.ended_by,
                "data/chunk_index": chunk,
                "data/file_index": file,
                "dataset_from_index": self._frames,
                "dataset_to_index": self._frames + length,
                "meta/episodes/chunk_index": 0,
                "meta/episodes/file_index": 0,
            }
        )
        self._frames += length
        self._ended[recording.ended_by] += 1

    def _table(self, columns: Mapping[str, np.ndarray]) -> Any:
        """Returns columns (T, ...) as an Arrow table."""
        arrow, made = self._arrow, {}
        for name, values in columns.items():
            if values.ndim > 2:
                kind = arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())])
                write = _tiff if values.dtype == np.uint16 else _png
                images = [{"bytes": write(image), "path": None} for image in values]
                made[name] = arrow.array(images, kind)
            elif values.ndim == 2:
                flat = arrow.array(values.reshape(-1))
                made[name] = arrow.FixedSizeListArray.from_arrays(flat, values.shape[1])
            else:
                made[name] = arrow.array(values)
        return arrow.table(made)

    def _tasks(self) -> Any:
        """Returns the table of tasks (one), which pandas reads with the text as index."""
        table = self._arrow.table({"task_index": [0], "task": [self._task]})
        kinds = {"task_index": ("int64", "int64"), "task": ("unicode", "object")}
        columns = [
            {"name": name, "field_name": name, "pandas_type": kind, "numpy_type": numpy_kind}
            for name, (kind, numpy_kind) in kinds.items()
        ]
        about = {"index_columns": ["task"], "columns": columns, "column_indexes": []}
        return table.replace_schema_metadata({b"pandas": json.dumps(about).encode()})

    def _info(self) -> dict[str, Any]:
        return {
            "codebase_version": VERSION,
            "robot_type": ROBOT,
            "total_episodes": len(self._episodes),
            "total_frames": self._frames,
            "total_tasks": 1,
            "chunks_size": _CHUNK_FILES,
            "data_files_size_in_mb": _FILE_MB,
            "video_files_size_in_mb": 2 * _FILE_MB,
            "fps": int(act.CONTROL_HZ),
            "splits": {"train": f"0:{len(self._episodes)}"},
            "data_path": DATA,
            "video_path": None,
            "features": self._features,
        }

    def _open(self, schema: Any) -> Any:
        """Returns the writer of the current file, or of a new file if the current one is full."""
        if self._writer is not None and self._path.stat().st_size >= _FILE_MB * 2**20:
            self._close()
        if self._writer is None:
            chunk, file = divmod(self._files, _CHUNK_FILES)
            self._begin(DATA.format(chunk_index=chunk, file_index=file))
            self._writer = self._parquet.ParquetWriter(self._path, schema)
            self._files += 1
        return self._writer

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _write(self, name: str, table: Any) -> None:
        self._begin(name)
        self._parquet.write_table(table, self._path)

    def _begin(self, name: str) -> None:
        self._path = self.folder / name
        self._path.parent.mkdir(parents=True, exist_ok=True)

    def _unwritten(self, error: OSError) -> UserError:
        return UserError(f"out: cannot write '{self._path}' ({error.strerror or error})")


def stats_of(values: np.ndarray) -> Stats:
    """Computes the statistics of a feature over T frames.

    Args:
        values: (T,), (T, k), images (T, height, width), or colour images (T, height, width, 3);
            statistics of colour are per channel, of values scaled to [0, 1]

    Returns:
        Arrays by the name of the statistic.
    """
    shape = {1: (1,), 2: values.shape[1:], 3: (1, 1, 1), 4: (values.shape[-1], 1, 1)}[values.ndim]
    flat = values.reshape(-1, math.prod(shape)).astype(np.float64)
    if values.ndim == 4:
        flat /= 255.0
    levels = np.quantile(flat, list(_QUANTILES.values()), axis=0)
    found = dict(zip(_QUANTILES, levels, strict=True))
    found |= {"min": flat.min(0), "max": flat.max(0), "mean": flat.mean(0), "std": flat.std(0)}
    shaped = {name: value.reshape(shape) for name, value in found.items()}
    return {**shaped, "count": np.array([len(values)])}


def together(parts: Sequence[Stats]) -> Stats:
    """Merges the statistics of episodes; quantiles are weighted means, as in LeRobot."""
    counts = np.array([part["count"][0] for part in parts])
    columns = {name: np.stack([part[name] for part in parts]) for name in parts[0]}
    share = (counts / counts.sum()).reshape(-1, *[1] * (columns["mean"].ndim - 1))
    found = {name: (share * columns[name]).sum(0) for name in ("mean", *_QUANTILES)}
    spread = columns["std"] ** 2 + (columns["mean"] - found["mean"]) ** 2
    found |= {"min": columns["min"].min(0), "max": columns["max"].max(0)}
    found["std"] = np.sqrt((share * spread).sum(0))
    return {**found, "count": np.array([counts.sum()])}


def _features(note: DemosNote) -> dict[str, dict[str, Any]]:
    """Returns the descriptions of the columns for info.json."""
    state = [
        name if size == 1 else f"{name}_{number}"
        for name, size in note.sensors
        for number in range(size)
    ]
    found: dict[str, dict[str, Any]] = {STATE: _feature("float32", len(state), state)}
    for name, (height, width, *channels) in note.pictures.items():
        about: dict[str, Any] = {
            "dtype": "image",
            "shape": [height, width, *(channels or [1])],
            "names": ["height", "width", "channels"],
        }
        kind = kind_of(name)
        if kind == pictures.DEPTH:
            about["info"] = {"is_depth_map": True, "depth_unit": "mm"}
        elif kind == pictures.CLASSES:
            about["info"] = {"classes": list(CLASSES)}
        elif kind == pictures.CATEGORIES:
            about["info"] = {"classes": ["none", *CATEGORIES]}
        found[column_of(name)] = about
    for name in (ACTION, TAKEN):
        found[name] = _feature("float32", act.SIZE, list(ACTIONS))
    found[VALID] = _feature("bool")
    found["timestamp"] = _feature("float32")
    return found | {name: _feature("int64") for name in _COUNTERS}


def _feature(dtype: str, size: int = 1, names: list[str] | None = None) -> dict[str, Any]:
    return {"dtype": dtype, "shape": [size], "names": names}


def _columns(recording: Recording, number: int, first: int) -> dict[str, np.ndarray]:
    """Returns the columns (T, ...) of episode `number`, whose first frame has index `first`."""
    shown = recording.demonstration
    found: dict[str, np.ndarray] = {STATE: shown.observation["state"]}
    for name in pictures_of(shown.observation):
        picture = shown.observation[name]
        if kind_of(name) == pictures.DEPTH:
            picture = np.rint(_MM * picture).astype(np.uint16)
        found[column_of(name)] = picture
    frames = np.arange(len(shown), dtype=np.int64)
    return found | {
        ACTION: np.clip(shown.label, -1.0, 1.0),
        TAKEN: shown.action,
        VALID: shown.valid,
        "timestamp": (frames / act.CONTROL_HZ).astype(np.float32),
        "frame_index": frames,
        "episode_index": np.full_like(frames, number),
        "index": first + frames,
        "task_index": np.zeros_like(frames),
    }


def column_of(picture: str) -> str:
    """Returns the column of a picture, which for colour is in LeRobot's `observation.images`.

    Args:
        picture: name of the picture in observations
    """
    folder = "images." if kind_of(picture) == pictures.COLOUR else ""
    return f"observation.{folder}{picture}"


def _png(image: np.ndarray) -> bytes:
    """Encodes an image (height, width) or (height, width, 3) uint8 as PNG."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    return file.getvalue()


def _tiff(image: np.ndarray) -> bytes:
    """Encodes an image (height, width) uint16 as TIFF, which all readers decode to 16 bits."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, "TIFF", compression="tiff_adobe_deflate")
    return file.getvalue()


def _plain(stats: Mapping[str, Stats]) -> dict[str, dict[str, Any]]:
    return {
        name: {key: value.tolist() for key, value in found.items()} for name, found in stats.items()
    }


def _flat(stats: Mapping[str, Stats]) -> dict[str, Any]:
    """Returns statistics as columns of an episode's row of metadata."""
    return {
        f"stats/{name}/{key}": value
        for name, found in _plain(stats).items()
        for key, value in found.items()
    }


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UserError(
            "format: lerobot needs pyarrow; install the extra 'lerobot' (pip install '.[lerobot]')"
        ) from None
