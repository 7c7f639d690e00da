"""Pick: take an object and bring it to the resting point (HAB's RearrangePickTask; 0.3.3).

Succeeds when the target is held, the hold constraint is intact, and the end effector is within
0.15 m of the resting point. MS-HAB also asks for the arm to be near its resting posture and for the
base to stand still (`SkillThresholds.pick_arm_rad`, `pick_still`).
"""

import dataclasses
from typing import Any

import numpy as np
from array_api_compat import device

from skills.core.geometry import array_namespace, constant, each, holding, length, rest_vector, seen
from skills.core.interface import Margin, SkillGoal, SkillThresholds
from skills.core.task import (
    DROPPED,
    WRONG_OBJECT,
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
from tpsrl.world.fetch import REST_ARM
from tpsrl.world.state import WorldState


@dataclasses.dataclass(frozen=True, slots=True)
class PickSettings(TaskSettings):
    """What Pick adds to the settings that all skills share."""

    distance: float = config.option(2.0, "reward for each metre nearer: cup to object, then rest")
    pick: float = config.option(2.0, "reward for picking the target, once")
    drop: float = config.option(0.5, "penalty for dropping it, which ends the episode")
    wrong_pick: float = config.option(0.5, "penalty for another object, which ends the episode")


def picked(has: Any, rest: Any, world: WorldState, thresholds: SkillThresholds) -> Any:
    """Success (n,) bool; whether the target is held (n,), distances (n,) from the resting point."""
    good = has & (rest < thresholds.pick_rest_m) & ~world.violation
    if thresholds.pick_arm_rad is None and thresholds.pick_still is None:
        return good
    return good & settled(world.arm, world.base_velocity, thresholds)


def settled(arm: Any, base_velocity: Any, thresholds: SkillThresholds) -> Any:
    """Whether MS-HAB's further conditions of Pick hold (n,) bool; those that are None do.

    Arm joints (n, 7) and base velocities (n, 3).
    """
    xp = array_namespace(arm)
    good = xp.ones(arm.shape[0], dtype=xp.bool, device=device(arm))
    if thresholds.pick_arm_rad is not None:
        good = good & (posture_error(arm) < thresholds.pick_arm_rad)
    if thresholds.pick_still is not None:
        good = good & (xp.max(xp.abs(base_velocity), axis=-1) < thresholds.pick_still)
    return good


def posture_error(arm: Any) -> Any:
    """The largest distance (n,) in rad of a joint of arms (n, 7) from the resting posture."""
    xp = array_namespace(arm)
    off = arm - constant(REST_ARM, arm)
    return xp.max(xp.abs(xp.atan2(xp.sin(off), xp.cos(off))), axis=-1)


def picked_wrong(held: Any, target: Any) -> Any:
    """Whether another object than the target is held (n,) bool, for object indices (n,)."""
    return (held >= 0) & (held != target)


class Pick(SkillTask):
    """The definition; `SkillGoal.object` is what to pick."""

    name = "pick"
    settings_type = PickSettings
    penalties = ("drop", "wrong_pick")
    needs = ("object",)
    parts = (action.ARM, action.GRIP, action.BASE)
    sensors = ("start_from_ee", "arm", "holding", "to_rest")

    def look(
        self, goals: Goals | TaskState, world: WorldState, thresholds: SkillThresholds
    ) -> View:
        """`distance` is from the end effector to the object's centre."""
        target = each(world.object_pos, goals.object)
        local = seen(world, target)
        ee, subject = local[:, 0], local[:, 1]
        to_rest, unused = rest_vector(ee), 0.0 * world.force
        return View(
            ee=ee,
            subject=subject,
            goal=subject,
            to_rest=to_rest,
            distance=length(subject - ee),
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
        settings: PickSettings,
        thresholds: SkillThresholds,
    ) -> Judgement:
        """Rewards coming nearer to the object, the grasp, then coming nearer to rest."""
        xp = array_namespace(world.base)
        has, had = world.held == task.object, task.rewarded
        free = world.held < 0
        wrong, dropped = ~(has | free), had & free
        # The distance is another one before and after the grasp; only like is compared with like.
        progress = xp.where(has, task.rest - view.rest, task.distance - view.distance)
        same = (has == had) & ~wrong
        return Judgement(
            success=picked(has, view.rest, world, thresholds),
            failure=xp.where(wrong, WRONG_OBJECT, xp.where(dropped, DROPPED, 0)),
            amounts={
                "distance": xp.where(same, rounded(xp, progress), 0.0),
                "pick": has & ~had,
                "drop": dropped,
                "wrong_pick": wrong,
            },
            rewarded=had | has,
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
        """Holding, intact (no hold violation), rest (m), and MS-HAB's where asked for."""
        parts = {
            "holding": Margin.flag(world.held[0] == goal.object),
            "intact": Margin.flag(not world.violation[0]),
            "rest": Margin.below(float(view.rest[0]), thresholds.pick_rest_m, "m"),
        }
        if thresholds.pick_arm_rad is not None:
            bent = float(posture_error(world.arm)[0])
            parts["posture"] = Margin.below(bent, thresholds.pick_arm_rad, "rad")
        if thresholds.pick_still is not None:
            speed = float(np.max(np.abs(world.base_velocity[0])))
            parts["still"] = Margin.below(speed, thresholds.pick_still, "m/s")
        return parts

    def failure(self, goal: SkillGoal, world: WorldState, thresholds: SkillThresholds) -> str:
        """ "wrong_object" when another object is held, "dropped" when the hold broke."""
        if picked_wrong(world.held, np.asarray([goal.object]))[0]:
            return "wrong_object"
        return "dropped" if world.violation[0] else ""
