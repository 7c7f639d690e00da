"""Episode records and their files."""

import dataclasses
import gzip
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tpsrl import files
from tpsrl.errors import UserError

FORMAT = "tpsrl-episode/1"


FARTHEST = 1000.0  # m, of a coordinate


@dataclasses.dataclass(frozen=True, slots=True)
class ObjectPlacement:
    """One object at rest: YCB name, centre (m, world), quaternion (w, x, y, z), receptacle."""

    name: str
    pos: tuple[float, float, float]
    quat: tuple[float, float, float, float]
    receptacle: str


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """What is to be moved: index into `Episode.objects`, goal centre (m, world), its receptacle."""

    object: int
    goal: tuple[float, float, float]
    receptacle: str


@dataclasses.dataclass(frozen=True, slots=True)
class Episode:
    """One start of one scenario, everything that a simulator needs to reset a home.

    Receptacles are short names of the layout set ("chair", "table_1", ...); `layout` is
    "SET/NAME", e.g. "replica_cad/v3_sc3_staging_07"; `articulation` maps marker names of
    `tpsrl.world.state.JOINTS` to start positions (rad or m), absent means closed. `held` is the
    index of the object that hangs upright from the cup at the start, whatever its `pos`; -1: none.
    """

    id: str
    scenario: str
    split: str
    layout: str
    robot_start: tuple[float, float, float]
    objects: tuple[ObjectPlacement, ...]
    targets: tuple[Target, ...]
    articulation: dict[str, float] = dataclasses.field(default_factory=dict)
    held: int = -1

    def to_json(self) -> dict[str, Any]:
        """The record as JSON types."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(record: dict[str, Any], where: str = "episode") -> "Episode":
        """The episode of a JSON record.

        Raises:
            UserError: a field is missing, of another type, not finite or too large; says which.
        """
        if not isinstance(record, dict):
            raise UserError(f"{where}: {record!r:.80} is no record")
        try:
            episode = Episode(
                id=_text(record, "id"),
                scenario=_text(record, "scenario"),
                split=_text(record, "split"),
                layout=_text(record, "layout"),
                robot_start=_floats(record, "robot_start", 3),
                objects=tuple(
                    ObjectPlacement(
                        _text(o, "name"),
                        _floats(o, "pos", 3),
                        _floats(o, "quat", 4),
                        _text(o, "receptacle"),
                    )
                    for o in _records(record, "objects")
                ),
                targets=tuple(
                    Target(_index(t, "object"), _floats(t, "goal", 3), _text(t, "receptacle"))
                    for t in _records(record, "targets")
                ),
                articulation={
                    name: _number(value, f"articulation: {name}")
                    for name, value in _entries(record, "articulation").items()
                },
                held=_index(record, "held") if "held" in record else -1,
            )
        except KeyError as error:
            raise UserError(f"{where}: field {error} is missing") from None
        except TypeError as error:
            raise UserError(f"{where}: {error}") from None
        for field, index, least in (
            *(("targets.object", t.object, 0) for t in episode.targets),
            ("held", episode.held, -1),
        ):
            if not least <= index < len(episode.objects):
                raise UserError(
                    f"{where}: {field} is {index}, "
                    f"but the episode has objects 0 to {len(episode.objects) - 1}"
                )
        moved = [target.object for target in episode.targets]
        for index in moved:
            if moved.count(index) > 1:
                raise UserError(f"{where}: targets.object: {index} has two goals, it can have one")
        return episode


def _text(record: Any, field: str) -> str:
    value = record[field]
    if not isinstance(value, str):
        raise TypeError(f"{field}: {value!r:.80} is no text")
    return value


def _index(record: Any, field: str) -> int:
    value = record[field]
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{field}: {value!r:.80} is no whole number")
    return value


def _records(record: Any, field: str) -> list[dict[str, Any]]:
    values = record[field]
    if not isinstance(values, list | tuple) or not all(isinstance(v, dict) for v in values):
        raise TypeError(f"{field}: {values!r:.80} is no list of records")
    return list(values)


def _entries(record: Any, field: str) -> dict[str, Any]:
    value = record[field]
    if not isinstance(value, dict):
        raise TypeError(f"{field}: {value!r:.80} is no record")
    return value


def _floats(record: Any, field: str, count: int) -> Any:
    values = record[field]
    if not isinstance(values, list | tuple) or len(values) != count:
        raise TypeError(f"{field}: expected {count} finite numbers, got {values!r:.80}")
    return tuple(_number(value, field) for value in values)


def _number(value: Any, field: str) -> float:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    if not plain or not abs(value) <= FARTHEST:
        raise TypeError(f"{field}: {value!r:.80} is no number from -{FARTHEST:g} to {FARTHEST:g}")
    return float(value)


def save_episodes(path: str | os.PathLike[str], episodes: Sequence[Episode]) -> None:
    """Writes a `.jsonl.gz` dataset: a header line, then one episode a line. Atomic."""
    path = Path(path)
    header = {"format": FORMAT, "num_episodes": len(episodes)}
    lines = [
        json.dumps(r, separators=(",", ":")) for r in [header, *(e.to_json() for e in episodes)]
    ]
    data = gzip.compress("\n".join(lines).encode() + b"\n", mtime=0)
    try:
        with files.atomic(path) as temporary:
            temporary.write_bytes(data)
    except OSError as error:
        raise UserError(f"episodes: cannot write {path}: {error.strerror}") from None


def load_episodes(path: str | os.PathLike[str]) -> list[Episode]:
    """Reads a `.jsonl.gz` dataset.

    Raises:
        UserError: the file is absent, damaged, truncated, or a record is not an episode.
    """
    try:
        text = files.read_data(path, "episodes").decode()
    except UnicodeDecodeError as error:
        raise UserError(f"episodes: {path} is no file of episodes ({error})") from None
    records = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            records.append(files.parse_json(line))
        except ValueError as error:
            why = getattr(error, "msg", error)
            raise UserError(f"episodes: {path} line {number} is not JSON ({why})") from None
    if not records or not isinstance(records[0], dict) or records[0].get("format") != FORMAT:
        raise UserError(f"episodes: {path} is not a {FORMAT} file")
    if records[0].get("num_episodes") != len(records) - 1:
        raise UserError(
            f"episodes: {path} is truncated: {len(records) - 1} of "
            f"{records[0].get('num_episodes')} episodes"
        )
    return [
        Episode.from_json(record, where=f"episodes: {path} line {number}")
        for number, record in enumerate(records[1:], start=2)
    ]
