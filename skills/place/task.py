"""Place: put the held object at its goal and return (HAB's RearrangePlaceTask; 0.3.3).

Succeeds when the object is within 0.15 m of the goal, nothing is held, and the end effector is
within 0.15 m of the resting point.
"""

import dataclasses
from typing import Any

from skills.core.geometry import array_namespace, each, holding, length, rest_vector, seen
from skills.core.interface import Margin, SkillGoal, SkillThresholds
from skills.core.task import (
    DROPPED,
    WRONG_DROP,
    Goals,
    Judgement,
    SkillTask,
    TaskSettings,
    TaskState,
    View,
    rounded,
)
from tpsrl import config
from tpsrl.world import action
from tpsrl.world.state import WorldState


@dataclasses.dataclass(frozen=True, slots=True)
class PlaceSettings(TaskSettings):
    """What Place adds to the settings that all skills share."""

    distance: float = config.option(2.0, "reward for each metre nearer: object to goal, then rest")
    place: float = config.option(5.0, "reward for letting go at the goal, once")
    drop: float = config.option(0.0, "penalty for letting go elsewhere, which ends the episode")


def placed(distance: Any, rest: Any, holding: Any, thresholds: SkillThresholds) -> Any:
    """Success (n,) bool.

    Distances (n,) in m of the object from its goal and of the end effector from its resting point,
    and whether the cup holds anything (n,) bool.
    """
    return (distance < thresholds.place_goal_m) & ~holding & (rest < thresholds.place_rest_m)


def dropped_wrong(distance: Any, rest: Any, holding: Any, thresholds: SkillThresholds) -> Any:
    """Whether the object was let go off its goal for good (n,) bool; arguments of `placed`.

    One state does not tell a falling or settling object from one at rest. So the verdict waits
    until the arm is back at rest: all that the skill can do is done, and by then, a second or more
    after the release, the object lies still.
    """
    return (distance >= thresholds.place_goal_m) & ~holding & (rest < thresholds.place_rest_m)


class Place(SkillTask):
    """The definition; `SkillGoal.object` is what to place, `SkillGoal.position` where."""

    name = "place"
    settings_type = PlaceSettings
    penalties = ("drop",)
    needs = ("object", "position")
    parts = (action.ARM, action.GRIP, action.BASE)
    sensors = ("goal_from_ee", "arm", "holding", "to_rest")

    def look(
        self, goals: Goals | TaskState, world: WorldState, thresholds: SkillThresholds
    ) -> View:
        """`distance` is from the object's centre to its goal."""
        target = each(world.object_pos, goals.object)
        local = seen(world, target, goals.position)
        ee, subject, goal = local[:, 0], local[:, 1], local[:, 2]
        to_rest, unused = rest_vector(ee), 0.0 * world.force
        return View(
            ee=ee,
            subject=subject,
            goal=goal,
            to_rest=to_rest,
            distance=length(goal - subject),
            heading=unused,
            rest=length(to_rest),
            gap=unused,
            holding=holding(world),
            velocity=local[:, -1],
        )

    def judge(
        self,
        task: TaskState,
        view: View,
        world: WorldState,
        stop: Any,
        settings: PlaceSettings,
        thresholds: SkillThresholds,
    ) -> Judgement:
        """Rewards bringing the object nearer to its goal, the release, then coming nearer to rest.

        `reached` is that the object stands free at its goal, so that the way back counts.
        """
        xp = array_namespace(world.base)
        free = ~view.holding
        at_goal = view.distance < thresholds.place_goal_m
        released = free & ~task.rewarded
        off_goal = released & ~at_goal
        back = free & at_goal
        # Nearer than the tolerance there is nothing to gain, so that the object is let go there.
        progress = xp.where(back, task.rest - view.rest, task.distance - view.distance)
        same = (back == task.reached) & (back | ~at_goal) & ~off_goal
        return Judgement(
            success=placed(view.distance, view.rest, view.holding, thresholds),
            failure=xp.where(off_goal, xp.where(world.violation, DROPPED, WRONG_DROP), 0),
            amounts={
                "distance": xp.where(same, rounded(xp, progress), 0.0),
                "place": released & at_goal,
                "drop": off_goal,
            },
            rewarded=task.rewarded | free,
            reached=back,
        )

    def success_parts(
        self,
        goal: SkillGoal,
        view: View,
        world: WorldState,
        stop: bool,
        thresholds: SkillThresholds,
    ) -> dict[str, Margin]:
        """At_goal (m), released, rest (m)."""
        return {
            "at_goal": Margin.below(float(view.distance[0]), thresholds.place_goal_m, "m"),
            "released": Margin.flag(not view.holding[0]),
            "rest": Margin.below(float(view.rest[0]), thresholds.place_rest_m, "m"),
        }

    def begun(self, view: View) -> Any:
        """Without anything in the hand there is nothing to let go."""
        return ~view.holding

    def failure(self, goal: SkillGoal, world: WorldState, thresholds: SkillThresholds) -> str:
        """ "dropped" when the hold broke, "wrong_drop" when it was let go off the goal for good."""
        if world.violation[0]:
            return "dropped"
        view = self.look(Goals.of([goal]), world, thresholds)
        wrong = dropped_wrong(view.distance, view.rest, view.holding, thresholds)
        return "wrong_drop" if wrong[0] else ""
