"""Draws episodes of HAB's scenarios from seeds.

Episode `index` of a seed is the same whatever the number of episodes: every one has a random
generator of its own. Layouts of the split take turns, so that any 21 neighbours of the validation
split cover it.
"""

import collections
import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from tpsrl.errors import RunError, UserError, unknown
from tpsrl.world.collision import ARM_SPHERES, REST, ArmChecker, object_bodies
from tpsrl.world.episode import Episode, ObjectPlacement, Target
from tpsrl.world.floor import random_base_pose
from tpsrl.world.geometry import yaw_quat
from tpsrl.world.home import POOLS, SlotPools
from tpsrl.world.layouts import LayoutSet, PlacedReceptacle, load_layout_set, placed_receptacles
from tpsrl.world.objects import TIDY_HOUSE, ObjectKind, object_kind
from tpsrl.world.placement import Crowd, Prism, any_yaw, draw_on, footprint, furniture
from tpsrl.world.reach import reachable, static_bodies

VERSION = 2  # of what comes out; part of the cache's key
DROP_M = 0.001  # objects are put this high over a surface before they settle
_MARGIN_M = 0.005  # between objects, and from furniture
_ARM_MARGIN_M = 0.02  # of the rest arm from furniture at the robot's start
_PLACEMENT_TRIES = 300
_EPISODE_TRIES = 60
_SPLITS = {"train": 0, "val": 1}


@dataclasses.dataclass(frozen=True, slots=True)
class Scenario:
    """What a scenario draws: object names, number of targets, receptacles of starts and goals."""

    number: int  # part of the seed
    objects: tuple[str, ...]
    num_targets: int
    starts: tuple[str, ...]
    goals: tuple[str, ...]


_OPEN = (
    "chair",
    "table_1",
    "table_2",
    "tv_stand",
    "sink",
    "counter_right",
    "counter_left",
    "sofa",
)
# FACTS of habitat-lab, datasets/rearrange/configs/hab.
SCENARIOS = {"tidy_house": Scenario(0, TIDY_HOUSE, 5, _OPEN, _OPEN)}

# Lets a draft come to rest in a simulator: the settled episode, or why it is no good.
Settle = Callable[[Episode], Episode | str]


class Rejected(Exception):
    """A draft that cannot be completed; says why in one word."""


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """Where episodes come from: scenario, split, seed, and objects an episode has."""

    scenario: str
    split: str
    seed: int = 0
    num_objects: int = 30
    layout_set: str = "replica_cad"

    def check(self) -> None:
        """Raises a `UserError` that names the field which is out of range."""
        if self.scenario not in SCENARIOS:
            raise unknown("scenario", self.scenario, SCENARIOS)
        if self.split not in _SPLITS:
            raise unknown("split", self.split, _SPLITS)
        if self.seed < 0:
            raise UserError(f"seed: must be at least 0, got {self.seed}")
        least, most = SCENARIOS[self.scenario].num_targets, max(POOLS)
        if not least <= self.num_objects <= most:
            raise UserError(
                f"num_objects: must be between {least} and {most}, got {self.num_objects}"
            )


def make_episode(
    source: Source, index: int, settle: Settle
) -> tuple[Episode, collections.Counter[str]]:
    """Episode `index` of a source, and how many drafts were thrown away for which reason.

    Raises:
        UserError: a field of the source is out of range.
        RunError: no draft was good after many tries.
    """
    source.check()
    layout_set = load_layout_set(source.layout_set)
    layouts = layout_set.split(source.split)
    layout = f"{source.layout_set}/{layouts[index % len(layouts)].name}"
    scenario = SCENARIOS[source.scenario]
    seeds = (source.seed, scenario.number, _SPLITS[source.split], source.num_objects, index)
    rng = np.random.default_rng(seeds)
    reasons: collections.Counter[str] = collections.Counter()
    name = f"{source.scenario}_{source.split}_{source.seed}_{index:05d}"
    for _ in range(_EPISODE_TRIES):
        try:
            draft = _Draft(layout_set, layout, scenario, rng, reasons)
            settled = settle(draft.episode(name, source))
        except Rejected as rejected:
            settled = str(rejected)
        if isinstance(settled, Episode):
            return settled, reasons
        reasons[settled] += 1
    worst = ", ".join(f"{why} {count}" for why, count in reasons.most_common(3))
    raise RunError(f"episode {name}: none of {_EPISODE_TRIES} drafts was good ({worst})")


class _Draft:
    """One attempt at an episode in one layout."""

    def __init__(
        self,
        layout_set: LayoutSet,
        layout: str,
        scenario: Scenario,
        rng: np.random.Generator,
        reasons: collections.Counter[str],
    ) -> None:
        self._layout, self._scenario, self._rng = layout, scenario, rng
        self._reasons = reasons
        chosen = layout_set.layout(layout.partition("/")[2])
        self._receptacles = placed_receptacles(layout_set, chosen)
        self._furniture = furniture(layout)
        self._crowd = Crowd([])

    def episode(self, name: str, source: Source) -> Episode:
        """Draws everything: targets, clutter, goals, then the robot."""
        kinds = self._kinds(source.num_objects)
        count = self._scenario.num_targets
        objects = [self._start(kind, i < count) for i, kind in enumerate(kinds)]
        targets = [self._goal(i, kinds[i], objects[i].receptacle) for i in range(count)]
        self._refuse_blocked(kinds, objects, targets)
        return Episode(
            id=name,
            scenario=source.scenario,
            split=source.split,
            layout=self._layout,
            robot_start=self._robot(),
            objects=tuple(objects),
            targets=tuple(targets),
        )

    def _kinds(self, count: int) -> list[ObjectKind]:
        """Objects drawn uniformly, again until a home has slots for this mix of primitives."""
        capacity = min(c for c in POOLS if c >= count)
        names = self._scenario.objects
        for _ in range(_PLACEMENT_TRIES):
            kinds = [object_kind(names[i]) for i in self._rng.integers(len(names), size=count)]
            if _slots_suffice(POOLS[capacity], kinds):
                return kinds
            self._reasons["no slot for the mix of objects"] += 1
        raise Rejected("no mix of objects fits the slots")

    def _start(self, kind: ObjectKind, target: bool) -> ObjectPlacement:
        choices = [r for r in self._receptacles if r.name in self._scenario.starts]
        for _ in range(_PLACEMENT_TRIES):
            receptacle = choices[self._rng.integers(len(choices))]
            yaw = float(self._rng.uniform(-math.pi, math.pi))
            prism = footprint(kind, 0.0, 0.0, yaw, receptacle.surface)
            spot = self._free_spot(receptacle, prism, kind, target, "start")
            if spot is not None:
                return ObjectPlacement(kind.name, spot, yaw_quat(yaw), receptacle.name)
        raise Rejected("no free start")

    def _goal(self, index: int, kind: ObjectKind, start: str) -> Target:
        """A spot where the object fits at any yaw, on another receptacle than its start's."""
        goals = self._scenario.goals
        choices = [r for r in self._receptacles if r.name in goals and r.name != start]
        for _ in range(_PLACEMENT_TRIES):
            receptacle = choices[self._rng.integers(len(choices))]
            prism = any_yaw(kind, 0.0, 0.0, receptacle.surface)
            spot = self._free_spot(receptacle, prism, kind, True, "goal")
            if spot is not None:
                return Target(index, spot, receptacle.name)
        raise Rejected("no free goal")

    def _free_spot(
        self,
        receptacle: PlacedReceptacle,
        prism: Prism,
        kind: ObjectKind,
        reach: bool,
        what: str,
    ) -> tuple[float, float, float] | None:
        """Centre of an object somewhere on a receptacle; taken from then on. None: no luck."""
        shift = draw_on(receptacle, prism, self._rng)
        if shift is None:
            self._reasons[f"{what} larger than {receptacle.name}"] += 1
            return None
        prism = Prism(prism.corners + shift, prism.low, prism.high)
        if not self._furniture.fits(prism, _MARGIN_M):
            self._reasons[f"{what} in furniture on {receptacle.name}"] += 1
            return None
        if not self._crowd.fits(prism, _MARGIN_M):
            self._reasons[f"{what} taken on {receptacle.name}"] += 1
            return None
        centre = (float(shift[0]), float(shift[1]), receptacle.surface + kind.half[2] + DROP_M)
        if reach and not reachable(self._layout, _top(centre, kind)):
            self._reasons[f"{what} out of reach on {receptacle.name}"] += 1
            return None
        self._crowd.add(prism)
        return centre

    def _refuse_blocked(
        self, kinds: list[ObjectKind], objects: list[ObjectPlacement], targets: list[Target]
    ) -> None:
        """Every start and goal must be in reach between all other objects, starts and goals."""
        pos = np.array([o.pos for o in objects] + [t.goal for t in targets])
        quat = np.array([o.quat for o in objects] + [(1.0, 0.0, 0.0, 0.0)] * len(targets))
        standing = [*kinds, *(kinds[t.object] for t in targets)]
        for place in [*(t.object for t in targets), *range(len(kinds), len(standing))]:
            itself = standing[place]
            rows = [i for i in range(len(standing)) if i != place]
            others = object_bodies([standing[i] for i in rows], pos[rows], quat[rows])
            if not reachable(self._layout, _top(pos[place], itself), others):
                raise Rejected("start blocked" if place < len(kinds) else "goal blocked")

    def _robot(self) -> tuple[float, float, float]:
        """A base pose on the main floor at which the resting arm is clear of furniture."""
        for _ in range(_PLACEMENT_TRIES):
            base = random_base_pose(self._layout, self._rng)
            near, _ = static_bodies(self._layout).seen_from(np.array(base))
            if ArmChecker(ARM_SPHERES, near).free(REST, _ARM_MARGIN_M):
                return base
            self._reasons["robot's arm in furniture"] += 1
        raise Rejected("no free robot start")


def _top(centre: Sequence[float] | np.ndarray, kind: ObjectKind) -> np.ndarray:
    """Where the cup touches an upright object (3,)."""
    return np.array([centre[0], centre[1], centre[2] + kind.half[2]])


def _slots_suffice(pools: SlotPools, kinds: list[ObjectKind]) -> bool:
    counts = collections.Counter(kind.primitive for kind in kinds)
    return all(count <= getattr(pools, primitive) for primitive, count in counts.items())
