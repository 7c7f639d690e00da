"""Navigate: drive to a position and face it (HAB's NavToObjTask; habitat-lab 0.3.3).

Succeeds when the base is within 1.5 m of the goal over the floor, faces it within 15 degrees, and
the policy has called stop.
"""

from typing import Any

import numpy as np

from skills.base import Margin, SkillGoal, SkillThresholds
from skills.geometry import heading_error, planar_distance
from skills.results import with_success
from tpsrl.world import action
from tpsrl.world.state import WorldState


def arrived(base: Any, position: Any, stop: Any, thresholds: SkillThresholds) -> Any:
    """Success (n,) bool for base poses (n, 3), goal positions (n, 3) and stop calls (n,) bool."""
    near = planar_distance(base, position) < thresholds.navigate_distance_m
    facing = heading_error(base, position) < thresholds.navigate_angle_rad
    return near & facing & stop


class Navigate:
    """The definition; `SkillGoal.position` is where to go."""

    name = "navigate"

    def mask(self) -> np.ndarray:
        """(11,) bool: base and stop."""
        mask = np.zeros(action.SIZE, dtype=bool)
        mask[action.BASE] = True
        mask[action.STOP] = True
        return mask

    def results(
        self, goal: SkillGoal, world: WorldState, stop: bool, thresholds: SkillThresholds
    ) -> dict[str, Margin]:
        """Success with its parts: distance (m), heading (rad), stop."""
        position = np.asarray([goal.position])
        away = float(planar_distance(world.base, position)[0])
        turn = float(heading_error(world.base, position)[0])
        return with_success(
            {
                "distance": Margin.below(away, thresholds.navigate_distance_m, "m"),
                "heading": Margin.below(turn, thresholds.navigate_angle_rad, "rad"),
                "stop": Margin.flag(stop),
            }
        )

    def failure(self, goal: SkillGoal, world: WorldState, thresholds: SkillThresholds) -> str:
        """Always "": a robot that can still drive can still arrive."""
        return ""
