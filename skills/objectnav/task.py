"""ObjectNav: find any instance of a category and stop beside it ("find a chair").

Success is a stop within 0.1 m, along the floor, of a viewpoint of any instance. Any stop ends the
episode. Viewpoints are within 1 m of the instance, with the instance in sight after a turn
(`tpsrl.world.viewpoints`), as defined by Habitat. The task is that of Batra et al., "ObjectNav
revisited: on evaluation of embodied agents navigating to objects" (2020), on which VER reports
(section 3). The reward is PointNav's.
"""

import dataclasses
from typing import ClassVar

from skills.core.arrays import Array
from skills.core.conditions import Condition, Conditions
from skills.core.context import MeasureContext, StartContext, StepContext
from skills.core.geometry import array_namespace, columns
from skills.core.measures import Measures, Memory, common
from skills.core.sensors import (
    CATEGORY,
    FRONTIER,
    HOME_M,
    LASER,
    SIGHTING,
    Sensor,
    SensorContext,
)
from skills.core.skill import Evaluation, Skill
from skills.pointnav.task import PointNavSettings, arrival
from tpsrl import config
from tpsrl.world import action


@dataclasses.dataclass(frozen=True, slots=True)
class ObjectNavThresholds:
    """Success threshold of ObjectNav: the geodesic distance used by Habitat."""

    viewpoint_m: float = config.option(
        0.1, "maximum geodesic distance to a viewpoint of an instance (m)"
    )


@dataclasses.dataclass(slots=True)
class ObjectNavMemory(Memory):
    """Initial base poses, the frames of odometry."""

    start: Array  # (n, 3) x, y in m, yaw in rad


ObjectNavStep = StepContext[PointNavSettings, ObjectNavThresholds, Measures, ObjectNavMemory]


def _gps(seen: SensorContext) -> Array:
    start = seen.task.memory.start
    xp = array_namespace(start)
    c, s = xp.cos(start[:, 2]), xp.sin(start[:, 2])
    x, y = seen.world.base[:, 0] - start[:, 0], seen.world.base[:, 1] - start[:, 1]
    return columns(c * x + s * y, c * y - s * x)


def _start_heading(seen: SensorContext) -> Array:
    turned = seen.world.base[:, 2] - seen.task.memory.start[:, 2]
    xp = array_namespace(turned)
    return columns(xp.cos(turned), xp.sin(turned))


class ObjectNav(Skill[PointNavSettings, ObjectNavThresholds, Measures, ObjectNavMemory]):
    """Definition of ObjectNav: find `Episode.category`; `SkillGoal.position` is one instance."""

    settings_type = PointNavSettings
    needs = ("position", "category")
    parts = (action.BASE, action.STOP)
    sensors = (CATEGORY, "gps", "start_heading", "velocity")
    full_sensors = (*sensors, LASER, FRONTIER, SIGHTING)
    own_sensors: ClassVar[dict[str, Sensor]] = {
        # Displacement of the base since the start: forward and left (m).
        "gps": Sensor(2, _gps, low=-HOME_M, high=HOME_M),
        # Change of heading since the start, left positive: cosine and sine.
        "start_heading": Sensor(2, _start_heading, low=-1.0, high=1.0),
    }
    follows_path = searches = True

    def measure(self, now: MeasureContext[ObjectNavThresholds]) -> Measures:
        """Computes the measures of all skills; the path to a viewpoint is measured separately."""
        shared, _ = common(now.world, now.goals.position)
        return Measures(**shared)

    def remember(self, start: StartContext[ObjectNavThresholds, Measures]) -> ObjectNavMemory:
        """Returns the initial base poses."""
        return ObjectNavMemory(start.world.base)

    def conditions(self, step: ObjectNavStep) -> Conditions:
        """Returns the conditions viewpoint (geodesic distance, m) and stop."""
        return {
            "viewpoint": Condition.below(step.way().left, step.thresholds.viewpoint_m, "m"),
            "stop": Condition.fact(step.stop),
        }

    def evaluate(self, step: ObjectNavStep, success: Array) -> Evaluation:
        """See `skills.pointnav.task.arrival`."""
        return arrival(step, success, step.memory)

    def reach_m(self, thresholds: ObjectNavThresholds) -> float:
        """Returns 0: the path ends at a viewpoint itself."""
        return 0.0
