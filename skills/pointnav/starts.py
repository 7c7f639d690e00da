"""PointNav's episodes: start and goal anywhere on the main floor, few of them in a straight line.

The distribution is that of Habitat's PointNav datasets (habitat-lab 0.3.3, pointnav_generator).
Apartments have furniture but no loose objects, which would stand on furniture anyway. The resting
arm reaches beyond the base's disc, so it must be clear of furniture at the start, and at the goal
with the heading of the shortest path. It is not checked along the path.
"""

import dataclasses
import math
from collections.abc import Iterable

import numpy as np

from skills.core.interface import SkillGoal
from skills.spec import SkillSpec
from skills.starts.start import Start
from tpsrl.errors import RunError, UserError, unknown
from tpsrl.world.collision import ARM_SPHERES, REST, ArmChecker
from tpsrl.world.episode import Episode
from tpsrl.world.floor import CLOSED, random_base_pose
from tpsrl.world.geodesic import field_of
from tpsrl.world.layouts import load_layout_set
from tpsrl.world.reach import static_bodies

NEAREST_M, FARTHEST_M = 1.0, 30.0  # geodesic
STRAIGHT_RATIO = 1.1  # of geodesic to Euclidean distance; smaller ratios are mostly rejected
_STARTS_PER_GOAL = 10
_GOALS = 200
_ARM_MARGIN_M = 0.02
_SPLITS = ("train", "val")
_NUMBER = 100  # part of the seed


def pointnav_start(
    index: int, split: str = "val", seed: int = 0, layout_set: str = "replica_cad"
) -> Start:
    """Returns start `index` of a seed, independent of which other starts are drawn.

    Layouts of the split alternate. The goal is a position at height 0.

    Args:
        index: of the start
        split: "train" or "val"
        seed: of all starts
        layout_set: name of the layouts

    Raises:
        UserError: split, seed or index is out of range.
        RunError: many tries found no valid start and goal.
    """
    layout, rng = layout_in_turn(index, split, seed, layout_set, _NUMBER)
    start, goal = _draw(layout, rng)
    name = f"pointnav_{split}_{seed}_{index:05d}"
    episode = Episode(name, "pointnav", split, layout, start, (), ())
    return Start(episode, SkillGoal(position=(*goal, 0.0)))


def layout_in_turn(
    index: int, split: str, seed: int, layout_set: str, number: int
) -> tuple[str, np.random.Generator]:
    """Returns the layout of start `index` and its random generator.

    Args:
        index: of the start
        split: "train" or "val"
        seed: of all starts
        layout_set: name of the layouts
        number: of the task, a part of the generator's seed

    Raises:
        UserError: split, seed or index is out of range.
    """
    if split not in _SPLITS:
        raise unknown("split", split, _SPLITS)
    for field, value in (("seed", seed), ("index", index)):
        if value < 0:
            raise UserError(f"{field}: must be at least 0, got {value}")
    layouts = load_layout_set(layout_set).split(split)
    layout = f"{layout_set}/{layouts[index % len(layouts)].name}"
    return layout, np.random.default_rng((seed, number, _SPLITS.index(split), index))


def acceptance(geodesic: float, euclid: float) -> float:
    """Returns the probability with which habitat-lab's generator accepts a start and goal.

    Args:
        geodesic: distance along the floor (m)
        euclid: straight-line distance (m)
    """
    if not NEAREST_M <= geodesic <= FARTHEST_M:
        return 0.0
    ratio = geodesic / euclid
    return 1.0 if ratio >= STRAIGHT_RATIO else min(1.0, 20.0 * (ratio - 0.98) ** 2)


def _draw(
    layout: str, rng: np.random.Generator
) -> tuple[tuple[float, float, float], tuple[float, float]]:
    """Draws a start (x, y, yaw) and a goal (x, y)."""
    for _ in range(_GOALS):
        goal = random_base_pose(layout, rng)[:2]
        field = field_of(layout, *goal, CLOSED, 0.0)  # also used to measure the path
        for _ in range(_STARTS_PER_GOAL):
            start = random_base_pose(layout, rng)
            euclid = math.dist(start[:2], goal)
            if rng.random() >= acceptance(field.distance(*start[:2]), euclid):
                continue
            if arm_free(layout, start) and arm_free(layout, _arrival(field.path(*start[:2]))):
                return start, goal
    raise RunError(f"pointnav: no start and goal found in {layout}")


def _arrival(path: np.ndarray) -> tuple[float, float, float]:
    """Returns the base pose (x, y, yaw) at the end of a path (k, 2)."""
    dx, dy = path[-1] - path[-2]
    return (float(path[-1, 0]), float(path[-1, 1]), math.atan2(dy, dx))


def arm_free(layout: str, base: tuple[float, float, float]) -> bool:
    """Returns whether the resting arm is clear of furniture at a base pose (x, y, yaw)."""
    near, _ = static_bodies(layout).seen_from(np.array(base))
    return ArmChecker(ARM_SPHERES, near).free(REST, _ARM_MARGIN_M)


@dataclasses.dataclass(frozen=True, slots=True)
class PointNavStarts:
    """Start states of `pointnav_start`, a `skills.starts.source.StartStates` without objects."""

    num_objects: int = 0

    def prepare(
        self,
        skill: SkillSpec,
        count: int,
        split: str,
        seed: int = 0,
        num_objects: int | None = None,
        processes: int | None = None,
    ) -> None:
        """Does nothing: drawing starts is fast."""

    def obtain(
        self,
        skill: SkillSpec,
        indices: Iterable[int],
        split: str,
        seed: int = 0,
        num_objects: int | None = None,
        processes: int | None = None,
    ) -> list[Start]:
        """See `pointnav_start`."""
        return [pointnav_start(index, split, seed) for index in indices]


@dataclasses.dataclass(frozen=True, slots=True)
class RoamingStarts(PointNavStarts):
    """PointNav's start states with the robot's initial position as the goal."""

    def obtain(
        self,
        skill: SkillSpec,
        indices: Iterable[int],
        split: str,
        seed: int = 0,
        num_objects: int | None = None,
        processes: int | None = None,
    ) -> list[Start]:
        """See `pointnav_start`."""
        starts = [pointnav_start(index, split, seed) for index in indices]
        return [dataclasses.replace(start, goal=_at_start(start)) for start in starts]


def _at_start(start: Start) -> SkillGoal:
    x, y, _ = start.episode.robot_start
    return SkillGoal(position=(x, y, 0.0))


STARTS = PointNavStarts()
ROAMING = RoamingStarts()
