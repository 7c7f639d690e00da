"""Episode records and their files."""

import contextlib
import dataclasses
import gzip
import json
import os
import reprlib
import zlib
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

from tpsrl.config import MOST_EPISODES
from tpsrl.errors import UserError, unknown
from tpsrl.runtime import files
from tpsrl.world.layouts import is_variant, load_layout_set
from tpsrl.world.objects import object_kinds
from tpsrl.world.slots import CAPACITIES

FORMAT = "tpsrl-episode/1"


FARTHEST = 1000.0  # m, of a coordinate
LONGEST_TEXT = 300  # characters of an id or name
_LONGEST_LINE = 2**20  # bytes; an episode of 30 objects has 6000
_JOINT_SLACK = 0.05  # rad or m over the end of a joint's range
_LEAST_QUAT = 1e-3  # length of a quaternion that still says how something is turned


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
            UserError: a field is missing, of another type, not finite or too large, or names what
                does not exist; says which.
        """
        if not isinstance(record, dict):
            raise UserError(f"{where}: {_shown(record)} is not a record")
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
        _check_objects(episode, where)
        _check_home(episode, where)
        return episode


def _check_objects(episode: Episode, where: str) -> None:
    """Whether the objects are known ones that a home takes, and targets some of them."""
    count, most = len(episode.objects), max(CAPACITIES)
    if count > most:
        raise UserError(f"{where}: objects: {count} are given, a home takes {most} at most")
    for number, placed in enumerate(episode.objects):
        if placed.name not in object_kinds():
            raise unknown(f"{where}: objects[{number}].name", placed.name, object_kinds())
        if sum(part * part for part in placed.quat) < _LEAST_QUAT**2:
            raise UserError(f"{where}: objects[{number}].quat: {placed.quat} is not a rotation")
    for field, index, least in (
        *(("targets.object", t.object, 0) for t in episode.targets),
        ("held", episode.held, -1),
    ):
        if not least <= index < count:
            raise UserError(
                f"{where}: {field} is {index}, but the episode has objects 0 to {count - 1}"
            )
    moved: set[int] = set()
    for index in (target.object for target in episode.targets):
        if index in moved:
            raise UserError(f"{where}: targets.object: {index} has two goals, it can have one")
        moved.add(index)


def _check_home(episode: Episode, where: str) -> None:
    """Whether there is such a layout with such receptacles, and doors and drawers open so far."""
    set_name, _, name = episode.layout.partition("/")
    try:
        layout_set = load_layout_set(set_name)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    if is_variant(name):
        from tpsrl.world.rearranging import names  # which itself asks for episodes' layouts

        known: Sequence[str] = names(layout_set)
    else:
        known = list(layout_set.layouts)
    if name not in known:
        raise unknown(f"{where}: layout", episode.layout, [f"{set_name}/{one}" for one in known])
    links = {link.key: link for body in layout_set.bodies.values() for link in body.links}
    for marker, value in episode.articulation.items():
        if marker not in links:
            raise unknown(f"{where}: articulation", marker, links)
        low, high = links[marker].range
        if not low - _JOINT_SLACK <= value <= high + _JOINT_SLACK:
            raise UserError(
                f"{where}: articulation: {marker}: must be between {low:g} and {high:g}, "
                f"got {value:g}"
            )
    named = [(f"objects[{n}]", placed.receptacle) for n, placed in enumerate(episode.objects)]
    named += [(f"targets[{n}]", target.receptacle) for n, target in enumerate(episode.targets)]
    for place, receptacle in named:  # "" is none that has a name
        if receptacle and receptacle not in layout_set.receptacles:
            raise unknown(f"{where}: {place}.receptacle", receptacle, layout_set.receptacles)


def _shown(value: Any) -> str:
    """The beginning of what something reads, without reading all of it."""
    return f"{reprlib.repr(value):.80}"


def _text(record: Any, field: str) -> str:
    value = record[field]
    if not isinstance(value, str):
        raise TypeError(f"{field}: {_shown(value)} is not a string")
    if not value.isprintable():
        raise TypeError(f"{field}: {_shown(value)} has characters that cannot be printed")
    if len(value) > LONGEST_TEXT:
        raise TypeError(f"{field}: has {len(value):,} characters, must have {LONGEST_TEXT} at most")
    return value


def _index(record: Any, field: str) -> int:
    value = record[field]
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{field}: {_shown(value)} is not an integer")
    return value


def _records(record: Any, field: str) -> list[dict[str, Any]]:
    values = record[field]
    if not isinstance(values, list | tuple) or not all(isinstance(v, dict) for v in values):
        raise TypeError(f"{field}: {_shown(values)} is not a list of records")
    return list(values)


def _entries(record: Any, field: str) -> dict[str, Any]:
    value = record[field]
    if not isinstance(value, dict):
        raise TypeError(f"{field}: {_shown(value)} is not a record")
    return value


def _floats(record: Any, field: str, count: int) -> Any:
    values = record[field]
    if not isinstance(values, list | tuple) or len(values) != count:
        raise TypeError(f"{field}: expected {count} finite numbers, got {_shown(values)}")
    return tuple(_number(value, field) for value in values)


def _number(value: Any, field: str) -> float:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    if not plain or not abs(value) <= FARTHEST:
        raise TypeError(
            f"{field}: {_shown(value)} is not a number from -{FARTHEST:g} to {FARTHEST:g}"
        )
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
    episodes: list[Episode] = []
    with contextlib.closing(_records_of(path)) as records:
        header = next(records, None)
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise UserError(f"episodes: {path} is not a {FORMAT} file")
        count = header.get("num_episodes")
        if type(count) is not int or not 0 <= count <= MOST_EPISODES:
            raise UserError(
                f"episodes: {path}, line 1: num_episodes: {_shown(count)} is not an integer "
                f"from 0 to {MOST_EPISODES}"
            )
        for number, record in enumerate(records, start=2):
            if len(episodes) == count:
                raise UserError(f"episodes: {path} has more than the {count} episodes of line 1")
            episodes.append(Episode.from_json(record, f"episodes: {path}, line {number}"))
    if len(episodes) < count:
        raise UserError(f"episodes: {path} is truncated: {len(episodes)} of {count} episodes")
    return episodes


def _records_of(path: str | os.PathLike[str]) -> Generator[Any, None, None]:
    """What each line of a file says, read one after another."""
    for number, line in enumerate(_lines(path), start=1):
        where = f"episodes: {path}, line {number}"
        if len(line) > _LONGEST_LINE:
            raise UserError(f"{where} has more than {_LONGEST_LINE:,} bytes")
        try:
            yield files.parse_json(line)
        except UnicodeDecodeError as error:
            raise UserError(f"episodes: {path} is not an episode file ({error})") from None
        except ValueError as error:
            raise UserError(f"{where} is not JSON ({getattr(error, 'msg', error)})") from None


def _lines(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """The lines of a file, unpacked if it is a gzip file; of one too long its beginning."""
    where, size = files.user_path(path, "episodes"), 0
    if where.exists() and not where.is_file():
        raise UserError(f"episodes: {path} is not a file")
    try:
        with where.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            source: Any = gzip.GzipFile(fileobj=file) if packed else file
            while line := source.readline(_LONGEST_LINE + 1):
                size += len(line)
                if size > files.MOST_DATA:
                    raise UserError(f"episodes: {path} has more than {files.MOST_DATA:,} bytes")
                yield line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"episodes: {path} is corrupt or truncated ({error})") from None
    except OSError as error:
        raise UserError(f"episodes: cannot read {path}: {error.strerror or error}") from None
