"""Open and close the fridge and the drawers (HAB's articulated object tasks; habitat-lab 0.3.3).

Opening succeeds when the joint has come to within 0.05 (m or rad) of its target or beyond, closing
when it is within 0.05 of zero; both ask for the end effector within 0.15 m of the resting point,
an empty cup, and stop. Closing is done without the grip: the door or drawer is pushed.
"""

import dataclasses
from typing import Any

from skills.core.geometry import array_namespace, each, holding, length, rest_vector, seen
from skills.core.interface import Margin, SkillGoal, SkillThresholds
from skills.core.task import (
    STOPPED,
    WRONG_GRASP,
    Goals,
    Judgement,
    SkillTask,
    TaskSettings,
    TaskState,
    View,
)
from tpsrl import config
from tpsrl.world import action
from tpsrl.world.state import WorldState


@dataclasses.dataclass(frozen=True, slots=True)
class ArticulatedSettings(TaskSettings):
    """What opening and closing add to the settings that all skills share."""

    handle: float = config.option(1.0, "reward for each metre of the cup nearer to the handle")
    grasp: float = config.option(5.0, "reward for holding the handle, once")
    joint: float = config.option(10.0, "reward for each metre or radian nearer to the target")
    reached: float = config.option(5.0, "reward for the joint at its target, once")
    rest: float = config.option(1.0, "reward for each metre nearer to rest, the joint at target")
    wrong_grasp: float = config.option(5.0, "penalty for holding another thing, which ends it")


def moved(gap: Any, rest: Any, holding: Any, stop: Any, tolerance: float, rest_m: float) -> Any:
    """Success (n,) bool of opening and closing.

    What the joint lacks (n,), distances (n,) in m of the end effector from its resting point,
    whether the cup holds anything (n,) and whether stop was called (n,) bool.
    """
    return (gap <= tolerance) & (rest < rest_m) & ~holding & stop


class _Articulated(SkillTask):
    """What the four skills share; `SkillGoal.marker` is the handle."""

    settings_type = ArticulatedSettings
    penalties = ("wrong_grasp",)
    needs = ("marker",)
    sensors = ("arm", "ee", "holding", "to_rest")
    unit = "m"

    def gap(self, opening: Any, thresholds: SkillThresholds) -> Any:
        """What joints at `opening` (n,) lack (m or rad); not positive: nothing."""
        raise NotImplementedError

    def tolerance(self, thresholds: SkillThresholds) -> float:
        """The largest gap (m or rad) that still counts as done."""
        raise NotImplementedError

    def look(
        self, goals: Goals | TaskState, world: WorldState, thresholds: SkillThresholds
    ) -> View:
        """`distance` is from the end effector to the handle."""
        handle = each(world.marker_pos, goals.joint)
        local = seen(world, handle)
        ee, subject = local[:, 0], local[:, 1]
        to_rest = rest_vector(ee)
        return View(
            ee=ee,
            subject=subject,
            goal=subject,
            to_rest=to_rest,
            distance=length(subject - ee),
            heading=0.0 * world.force,
            rest=length(to_rest),
            gap=self.gap(each(world.joints, goals.joint), thresholds),
            holding=holding(world),
            velocity=local[:, -1],
        )

    def judge(
        self,
        task: TaskState,
        view: View,
        world: WorldState,
        stop: Any,
        settings: ArticulatedSettings,
        thresholds: SkillThresholds,
    ) -> Judgement:
        """Rewards coming to the handle, the grasp, moving the joint, and then coming to rest.

        `reached` is that the joint has been at its target. Any stop ends the episode.
        """
        xp = array_namespace(world.base)
        tolerance, rest_m = self.tolerance(thresholds), thresholds.articulated_rest_m
        success = moved(view.gap, view.rest, view.holding, stop, tolerance, rest_m)
        wrong = view.holding & (world.held_joint != task.joint)
        grasped = view.holding & ~wrong
        done = view.gap <= tolerance
        nearer = task.distance - view.distance
        opened = xp.abs(task.gap) - xp.abs(view.gap)
        return Judgement(
            success=success,
            failure=xp.where(wrong, WRONG_GRASP, xp.where(stop & ~success, STOPPED, 0)),
            amounts={
                "handle": xp.where(done | view.holding, 0.0, nearer),
                "grasp": grasped & ~task.rewarded,
                "joint": xp.where(done, 0.0, opened),
                "reached": done & ~task.reached,
                "rest": xp.where(done, task.rest - view.rest, 0.0),
                "wrong_grasp": wrong,
            },
            rewarded=task.rewarded | grasped,
            reached=task.reached | done,
        )

    def success_parts(
        self,
        goal: SkillGoal,
        view: View,
        world: WorldState,
        stop: bool,
        thresholds: SkillThresholds,
    ) -> dict[str, Margin]:
        """Joint (m or rad), released, rest (m), stop."""
        gap, limit = float(view.gap[0]), self.tolerance(thresholds)
        return {
            "joint": Margin(gap <= limit, limit - gap, self.unit),
            "released": Margin.flag(not view.holding[0]),
            "rest": Margin.below(float(view.rest[0]), thresholds.articulated_rest_m, "m"),
            "stop": Margin.flag(stop),
        }

    def failure(self, goal: SkillGoal, world: WorldState, thresholds: SkillThresholds) -> str:
        """ "wrong_grasp" when an object or another handle is held."""
        joint = int(Goals.of([goal]).joint[0])
        wrong = world.held[0] >= 0 or world.held_joint[0] not in (-1, joint)
        return "wrong_grasp" if wrong else ""


class _Open(_Articulated):
    parts = (action.ARM, action.GRIP, action.BASE, action.STOP)

    def tolerance(self, thresholds: SkillThresholds) -> float:
        """`SkillThresholds.open_tolerance`."""
        return thresholds.open_tolerance


class _Close(_Articulated):
    parts = (action.ARM, action.BASE, action.STOP)

    def gap(self, opening: Any, thresholds: SkillThresholds) -> Any:
        """How far it is from closed, to either side."""
        return array_namespace(opening).abs(opening)

    def tolerance(self, thresholds: SkillThresholds) -> float:
        """`SkillThresholds.close_tolerance`."""
        return thresholds.close_tolerance


class OpenFridge(_Open):
    """Open the fridge's door to 1.2208 rad."""

    name = "open_fridge"
    unit = "rad"

    def gap(self, opening: Any, thresholds: SkillThresholds) -> Any:
        """What is missing to the target angle."""
        return thresholds.open_fridge_target_rad - opening


class OpenDrawer(_Open):
    """Open a drawer to 0.45 m."""

    name = "open_drawer"

    def gap(self, opening: Any, thresholds: SkillThresholds) -> Any:
        """What is missing to the target."""
        return thresholds.open_drawer_target_m - opening


class CloseFridge(_Close):
    """Close the fridge's door."""

    name = "close_fridge"
    unit = "rad"


class CloseDrawer(_Close):
    """Close a drawer."""

    name = "close_drawer"
