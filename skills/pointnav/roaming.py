"""Flee and Explore: DD-PPO's tasks to transfer to (section 6, "Transfer learning", appendix F).

PointNav's episodes without their goals. Neither has a stop, and what a policy is shown is the
camera and its own velocity: no compass, no map. An episode goes on to the horizon unless nothing is
left to gain, which is what counts as success.
"""

import abc
import dataclasses
from typing import Any

from array_api_compat import device

from skills.core.conditions import Condition, Conditions
from skills.core.geometry import array_namespace
from skills.core.measures import Measures, Memory, common
from skills.core.path_metrics import PathProgress
from skills.core.settings import TaskSettings
from skills.core.skill import Evaluation, Skill
from skills.core.state import Goals, TaskState
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
class RoamingMeasures(Measures):
    """The way along the floor; its goal is the start."""

    path: PathProgress | None

    def way(self) -> PathProgress:
        """The way along the floor, with the floor surveyed.

        Raises:
            UserError: it was not measured.
        """
        if self.path is None or self.path.farthest is None:
            raise UserError("path: roaming is judged by the way along the floor; there is none")
        return self.path


@dataclasses.dataclass(slots=True)
class Visited(Memory):
    """The squares that n homes' robots have been in.

    A square has the place of its whole metres of x and y, modulo 32 each: homes are smaller.
    """

    squares: Any  # (n, 1024) bool


class Roaming(Skill):
    """What both have in common; `SkillGoal.position` is the start, which no sensor shows."""

    needs = ("position",)
    parts = (action.BASE,)
    sensors = full_sensors = ("velocity",)
    follows_path = surveys_floor = True

    def reach_m(self, thresholds: Any) -> float:
        """The way is measured to the start itself."""
        return 0.0

    def measure(
        self,
        goals: Goals | TaskState,
        world: WorldState,
        thresholds: Any,
        path: PathProgress | None = None,
    ) -> RoamingMeasures:
        """See `Skill.measure`."""
        shared, _ = common(world, goals.position)
        return RoamingMeasures(**shared, path=path)

    @abc.abstractmethod
    def driving(self, task: TaskState, path: PathProgress) -> dict[str, Any]:
        """See `Skill.driving`."""


class Flee(Roaming):
    """Get as far away from the start as possible, along the floor.

    At every step the reward is 5 times what the share D = way from the start / longest way rose.
    """

    settings_type = FleeSettings

    def conditions(
        self,
        goals: Goals | TaskState,
        measures: Any,
        world: WorldState,
        stop: Any,
        thresholds: Any,
    ) -> Conditions:
        """What is left of the longest way (m)."""
        way = measures.way()
        return {"farthest": Condition.below(way.farthest - way.left, thresholds.distance_m, "m")}

    def evaluate(
        self,
        task: TaskState,
        measures: Any,
        world: WorldState,
        stop: Any,
        success: Any,
        settings: Any,
        thresholds: Any,
    ) -> Evaluation:
        """Rewards getting away; nothing fails."""
        xp, way = array_namespace(world.base), measures.way()
        amounts = {"fled": -_share(way.gained, way.farthest)}
        return Evaluation(xp.zeros_like(task.steps), amounts, Memory())

    def driving(self, task: TaskState, path: PathProgress) -> dict[str, Any]:
        """The share of the longest way, the way itself, the longest one, and what was driven."""
        return {
            "fled": _share(path.left, path.farthest),
            "distance_m": path.left,
            "farthest_m": path.farthest,
            "driven_m": path.driven,
        }


class Explore(Roaming):
    """Visit as many squares of 1 m as possible.

    At every step the reward is 0.25 for a square that was not visited before; the first one, where
    the robot starts, counts as visited.
    """

    settings_type = ExploreSettings

    def remember(self, goals: Goals, measures: Measures, world: WorldState) -> Visited:
        """The square of the start."""
        return Visited(_square(world))

    def conditions(
        self,
        goals: Goals | TaskState,
        measures: Any,
        world: WorldState,
        stop: Any,
        thresholds: Any,
    ) -> Conditions:
        """Squares of the free floor less those visited, which may lie beside it."""
        assert isinstance(goals, TaskState)
        left = measures.way().squares - _count(_visited(goals, world))
        return {"left": Condition.below(left, thresholds.squares_left, "squares")}

    def evaluate(
        self,
        task: TaskState,
        measures: Any,
        world: WorldState,
        stop: Any,
        success: Any,
        settings: Any,
        thresholds: Any,
    ) -> Evaluation:
        """Rewards a new square; nothing fails."""
        xp, visited = array_namespace(world.base), _visited(task, world)
        new = _count(visited) - _count(_memory(task).squares)
        return Evaluation(xp.zeros_like(task.steps), {"visited": new}, Visited(visited))

    def driving(self, task: TaskState, path: PathProgress) -> dict[str, Any]:
        """Squares that were visited, those of the free floor, and what was driven."""
        visited = _count(_memory(task).squares)
        return {"visited": visited, "squares": path.squares, "driven_m": path.driven}


def _share(way: Any, longest: Any) -> Any:
    """Ways (n,) as shares of the longest ones (n,)."""
    xp = array_namespace(longest)
    return way / xp.where(longest > 0.0, longest, 1.0)


def _square(world: WorldState) -> Any:
    """(n, 1024) bool: the square that each base is in."""
    xp = array_namespace(world.base)
    cell = xp.astype(xp.floor(world.base[:, :2] / SQUARE_M), xp.int64) % _SIDE
    place = cell[:, 0] * _SIDE + cell[:, 1]
    return place[:, None] == xp.arange(_SIDE * _SIDE, device=device(place))[None, :]


def _memory(task: TaskState) -> Visited:
    assert isinstance(task.memory, Visited)
    return task.memory


def _visited(task: TaskState, world: WorldState) -> Any:
    """The squares (n, 1024) bool that were visited, the present one among them."""
    return _memory(task).squares | _square(world)


def _count(squares: Any) -> Any:
    """How many (n,), as the reward's numbers are."""
    xp = array_namespace(squares)
    return xp.sum(xp.astype(squares, xp.float64), axis=1)
