"""Flee and Explore: DD-PPO's tasks to transfer to (section 6, "Transfer learning", appendix F).

The episodes are PointNav's without their goals. Neither task has a stop action. A policy observes
the camera and its own velocity, without compass and map. An episode lasts until the horizon, or
until no further reward is possible, which counts as success.
"""

import abc
import dataclasses

from array_api_compat import device

from skills.core.arrays import Array
from skills.core.conditions import Condition, Conditions
from skills.core.context import MeasureContext, StartContext, StepContext, ThresholdsT
from skills.core.geometry import array_namespace
from skills.core.measures import Measures, Memory, MemoryT, common
from skills.core.path_metrics import PathProgress
from skills.core.settings import SettingsT, TaskSettings
from skills.core.skill import Evaluation, Skill
from skills.core.state import TaskState
from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.world import action
from tpsrl.world.state import WorldState
from tpsrl.world.survey import SQUARE_M

_SIDE = 32  # squares along a side; apartments are less than 32 m across


@dataclasses.dataclass(frozen=True, slots=True)
class FleeSettings(TaskSettings):
    """Settings of Flee: changed defaults of the shared settings, and its own weight."""

    horizon: int = config.option(500, "control steps until truncation", minimum=1)
    success: float = config.option(0.0, "reward for reaching the farthest point")
    fled: float = config.option(
        5.0, "reward for the distance from the start, as a fraction of the longest possible"
    )


@dataclasses.dataclass(frozen=True, slots=True)
class FleeThresholds:
    """Success threshold of Flee: shortfall from the longest path along the floor."""

    distance_m: float = config.option(0.2, "maximum shortfall from the longest path (m)")


@dataclasses.dataclass(frozen=True, slots=True)
class ExploreSettings(TaskSettings):
    """Settings of Explore: changed defaults of the shared settings, and its own weight."""

    horizon: int = config.option(500, "control steps until truncation", minimum=1)
    success: float = config.option(0.0, "reward for visiting every cell")
    visited: float = config.option(0.25, "reward per newly visited 1 m cell")


@dataclasses.dataclass(frozen=True, slots=True)
class ExploreThresholds:
    """Success threshold of Explore: unvisited squares of the free floor."""

    squares_left: int = config.option(
        1, "number of unvisited 1 m cells from which success is denied"
    )


@dataclasses.dataclass(slots=True)
class Visited(Memory):
    """Visited squares of n environments.

    The index of a square consists of floor(x) and floor(y) in metres, modulo 32 each: apartments
    are smaller than 32 m.
    """

    squares: Array  # (n, 1024) bool


FleeStep = StepContext[FleeSettings, FleeThresholds, Measures, Memory]
ExploreStep = StepContext[ExploreSettings, ExploreThresholds, Measures, Visited]


class Roaming(Skill[SettingsT, ThresholdsT, Measures, MemoryT]):
    """Base class of Flee and Explore; `SkillGoal.position` is the start, absent from sensors."""

    needs = ("position",)
    parts = (action.BASE,)
    sensors = full_sensors = ("velocity",)
    follows_path = surveys_floor = True

    def measure(self, now: MeasureContext[ThresholdsT]) -> Measures:
        """Computes the measures of all skills; the path along the floor is measured separately."""
        shared, _ = common(now.world, now.goals.position)
        return Measures(**shared)

    def reach_m(self, thresholds: ThresholdsT) -> float:
        """Returns 0: the path is measured to the start itself."""
        return 0.0

    @abc.abstractmethod
    def driving(self, task: TaskState[MemoryT], path: PathProgress) -> dict[str, Array]:
        """See `Skill.driving`."""


class Flee(Roaming[FleeSettings, FleeThresholds, Memory]):
    """Definition of Flee: get as far away from the start as possible, along the floor.

    The reward of a step is 5 times the increase of D, the distance from the start as a fraction of
    the longest one, both along the floor.
    """

    settings_type = FleeSettings

    def conditions(self, step: FleeStep) -> Conditions:
        """Returns the condition farthest: shortfall from the longest path (m)."""
        path = step.way()
        left = _surveyed(path.farthest) - path.left
        return {"farthest": Condition.below(left, step.thresholds.distance_m, "m")}

    def evaluate(self, step: FleeStep, success: Array) -> Evaluation:
        """Rewards distance from the start; there is no failure."""
        xp, path = array_namespace(step.world.base), step.way()
        amounts = {"fled": -_share(path.gained, _surveyed(path.farthest))}
        return Evaluation(xp.zeros_like(step.steps), amounts, Memory())

    def driving(self, task: TaskState[Memory], path: PathProgress) -> dict[str, Array]:
        """See `Skill.driving`; fraction of the longest path, and three lengths in metres."""
        farthest = _surveyed(path.farthest)
        return {
            "fled": _share(path.left, farthest),
            "distance_m": path.left,
            "farthest_m": farthest,
            "driven_m": path.driven,
        }


class Explore(Roaming[ExploreSettings, ExploreThresholds, Visited]):
    """Definition of Explore: visit as many squares of 1 m as possible.

    The reward is 0.25 for each newly visited square; the square of the start counts as visited.
    """

    settings_type = ExploreSettings

    def remember(self, start: StartContext[ExploreThresholds, Measures]) -> Visited:
        """Returns the initial memory: the square of the start."""
        return Visited(_square(start.world))

    def conditions(self, step: ExploreStep) -> Conditions:
        """Returns the condition left: number of squares of the free floor minus those visited.

        Visited squares may include some without free floor.
        """
        left = _surveyed(step.way().squares) - _count(_visited(step))
        return {"left": Condition.below(left, step.thresholds.squares_left, "squares")}

    def evaluate(self, step: ExploreStep, success: Array) -> Evaluation:
        """Rewards new squares; there is no failure."""
        xp, visited = array_namespace(step.world.base), _visited(step)
        new = _count(visited) - _count(step.memory.squares)
        return Evaluation(xp.zeros_like(step.steps), {"visited": new}, Visited(visited))

    def driving(self, task: TaskState[Visited], path: PathProgress) -> dict[str, Array]:
        """See `Skill.driving`; squares visited, squares of the free floor, and metres driven."""
        visited, squares = _count(task.memory.squares), _surveyed(path.squares)
        return {"visited": visited, "squares": squares, "driven_m": path.driven}


def _surveyed(found: Array | None) -> Array:
    """Returns a result of the survey of the floor.

    Raises:
        UserError: the floor was not surveyed.
    """
    if found is None:
        raise UserError("path: roaming needs the path along the floor, which is not measured")
    return found


def _share(way: Array, longest: Array) -> Array:
    """Returns paths (n,) as fractions of the longest ones (n,)."""
    xp = array_namespace(longest)
    return way / xp.where(longest > 0.0, longest, 1.0)


def _square(world: WorldState) -> Array:
    """Returns the square of each base as (n, 1024) bool."""
    xp = array_namespace(world.base)
    cell = xp.astype(xp.floor(world.base[:, :2] / SQUARE_M), xp.int64) % _SIDE
    place = cell[:, 0] * _SIDE + cell[:, 1]
    return place[:, None] == xp.arange(_SIDE * _SIDE, device=device(place))[None, :]


def _visited(step: ExploreStep) -> Array:
    """Returns the visited squares (n, 1024) bool, including the current one."""
    return step.memory.squares | _square(step.world)


def _count(squares: Array) -> Array:
    """Returns the numbers of squares (n,) as float64, the type of rewards."""
    xp = array_namespace(squares)
    return xp.sum(xp.astype(squares, xp.float64), axis=1)
