"""Navigate: drive to a position and face it (HAB's NavToObjTask; habitat-lab 0.3.3).

Succeeds when the base is within 1.5 m of the goal over the floor, faces it within 15 degrees, and
the policy has called stop. With a region (`SkillThresholds.navigate_region_m`) the distance counts
from the region's edge, as with M3's region goals.
"""

import dataclasses
from typing import Any, ClassVar

from skills.core.geometry import array_namespace, holding, length, rest_vector, seen
from skills.core.interface import Margin, SkillGoal, SkillThresholds
from skills.core.task import STOPPED, Goals, Judgement, SkillTask, TaskSettings, TaskState, View
from tpsrl import config
from tpsrl.world import action
from tpsrl.world.state import WorldState


@dataclasses.dataclass(frozen=True, slots=True)
class NavigateSettings(TaskSettings):
    """What Navigate adds to the settings that all skills share."""

    distance: float = config.option(1.0, "reward for each metre nearer, as the crow flies")
    heading: float = config.option(1.0, "reward for each radian turned towards the goal")
    heading_within_m: float = config.option(3.0, "where turning is rewarded", minimum=0)


def arrived(distance: Any, heading: Any, stop: Any, thresholds: SkillThresholds) -> Any:
    """Success (n,) bool for distances (n,) in m, heading errors (n,) in rad, stop calls (n,)."""
    xp = array_namespace(distance)
    near = distance < thresholds.navigate_region_m + thresholds.navigate_distance_m
    return near & (xp.abs(heading) < thresholds.navigate_angle_rad) & stop


class Navigate(SkillTask):
    """The definition; `SkillGoal.position` is where to go."""

    name = "navigate"
    settings_type: ClassVar[type[TaskSettings]] = NavigateSettings
    needs = ("position",)
    parts = (action.BASE, action.STOP)
    sensors = ("goal_polar", "arm")
    full_sensors: ClassVar[tuple[str, ...]] = (
        "arm", "ee", "to_rest", "holding", "velocity", "reach", "goal", "gap", "way", "scan",
    )  # fmt: skip

    def reach_m(self, thresholds: SkillThresholds) -> float | None:
        """From this near, success is within reach."""
        return thresholds.navigate_region_m + thresholds.navigate_distance_m

    def look(
        self, goals: Goals | TaskState, world: WorldState, thresholds: SkillThresholds
    ) -> View:
        """`distance` is from the base to the goal over the floor."""
        xp = array_namespace(world.base)
        local = seen(world, goals.position)
        ee, goal = local[:, 0], local[:, 1]
        to_rest = rest_vector(ee)
        return View(
            ee=ee,
            subject=goal,
            goal=goal,
            to_rest=to_rest,
            distance=length(goal[:, :2]),
            heading=xp.atan2(goal[:, 1], goal[:, 0]),
            rest=length(to_rest),
            gap=0.0 * world.force,
            holding=holding(world),
            velocity=local[:, -1],
        )

    def judge(
        self,
        task: TaskState,
        view: View,
        world: WorldState,
        stop: Any,
        settings: NavigateSettings,
        thresholds: SkillThresholds,
    ) -> Judgement:
        """Rewards coming nearer and, near the goal, turning to it; any stop ends the episode."""
        xp = array_namespace(world.base)
        success = arrived(view.distance, view.heading, stop, thresholds)
        within = settings.heading_within_m
        near = (view.distance < within) & (task.distance < within)
        turned = xp.abs(task.heading) - xp.abs(view.heading)
        return Judgement(
            success=success,
            failure=xp.where(stop & ~success, STOPPED, 0),
            amounts={
                "distance": task.distance - view.distance,
                "heading": xp.where(near, turned, 0.0),
            },
            rewarded=task.rewarded,
            reached=task.reached,
        )

    def success_parts(
        self,
        goal: SkillGoal,
        view: View,
        world: WorldState,
        stop: bool,
        thresholds: SkillThresholds,
    ) -> dict[str, Margin]:
        """Distance (m), heading (rad), stop."""
        reach = thresholds.navigate_region_m + thresholds.navigate_distance_m
        turn = abs(float(view.heading[0]))
        return {
            "distance": Margin.below(float(view.distance[0]), reach, "m"),
            "heading": Margin.below(turn, thresholds.navigate_angle_rad, "rad"),
            "stop": Margin.flag(stop),
        }
