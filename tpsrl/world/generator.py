"""Generation of the episodes of scenarios from seeds.

Episode `index` of a seed does not depend on the number of episodes: each episode has its own random
generator. Consecutive indices cycle through the layouts of the split, so that any 21 consecutive
episodes of the validation split cover all of its layouts.
"""

import collections
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tpsrl.errors import RunError, UserError, unknown
from tpsrl.world import rearranging
from tpsrl.world.access import blocked, cup_point, in_reach, layout_suits
from tpsrl.world.collision import ARM_SPHERES, REST, ArmChecker
from tpsrl.world.doors import joints_at, moved_receptacles
from tpsrl.world.episode import Episode, ObjectPlacement, Target
from tpsrl.world.floor import CELL_M, Joints, floor_map, main_floor, random_base_pose
from tpsrl.world.geometry import yaw_quat
from tpsrl.world.layouts import PlacedReceptacle, load_layout_set
from tpsrl.world.objects import ObjectKind, object_kind
from tpsrl.world.placement import Crowd, draw_on, footprint, furniture
from tpsrl.world.reach import static_bodies
from tpsrl.world.scenarios import Scenario, TargetDraw
from tpsrl.world.slots import CAPACITIES

VERSION = 7  # of the generated episodes; part of the cache's key
DROP_M = 0.001  # objects start this high above a surface before they settle
_MARGIN_M = 0.002  # least gap to objects and furniture; habitat-lab's generator forbids contact
_INTO_M = 0.008  # most overlap with the supporting body; 0.01 m in habitat-lab's snap_down
_ARM_MARGIN_M = 0.02  # clearance of the resting arm from furniture at the robot's start
# As in habitat-lab's ObjectSampler: placements tried for an object, and objects tried.
_PLACEMENTS, _PAIRINGS = 50, 100
_ROBOT_TRIES = 300
_EPISODE_TRIES = 60
_REARRANGED_TRIES = 3  # layouts tried for an episode of the split `rearranged`
_SPLITS = {"train": 0, "val": 1, rearranging.SPLIT: 2}


# Lets a draft settle in a simulator; returns the settled episode, or the reason for rejection.
Settle = Callable[[Episode], Episode | str]


class Rejected(Exception):
    """Raised if a draft cannot be completed; the message is a short reason."""


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """Distribution of generated episodes: scenario, split, seed, and objects per episode."""

    scenario: Scenario
    split: str
    seed: int = 0
    num_objects: int = 30
    layout_set: str = "replica_cad"

    def check(self) -> None:
        """Checks the fields.

        Raises:
            UserError: a field is out of range; the message names the field.
        """
        if self.split not in _SPLITS:
            raise unknown("split", self.split, _SPLITS)
        if self.seed < 0:
            raise UserError(f"seed: must be at least 0, got {self.seed}")
        least, most = self.scenario.num_targets, max(CAPACITIES)
        if not least <= self.num_objects <= most:
            raise UserError(
                f"num_objects: must be between {least} and {most}, got {self.num_objects}"
            )
        if self.num_objects > least and not self.scenario.clutter:
            raise UserError(
                f"scenario {self.scenario.name}: clutter: no objects are given, but of "
                f"num_objects={self.num_objects} only {least} are targets"
            )


def make_episode(
    source: Source, index: int, settle: Settle
) -> tuple[Episode, collections.Counter[str]]:
    """Generates episode `index` of a source.

    Returns:
        The episode, and the number of rejected drafts and placements by reason.

    Raises:
        UserError: a field of the source is out of range.
        RunError: no layout is suitable, or all of many drafts were rejected.
    """
    source.check()
    scenario = source.scenario
    seeds = (source.seed, scenario.own_seed, _SPLITS[source.split], source.num_objects, index)
    rng = np.random.default_rng(seeds)
    reasons: collections.Counter[str] = collections.Counter()
    name = f"{scenario.name}_{source.split}_{source.seed}_{index:05d}"
    drafts = 0
    for layout in _layouts(source, index):
        for _ in range(_EPISODE_TRIES):
            drafts += 1
            try:
                draft = _Draft(layout, scenario, rng, reasons)
                settled = settle(draft.episode(name, source))
            except Rejected as rejected:
                settled = str(rejected)
            if isinstance(settled, Episode):
                return settled, reasons
            reasons[settled.partition(" (")[0]] += 1
    if not drafts:
        where = f"scenario {scenario.name}"
        raise RunError(f"{where}: no layout of the split '{source.split}' has room for it")
    worst = ", ".join(f"{why} {count}" for why, count in reasons.most_common(3))
    raise RunError(f"episode {name}: all {drafts} drafts were rejected ({worst})")


def _layouts(source: Source, index: int) -> Iterator[str]:
    """Returns the layouts to try for an index, in order.

    It is one layout; for a `reachable` scenario the next suitable one, if any. In rearranged
    apartments, some of whose furniture the robot cannot reach, it is the next few suitable ones.
    """
    names = _names(source.layout_set, source.split)
    at = index % len(names)
    layouts = (f"{source.layout_set}/{name}" for name in names[at:] + names[:at])
    moved = source.split == rearranging.SPLIT
    if moved or source.scenario.reachable:
        layouts = (layout for layout in layouts if layout_suits(source.scenario, layout))
    return itertools.islice(layouts, _REARRANGED_TRIES if moved else 1)


def _names(layout_set: str, split: str) -> list[str]:
    """Returns the names of a split's layouts in the order of use."""
    every = load_layout_set(layout_set)
    if split == rearranging.SPLIT:
        return rearranging.names(every)
    return [layout.name for layout in every.split(split)]


class _Draft:
    """One attempt at an episode in one layout, with the procedure of habitat-lab's generator.

    First, start and goal receptacles of each target are drawn, all instances equally likely. An
    object is placed uniformly such that its centre is over the receptacle's box, without collisions
    (`ObjectSampler.sample_placement`). If no placement is free, another kind of object is tried,
    for clutter also another receptacle (`ObjectSampler.sample`).
    """

    def __init__(
        self,
        layout: str,
        scenario: Scenario,
        rng: np.random.Generator,
        reasons: collections.Counter[str],
    ) -> None:
        self._layout, self._scenario, self._rng = layout, scenario, rng
        self._reasons = reasons
        joints = joints_at(scenario.articulation)
        self._receptacles = moved_receptacles(layout, joints)
        self._joints = joints
        self._furniture = furniture(layout, joints)
        self._crowd = Crowd([])
        self._clutter: collections.Counter[tuple[str, str]] = collections.Counter()

    def episode(self, name: str, source: Source) -> Episode:
        """Draws the whole episode: targets and clutter, goals, then the robot's start.

        Raises:
            Rejected: something does not fit, or a start or goal is blocked.
        """
        draws = self._scenario.targets
        starts = [self._one_of(draw.starts) for draw in draws]
        goals = [self._one_of(draw.goals) for draw in draws]
        clutter = source.num_objects - len(draws)
        first = clutter if self._scenario.clutter_first else 0
        before = [self._clutter_object() for _ in range(first)]
        objects = [self._object(draw, on) for draw, on in zip(draws, starts, strict=True)]
        objects += before + [self._clutter_object() for _ in range(clutter - first)]
        targets = [
            self._goal(index, objects[index], on, draws[index]) for index, on in enumerate(goals)
        ]
        if self._scenario.reachable:
            where = blocked(self._scenario, self._layout, objects, targets)
            if where:
                raise Rejected(f"{where} blocked")
        return Episode(
            id=name,
            scenario=source.scenario.name,
            split=source.split,
            layout=self._layout,
            robot_start=robot_start(self._layout, self._joints, self._rng, self._reasons),
            objects=tuple(objects),
            targets=tuple(targets),
            articulation=dict(self._scenario.articulation),
        )

    def _one_of(self, names: Sequence[str]) -> PlacedReceptacle:
        choices = [r for r in self._receptacles if r.name in names]
        return choices[self._rng.integers(len(choices))]

    def _clutter_object(self) -> ObjectPlacement:
        """Places a clutter object on a receptacle that is not full."""
        for _ in range(_PAIRINGS):
            on = self._one_of(self._scenario.clutter_on)
            most = self._scenario.at_most.get(on.name, max(CAPACITIES))
            if self._clutter[on.name, on.body] >= most:
                self._reasons[f"start on {on.name}, which is full"] += 1
                continue
            placed = self._try(self._scenario.clutter, on, None)
            if placed is not None:
                self._clutter[on.name, on.body] += 1
                return placed
        raise Rejected("no free start")

    def _object(self, draw: TargetDraw, on: PlacedReceptacle) -> ObjectPlacement:
        """Places the object of a target on its receptacle."""
        for _ in range(_PAIRINGS):
            placed = self._try(draw.objects, on, draw)
            if placed is not None:
                return placed
        raise Rejected(f"no free start on {on.name}")

    def _try(
        self, names: Sequence[str], on: PlacedReceptacle, draw: TargetDraw | None
    ) -> ObjectPlacement | None:
        """Draws a kind of object and a place for it on a receptacle; None if no place is free."""
        kind = object_kind(names[int(self._rng.integers(len(names)))])
        for _ in range(_PLACEMENTS):
            yaw = float(self._rng.uniform(-math.pi, math.pi))
            spot = self._free_spot(on, kind, yaw, draw, "start")
            if spot is not None:
                return ObjectPlacement(kind.name, spot, yaw_quat(yaw), on.name)
        return None

    def _goal(
        self, index: int, start: ObjectPlacement, on: PlacedReceptacle, draw: TargetDraw
    ) -> Target:
        """Draws a free goal with the object's yaw kept and all other objects at their starts."""
        kind = object_kind(start.name)
        yaw = 2 * math.atan2(start.quat[3], start.quat[0])
        for _ in range(_PLACEMENTS):
            spot = self._free_spot(on, kind, yaw, draw, "goal")
            if spot is not None:
                if math.dist(spot, start.pos) < self._scenario.apart_m:
                    raise Rejected(f"goal within {self._scenario.apart_m} m of its start")
                return Target(index, spot, on.name)
        raise Rejected(f"no free goal on {on.name}")

    def _free_spot(
        self,
        on: PlacedReceptacle,
        kind: ObjectKind,
        yaw: float,
        draw: TargetDraw | None,
        what: str,
    ) -> tuple[float, float, float] | None:
        """Draws and reserves a place on a receptacle; returns the object's centre, None if taken.

        Places of a target (`draw`) are within the target region of the receptacle.
        """
        region = 1.0 if draw is None else self._scenario.target_region.get(on.name, 1.0)
        x, y = (float(v) for v in draw_on(on, self._rng, region))
        prism = footprint(kind, x, y, yaw, on.surface)
        others = furniture(self._layout, self._joints, without=on.body)
        fits = others.fits(prism, _MARGIN_M) and self._furniture.fits(prism, -_INTO_M)
        if not fits:
            self._reasons[f"{what} in furniture on {on.name}"] += 1
            return None
        if not self._crowd.fits(prism, _MARGIN_M):
            self._reasons[f"{what} taken on {on.name}"] += 1
            return None
        centre = (x, y, on.surface + kind.half[2] + DROP_M)
        if draw is not None and not self._accessible(on, centre, kind, draw, what):
            return None
        self._crowd.add(prism)
        return centre

    def _accessible(
        self,
        on: PlacedReceptacle,
        centre: tuple[float, float, float],
        kind: ObjectKind,
        draw: TargetDraw,
        what: str,
    ) -> bool:
        """Returns whether a target's start or goal meets `floor_within_m` and `reachable`."""
        near = self._scenario.floor_within_m
        if near is not None and self._floor_distance(centre) >= near:
            self._reasons[f"{what} far from the floor on {on.name}"] += 1
            return False
        if self._scenario.reachable:
            top = cup_point(centre, kind)
            if not in_reach(self._scenario, self._layout, on.marker, top, draw):
                self._reasons[f"{what} out of reach on {on.name}"] += 1
                return False
        return True

    def _floor_distance(self, point: Sequence[float]) -> float:
        """Returns the horizontal distance (m) from a point to the main floor."""
        x, y = _floor(self._layout, self._joints)
        return float(np.hypot(x - point[0], y - point[1]).min())


@functools.lru_cache(maxsize=4)
def _floor(layout: str, joints: Joints) -> tuple[np.ndarray, np.ndarray]:
    """Returns x (n,) and y (n,) of the main floor's cells, metres."""
    x0, y0 = floor_map(layout).origin
    cells = np.argwhere(main_floor(layout, joints))
    return x0 + (cells[:, 1] + 0.5) * CELL_M, y0 + (cells[:, 0] + 0.5) * CELL_M


def robot_start(
    layout: str,
    joints: Joints,
    rng: np.random.Generator,
    reasons: collections.Counter[str] | None = None,
) -> tuple[float, float, float]:
    """Draws a base pose on the main floor at which the resting arm is clear of furniture.

    Args:
        layout: "SET/NAME"
        joints: positions of doors and drawers
        rng: generator that draws the pose
        reasons: counts rejected poses if given

    Raises:
        Rejected: no pose was found after many draws.
    """
    for _ in range(_ROBOT_TRIES):
        base = random_base_pose(layout, rng, joints)
        near, _ = static_bodies(layout, joints).seen_from(np.array(base))
        if ArmChecker(ARM_SPHERES, near).free(REST, _ARM_MARGIN_M):
            return base
        if reasons is not None:
            reasons["robot's arm in furniture"] += 1
    raise Rejected("no free robot start")
