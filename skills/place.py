"""Place: put the held object at its goal and return (HAB's RearrangePlaceTask; 0.3.3).

Succeeds when the object is within 0.15 m of the goal, nothing is held, and the end effector is
within 0.15 m of the resting point.
"""

from typing import Any

import numpy as np

from skills.base import Margin, SkillGoal, SkillThresholds
from skills.geometry import distance, rest_distance
from skills.results import with_success
from tpsrl.world import action
from tpsrl.world.state import WorldState


def placed(
    base: Any, ee_pos: Any, held: Any, object_pos: Any, position: Any, thresholds: SkillThresholds
) -> Any:
    """Success (n,) bool.

    Base poses (n, 3), end effectors (n, 3), held object indices (n,), positions of the object and
    of its goal (n, 3).
    """
    at_goal = distance(object_pos, position) < thresholds.place_goal_m
    at_rest = rest_distance(base, ee_pos) < thresholds.place_rest_m
    return at_goal & (held < 0) & at_rest


def dropped_wrong(
    base: Any, ee_pos: Any, held: Any, object_pos: Any, position: Any, thresholds: SkillThresholds
) -> Any:
    """Whether the object was let go off its goal for good (n,) bool; arguments of `placed`.

    One state does not tell a falling or settling object from one at rest. So the verdict waits
    until the arm is back at rest: all that the skill can do is done, and by then, a second or more
    after the release, the object lies still.
    """
    off_goal = distance(object_pos, position) >= thresholds.place_goal_m
    at_rest = rest_distance(base, ee_pos) < thresholds.place_rest_m
    return off_goal & (held < 0) & at_rest


class Place:
    """The definition; `SkillGoal.object` is what to place, `SkillGoal.position` where."""

    name = "place"

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
        """Success with its parts: at_goal (m), released, rest (m)."""
        off = float(distance(world.object_pos[:, goal.object], np.asarray([goal.position]))[0])
        away = float(rest_distance(world.base, world.ee_pos)[0])
        return with_success(
            {
                "at_goal": Margin.below(off, thresholds.place_goal_m, "m"),
                "released": Margin.flag(world.held[0] < 0),
                "rest": Margin.below(away, thresholds.place_rest_m, "m"),
            }
        )

    def failure(self, goal: SkillGoal, world: WorldState, thresholds: SkillThresholds) -> str:
        """ "dropped" when the hold broke, "wrong_drop" when it was let go off the goal for good."""
        if world.violation[0]:
            return "dropped"
        position = np.asarray([goal.position])
        object_pos = world.object_pos[:, goal.object]
        wrong = dropped_wrong(
            world.base, world.ee_pos, world.held, object_pos, position, thresholds
        )
        return "wrong_drop" if wrong[0] else ""
