"""PointNav: drive to a point of the floor and call stop (DD-PPO, section 4).

Success is a stop within 0.2 m of the goal, along the floor; any stop ends the episode. The reward
is DD-PPO's: 2.5 x SPL at success, and at every step the decrease of the geodesic distance to the
goal, minus 0.01. DD-PPO's agent has 500 discrete steps, turns of 10 degrees or drives of 0.25 m;
here a step turns by up to 4.8 degrees and drives by up to 0.083 m at the same time.
"""

import dataclasses
from typing import Any

from skills.core.arrays import Array
from skills.core.conditions import Condition, Conditions
from skills.core.context import MeasureContext, StepContext
from skills.core.geometry import array_namespace, length
from skills.core.measures import Measures, Memory, common
from skills.core.path_metrics import spl
from skills.core.settings import TaskSettings
from skills.core.skill import STOPPED, Evaluation, Skill
from tpsrl import config
from tpsrl.world import action


@dataclasses.dataclass(frozen=True, slots=True)
class PointNavSettings(TaskSettings):
    """Settings of PointNav: changed defaults of the shared settings, and its own weight."""

    horizon: int = config.option(500, "control steps until truncation", minimum=1)
    success: float = config.option(2.5, "reward for success, multiplied by SPL")
    slack: float = config.option(0.01, "penalty per step")
    progress: float = config.option(1.0, "reward per metre of geodesic progress")


@dataclasses.dataclass(frozen=True, slots=True)
class PointNavThresholds:
    """Success threshold of PointNav: the geodesic distance used by DD-PPO."""

    distance_m: float = config.option(0.2, "maximum geodesic distance to the goal (m)")


@dataclasses.dataclass(slots=True)
class PointNavMeasures(Measures):
    """Straight-line distance from the base to the goal, and the angle to it (left positive)."""

    distance: Array  # (n,) m
    heading: Array  # (n,) rad


PointNavStep = StepContext[PointNavSettings, PointNavThresholds, PointNavMeasures, Memory]


class PointNav(Skill[PointNavSettings, PointNavThresholds, PointNavMeasures, Memory]):
    """Definition of PointNav; `SkillGoal.position` is the goal."""

    settings_type = PointNavSettings
    needs = ("position",)
    parts = (action.BASE, action.STOP)
    explores = True
    sensors = full_sensors = ("compass", "velocity")
    follows_path = True

    def measure(self, now: MeasureContext[PointNavThresholds]) -> PointNavMeasures:
        """Computes distance and angle from the base to the goal."""
        shared, _ = common(now.world, now.goals.position)
        goal = shared["subject"]
        heading = array_namespace(goal).atan2(goal[:, 1], goal[:, 0])
        return PointNavMeasures(**shared, distance=length(goal[:, :2]), heading=heading)

    def conditions(self, step: PointNavStep) -> Conditions:
        """Returns the conditions distance (along the floor, m) and stop."""
        return {
            "distance": Condition.below(step.way().left, step.thresholds.distance_m, "m"),
            "stop": Condition.fact(step.stop),
        }

    def evaluate(self, step: PointNavStep, success: Array) -> Evaluation:
        """See `arrival`."""
        return arrival(step, success, Memory())

    def reach_m(self, thresholds: PointNavThresholds) -> float:
        """Returns 0: the path ends at the goal itself."""
        return 0.0


def arrival(
    step: StepContext[PointNavSettings, Any, Any, Any], success: Array, memory: Memory
) -> Evaluation:
    """Returns the evaluation of PointNav and ObjectNav.

    Rewards progress along the floor, and success (n,) in proportion to SPL. Any stop ends the
    episode.
    """
    xp, path = array_namespace(step.world.base), step.way()
    return Evaluation(
        failure=xp.where(step.stop & ~success, STOPPED, 0),
        amounts={
            "success": spl(success, path.shortest, path.driven),
            "progress": path.gained,
        },
        memory=memory,
    )
