"""Pick: take an object and bring it to the resting point (HAB's RearrangePickTask; 0.3.3).

Success requires that the target is held, the hold constraint is intact, and the end effector is
within 0.15 m of its resting point. MS-HAB also requires the arm near its resting posture and a
stationary base (`PickThresholds.arm_rad`, `still`).
"""

import dataclasses
from typing import ClassVar

from skills.core.arrays import Array
from skills.core.conditions import Condition, Conditions
from skills.core.context import MeasureContext, StartContext, StepContext
from skills.core.geometry import Constant, array_namespace, each, length, millimetres
from skills.core.measures import Measures, Memory, common
from skills.core.sensors import GRIP_RULE, Sensor, SensorContext
from skills.core.settings import TaskSettings
from skills.core.skill import DROPPED, WRONG_OBJECT, Evaluation, Skill
from skills.core.state import TaskState
from skills.pick.gripping import should_grip
from tpsrl import config
from tpsrl.world import action
from tpsrl.world.fetch import REST_ARM


@dataclasses.dataclass(frozen=True, slots=True)
class PickSettings(TaskSettings):
    """Settings of Pick, in addition to those that all skills share."""

    distance: float = config.option(
        2.0, "reward per metre of progress: cup to object, then to rest"
    )
    pick: float = config.option(2.0, "one-time reward for picking the target")
    drop: float = config.option(0.5, "penalty for dropping it, which ends the episode")
    wrong_pick: float = config.option(
        0.5, "penalty for picking another object, which ends the episode"
    )


@dataclasses.dataclass(frozen=True, slots=True)
class PickThresholds:
    """Success thresholds of Pick; None: not required."""

    rest_m: float = config.option(
        0.15, "maximum distance of the end effector from its resting point (m)"
    )
    arm_rad: float | None = config.option(
        None, "maximum deviation of each joint from the resting posture (rad)"
    )
    still: float | None = config.option(None, "maximum speed of the base (m/s, rad/s)")


@dataclasses.dataclass(slots=True)
class PickMeasures(Measures):
    """Distance from the end effector to the object's centre."""

    distance: Array  # (n,) m


@dataclasses.dataclass(slots=True)
class PickMemory(Memory):
    """Initial object position, measures of the previous step, whether the object was picked."""

    initial_position: Array  # (n, 3) m
    distance: Array  # (n,) m
    rest: Array  # (n,) m
    picked: Array  # (n,) bool


PickStep = StepContext[PickSettings, PickThresholds, PickMeasures, PickMemory]


def _grip_rule(seen: SensorContext) -> Array:
    """Returns 1 where the grip should be closed, else -1, (n, 1)."""
    own, other = seen.readings.gaps[:, 0], seen.readings.gaps[:, 1]
    closed = (seen.world.held >= 0) | should_grip(own, other)
    return array_namespace(own).where(closed, 1.0, -1.0)[:, None]


class Pick(Skill[PickSettings, PickThresholds, PickMeasures, PickMemory]):
    """Definition of Pick; `SkillGoal.object` is the object to pick."""

    settings_type = PickSettings
    penalties = ("drop", "wrong_pick")
    needs = ("object",)
    parts = (action.ARM, action.GRIP, action.BASE)
    grip = "keep"
    sensors = ("start_from_ee", "arm", "holding", "to_rest")
    fetch_sensors = ("ee", "start_reach")
    grips_by_gaps = True
    own_sensors: ClassVar[dict[str, Sensor]] = {GRIP_RULE: Sensor(1, _grip_rule, True, -1.0, 1.0)}
    teacher_sensors = (GRIP_RULE,)
    gaze_sensors = ("start_gaze",)
    explores = True

    def measure(self, now: MeasureContext[PickThresholds]) -> PickMeasures:
        """Computes the distance from the cup to the object."""
        shared, _ = common(now.world, each(now.world.object_pos, now.goals.object))
        return PickMeasures(**shared, distance=length(shared["subject"] - shared["ee"]))

    def remember(self, start: StartContext[PickThresholds, PickMeasures]) -> PickMemory:
        """Returns the initial memory; an object held at the start counts as picked."""
        goals, world, measures = start.goals, start.world, start.measures
        position = each(world.object_pos, goals.object)
        return PickMemory(position, measures.distance, measures.rest, world.held == goals.object)

    def conditions(self, step: PickStep) -> Conditions:
        """Returns the conditions holding, intact (no hold violation) and rest (m).

        MS-HAB adds posture (rad) and still (m/s), if they have thresholds.
        """
        world, thresholds = step.world, step.thresholds
        found = {
            "holding": Condition.fact(world.held == step.goals.object),
            "intact": Condition.fact(~world.violation),
            "rest": Condition.below(step.measures.rest, thresholds.rest_m, "m"),
        }
        if thresholds.arm_rad is not None:
            bent = posture_error(world.arm)
            found["posture"] = Condition.below(bent, thresholds.arm_rad, "rad")
        if thresholds.still is not None:
            xp = array_namespace(world.base)
            speed = xp.max(xp.abs(world.base_velocity), axis=-1)
            found["still"] = Condition.below(speed, thresholds.still, "m/s")
        return found

    def evaluate(self, step: PickStep, success: Array) -> Evaluation:
        """Rewards progress to the object, the grasp, then progress to rest."""
        world, measures, before = step.world, step.measures, step.memory
        xp = array_namespace(world.base)
        has, had = world.held == step.goals.object, before.picked
        free = world.held < 0
        wrong, dropped = ~(has | free), had & free
        # Distances before and after the grasp differ in meaning: the grasp itself is no progress.
        progress = xp.where(has, before.rest - measures.rest, before.distance - measures.distance)
        same = (has == had) & ~wrong
        return Evaluation(
            failure=xp.where(wrong, WRONG_OBJECT, xp.where(dropped, DROPPED, 0)),
            amounts={
                "distance": xp.where(same, millimetres(progress), 0.0),
                "pick": has & ~had,
                "drop": dropped,
                "wrong_pick": wrong,
            },
            memory=PickMemory(before.initial_position, measures.distance, measures.rest, had | has),
        )

    def seeks(self, step: PickStep) -> Array:
        """Returns whether an object is still to be picked (n,): the hand is empty."""
        return step.world.held < 0

    def should_be_open(self, step: PickStep) -> Array:
        """Returns whether the grip should be open (n,).

        It should be open with an empty hand, unless the cup is about to touch the object and no
        other one (`skills.pick.gripping`). If the distances to surfaces are not measured, the
        object's centre has to be within 0.15 m and the nearest.
        """
        world, distance = step.world, step.measures.distance
        if step.gaps is not None:
            return (world.held < 0) & ~should_grip(step.gaps[:, 0], step.gaps[:, 1])
        xp = array_namespace(world.base)
        away = length(world.object_pos - world.ee_pos[:, None, :])  # NaN for empty slots
        nearer = xp.any(away < distance[:, None] - _SAME_M, axis=-1)
        return (world.held < 0) & ((distance > _AT_HAND_M) | nearer)

    def destination(self, task: TaskState[PickMemory]) -> Array:
        """Returns the initial position of the object (n, 3)."""
        return task.memory.initial_position


_AT_HAND_M = 0.15  # from the cup: half the diagonal of the largest object
_SAME_M = 1e-6
_REST = Constant(REST_ARM)


def posture_error(arm: Array) -> Array:
    """Returns the largest joint deviation (n,), rad, of arms (n, 7) from the resting posture."""
    xp = array_namespace(arm)
    off = arm - _REST.like(arm)
    return xp.max(xp.abs(xp.atan2(xp.sin(off), xp.cos(off))), axis=-1)
