"""Draws the episodes of scenarios from seeds.

Episode `index` of a seed is the same whatever the number of episodes: every one has a random
generator of its own. Layouts of the split take turns, so that any 21 neighbours of the validation
split cover it.
"""

import collections
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tpsrl.errors import RunError, UserError, unknown
from tpsrl.world.collision import ARM_SPHERES, REST, ArmChecker, object_bodies
from tpsrl.world.episode import Episode, ObjectPlacement, Target
from tpsrl.world.floor import CLOSED, Joints, random_base_pose
from tpsrl.world.geometry import yaw_quat
from tpsrl.world.handles import handle
from tpsrl.world.layouts import (
    PlacedReceptacle,
    load_layout_set,
    placed_receptacles,
    resolve,
)
from tpsrl.world.objects import ObjectKind, object_kind
from tpsrl.world.placement import Crowd, Prism, any_yaw, draw_on, footprint, furniture
from tpsrl.world.reach import reachable, stances, static_bodies
from tpsrl.world.scenarios import Scenario, TargetDraw
from tpsrl.world.slots import CAPACITIES
from tpsrl.world.state import JOINTS

VERSION = 3  # of what comes out; part of the cache's key
DROP_M = 0.001  # objects are put this high over a surface before they settle
_MARGIN_M = 0.005  # between objects, and from furniture
_ARM_MARGIN_M = 0.02  # of the rest arm from furniture at the robot's start
_PLACEMENT_TRIES = 300
_EPISODE_TRIES = 60
_SPLITS = {"train": 0, "val": 1}


# Lets a draft come to rest in a simulator: the settled episode, or why it is no good.
Settle = Callable[[Episode], Episode | str]


class Rejected(Exception):
    """A draft that cannot be completed; says why in one word."""


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """Where episodes come from: scenario, split, seed, and objects an episode has."""

    scenario: Scenario
    split: str
    seed: int = 0
    num_objects: int = 30
    layout_set: str = "replica_cad"

    def check(self) -> None:
        """Raises a `UserError` that names the field which is out of range."""
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
                f"scenario {self.scenario.name}: clutter: names no objects, but of num_objects="
                f"{self.num_objects} only {least} are targets"
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
    layout = _layout(source, index)
    scenario = source.scenario
    seeds = (source.seed, scenario.own_seed, _SPLITS[source.split], source.num_objects, index)
    rng = np.random.default_rng(seeds)
    reasons: collections.Counter[str] = collections.Counter()
    name = f"{scenario.name}_{source.split}_{source.seed}_{index:05d}"
    for _ in range(_EPISODE_TRIES):
        try:
            draft = _Draft(layout, scenario, rng, reasons)
            settled = settle(draft.episode(name, source))
        except Rejected as rejected:
            settled = str(rejected)
        if isinstance(settled, Episode):
            return settled, reasons
        reasons[settled.partition(" (")[0]] += 1
    worst = ", ".join(f"{why} {count}" for why, count in reasons.most_common(3))
    raise RunError(f"episode {name}: none of {_EPISODE_TRIES} drafts was good ({worst})")


def _layout(source: Source, index: int) -> str:
    """The layout whose turn it is, or the next one that suits the scenario.

    Raises:
        RunError: the split has none.
    """
    layouts = load_layout_set(source.layout_set).split(source.split)
    for turn in range(len(layouts)):
        name = f"{source.layout_set}/{layouts[(index + turn) % len(layouts)].name}"
        if layout_suits(source.scenario, name):
            return name
    where = f"scenario {source.scenario.name}"
    raise RunError(f"{where}: no layout of the split '{source.split}' has room for it")


class _Draft:
    """One attempt at an episode in one layout."""

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
        self._taken: collections.Counter[tuple[str, str]] = collections.Counter()

    def episode(self, name: str, source: Source) -> Episode:
        """Draws everything: targets, clutter, goals, then the robot."""
        draws = self._scenario.targets
        kinds = self._kinds(source.num_objects)
        objects = []
        for i, kind in enumerate(kinds):
            draw = draws[i] if i < len(draws) else None
            objects.append(self._start(kind, draw))
        targets = [
            self._goal(i, kinds[i], objects[i].receptacle, draw) for i, draw in enumerate(draws)
        ]
        self._refuse_blocked(kinds, objects, targets)
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

    def _kinds(self, count: int) -> list[ObjectKind]:
        """Objects drawn uniformly."""
        pick_from = [draw.objects for draw in self._scenario.targets]
        pick_from += [self._scenario.clutter] * (count - len(pick_from))
        return [
            object_kind(names[i])
            for names, alike in itertools.groupby(pick_from)
            for i in self._rng.integers(len(names), size=len(list(alike)))
        ]

    def _start(self, kind: ObjectKind, draw: TargetDraw | None) -> ObjectPlacement:
        """A spot for one of the targets (`draw` says which) or for clutter."""
        names = self._scenario.clutter_on if draw is None else draw.starts
        choices = [r for r in self._receptacles if r.name in names]
        for _ in range(_PLACEMENT_TRIES):
            receptacle = choices[self._rng.integers(len(choices))]
            yaw = float(self._rng.uniform(-math.pi, math.pi))
            prism = footprint(kind, 0.0, 0.0, yaw, receptacle.surface)
            spot = self._free_spot(receptacle, prism, kind, draw, "start")
            if spot is not None:
                return ObjectPlacement(kind.name, spot, yaw_quat(yaw), receptacle.name)
        raise Rejected("no free start")

    def _goal(self, index: int, kind: ObjectKind, start: str, draw: TargetDraw) -> Target:
        """A spot where the object fits at any yaw, on another receptacle than its start's."""
        choices = [r for r in self._receptacles if r.name in draw.goals and r.name != start]
        for _ in range(_PLACEMENT_TRIES):
            receptacle = choices[self._rng.integers(len(choices))]
            prism = any_yaw(kind, 0.0, 0.0, receptacle.surface)
            spot = self._free_spot(receptacle, prism, kind, draw, "goal")
            if spot is not None:
                return Target(index, spot, receptacle.name)
        raise Rejected("no free goal")

    def _free_spot(
        self,
        receptacle: PlacedReceptacle,
        prism: Prism,
        kind: ObjectKind,
        draw: TargetDraw | None,
        what: str,
    ) -> tuple[float, float, float] | None:
        """Centre of an object somewhere on a receptacle; taken from then on. None: no luck.

        What belongs to a target (`draw`) is kept in the receptacle's region and in reach.
        """
        name, key = receptacle.name, (receptacle.name, receptacle.body)
        if self._taken[key] >= self._scenario.at_most.get(name, 2 * max(CAPACITIES)):
            self._reasons[f"{what} on {name}, which is full"] += 1
            return None
        region = 1.0 if draw is None else self._scenario.target_region.get(name, 1.0)
        shift = draw_on(receptacle, prism, self._rng, region)
        if shift is None:
            self._reasons[f"{what} larger than {name}"] += 1
            return None
        prism = Prism(prism.corners + shift, prism.low, prism.high)
        if not self._furniture.fits(prism, _MARGIN_M):
            self._reasons[f"{what} in furniture on {name}"] += 1
            return None
        if not self._crowd.fits(prism, _MARGIN_M):
            self._reasons[f"{what} taken on {name}"] += 1
            return None
        centre = (float(shift[0]), float(shift[1]), receptacle.surface + kind.half[2] + DROP_M)
        if draw is not None and not self._in_reach(receptacle, _top(centre, kind), draw):
            self._reasons[f"{what} out of reach on {name}"] += 1
            return None
        self._crowd.add(prism)
        self._taken[key] += 1
        return centre

    def _in_reach(self, receptacle: PlacedReceptacle, top: np.ndarray, draw: TargetDraw) -> bool:
        """Whether the cup gets to a point (3,) once everything is open that has to be."""
        joints = joints_at(self._scenario.opened(draw))
        moved = travel(self._layout, receptacle.marker, self._joints, joints)
        return reachable(self._layout, top + moved, joints=joints)

    def _refuse_blocked(
        self, kinds: list[ObjectKind], objects: list[ObjectPlacement], targets: list[Target]
    ) -> None:
        """Every start and goal must be in reach between all other objects, starts and goals."""
        marker = {r.name: r.marker for r in self._receptacles}
        names = [o.receptacle for o in objects] + [t.receptacle for t in targets]
        pos = np.array([o.pos for o in objects] + [t.goal for t in targets])
        quat = np.array([o.quat for o in objects] + [(1.0, 0.0, 0.0, 0.0)] * len(targets))
        standing = [*kinds, *(kinds[t.object] for t in targets)]
        for place in [*(t.object for t in targets), *range(len(kinds), len(standing))]:
            draw = self._scenario.targets[place if place < len(kinds) else place - len(kinds)]
            joints = joints_at(self._scenario.opened(draw))
            moved = pos + [
                travel(self._layout, marker[name], self._joints, joints) for name in names
            ]
            rows = [i for i in range(len(standing)) if i != place]
            others = object_bodies([standing[i] for i in rows], moved[rows], quat[rows])
            if not reachable(self._layout, _top(moved[place], standing[place]), others, joints):
                raise Rejected("start blocked" if place < len(kinds) else "goal blocked")


def robot_start(
    layout: str,
    joints: Joints,
    rng: np.random.Generator,
    reasons: collections.Counter[str] | None = None,
) -> tuple[float, float, float]:
    """A base pose on the main floor of "SET/NAME" at which the resting arm is clear of furniture.

    `joints` says where doors and drawers are; poses that are drawn again are counted in `reasons`.

    Raises:
        Rejected: there seems to be none.
    """
    for _ in range(_PLACEMENT_TRIES):
        base = random_base_pose(layout, rng, joints)
        near, _ = static_bodies(layout, joints).seen_from(np.array(base))
        if ArmChecker(ARM_SPHERES, near).free(REST, _ARM_MARGIN_M):
            return base
        if reasons is not None:
            reasons["robot's arm in furniture"] += 1
    raise Rejected("no free robot start")


def joints_at(opened: Mapping[str, float]) -> Joints:
    """Positions of all `JOINTS` (rad, m), those that are not named closed."""
    return tuple(float(opened.get(marker, 0.0)) for marker in JOINTS)


def travel(layout: str, marker: str, start: Joints, end: Joints) -> np.ndarray:
    """How far (3,) a drawer's contents go when all joints move; `marker` is "" for the rest."""
    if not marker:
        return np.zeros(3)
    moving = handle(layout, marker)
    change = end[moving.index] - start[moving.index]
    return change * moving.motion(0.0, moving.point(0.0))


def moved_receptacles(layout: str, joints: Joints) -> list[PlacedReceptacle]:
    """The receptacles of "SET/NAME" with its drawers where the joints have them."""
    return [_moved(layout, r, joints) for r in placed_receptacles(*resolve(layout))]


def _moved(layout: str, receptacle: PlacedReceptacle, joints: Joints) -> PlacedReceptacle:
    """A receptacle with its drawer where the joints have it."""
    way = travel(layout, receptacle.marker, CLOSED, joints)
    return dataclasses.replace(receptacle, pos=receptacle.pos + way)


def _top(centre: Sequence[float] | np.ndarray, kind: ObjectKind) -> np.ndarray:
    """Where the cup touches an upright object (3,)."""
    return np.array([centre[0], centre[1], centre[2] + kind.half[2]])


@functools.lru_cache(maxsize=512)
def layout_suits(scenario: Scenario, layout: str) -> bool:
    """Whether the doors and drawers of a scenario can be used in "SET/NAME".

    There must be floor to stand on before each handle that has to be opened, and with everything
    open the cup must come to the front of the fridge shelf or drawer where a target has to start
    or end.
    """
    layout_set, chosen = resolve(layout)
    placed = placed_receptacles(layout_set, chosen)
    links = {name for name, body in layout_set.bodies.items() if body.links}
    for draw in scenario.targets:
        joints = joints_at(scenario.opened(draw))
        for marker in draw.opened:
            grip = handle(layout, marker)
            for state in (CLOSED, joints):
                if not len(stances(layout, grip.point(state[grip.index]), joints=state)):
                    return False
        for names in (draw.starts, draw.goals):
            choices = [_moved(layout, r, joints) for r in placed if r.name in names]
            if not any(r.body not in links or _front_in_reach(layout, r, joints) for r in choices):
                return False
    return True


def _front_in_reach(layout: str, receptacle: PlacedReceptacle, joints: Joints) -> bool:
    front = receptacle.rotation @ np.array([receptacle.half[0] / 2, 0.0, 0.0])
    return reachable(layout, receptacle.pos + front, joints=joints)
