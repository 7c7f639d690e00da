"""Scenarios: what the episodes of a task are drawn from, one YAML file each.

`configs/scenario` has those of the benchmark, as facts of habitat-lab's dataset configurations
(0.3.3, hab/*.yaml), and the same with `reachable`; `configs/dataset` those from which the start
states of single skills are drawn.
"""

import dataclasses
import functools
import hashlib
import json
import re
import zlib
from collections.abc import Iterable

from tpsrl import config
from tpsrl.errors import UserError, unknown
from tpsrl.world.layouts import load_layout_set
from tpsrl.world.objects import REARRANGE_EASY, TIDY_HOUSE, object_kinds
from tpsrl.world.slots import CAPACITIES
from tpsrl.world.state import JOINTS

# The drawers with a receptacle, and the marker that opens each.
DRAWERS = {
    "drawer_right_top": "cab_push_point_5",
    "drawer_middle_top": "cab_push_point_6",
    "drawer_left_top": "cab_push_point_7",
}
FRIDGE = "fridge_push_point"

# What a definition may call by one name.
OBJECT_SETS = {"tidy_house": TIDY_HOUSE, "rearrange_easy": REARRANGE_EASY}
RECEPTACLE_SETS = {
    "open_receptacles": (
        "chair",
        "table_1",
        "table_2",
        "tv_stand",
        "sink",
        "counter_right",
        "counter_left",
        "sofa",
    ),
    "counters": ("counter_left", "counter_right"),
    "drawers": tuple(DRAWERS),
}
_LAYOUT_SET = "replica_cad"  # whose receptacles and markers definitions name
NO_TARGETS = "targets: none is given, but an episode needs one to move"

_LONGEST_TITLE = 100  # characters
_NARROWEST = 0.01  # share of a receptacle's sides in which centres may have to be
_NEAREST_M = 0.5  # to floor that a start may have to be; no surface is all nearer than 0.35
_FARTHEST_M = 20.0  # no home is so long


@dataclasses.dataclass(frozen=True, slots=True)
class TargetDraw:
    """How a target is drawn: its kinds, where it starts, where it is to go.

    `count` targets are drawn so. `opened` says by marker how far doors and drawers are open
    (rad, m) when the robot comes for the object and when it brings it, where that differs from the
    episode's start.
    """

    objects: list[str] = dataclasses.field(default_factory=list)
    starts: list[str] = dataclasses.field(default_factory=list)
    goals: list[str] = dataclasses.field(default_factory=list)
    opened: dict[str, float] = dataclasses.field(default_factory=dict)
    count: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Scenario:
    """A task, and what its episodes are drawn from; docs/add_a_scenario.md explains each entry.

    Each episode has `num_objects`, the targets first, then `clutter` that stands on `clutter_on`.
    `articulation` is the start of doors and drawers by marker (rad, m; absent: closed).
    `target_region` is the middle share of a receptacle's sides in which starts and goals of
    targets have their centres (HAB's sample_region_ratio; 1 where none is given), `at_most` how
    many objects a receptacle takes beside targets. `clutter_first` says that targets find their
    place among the clutter, not the other way round, `floor_within_m` how near starts and goals of
    targets are to floor on which the base can stand (HAB's nav_to_min_distance; any distance where
    none is given), `apart_m` how far a goal is at least from its start (0.5 in habitat-lab's
    generator, but published episodes have less). `reachable` keeps only what the arm can get at: no
    counterpart in HAB.
    `seed_number` is part of the seed, by default made of the name.

    Once made, names of sets have become what they stand for, and every target has an entry of its
    own. One without a name is empty, the default of settings.

    Raises:
        UserError: an entry names what does not exist, or is out of range; says which.
    """

    name: str = ""
    title: str = config.option("", "title in reports")
    num_objects: int = config.option(30, "number of objects")
    seed_number: int | None = config.option(
        None, "number in the seed (default: made from the name)"
    )
    targets: list[TargetDraw] = config.entries(list, "target objects, starts and goals")
    clutter: list[str] = config.entries(list, "kinds of other objects")
    clutter_on: list[str] = config.entries(list, "receptacles of other objects")
    articulation: dict[str, float] = config.entries(
        dict, "initial position of doors and drawers (rad, m)"
    )
    target_region: dict[str, float] = config.entries(
        dict, "middle fraction of a receptacle for targets"
    )
    at_most: dict[str, int] = config.entries(
        dict, "maximum number of other objects on a receptacle"
    )
    clutter_first: bool = config.option(False, "place the clutter before the targets")
    floor_within_m: float | None = config.option(
        None, "maximum distance of starts and goals from free floor (m)"
    )
    apart_m: float = config.option(0.0, "minimum distance of a goal from its start (m)")
    reachable: bool = config.option(False, "keep only starts and goals that the arm can reach")

    def __post_init__(self) -> None:
        if not self.name:
            return
        where = f"scenario {self.name}: "
        check_name(self.name, f"{where}name")
        if not self.title.isprintable() or len(self.title) > _LONGEST_TITLE:
            raise UserError(
                f"{where}title: {self.title[:_LONGEST_TITLE]!r} cannot be printed, or has more "
                f"than {_LONGEST_TITLE} characters"
            )
        if not self.targets:
            raise UserError(f"{where}{NO_TARGETS}")
        targets = []
        for index, draw in enumerate(self.targets):
            targets += _targets(draw, f"{where}targets[{index}].")
            if len(targets) > max(CAPACITIES):
                raise UserError(
                    f"{where}targets: {len(targets)} or more, a home takes {max(CAPACITIES)} "
                    "objects at most"
                )
        _check_range(self.num_objects, len(targets), max(CAPACITIES), f"{where}num_objects")
        entries = {
            "title": self.title or self.name.replace("_", " ").title(),
            "seed_number": zlib.crc32(self.name.encode())
            if self.seed_number is None
            else self.seed_number,
            "targets": targets,
            "clutter": _objects(self.clutter, f"{where}clutter"),
            "clutter_on": _receptacles(self.clutter_on, f"{where}clutter_on"),
        }
        for name, value in entries.items():
            object.__setattr__(self, name, value)
        self._check(where)

    def _check(self, where: str) -> None:
        _check_range(self.own_seed, 0, config.MOST_WHOLE, f"{where}seed_number")
        if self.clutter and not self.clutter_on:
            raise UserError(f"{where}clutter_on: names no receptacle for the clutter")
        _check_joints(self.articulation, f"{where}articulation")
        for field, values in (("target_region", self.target_region), ("at_most", self.at_most)):
            _check_names(values, _receptacle_names(), f"{where}{field}")
        for name, share in self.target_region.items():
            _check_range(share, _NARROWEST, 1.0, f"{where}target_region.{name}")
        if self.floor_within_m is not None:
            _check_range(self.floor_within_m, _NEAREST_M, _FARTHEST_M, f"{where}floor_within_m")
        _check_range(self.apart_m, 0.0, _FARTHEST_M, f"{where}apart_m")
        for name, count in self.at_most.items():
            _check_range(count, 0, config.MOST_WHOLE, f"{where}at_most.{name}")

    @property
    def own_seed(self) -> int:
        """`seed_number`, which is given or made of the name."""
        return self.seed_number or 0

    @property
    def num_targets(self) -> int:
        """Objects to be moved; they come first in an episode."""
        return len(self.targets)

    @property
    def digest(self) -> str:
        """Eight hex digits of everything that an episode depends on."""
        drawn = dataclasses.asdict(self)
        del drawn["title"], drawn["num_objects"]
        return hashlib.sha256(json.dumps(drawn, sort_keys=True).encode()).hexdigest()[:8]

    def __hash__(self) -> int:
        return hash(self.name)

    def opened(self, target: TargetDraw) -> dict[str, float]:
        """Doors and drawers by marker when a target is grasped or brought (rad, m)."""
        return {**self.articulation, **target.opened}


@functools.cache
def load_scenario(name: str) -> Scenario:
    """A scenario or dataset of ours by its name.

    Raises:
        UserError: there is none; names the nearest.
    """
    groups = {group: config.preset_names(group) for group in ("scenario", "dataset")}
    for group, names in groups.items():
        if name in names:
            return config.load_preset(group, name, Scenario)
    raise unknown("scenario", name, [known for names in groups.values() for known in names])


def check_name(name: str, field: str) -> None:
    """Whether a scenario may be called so.

    Raises:
        UserError: it has other characters, or too many; names the field.
    """
    if not re.fullmatch(r"[A-Za-z0-9][\w-]*", name) or len(name) > _LONGEST_TITLE:
        raise UserError(
            f"{field}: only letters, digits, '_' and '-', as in my_scenario, and at most "
            f"{_LONGEST_TITLE} of them"
        )


def benchmark_names() -> list[str]:
    """The scenarios of the Home Assistant Benchmark; ours that ask for reach are none of them."""
    names = config.preset_names("scenario")
    return [name for name in names if not load_scenario(name).reachable]


def _targets(draw: TargetDraw, where: str) -> list[TargetDraw]:
    """One entry for each of the targets that are drawn so."""
    _check_range(draw.count, 1, max(CAPACITIES), f"{where}count")
    objects = _objects(draw.objects, f"{where}objects")
    starts = _receptacles(draw.starts, f"{where}starts")
    goals = _receptacles(draw.goals, f"{where}goals")
    for field, names in (("objects", objects), ("starts", starts), ("goals", goals)):
        if not names:
            raise UserError(f"{where}{field}: names none")
    _check_joints(draw.opened, f"{where}opened")
    return [TargetDraw(objects, starts, goals, draw.opened)] * draw.count


def _objects(names: Iterable[str], where: str) -> list[str]:
    return _expanded(names, OBJECT_SETS, object_kinds(), where)


def _receptacles(names: Iterable[str], where: str) -> list[str]:
    return _expanded(names, RECEPTACLE_SETS, _receptacle_names(), where)


def _receptacle_names() -> list[str]:
    return list(load_layout_set(_LAYOUT_SET).receptacles)


def _expanded(
    names: Iterable[str], sets: dict[str, tuple[str, ...]], single: Iterable[str], where: str
) -> list[str]:
    """Every name once, those of sets replaced by their members, in order."""
    names = list(names)
    _check_names(names, [*sets, *single], where)
    return list(dict.fromkeys(one for name in names for one in sets.get(name, (name,))))


def _check_names(names: Iterable[str], valid: Iterable[str], where: str) -> None:
    valid = list(valid)
    for name in names:
        if name not in valid:
            raise unknown(where, name, valid)


def _check_joints(opened: dict[str, float], where: str) -> None:
    """Every door and drawer exists, and opens so far."""
    _check_names(opened, JOINTS, where)
    for marker, value in opened.items():
        low, high = load_layout_set(_LAYOUT_SET).link(marker)[1].range
        _check_range(value, low, high, f"{where}.{marker}")


def _check_range(value: float, low: float, high: float, where: str) -> None:
    if not low <= value <= high:
        raise UserError(f"{where}: must be between {low} and {high}, got {value}")
