"""PointNav: drive to a point of the floor and say so (DD-PPO, section 4).

Succeeds when the policy calls stop within 0.2 m of the goal, along the floor; any stop ends the
episode. The reward is DD-PPO's: 2.5 x SPL at success, and at every step what the geodesic distance
to the goal fell, less 0.01. Its agent turns by steps of 10 degrees and drives by steps of 0.25 m,
500 of them; here a step turns up to 4.8 degrees while it drives up to 0.083 m.
"""

import dataclasses
from typing import Any

from skills.core.conditions import Condition, Conditions
from skills.core.geometry import array_namespace, length
from skills.core.measures import Measures, Memory, common
from skills.core.path_metrics import PathProgress, spl
from skills.core.settings import TaskSettings
from skills.core.skill import STOPPED, Evaluation, Skill
from skills.core.state import Goals, TaskState
from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.world import action
from tpsrl.world.state import WorldState


@dataclasses.dataclass(frozen=True, slots=True)
class PointNavSettings(TaskSettings):
    """What PointNav changes of, and adds to, the settings that all skills share."""

    horizon: int = config.option(500, "control steps until truncation", minimum=1)
    success: float = config.option(2.5, "reward for success, multiplied by SPL")
    slack: float = config.option(0.01, "penalty per step")
    progress: float = config.option(1.0, "reward per metre of geodesic progress")


@dataclasses.dataclass(frozen=True, slots=True)
class PointNavThresholds:
    """When PointNav has succeeded: DD-PPO's distance, along the floor."""

    distance_m: float = config.option(0.2, "maximum geodesic distance to the goal (m)")


@dataclasses.dataclass(slots=True)
class PointNavMeasures(Measures):
    """Base to goal as the crow flies, the angle to it (left positive), and the way by floor."""

    distance: Any  # (n,) m
    heading: Any  # (n,) rad
    path: PathProgress | None

    def way(self) -> PathProgress:
        """The way along the floor.

        Raises:
            UserError: it was not measured.
        """
        if self.path is None:
            raise UserError("path: PointNav is judged by the way along the floor; there is none")
        return self.path


class PointNav(Skill):
    """The definition; `SkillGoal.position` is where to go."""

    settings_type = PointNavSettings
    needs = ("position",)
    parts = (action.BASE, action.STOP)
    sensors = full_sensors = ("compass", "velocity")
    follows_path = True

    def reach_m(self, thresholds: Any) -> float:
        """The way ends at the goal itself."""
        return 0.0

    def measure(
        self,
        goals: Goals | TaskState,
        world: WorldState,
        thresholds: Any,
        path: PathProgress | None = None,
    ) -> PointNavMeasures:
        """See `Skill.measure`."""
        shared, _ = common(world, goals.position)
        goal = shared["subject"]
        heading = array_namespace(goal).atan2(goal[:, 1], goal[:, 0])
        distance = length(goal[:, :2])
        return PointNavMeasures(**shared, distance=distance, heading=heading, path=path)

    def conditions(
        self,
        goals: Goals | TaskState,
        measures: Any,
        world: WorldState,
        stop: Any,
        thresholds: Any,
    ) -> Conditions:
        """Distance along the floor (m), stop."""
        return {
            "distance": Condition.below(measures.way().left, thresholds.distance_m, "m"),
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
        """Rewards coming nearer along the floor, and success by SPL; any stop ends the episode."""
        xp, path = array_namespace(world.base), measures.way()
        return Evaluation(
            failure=xp.where(stop & ~success, STOPPED, 0),
            amounts={
                "success": spl(success, path.shortest, path.driven),
                "progress": path.gained,
            },
            memory=Memory(),
        )
