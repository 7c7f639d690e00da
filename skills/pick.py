"""Pick: take an object and bring it to the resting point (HAB's RearrangePickTask; 0.3.3).

Succeeds when the target is held, the hold constraint is intact, and the end effector is within
0.15 m of the resting point.
"""

from typing import Any

import numpy as np

from skills.base import Margin, SkillGoal, SkillThresholds
from skills.geometry import rest_distance
from skills.results import with_success
from tpsrl.world import action
from tpsrl.world.state import WorldState


def picked(
    base: Any, ee_pos: Any, held: Any, target: Any, violation: Any, thresholds: SkillThresholds
) -> Any:
    """Success (n,) bool.

    Base poses (n, 3), end effectors (n, 3), held and target object indices (n,), hold violations
    (n,) bool.
    """
    at_rest = rest_distance(base, ee_pos) < thresholds.pick_rest_m
    return (held == target) & ~violation & at_rest


def picked_wrong(held: Any, target: Any) -> Any:
    """Whether another object than the target is held (n,) bool, for object indices (n,)."""
    return (held >= 0) & (held != target)


class Pick:
    """The definition; `SkillGoal.object` is what to pick."""

    name = "pick"

    def mask(self) -> np.ndarray:
        """(11,) bool: arm, grip and base."""
        mask = np.zeros(action.SIZE, dtype=bool)
        mask[action.ARM] = True
        mask[action.GRIP] = True
        mask[action.BASE] = True
        return mask

    def results(
        self, goal: SkillGoal, world: WorldState, stop: bool, thresholds: SkillThresholds
    ) -> dict[str, Margin]:
        """Success with its parts: holding, intact (no hold violation), rest (m)."""
        away = float(rest_distance(world.base, world.ee_pos)[0])
        return with_success(
            {
                "holding": Margin.flag(world.held[0] == goal.object),
                "intact": Margin.flag(not world.violation[0]),
                "rest": Margin.below(away, thresholds.pick_rest_m, "m"),
            }
        )

    def failure(self, goal: SkillGoal, world: WorldState, thresholds: SkillThresholds) -> str:
        """ "wrong_object" when another object is held, "dropped" when the hold broke."""
        if picked_wrong(world.held, np.asarray([goal.object]))[0]:
            return "wrong_object"
        return "dropped" if world.violation[0] else ""
