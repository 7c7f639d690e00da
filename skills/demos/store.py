"""Demonstrations on disk: a folder of shards with a note.

The note `demos.json` has the skill, sensors and their sizes, sizes of pictures, and how the
episodes were recorded and ended. A shard `episodes-00000.npz` holds the concatenated frames of
several episodes. Pictures are stored as the difference from the pixel to the left, which is mostly
zero and compresses well; the encoding is lossless.
"""

import dataclasses
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

import tpsrl
from skills.core.inputs import PolicyInputs
from skills.demos.recording import SUCCESS, Recording
from skills.policies.deployed import Pixels
from skills.starts.bank import ALONG, StatesWriter
from tpsrl.errors import UserError
from tpsrl.rl.envs.pictures import CLASSES, DEPTH, kind_of
from tpsrl.rl.imitation.dataset import DEPTH_UNIT, Demonstration
from tpsrl.runtime import files, records
from tpsrl.runtime.records import Count
from tpsrl.world import action as act
from tpsrl.world import cameras
from tpsrl.world.cameras import shape_of

FORMAT = 1
NOTE = "demos.json"
_MOST = 4 * files.MOST_DATA  # bytes of a shard, uncompressed
_SHARDS = "episodes-*.npz"
_MOST_IN = {DEPTH: round(1.0 / DEPTH_UNIT), CLASSES: len(cameras.CLASSES) - 1}  # largest pixel

Size = Annotated[int, msgspec.Meta(ge=1, le=2**53)]  # numbers of a sensor


@dataclasses.dataclass(frozen=True, slots=True)
class DemosNote:
    """Metadata of a folder of demonstrations.

    `sensors` are the parts of "state" in order (name, size). `depth` is (height, width) of the
    head's depth, None without it; `cameras` has the sizes of other pictures by name. `ended` counts
    episodes by ending; `made` are the settings of the recording.
    """

    skill: str
    sensors: tuple[tuple[str, Size], ...]
    depth: tuple[Pixels, Pixels] | None
    episodes: Count = 0
    frames: Count = 0
    ended: Mapping[str, Count] = dataclasses.field(default_factory=dict)
    made: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    cameras: Mapping[str, tuple[Pixels, Pixels]] = dataclasses.field(default_factory=dict)

    @property
    def pictures(self) -> dict[str, tuple[int, ...]]:
        """Shapes of pictures by their name in observations."""
        head = {} if self.depth is None else {"depth": self.depth}
        return head | {name: shape_of(name, sides) for name, sides in self.cameras.items()}

    @staticmethod
    def of(inputs: PolicyInputs, made: Mapping[str, Any]) -> "DemosNote":
        """Returns the note of a recording with these inputs, before its first episode."""
        sizes, others = tuple(inputs.sizes().items()), dict(inputs.cameras)
        return DemosNote(inputs.skill, sizes, inputs.depth, made=made, cameras=others)


class DemosWriter:
    """Writer of a folder of demonstrations, shard by shard; `finish` completes the folder.

    Args:
        folder: of the demonstrations
        note: metadata before the first episode
        homes: "slots" and "num_objects" of the homes of kept states; None: no states are kept

    Raises:
        UserError: the folder cannot be written.
    """

    def __init__(
        self, folder: Path, note: DemosNote, homes: Mapping[str, int] | None = None
    ) -> None:
        self.folder, self._note, self._homes = folder, note, homes
        self._states = StatesWriter(folder / ALONG)
        self._shards = self._episodes = self._frames = 0
        self._ended: Counter[str] = Counter()

    def add(self, recordings: Sequence[Recording]) -> None:
        """Writes a shard of episodes.

        Raises:
            UserError: the shard cannot be written.
        """
        parts = [recording.demonstration for recording in recordings]
        arrays: dict[str, Any] = {
            "state": np.concatenate([part.observation["state"] for part in parts]),
            "label": np.concatenate([part.label for part in parts]),
            "valid": np.concatenate([part.valid for part in parts]),
            "action": np.concatenate([part.action for part in parts]),
            "lengths": np.array([len(part) for part in parts]),
            "number": np.array([recording.number for recording in recordings]),
            "ended_by": np.array([recording.ended_by for recording in recordings]),
        }
        for name in self._note.pictures:
            arrays[name] = _differences(np.concatenate([part.observation[name] for part in parts]))
        for recording in recordings:
            self._keep_states(recording)
        path = self.folder / _SHARDS.replace("*", f"{self._shards:05d}")
        try:
            with files.atomic(path) as temporary:
                np.savez_compressed(temporary, **arrays)
        except OSError as error:
            raise UserError(f"out: cannot write '{path}' ({error.strerror or error})") from None
        self._shards += 1
        self._episodes += len(parts)
        self._frames += len(arrays["label"])
        self._ended.update(recording.ended_by for recording in recordings)

    def _keep_states(self, recording: Recording) -> None:
        """Writes the kept states of an episode, which later episodes can start from."""
        for state in recording.states:
            ended = dataclasses.replace(state, succeeded=recording.ended_by == SUCCESS)
            self._states.add(state.snapshot, ended.note())

    def finish(self) -> DemosNote:
        """Writes the note, which completes the folder, and returns it.

        Raises:
            UserError: the note cannot be written.
        """
        note = dataclasses.replace(
            self._note,
            episodes=self._episodes,
            frames=self._frames,
            ended=dict(self._ended.most_common()),
        )
        if self._homes is not None:
            self._states.finish({"version": tpsrl.__version__, **self._homes})
        record = {"format": FORMAT, **dataclasses.asdict(note)}
        if not note.cameras:
            del record["cameras"]  # the same note as before `cameras` was introduced
        files.write_json(self.folder / NOTE, record)
        return note


def read_note(folder: str | os.PathLike[str], field: str = "demos") -> DemosNote:
    """Reads the note of a folder of demonstrations.

    Args:
        folder: of the demonstrations
        field: setting that names the folder, for error messages

    Raises:
        UserError: the note is missing, damaged, or has another format.
    """
    path = files.user_path(folder, field) / NOTE
    try:
        found = records.read(files.read_text(path), dict, f"{field}: {path}")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise UserError(f"{field}: no demonstrations in {folder} ({why})") from None
    if found.pop("format", None) != FORMAT:
        raise UserError(f"{field}: {path} has another format; must be {FORMAT}")
    return records.decode(found, DemosNote, f"{field}: {path}", closed=True)


def read(folder: str | os.PathLike[str]) -> Iterable[Recording]:
    """Yields the episodes of a folder.

    Raises:
        UserError: a shard is missing or damaged, or there are no episodes.
    """
    note, folder = read_note(folder), files.user_path(folder, "demos")
    found = 0
    for path in sorted(folder.glob(_SHARDS)):
        try:
            with files.open_arrays(path, _MOST) as file:
                arrays = {name: file[name] for name in file.files}
            episodes = list(_episodes(arrays, note))
        except OSError as error:
            raise UserError(f"demos: cannot read {path} ({error.strerror or error})") from None
        except (KeyError, ValueError) as error:
            raise UserError(f"demos: {path} is damaged ({error})") from None
        except Exception as error:
            # A damaged archive raises one of many exceptions of zipfile, zlib and numpy.
            raise UserError(f"demos: {path} is damaged ({type(error).__name__})") from None
        found += len(episodes)
        yield from episodes
    if found != note.episodes:
        raise UserError(f"demos: {folder} has {found} episodes, must have {note.episodes}")
    if not found:
        raise UserError(f"demos: {folder} contains no episodes")


def _check(arrays: Mapping[str, np.ndarray], note: DemosNote) -> None:
    """Checks that the arrays of a shard match the note.

    Raises:
        KeyError: an array is missing.
        ValueError: an array has another type or shape, or is out of range.
    """
    lengths = arrays["lengths"]
    if lengths.dtype.kind != "i" or lengths.ndim != 1 or not (lengths > 0).all():
        raise ValueError("lengths: must be positive integers")
    frames, episodes = sum(map(int, lengths)), len(lengths)
    expected: dict[str, tuple[str, tuple[int, ...]]] = {
        "state": ("f4", (frames, sum(size for _, size in note.sensors))),
        "label": ("f4", (frames, act.SIZE)),
        "action": ("f4", (frames, act.SIZE)),
        "valid": ("b1", (frames,)),
        "number": ("i8", (episodes,)),
    }
    for picture, sides in note.pictures.items():
        expected[picture] = ("u2" if kind_of(picture) == DEPTH else "u1", (frames, *sides))
    for name, (kind, shape) in expected.items():
        found = arrays[name]
        if found.dtype != kind or found.shape != shape:
            raise ValueError(f"{name}: {found.dtype} {found.shape}, expected {shape}")
        if not np.isfinite(found).all():
            raise ValueError(f"{name}: not finite")
    ended_by = arrays["ended_by"]
    if ended_by.dtype.kind != "U" or ended_by.shape != (episodes,):
        raise ValueError("ended_by: must be strings")


def _episodes(arrays: dict[str, np.ndarray], note: DemosNote) -> Iterable[Recording]:
    _check(arrays, note)
    seen = {"state": arrays["state"]}
    for name in note.pictures:
        seen[name] = np.cumsum(arrays[name], axis=2, dtype=arrays[name].dtype)
        if seen[name].max(initial=0) > _MOST_IN.get(kind_of(name) or "", 255):
            raise ValueError(f"{name}: out of range")
    ends = np.cumsum(arrays["lengths"])
    for row, (end, length) in enumerate(zip(ends, arrays["lengths"], strict=True)):
        span = slice(int(end - length), int(end))
        demonstration = Demonstration(
            {name: values[span] for name, values in seen.items()},
            arrays["label"][span],
            arrays["valid"][span],
            arrays["action"][span],
        )
        yield Recording(demonstration, int(arrays["number"][row]), str(arrays["ended_by"][row]))


def _differences(pictures: np.ndarray) -> np.ndarray:
    """Returns the difference of each pixel of images (n, H, W, ...) from its left neighbour.

    Differences wrap around in the images' unsigned type.
    """
    out = pictures.copy()
    out[:, :, 1:] -= pictures[:, :, :-1]
    return out
