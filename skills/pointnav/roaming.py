"""Flee and Explore: DD-PPO's tasks to transfer to (section 6, "Transfer learning", appendix F).

PointNav's episodes without their goals. Neither has a stop, and what a policy is shown is the
camera and its own velocity: no compass, no map. An episode goes on to the horizon unless nothing is
left to gain, which is what counts as success.
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

_SIDE = 32  # squares; homes are less than so many metres across


@dataclasses.dataclass(frozen=True, slots=True)
class FleeSettings(TaskSettings):
    """What Flee changes of, and adds to, the settings that all skills share."""

    horizon: int = config.option(500, "control steps until truncation", minimum=1)
    success: float = config.option(0.0, "reward for reaching the farthest point")
    fled: float = config.option(
        5.0, "reward for the distance from the start, as a fraction of the longest possible"
    )


@dataclasses.dataclass(frozen=True, slots=True)
class FleeThresholds:
    """When there is no farther to flee: what is left of the longest way, along the floor."""

    distance_m: float = config.option(0.2, "maximum shortfall from the longest path (m)")


@dataclasses.dataclass(frozen=True, slots=True)
class ExploreSettings(TaskSettings):
    """What Explore changes of, and adds to, the settings that all skills share."""

    horizon: int = config.option(500, "control steps until truncation", minimum=1)
    success: float = config.option(0.0, "reward for visiting every cell")
    visited: float = config.option(0.25, "reward per newly visited 1 m cell")


@dataclasses.dataclass(frozen=True, slots=True)
class ExploreThresholds:
    """When everything is explored: fewer squares of the free floor are left than these."""

    squares_left: int = config.option(
        1, "number of unvisited 1 m cells from which success is denied"
    )


@dataclasses.dataclass(slots=True)
class Visited(Memory):
    """The squares that n homes' robots have been in.

    A square has the place of its whole metres of x and y, modulo 32 each: homes are smaller.
    """

    squares: Array  # (n, 1024) bool


FleeStep = StepContext[FleeSettings, FleeThresholds, Measures, Memory]
ExploreStep = StepContext[ExploreSettings, ExploreThresholds, Measures, Visited]


class Roaming(Skill[SettingsT, ThresholdsT, Measures, MemoryT]):
    """What both have in common; `SkillGoal.position` is the start, which no sensor shows."""

    needs = ("position",)
    parts = (action.BASE,)
    sensors = full_sensors = ("velocity",)
    follows_path = surveys_floor = True

    def measure(self, now: MeasureContext[ThresholdsT]) -> Measures:
        """What all skills measure; the way along the floor is all that counts besides."""
        shared, _ = common(now.world, now.goals.position)
        return Measures(**shared)

    def reach_m(self, thresholds: ThresholdsT) -> float:
        """The way is measured to the start itself."""
        return 0.0

    @abc.abstractmethod
    def driving(self, task: TaskState[MemoryT], path: PathProgress) -> dict[str, Array]:
        """See `Skill.driving`."""


class Flee(Roaming[FleeSettings, FleeThresholds, Memory]):
    """Get as far away from the start as possible, along the floor.

    At every step the reward is 5 times what the share D = way from the start / longest way rose.
    """

    settings_type = FleeSettings

    def conditions(self, step: FleeStep) -> Conditions:
        """What is left of the longest way (m)."""
        path = step.way()
        left = _surveyed(path.farthest) - path.left
        return {"farthest": Condition.below(left, step.thresholds.distance_m, "m")}

    def evaluate(self, step: FleeStep, success: Array) -> Evaluation:
        """Rewards getting away; nothing fails."""
        xp, path = array_namespace(step.world.base), step.way()
        amounts = {"fled": -_share(path.gained, _surveyed(path.farthest))}
        return Evaluation(xp.zeros_like(step.steps), amounts, Memory())

    def driving(self, task: TaskState[Memory], path: PathProgress) -> dict[str, Array]:
        """The share of the longest way, the way itself, the longest one, and what was driven."""
        farthest = _surveyed(path.farthest)
        return {
            "fled": _share(path.left, farthest),
            "distance_m": path.left,
            "farthest_m": farthest,
            "driven_m": path.driven,
        }


class Explore(Roaming[ExploreSettings, ExploreThresholds, Visited]):
    """Visit as many squares of 1 m as possible.

    At every step the reward is 0.25 for a square that was not visited before; the first one, where
    the robot starts, counts as visited.
    """

    settings_type = ExploreSettings

    def remember(self, start: StartContext[ExploreThresholds, Measures]) -> Visited:
        """The square of the start."""
        return Visited(_square(start.world))

    def conditions(self, step: ExploreStep) -> Conditions:
        """Squares of the free floor less those visited, which may lie beside it."""
        left = _surveyed(step.way().squares) - _count(_visited(step))
        return {"left": Condition.below(left, step.thresholds.squares_left, "squares")}

    def evaluate(self, step: ExploreStep, success: Array) -> Evaluation:
        """Rewards a new square; nothing fails."""
        xp, visited = array_namespace(step.world.base), _visited(step)
        new = _count(visited) - _count(step.memory.squares)
        return Evaluation(xp.zeros_like(step.steps), {"visited": new}, Visited(visited))

    def driving(self, task: TaskState[Visited], path: PathProgress) -> dict[str, Array]:
        """Squares that were visited, those of the free floor, and what was driven."""
        visited, squares = _count(task.memory.squares), _surveyed(path.squares)
        return {"visited": visited, "squares": squares, "driven_m": path.driven}


def _surveyed(found: Array | None) -> Array:
    """What is known of the floor where it was surveyed.

    Raises:
        UserError: it was not.
    """
    if found is None:
        raise UserError("path: roaming is judged by the way along the floor; there is none")
    return found


def _share(way: Array, longest: Array) -> Array:
    """Ways (n,) as shares of the longest ones (n,)."""
    xp = array_namespace(longest)
    return way / xp.where(longest > 0.0, longest, 1.0)


def _square(world: WorldState) -> Array:
    """(n, 1024) bool: the square that each base is in."""
    xp = array_namespace(world.base)
    cell = xp.astype(xp.floor(world.base[:, :2] / SQUARE_M), xp.int64) % _SIDE
    place = cell[:, 0] * _SIDE + cell[:, 1]
    return place[:, None] == xp.arange(_SIDE * _SIDE, device=device(place))[None, :]


def _visited(step: ExploreStep) -> Array:
    """The squares (n, 1024) bool that were visited, the present one among them."""
    return step.memory.squares | _square(step.world)


def _count(squares: Array) -> Array:
    """How many (n,), as the reward's numbers are."""
    xp = array_namespace(squares)
    return xp.sum(xp.astype(squares, xp.float64), axis=1)
