"""Demonstrations on disk: a folder of shards, and a note of what they are.

`demos.json` says skill, sensors with their sizes, size of depth, how the episodes began and ended.
A shard `episodes-00000.npz` holds some episodes end to end. Depth is stored as the difference from
the pixel to its left, which is mostly nothing and therefore small when packed; no loss is involved.
"""

import dataclasses
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from skills.demos.recording import Recording
from tpsrl import files
from tpsrl.errors import UserError
from tpsrl.rl.imitation.dataset import Demonstration

FORMAT = 1
NOTE = "demos.json"
_MOST = 4 * files.MOST_DATA  # bytes of a shard, unpacked
_SHARDS = "episodes-*.npz"
_KINDS = {  # as numpy calls them
    "state": "f", "label": "f", "action": "f", "valid": "b", "depth": "u", "lengths": "i",
    "number": "i", "ended_by": "U",
}  # fmt: skip
_COLUMNS = ("label", "valid", "action")


@dataclasses.dataclass(frozen=True, slots=True)
class DemosNote:
    """What a folder of demonstrations says of itself.

    `sensors` are the parts of "state" in their order, name and size; `depth` (height, width), None
    without a camera. `ended` counts how episodes ended, `made` says how they were recorded.
    """

    skill: str
    sensors: tuple[tuple[str, int], ...]
    depth: tuple[int, int] | None
    episodes: int = 0
    frames: int = 0
    ended: Mapping[str, int] = dataclasses.field(default_factory=dict)
    made: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class DemosWriter:
    """Writes a folder of demonstrations shard by shard; `finish` makes it one that can be read.

    Raises:
        UserError: the folder cannot be written.
    """

    def __init__(self, folder: Path, note: DemosNote) -> None:
        self.folder, self._note = folder, note
        self._shards = self._episodes = self._frames = 0
        self._ended: Counter[str] = Counter()

    def add(self, recordings: Sequence[Recording]) -> None:
        """Writes a shard of these episodes.

        Raises:
            UserError: it cannot be written.
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
        if self._note.depth is not None:
            arrays["depth"] = _differences(
                np.concatenate([part.observation["depth"] for part in parts])
            )
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

    def finish(self) -> DemosNote:
        """Writes the note, by which the folder becomes one of demonstrations.

        Raises:
            UserError: it cannot be written.
        """
        note = dataclasses.replace(
            self._note,
            episodes=self._episodes,
            frames=self._frames,
            ended=dict(self._ended.most_common()),
        )
        files.write_json(self.folder / NOTE, {"format": FORMAT, **dataclasses.asdict(note)})
        return note


def read_note(folder: str | os.PathLike[str]) -> DemosNote:
    """The note of a folder of demonstrations.

    Raises:
        UserError: there is none, or it is damaged or of another format.
    """
    path = files.user_path(folder, "demos") / NOTE
    try:
        found = files.parse_json(files.plain(path).read_text(encoding="utf-8"))
        if found.pop("format") != FORMAT:
            raise ValueError("of another format")
        found["sensors"] = tuple((str(name), int(size)) for name, size in found["sensors"])
        found["depth"] = None if found["depth"] is None else tuple(map(int, found["depth"]))
        return DemosNote(**found)
    except OSError as error:
        raise UserError(f"demos: no demonstrations in {folder} ({error.strerror})") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"demos: {path} is damaged ({error})") from None


def read(folder: str | os.PathLike[str]) -> Iterable[Recording]:
    """The episodes of a folder.

    Raises:
        UserError: a shard is missing or damaged.
    """
    note, folder = read_note(folder), files.user_path(folder, "demos")
    found = 0
    for path in sorted(folder.glob(_SHARDS)):
        try:
            with files.open_arrays(path, _MOST) as file:
                arrays = {name: file[name] for name in file.files}
            episodes = list(_episodes(arrays, note.depth is not None))
        except OSError as error:
            raise UserError(f"demos: cannot read {path} ({error.strerror or error})") from None
        except Exception as error:
            # A damaged archive surfaces as one of many exceptions of zipfile, zlib and numpy.
            raise UserError(f"demos: {path} is damaged ({type(error).__name__})") from None
        found += len(episodes)
        yield from episodes
    if found != note.episodes:
        raise UserError(f"demos: {folder} has {found} episodes, its note says {note.episodes}")


def _episodes(arrays: dict[str, np.ndarray], camera: bool) -> Iterable[Recording]:
    names = ("state", "depth") if camera else ("state",)
    for name, kind in _KINDS.items():
        if name in arrays and arrays[name].dtype.kind != kind:
            raise ValueError(f"{name} of another type")
    if any(not np.isfinite(arrays[name]).all() for name in ("state", "label", "action")):
        raise ValueError("not finite")
    seen = {name: arrays[name] for name in names}
    if camera:
        seen["depth"] = np.cumsum(seen["depth"], axis=2, dtype=np.uint16)
    ends = np.cumsum(arrays["lengths"])
    if any(len(arrays[name]) != ends[-1] for name in (*names, *_COLUMNS)):
        raise ValueError("columns of different lengths")
    for row, (end, length) in enumerate(zip(ends, arrays["lengths"], strict=True)):
        span = slice(int(end - length), int(end))
        demonstration = Demonstration(
            {name: values[span] for name, values in seen.items()},
            arrays["label"][span],
            arrays["valid"][span],
            arrays["action"][span],
        )
        yield Recording(demonstration, int(arrays["number"][row]), str(arrays["ended_by"][row]))


def _differences(depth: np.ndarray) -> np.ndarray:
    """Of images (n, H, W) uint16 each pixel less the one to its left, modulo 2^16."""
    out = depth.copy()
    out[:, :, 1:] -= depth[:, :, :-1]
    return out
