"""Episode records and their files."""

import contextlib
import dataclasses
import gzip
import json
import math
import os
import zlib
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from tpsrl.config import MOST_EPISODES
from tpsrl.errors import UserError, unknown
from tpsrl.runtime import files, records
from tpsrl.world.categories import check_category
from tpsrl.world.layouts import is_variant, load_layout_set
from tpsrl.world.objects import object_kinds
from tpsrl.world.slots import CAPACITIES

FORMAT = "tpsrl-episode/1"

FARTHEST = 1000.0  # m, largest magnitude of a coordinate
LONGEST_TEXT = 300  # characters, of an id or name
_LONGEST_LINE = 2**20  # bytes; an episode of 30 objects has 6000
_JOINT_SLACK = 0.05  # rad or m that a position may be beyond the range of its joint
_LEAST_QUAT = 1e-3  # least norm of a quaternion

Coordinate = Annotated[float, msgspec.Meta(ge=-FARTHEST, le=FARTHEST)]
Point = tuple[Coordinate, Coordinate, Coordinate]
Name = Annotated[str, msgspec.Meta(max_length=LONGEST_TEXT)]


@dataclasses.dataclass(frozen=True, slots=True)
class ObjectPlacement:
    """Object at rest: YCB name, centre (m, world), quaternion (w, x, y, z), receptacle."""

    name: Name
    pos: Point
    quat: tuple[Coordinate, Coordinate, Coordinate, Coordinate]
    receptacle: Name


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """Object to move: index into `Episode.objects`, goal centre (m, world), goal receptacle."""

    object: int
    goal: Point
    receptacle: Name


@dataclasses.dataclass(frozen=True, slots=True)
class Episode:
    """One start of a scenario: everything that a simulator needs to reset a home.

    Receptacles are short names of the layout set ("chair", "table_1", ...). `layout` is
    "SET/NAME", e.g. "replica_cad/v3_sc3_staging_07". `articulation` maps marker names of
    `tpsrl.world.state.JOINTS` to start positions (rad or m); absent joints are closed. `held` is
    the index of the object that hangs upright from the cup at the start, -1 for none; its `pos` is
    ignored. `category` is the category to find, one of `tpsrl.world.categories.CATEGORIES`, or "".
    """

    id: Name
    scenario: Name
    split: Name
    layout: Name
    robot_start: Point
    objects: tuple[ObjectPlacement, ...]
    targets: tuple[Target, ...]
    articulation: dict[str, Coordinate] = dataclasses.field(default_factory=dict)
    held: int = -1
    category: Name = ""

    def to_json(self) -> dict[str, Any]:
        """Returns the record as JSON types, without `category` if it is empty."""
        record = dataclasses.asdict(self)
        if not self.category:
            del record["category"]
        return record

    @staticmethod
    def from_json(record: Any, where: str = "episode") -> "Episode":
        """Decodes an episode from a JSON record.

        Raises:
            UserError: a field is missing, of another type or too large, or names something that
                does not exist; the message names the field.
        """
        return _checked(records.decode(record, Episode, where), where)


def _checked(episode: Episode, where: str) -> Episode:
    for field in ("id", "scenario", "split"):
        text = getattr(episode, field)
        if not text.isprintable():
            raise UserError(f"{where}: {field}: {text!r} has unprintable characters")
    _check_objects(episode, where)
    _check_home(episode, where)
    if episode.category:
        check_category(episode.category, f"{where}: category")
    return episode


def _check_objects(episode: Episode, where: str) -> None:
    """Checks names, number and rotations of the objects, and that targets refer to them.

    Raises:
        UserError: a check fails.
    """
    count, most = len(episode.objects), max(CAPACITIES)
    if count > most:
        raise UserError(f"{where}: objects: must be at most {most}, got {count}")
    for number, placed in enumerate(episode.objects):
        if placed.name not in object_kinds():
            raise unknown(f"{where}: objects[{number}].name", placed.name, object_kinds())
        if math.hypot(*placed.quat) < _LEAST_QUAT:
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
            raise UserError(f"{where}: targets.object: {index} has two goals, must have one")
        moved.add(index)


def _check_home(episode: Episode, where: str) -> None:
    """Checks that layout, receptacles and joints exist and that joints are within their ranges.

    Raises:
        UserError: a check fails.
    """
    set_name, _, name = episode.layout.partition("/")
    try:
        layout_set = load_layout_set(set_name)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    if is_variant(name):
        from tpsrl.world.rearranging import names  # loads scipy and numba, needed only here

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
    for place, receptacle in named:  # "" stands for a place without a name
        if receptacle and receptacle not in layout_set.receptacles:
            raise unknown(f"{where}: {place}.receptacle", receptacle, layout_set.receptacles)


@dataclasses.dataclass(frozen=True, slots=True)
class _Header:
    """First line of a dataset."""

    num_episodes: Annotated[int, msgspec.Meta(ge=0, le=MOST_EPISODES)]


def save_episodes(path: str | os.PathLike[str], episodes: Sequence[Episode]) -> None:
    """Writes a `.jsonl.gz` dataset atomically: a header line, then one episode a line.

    Raises:
        UserError: the file cannot be written.
    """
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
        UserError: the file is absent, damaged or truncated, or a record is not a valid episode or
            repeats the id of an earlier one.
    """
    episodes = []
    with contextlib.closing(_records(path)) as found:
        for _, record in found:
            if isinstance(record, UserError):
                raise record
            episodes.append(record)
    return episodes


def read_episodes(path: str | os.PathLike[str]) -> tuple[list[Episode], dict[str, str]]:
    """Reads a `.jsonl.gz` dataset, skipping invalid records.

    Returns:
        The valid episodes, and the error of each invalid record by its line ("line 3").

    Raises:
        UserError: the file is absent, damaged or truncated.
    """
    episodes, wrong = [], {}
    for number, record in _records(path):
        if isinstance(record, UserError):
            line = f"line {number}"
            wrong[line] = str(record).partition(line)[2].lstrip(": ")
        else:
            episodes.append(record)
    return episodes, wrong


def _records(
    path: str | os.PathLike[str],
) -> Generator[tuple[int, Episode | UserError], None, None]:
    """Yields the number of each line of a dataset with its episode or its error."""
    lines_of: dict[str, int] = {}  # by id
    read = 0
    with contextlib.closing(_lines(path)) as lines:
        header = records.read(next(lines, b"0"), Any, f"episodes: {path}, line 1")
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise UserError(f"episodes: {path} is not a {FORMAT} file")
        count = records.decode(header, _Header, f"episodes: {path}, line 1").num_episodes
        for number, line in enumerate(lines, start=2):
            if read == count:
                raise UserError(f"episodes: {path} has more than the {count} episodes of line 1")
            where = f"episodes: {path}, line {number}"
            read += 1
            try:
                episode = _checked(records.read(line, Episode, where), where)
                first = lines_of.setdefault(episode.id, number)
                if first != number:
                    raise UserError(f"{where}: id: '{episode.id}' is the id of line {first} too")
            except UserError as error:
                yield number, error
            else:
                yield number, episode
    if read < count:
        raise UserError(f"episodes: {path} is truncated: {read} of {count} episodes")


def _lines(path: str | os.PathLike[str]) -> Generator[bytes, None, None]:
    """Yields the lines of a file, decompressed if it is a gzip file."""
    where, size, number = files.user_path(path, "episodes"), 0, 0
    if where.exists() and not where.is_file():
        raise UserError(f"episodes: {path} is not a file")
    try:
        with where.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            source: Any = gzip.GzipFile(fileobj=file) if packed else file
            while line := source.readline(_LONGEST_LINE + 1):
                size, number = size + len(line), number + 1
                if len(line) > _LONGEST_LINE:
                    raise UserError(
                        f"episodes: {path}, line {number} has more than {_LONGEST_LINE:,} bytes"
                    )
                if size > files.MOST_DATA:
                    raise UserError(f"episodes: {path} has more than {files.MOST_DATA:,} bytes")
                yield line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"episodes: {path} is corrupt or truncated ({error})") from None
    except OSError as error:
        raise UserError(f"episodes: cannot read {path}: {error.strerror or error}") from None
