"""Navigate: drive to a position and face it (HAB's NavToObjTask; habitat-lab 0.3.3).

Succeeds when the base is within 1.5 m of the goal over the floor, faces it within 15 degrees, and
the policy has called stop. With a region (`NavigateThresholds.region_m`) the distance counts from
the region's edge, as with M3's region goals.
"""

import dataclasses
from typing import Any, ClassVar

from skills.core.conditions import Condition, Conditions
from skills.core.geometry import array_namespace, length
from skills.core.measures import Measures, Memory, common
from skills.core.path_metrics import PathProgress
from skills.core.settings import TaskSettings
from skills.core.skill import STOPPED, Evaluation, Line, Skill
from skills.core.state import Goals, TaskState
from tpsrl import config
from tpsrl.world import action
from tpsrl.world.state import WorldState


@dataclasses.dataclass(frozen=True, slots=True)
class NavigateSettings(TaskSettings):
    """What Navigate adds to the settings that all skills share."""

    distance: float = config.option(1.0, "reward per metre of straight-line progress to the goal")
    heading: float = config.option(1.0, "reward per radian turned towards the goal")
    heading_within_m: float = config.option(
        3.0, "distance to the goal within which turning is rewarded (m)", minimum=0
    )


@dataclasses.dataclass(frozen=True, slots=True)
class NavigateThresholds:
    """When Navigate has succeeded.

    `region_m` is the radius around the goal within which all free floor counts as the goal;
    `distance_m` is measured from there.
    """

    distance_m: float = config.option(1.5, "maximum distance to the goal (m)")
    angle_rad: float = config.option(0.261799, "maximum angle to the goal (rad)")
    region_m: float = config.option(0.0, "radius of the region that counts as the goal (m)")


@dataclasses.dataclass(slots=True)
class NavigateMeasures(Measures):
    """Base to goal over the floor; the angle to the goal, left positive."""

    distance: Any  # (n,) m
    heading: Any  # (n,) rad


@dataclasses.dataclass(slots=True)
class NavigateMemory(Memory):
    """What the step before has left, from which progress is counted."""

    distance: Any  # (n,) m
    heading: Any  # (n,) rad


class Navigate(Skill):
    """The definition; `SkillGoal.position` is where to go."""

    settings_type: ClassVar[type[TaskSettings]] = NavigateSettings
    needs = ("position",)
    parts = (action.BASE, action.STOP)
    sensors = ("goal_polar", "arm")
    full_sensors: ClassVar[tuple[str, ...]] = (
        "arm", "ee", "to_rest", "holding", "velocity", "reach", "goal", "gap", "way", "scan",
    )  # fmt: skip

    def reach_m(self, thresholds: NavigateThresholds) -> float | None:
        """From this near, success is within reach."""
        return thresholds.region_m + thresholds.distance_m

    def line(self, thresholds: NavigateThresholds) -> Line:
        """See `Skill.line`."""
        return Line(thresholds.region_m + thresholds.distance_m, "m")

    def measure(
        self,
        goals: Goals | TaskState,
        world: WorldState,
        thresholds: Any,
        path: PathProgress | None = None,
    ) -> NavigateMeasures:
        """See `Skill.measure`."""
        shared, _ = common(world, goals.position)
        goal = shared["subject"]
        heading = array_namespace(goal).atan2(goal[:, 1], goal[:, 0])
        return NavigateMeasures(**shared, distance=length(goal[:, :2]), heading=heading)

    def remember(self, goals: Goals, measures: Any, world: WorldState) -> Memory:
        """See `Skill.remember`."""
        return NavigateMemory(measures.distance, measures.heading)

    def conditions(
        self,
        goals: Goals | TaskState,
        measures: Any,
        world: WorldState,
        stop: Any,
        thresholds: Any,
    ) -> Conditions:
        """Distance (m), heading (rad), stop."""
        xp = array_namespace(world.base)
        reach = thresholds.region_m + thresholds.distance_m
        return {
            "distance": Condition.below(measures.distance, reach, "m"),
            "heading": Condition.below(xp.abs(measures.heading), thresholds.angle_rad, "rad"),
            "stop": Condition.fact(stop),
        }

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
        """Rewards coming nearer and, near the goal, turning to it; any stop ends the episode."""
        xp, before = array_namespace(world.base), task.memory
        assert isinstance(before, NavigateMemory)
        within = settings.heading_within_m
        near = (measures.distance < within) & (before.distance < within)
        turned = xp.abs(before.heading) - xp.abs(measures.heading)
        return Evaluation(
            failure=xp.where(stop & ~success, STOPPED, 0),
            amounts={
                "distance": before.distance - measures.distance,
                "heading": xp.where(near, turned, 0.0),
            },
            memory=NavigateMemory(measures.distance, measures.heading),
        )
