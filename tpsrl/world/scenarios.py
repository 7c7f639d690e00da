"""Scenarios: distributions of a task's episodes, one YAML file each.

`configs/scenario` has the scenarios of the benchmark, with the values of habitat-lab's dataset
configurations (0.3.3, hab/*.yaml), and their variants with `reachable`. `configs/dataset` has the
scenarios from which the start states of single skills are drawn.
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

# Drawers that are receptacles, and the marker of each.
DRAWERS = {
    "drawer_right_top": "cab_push_point_5",
    "drawer_middle_top": "cab_push_point_6",
    "drawer_left_top": "cab_push_point_7",
}
FRIDGE = "fridge_push_point"

# Names that stand for several objects or receptacles in a definition.
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
_LAYOUT_SET = "replica_cad"  # the set with the receptacles and markers of the definitions
NO_TARGETS = "targets: must have at least one entry, got none"

_LONGEST_TITLE = 100  # characters
_NARROWEST = 0.01  # least value of `target_region`
_NEAREST_M = 0.5  # least value of `floor_within_m`; every surface has parts farther than 0.35 m
_FARTHEST_M = 20.0  # greatest distance setting, longer than any apartment


@dataclasses.dataclass(frozen=True, slots=True)
class TargetDraw:
    """Distribution of `count` targets: kinds of objects, start and goal receptacles.

    `opened` has by marker the positions (rad, m) of doors and drawers while the robot grasps and
    places the object, where they differ from the start of the episode.
    """

    objects: list[str] = dataclasses.field(default_factory=list)
    starts: list[str] = dataclasses.field(default_factory=list)
    goals: list[str] = dataclasses.field(default_factory=list)
    opened: dict[str, float] = dataclasses.field(default_factory=dict)
    count: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class Scenario:
    """Distribution of a task's episodes; docs/add_a_scenario.md explains each entry.

    Each episode has `num_objects` objects: first the targets, then objects of the kinds in
    `clutter` on the receptacles in `clutter_on`. The other entries are:

    - `articulation`: start positions of doors and drawers by marker (rad, m); absent means closed.
    - `target_region`: middle share of a receptacle's sides for the centres of starts and goals
      (HAB's sample_region_ratio), by default 1.
    - `at_most`: maximum number of objects on a receptacle beside targets.
    - `clutter_first`: whether the clutter is placed before the targets.
    - `floor_within_m`: upper bound of the distance of starts and goals from the floor on which the
      base can stand (HAB's nav_to_min_distance), by default none.
    - `apart_m`: least distance of a goal from its start; 0.5 in habitat-lab's generator, but
      published episodes have less.
    - `reachable`: keeps only starts and goals that the arm can reach; no counterpart in HAB.
    - `seed_number`: part of the seed, by default computed from the name.

    The constructor replaces names of sets by their members and gives every target its own entry.
    A scenario without a name is empty, which is the default of settings.

    Raises:
        UserError: an entry is out of range or names something that does not exist; the message
            names the entry.
    """

    name: str = ""
    title: str = config.option("", "title in reports")
    num_objects: int = config.option(30, "number of objects")
    seed_number: int | None = config.option(
        None, "number of the scenario in random seeds (default: derived from the name)"
    )
    targets: list[TargetDraw] = config.entries(list, "target objects, starts and goals")
    clutter: list[str] = config.entries(list, "kinds of other objects")
    clutter_on: list[str] = config.entries(list, "receptacles of other objects")
    articulation: dict[str, float] = config.entries(
        dict, "initial position of doors and drawers (rad, m)"
    )
    target_region: dict[str, float] = config.entries(
        dict, "fraction of a receptacle, around its middle, for targets"
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
                    f"{where}targets: must be at most {max(CAPACITIES)}, got {len(targets)} or more"
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
            raise UserError(f"{where}clutter_on: clutter needs at least one receptacle, got none")
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
        """`seed_number`, either given or computed from the name."""
        return self.seed_number or 0

    @property
    def num_targets(self) -> int:
        """Number of objects to move, which come first in an episode."""
        return len(self.targets)

    @property
    def digest(self) -> str:
        """Hash, eight hex digits, of all entries on which an episode depends."""
        drawn = dataclasses.asdict(self)
        del drawn["title"], drawn["num_objects"]
        return hashlib.sha256(json.dumps(drawn, sort_keys=True).encode()).hexdigest()[:8]

    def __hash__(self) -> int:
        return hash(self.name)

    def opened(self, target: TargetDraw) -> dict[str, float]:
        """Returns positions of doors and drawers while a target is grasped or placed (rad, m)."""
        return {**self.articulation, **target.opened}


@functools.cache
def load_scenario(name: str) -> Scenario:
    """Loads a scenario from `configs/scenario` or `configs/dataset`; cached.

    Raises:
        UserError: the name is unknown; the message names the nearest one.
    """
    groups = {group: config.preset_names(group) for group in ("scenario", "dataset")}
    for group, names in groups.items():
        if name in names:
            return config.load_preset(group, name, Scenario)
    raise unknown("scenario", name, [known for names in groups.values() for known in names])


def check_name(name: str, field: str) -> None:
    """Checks the name of a scenario.

    Raises:
        UserError: the name has invalid characters or is too long; the message names the field.
    """
    if not re.fullmatch(r"[A-Za-z0-9][\w-]*", name) or len(name) > _LONGEST_TITLE:
        raise UserError(
            f"{field}: must have letters, digits, '_' and '-' only, as in my_scenario, and at most "
            f"{_LONGEST_TITLE} characters"
        )


def benchmark_names() -> list[str]:
    """Returns the scenarios of the Home Assistant Benchmark: those without `reachable`."""
    names = config.preset_names("scenario")
    return [name for name in names if not load_scenario(name).reachable]


def _targets(draw: TargetDraw, where: str) -> list[TargetDraw]:
    """Checks and expands a draw into one entry for each of its targets."""
    _check_range(draw.count, 1, max(CAPACITIES), f"{where}count")
    objects = _objects(draw.objects, f"{where}objects")
    starts = _receptacles(draw.starts, f"{where}starts")
    goals = _receptacles(draw.goals, f"{where}goals")
    for field, names in (("objects", objects), ("starts", starts), ("goals", goals)):
        if not names:
            raise UserError(f"{where}{field}: must have at least one entry, got none")
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
    """Replaces names of sets by their members; keeps the order and drops duplicates."""
    names = list(names)
    _check_names(names, [*sets, *single], where)
    return list(dict.fromkeys(one for name in names for one in sets.get(name, (name,))))


def _check_names(names: Iterable[str], valid: Iterable[str], where: str) -> None:
    valid = list(valid)
    for name in names:
        if name not in valid:
            raise unknown(where, name, valid)


def _check_joints(opened: dict[str, float], where: str) -> None:
    """Checks that the doors and drawers exist and that their positions are in range."""
    _check_names(opened, JOINTS, where)
    for marker, value in opened.items():
        low, high = load_layout_set(_LAYOUT_SET).link(marker)[1].range
        _check_range(value, low, high, f"{where}.{marker}")


def _check_range(value: float, low: float, high: float, where: str) -> None:
    if not low <= value <= high:
        raise UserError(f"{where}: must be between {low} and {high}, got {value}")
