"""Navigate: drive to a position and face it (HAB's NavToObjTask; habitat-lab 0.3.3).

Success requires a horizontal distance of at most 1.5 m between base and goal, an angle to the goal
of at most 15 degrees, and stop. With a region (`NavigateThresholds.region_m`) the distance is
measured from the region's edge, as with M3's region goals.
"""

import dataclasses
from typing import ClassVar

from skills.core.arrays import Array
from skills.core.conditions import Condition, Conditions
from skills.core.context import MeasureContext, StartContext, StepContext
from skills.core.geometry import array_namespace, length
from skills.core.measures import Measures, Memory, common
from skills.core.settings import TaskSettings
from skills.core.skill import STOPPED, Evaluation, Line, Skill
from tpsrl import config
from tpsrl.world import action


@dataclasses.dataclass(frozen=True, slots=True)
class NavigateSettings(TaskSettings):
    """Settings of Navigate, in addition to those that all skills share."""

    distance: float = config.option(1.0, "reward per metre of straight-line progress to the goal")
    heading: float = config.option(1.0, "reward per radian turned towards the goal")
    heading_within_m: float = config.option(
        3.0, "distance to the goal within which turning is rewarded (m)", minimum=0
    )


@dataclasses.dataclass(frozen=True, slots=True)
class NavigateThresholds:
    """Success thresholds of Navigate.

    `region_m` is the radius around the goal within which all free floor counts as the goal;
    `distance_m` is measured from the edge of this region.
    """

    distance_m: float = config.option(1.5, "maximum distance to the goal (m)")
    angle_rad: float = config.option(0.261799, "maximum angle to the goal (rad)")
    region_m: float = config.option(0.0, "radius of the region that counts as the goal (m)")


@dataclasses.dataclass(slots=True)
class NavigateMeasures(Measures):
    """Horizontal distance from the base to the goal, and the angle to the goal (left positive)."""

    distance: Array  # (n,) m
    heading: Array  # (n,) rad


@dataclasses.dataclass(slots=True)
class NavigateMemory(Memory):
    """Measures of the previous step, from which progress is computed."""

    distance: Array  # (n,) m
    heading: Array  # (n,) rad


NavigateStep = StepContext[NavigateSettings, NavigateThresholds, NavigateMeasures, NavigateMemory]


class Navigate(Skill[NavigateSettings, NavigateThresholds, NavigateMeasures, NavigateMemory]):
    """Definition of Navigate; `SkillGoal.position` is the goal."""

    settings_type: ClassVar[type[TaskSettings]] = NavigateSettings
    needs = ("position",)
    parts = (action.BASE, action.STOP)
    explores = True
    sensors = ("goal_polar", "arm")
    full_sensors: ClassVar[tuple[str, ...]] = (
        "arm", "ee", "to_rest", "holding", "velocity", "reach", "goal", "gap", "way", "scan",
    )  # fmt: skip

    def measure(self, now: MeasureContext[NavigateThresholds]) -> NavigateMeasures:
        """Computes distance and angle from the base to the goal."""
        shared, _ = common(now.world, now.goals.position)
        goal = shared["subject"]
        heading = array_namespace(goal).atan2(goal[:, 1], goal[:, 0])
        return NavigateMeasures(**shared, distance=length(goal[:, :2]), heading=heading)

    def remember(self, start: StartContext[NavigateThresholds, NavigateMeasures]) -> NavigateMemory:
        """Returns the initial distance and angle."""
        return NavigateMemory(start.measures.distance, start.measures.heading)

    def conditions(self, step: NavigateStep) -> Conditions:
        """Returns the conditions distance (m), heading (rad), and stop."""
        measures, thresholds = step.measures, step.thresholds
        turned = array_namespace(measures.heading).abs(measures.heading)
        return {
            "distance": Condition.below(measures.distance, self.reach_m(thresholds), "m"),
            "heading": Condition.below(turned, thresholds.angle_rad, "rad"),
            "stop": Condition.fact(step.stop),
        }

    def evaluate(self, step: NavigateStep, success: Array) -> Evaluation:
        """Rewards progress and, near the goal, turning to it; any stop ends the episode."""
        measures, before = step.measures, step.memory
        xp = array_namespace(measures.heading)
        within = step.settings.heading_within_m
        near = (measures.distance < within) & (before.distance < within)
        turned = xp.abs(before.heading) - xp.abs(measures.heading)
        return Evaluation(
            failure=xp.where(step.stop & ~success, STOPPED, 0),
            amounts={
                "distance": before.distance - measures.distance,
                "heading": xp.where(near, turned, 0.0),
            },
            memory=NavigateMemory(measures.distance, measures.heading),
        )

    def reach_m(self, thresholds: NavigateThresholds) -> float:
        """Returns the distance from the goal (m) within which success is possible."""
        return thresholds.region_m + thresholds.distance_m

    def line(self, thresholds: NavigateThresholds) -> Line:
        """Returns the threshold of the distance to the goal."""
        return Line(self.reach_m(thresholds), "m")
