"""Where the episodes of each skill begin: the start-state distributions of habitat-lab 0.3.3.

A start takes an episode of the skill's dataset and puts the robot, the held object, and the door or
drawer where the skill's own task has them (FACTS B4). Start `index` is the same however many are
asked for. Unlike habitat-lab, which takes a colliding start when its tries are used up, every start
here is free: the base's disc and the resting arm, with what it holds, touch nothing.
"""

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from skills.core.interface import SkillGoal
from tpsrl.errors import RunError, UserError, unknown
from tpsrl.sim import datasets
from tpsrl.sim.base import Snapshot
from tpsrl.sim.snapshots import load_noted_snapshots, save_snapshots
from tpsrl.world.collision import (
    ARM_SPHERES,
    REST,
    ArmChecker,
    Spheres,
    held_spheres,
    object_bodies,
)
from tpsrl.world.episode import Episode
from tpsrl.world.fetch import BASE_RADIUS, CUP, GRIPPER
from tpsrl.world.floor import ABSENT, CELL_M, Joints, floor_map, main_floor, rounded
from tpsrl.world.generator import Source, joints_at, travel
from tpsrl.world.geodesic import SNAP_M, distance_field, free_floor
from tpsrl.world.handles import Handle, handle
from tpsrl.world.kinematics import cup_pose
from tpsrl.world.layouts import resolve
from tpsrl.world.objects import ObjectKind, object_kind
from tpsrl.world.placement import Prism, box_prism, circle, furniture, gap
from tpsrl.world.reach import point_to_base, static_bodies
from tpsrl.world.scenarios import DRAWERS, FRIDGE, load_scenario
from tpsrl.world.state import JOINTS

DATASETS = {
    "navigate": "rearrange_easy",
    "pick": "rearrange_easy",
    "place": "rearrange_easy",
    "open_fridge": "in_fridge",
    "close_fridge": "in_fridge",
    "open_drawer": "in_drawer",
    "close_drawer": "in_drawer",
}
DRAWER = DRAWERS["drawer_right_top"]  # the one drawer of habitat-lab's tasks
BASE_EPISODES = 1008  # different episodes of a dataset, 16 for each training layout; then anew

HELD_SHARE = 1 / 6  # of Navigate's starts have the object in hand, and go to its goal
NAVIGATE_FROM_M = 3.0  # at least, along the floor
SPAWN_M = 2.0  # Pick and Place start within this of object and goal,
SPAWN_GROWTH_M = 0.02  # and so much farther for every try that failed
HEADING_NOISE_RAD = 0.523599  # standard deviation
REGION_SCALE = 0.2  # habitat-lab shrinks its spawn regions about their centres by this
CLOSE_DRAWER_M = (0.4, 0.5)
CLOSE_FRIDGE_RAD = (math.pi / 4, 2 * math.pi / 3)
_ARM_BOX_M = (1.2, 0.7, 1.5)  # a handle must not lie beyond this corner of the arm's box
_ARM_BOX_SLACK_M = 0.01
_TRIES = 200
_BLOCK = 63  # base episodes are made so many at a time: each training layout once
_HAND_M = 0.2  # behind what is to be pushed shut
_TOUCH_M = 0.001  # so far a drawer may reach into its neighbour
_MARGIN_M = 0.02  # of arm and held object
_SEED = 20_000  # keeps these draws apart from those of the datasets


@dataclasses.dataclass(frozen=True, slots=True)
class Start:
    """One start of a skill: what a home is reset to, and what the skill is about.

    With a `snapshot` (a recorded exit state of the skill before) the home is restored to it
    instead; `episode` is the snapshot's own.
    """

    episode: Episode
    goal: SkillGoal
    snapshot: Snapshot | None = None


def start_episode(
    skill: str, index: int, split: str, seed: int = 0, num_objects: int = 30
) -> Start:
    """Start `index` of a skill.

    Raises:
        UserError: an argument is out of range.
        RunError: the dataset's episode leaves no free start.
    """
    return start_episodes(skill, [index], split, seed, num_objects)[0]


def start_episodes(
    skill: str,
    indices: Iterable[int],
    split: str,
    seed: int = 0,
    num_objects: int = 30,
    processes: int | None = None,
) -> list[Start]:
    """Starts of a skill, in the order of `indices`; base episodes are made by `processes`.

    Raises:
        UserError, RunError: see `start_episode`.
    """
    if skill not in DATASETS:
        raise unknown("skill", skill, DATASETS)
    indices = list(indices)
    if min(indices, default=0) < 0:
        raise UserError(f"index: must be at least 0, got {min(indices)}")
    source = Source(load_scenario(DATASETS[skill]), split, seed, num_objects)
    rows = [index % BASE_EPISODES for index in indices]
    base = _base_episodes(source, max(rows, default=-1) + 1, processes)
    return [_start(skill, index, base[row]) for index, row in zip(indices, rows, strict=True)]


_Draw = Callable[[int], Start | None]  # of a start, given the number of tries that failed
_loaded: dict[tuple[Path, Source], list[Episode]] = {}


def _base_episodes(source: Source, count: int, processes: int | None) -> list[Episode]:
    """The first `count` episodes or more, from memory, the cache, or made now."""
    source.check()
    key = (datasets.cache_folder(), source)
    if len(_loaded.get(key, ())) < count:
        block = min(math.ceil(count / _BLOCK) * _BLOCK, BASE_EPISODES)
        _loaded[key] = datasets.load(
            source.scenario, source.split, block, source.seed, source.num_objects, processes
        )
    return _loaded[key]


def _start(skill: str, index: int, base: Episode) -> Start:
    # The base episode's name holds split, seed and number.
    words = (_SEED, list(DATASETS).index(skill), index, len(base.objects), *base.id.encode())
    rng = np.random.default_rng(words)
    draw = _DRAWS[skill](base, rng)
    for attempt in range(_TRIES):
        start = draw(attempt)
        if start is not None:
            name = f"{skill}_{index:06d}_of_{base.id}"
            return dataclasses.replace(start, episode=dataclasses.replace(start.episode, id=name))
    raise RunError(f"{skill}: start {index} on {base.id}: no free pose of the robot")


# -- the draws: each is prepared once, then tried until it gives a start ---------------------------


def _navigate(base: Episode, rng: np.random.Generator) -> _Draw:
    """Anywhere that is far enough from the object, or with it in hand from its goal."""
    target = base.targets[0]
    holds = bool(rng.random() < HELD_SHARE)
    x, y, z = target.goal if holds else base.objects[target.object].pos
    joints = rounded(joints_at(base.articulation))
    far = _far_cells(base.layout, joints, (x, y))
    room = _Room(base, held=target.object if holds else -1)
    goal = SkillGoal(-1 if holds else target.object, (x, y, z))

    def draw(attempt: int) -> Start | None:
        if not len(far):
            return None
        spot = _in_cell(far[rng.integers(len(far))], rng)
        return room.start((*spot, float(rng.uniform(-math.pi, math.pi))), goal)

    return draw


def _pick(base: Episode, rng: np.random.Generator) -> _Draw:
    target = base.targets[0]
    pos = base.objects[target.object].pos
    return _near(base, rng, pos, SkillGoal(target.object), held=-1)


def _place(base: Episode, rng: np.random.Generator) -> _Draw:
    target = base.targets[0]
    goal = SkillGoal(target.object, target.goal)
    return _near(base, rng, target.goal, goal, held=target.object)


def _near(
    base: Episode,
    rng: np.random.Generator,
    point: Sequence[float],
    goal: SkillGoal,
    held: int,
) -> _Draw:
    """Anywhere near a point (3,), facing it but for the noise in heading."""
    cells = _free_cells(base.layout, rounded(joints_at(base.articulation)))
    away = np.hypot(cells[:, 0] - point[0], cells[:, 1] - point[1])
    room = _Room(base, held)

    def draw(attempt: int) -> Start | None:
        near = cells[away <= SPAWN_M + attempt * SPAWN_GROWTH_M]
        if not len(near):
            return None
        x, y = _in_cell(near[rng.integers(len(near))], rng)
        heading = math.atan2(point[1] - y, point[0] - x)
        return room.start((x, y, heading + float(rng.normal(0.0, HEADING_NOISE_RAD))), goal)

    return draw


@dataclasses.dataclass(frozen=True, slots=True)
class _Region:
    """Before a handle or a fridge: where the base starts, in that one's frame (m)."""

    x: tuple[float, float]
    y: tuple[float, float]

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """A point (3,) at height 0 of the shrunken region."""
        low, high = np.array([self.x, self.y]).T
        reach = REGION_SCALE * (high - low) / 2
        return np.append(rng.uniform((low + high) / 2 - reach, (low + high) / 2 + reach), 0.0)


_OPEN_DRAWER = _Region((0.80, 0.95), (-0.35, 0.35))
_CLOSE_DRAWER = _Region((0.80, 0.85), (-0.35, 0.35))
_BEFORE_FRIDGE = _Region((0.833, 1.25), (-0.6, 0.6))


def _articulated(
    marker: str, region: _Region, openings: tuple[float, float] | None
) -> Callable[[Episode, np.random.Generator], _Draw]:
    """In the region before what is to be opened or closed, facing it but for noise.

    With `openings` the joint starts anywhere between them, its limit and the walls permitting:
    there has to be room for a hand behind it, or nothing without suction could close it. In the
    validation family the fridge's hinge is next to a wall, which may be why MS-HAB reports that
    its closing never succeeded there (FACTS B1).
    """

    def prepare(base: Episode, rng: np.random.Generator) -> _Draw:
        grip = handle(base.layout, marker)

        def draw(attempt: int) -> Start | None:
            joint = 0.0
            if openings is not None:
                joint = min(float(rng.uniform(*openings)), grip.limit)
                if not _swings_free(base.layout, marker, joint):
                    return None
            # A drawer's frame is that of its marker, the fridge's that of its body.
            pos, turn = grip.pose(joint)
            marked = pos + turn @ np.array(grip.link.marker)
            origin, rotation = (marked, turn) if grip.slides else (grip.origin, grip.rotation)
            room = _Room(_opened(base, marker, joint), moving=marker)
            spot = room.nearest_spot(origin + rotation @ region.draw(rng))
            noise = float(rng.normal(0.0, HEADING_NOISE_RAD))
            if spot is None:
                return None
            heading = math.atan2(origin[1] - spot[1], origin[0] - spot[0]) + noise
            seen = point_to_base((*spot, heading), marked)
            if (seen > np.array(_ARM_BOX_M) + _ARM_BOX_SLACK_M).any():
                return None
            return room.start((*spot, heading), SkillGoal(marker=marker))

        return draw

    return prepare


_DRAWS: dict[str, Callable[[Episode, np.random.Generator], _Draw]] = {
    "navigate": _navigate,
    "pick": _pick,
    "place": _place,
    "open_fridge": _articulated(FRIDGE, _BEFORE_FRIDGE, None),
    "close_fridge": _articulated(FRIDGE, _BEFORE_FRIDGE, CLOSE_FRIDGE_RAD),
    "open_drawer": _articulated(DRAWER, _OPEN_DRAWER, None),
    "close_drawer": _articulated(DRAWER, _CLOSE_DRAWER, CLOSE_DRAWER_M),
}


def _opened(base: Episode, marker: str, joint: float) -> Episode:
    """The episode with one door or drawer elsewhere, and what is in the drawer gone along."""
    articulation = {**base.articulation, marker: joint}
    before, after = joints_at(base.articulation), joints_at(articulation)
    inside = {name for name, key in DRAWERS.items() if key == marker}
    moved = np.zeros(3) if marker == FRIDGE else travel(base.layout, marker, before, after)
    x, y, z = (float(v) for v in moved)
    objects = tuple(
        dataclasses.replace(o, pos=(o.pos[0] + x, o.pos[1] + y, o.pos[2] + z))
        if o.receptacle in inside
        else o
        for o in base.objects
    )
    return dataclasses.replace(base, objects=objects, articulation=articulation)


def _swings_free(layout: str, marker: str, joint: float) -> bool:
    """Whether a door or drawer stands clear of walls and furniture, with room for a hand behind."""
    body, _ = resolve(layout)[0].link(marker)
    others = furniture(layout, without=body)
    where = handle(layout, marker)
    boxes = where.boxes(joint)
    return all(
        others.fits(box_prism(centre, turn, half), -_TOUCH_M)
        for centre, turn, half in zip(boxes.centre, boxes.rotation, boxes.half, strict=True)
    ) and others.fits(_hand(where, joint), 0.0)


def _hand(where: Handle, joint: float) -> Prism:
    """The space of a hand behind the handle."""
    _, turn = where.pose(joint)
    centre = where.point(joint) + (_HAND_M / 2 + _TOUCH_M) * where.normal(joint)
    return box_prism(centre, turn, np.array([_HAND_M / 2, 0.06, 0.06]))


# -- what a start has to keep clear of -------------------------------------------------------------


class _Room:
    """An episode's home without the robot; says which base poses are free.

    The door or drawer `moving` is taken where it is, what depends on the others is kept.
    """

    def __init__(self, base: Episode, held: int = -1, moving: str = "") -> None:
        self._base, self._held = base, held
        joints = joints_at(base.articulation)
        self._still = rounded(
            [ABSENT if key == moving else q for key, q in zip(JOINTS, joints, strict=True)]
        )
        kinds = [object_kind(o.name) for o in base.objects]
        rows = [i for i in range(len(kinds)) if i != held]
        pos = np.array([o.pos for o in base.objects])[rows]
        quat = np.array([o.quat for o in base.objects])[rows]
        loose = object_bodies([kinds[i] for i in rows], pos, quat)
        self._links: list[Prism] = []
        if moving:
            boxes = handle(base.layout, moving).boxes(joints[JOINTS.index(moving)])
            self._links = [
                box_prism(*box)
                for box in zip(boxes.centre, boxes.rotation, boxes.half, strict=True)
            ]
            loose = loose.plus(boxes)
        self._bodies = static_bodies(base.layout, self._still).plus(loose)
        self._spheres = ARM_SPHERES if held < 0 else ARM_SPHERES.plus(_hanging(kinds[held]))
        self._floor = floor_map(base.layout, joints=self._still)

    def nearest_spot(self, wanted: np.ndarray) -> tuple[float, float] | None:
        """Where the disc is free, as near to a point (2 or more,) as possible; None: not near."""
        cells = _free_cells(self._base.layout, self._still)
        away = np.hypot(cells[:, 0] - wanted[0], cells[:, 1] - wanted[1])
        order = np.flatnonzero(away < SNAP_M)
        spots = cells[order[np.argsort(away[order])]]
        if len(spots) and away.min() < CELL_M / 2:  # its own cell is free, and so is the point
            spots = np.concatenate([wanted[None, :2], spots])
        return next(((float(x), float(y)) for x, y in spots if self._stands(x, y)), None)

    def _stands(self, x: float, y: float) -> bool:
        """Whether the disc is free."""
        if self._floor.clearance(x, y) < BASE_RADIUS:
            return False
        disc = circle(BASE_RADIUS) + np.array([x, y])
        return all(gap(disc, link.corners) >= 0.0 for link in self._links)

    def start(self, pose: tuple[float, float, float], goal: SkillGoal) -> Start | None:
        """The start at a base pose, None where disc, resting arm or held object are not free."""
        x, y, yaw = pose
        near, _ = self._bodies.seen_from(np.array(pose))
        if not self._stands(x, y) or not ArmChecker(self._spheres, near).free(REST, _MARGIN_M):
            return None
        yaw = (yaw + math.pi) % (2 * math.pi) - math.pi
        episode = dataclasses.replace(self._base, robot_start=(x, y, yaw), held=self._held)
        return Start(episode, goal)


def _hanging(kind: ObjectKind) -> Spheres:
    """Spheres of an object that hangs upright from the cup of the resting arm."""
    _, turn = cup_pose(REST)
    tip = np.array([GRIPPER + CUP, 0.0, 0.0])
    drop = np.array([0.0, 0.0, -kind.half[2]])
    return held_spheres(kind, tip + turn.T @ drop, turn.T)


@functools.lru_cache(maxsize=256)
def _free_cells(layout: str, joints: Joints) -> np.ndarray:
    """Centres (n, 2) of the cells of the main floor."""
    x0, y0 = floor_map(layout).origin
    iy, ix = np.nonzero(main_floor(layout, joints))
    return np.stack([x0 + (ix + 0.5) * CELL_M, y0 + (iy + 0.5) * CELL_M], axis=1)


def _far_cells(layout: str, joints: Joints, goal: tuple[float, float]) -> np.ndarray:
    """Centres (n, 2) of the cells from which it is far enough to a goal."""
    cells = _free_cells(layout, joints)
    return cells[np.unpackbits(_far_bits(layout, joints, goal), count=len(cells)).astype(bool)]


@functools.lru_cache(maxsize=2 * BASE_EPISODES)  # of every base episode object and goal: 10 MB
def _far_bits(layout: str, joints: Joints, goal: tuple[float, float]) -> np.ndarray:
    """Which of `_free_cells` these are, as packed bits; worth keeping, since it takes 30 ms."""
    floor = free_floor(layout, joints)
    away = distance_field(floor, goal).distances(_free_cells(layout, joints))
    return np.packbits(np.isfinite(away) & (away > NAVIGATE_FROM_M))


def _in_cell(centre: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
    """A point of the cell around a centre (2,)."""
    x, y = centre + rng.uniform(-CELL_M / 2, CELL_M / 2, size=2)
    return float(x), float(y)


# -- recorded starts -------------------------------------------------------------------------------


def save_starts(path: str | os.PathLike[str], starts: Sequence[Start]) -> None:
    """Writes recorded starts as one `.npz` file of plain arrays. Atomic.

    Raises:
        UserError: a start has no snapshot, or the file cannot be written.
    """
    snapshots = {}
    for number, start in enumerate(starts):
        if start.snapshot is None:
            raise UserError(f"starts: number {number} has no snapshot; only recorded ones are kept")
        snapshots[number] = start.snapshot
    goals = {number: dataclasses.asdict(start.goal) for number, start in enumerate(starts)}
    save_snapshots(path, snapshots, goals)


def load_starts(path: str | os.PathLike[str]) -> list[Start]:
    """Reads what `save_starts` wrote.

    Raises:
        UserError: the file is absent or damaged, or it holds snapshots without goals.
    """
    starts = []
    for number, (snapshot, note) in load_noted_snapshots(path).items():
        try:
            goal = _goal(note)
        except (KeyError, TypeError, ValueError):
            raise UserError(f"starts: {path} has no skill's goal for snapshot {number}") from None
        starts.append(Start(snapshot.episode, goal, snapshot))
    return starts


def _goal(note: Any) -> SkillGoal:
    position = note["position"]
    if position is not None:
        x, y, z = (float(v) for v in position)
        position = (x, y, z)
    return SkillGoal(int(note["object"]), position, str(note["marker"]))
