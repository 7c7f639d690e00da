"""Pick: take an object and bring it to the resting point (HAB's RearrangePickTask; 0.3.3).

Succeeds when the target is held, the hold constraint is intact, and the end effector is within
0.15 m of the resting point. MS-HAB also asks for the arm to be near its resting posture and for the
base to stand still (`PickThresholds.arm_rad`, `still`).
"""

import dataclasses
from typing import Any

from skills.core.conditions import Condition, Conditions
from skills.core.geometry import Constant, array_namespace, each, length, millimetres
from skills.core.measures import Measures, Memory, common
from skills.core.path_metrics import PathProgress
from skills.core.settings import TaskSettings
from skills.core.skill import DROPPED, WRONG_OBJECT, Evaluation, Skill
from skills.core.state import Goals, TaskState
from tpsrl import config
from tpsrl.world import action
from tpsrl.world.fetch import REST_ARM
from tpsrl.world.state import WorldState


@dataclasses.dataclass(frozen=True, slots=True)
class PickSettings(TaskSettings):
    """What Pick adds to the settings that all skills share."""

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
    """When Pick has succeeded.

    `arm_rad` (each joint from the resting posture) and `still` (the most that the base may move,
    m/s and rad/s) are asked for where they are not None.
    """

    rest_m: float = config.option(
        0.15, "maximum distance of the end effector from its resting point (m)"
    )
    arm_rad: float | None = config.option(
        None, "maximum deviation of each joint from the resting posture (rad)"
    )
    still: float | None = config.option(None, "maximum speed of the base (m/s, rad/s)")


@dataclasses.dataclass(slots=True)
class PickMeasures(Measures):
    """From the end effector to the object's centre."""

    distance: Any  # (n,) m


@dataclasses.dataclass(slots=True)
class PickMemory(Memory):
    """Where the object was at the beginning, the step before, and whether it has been picked."""

    initial_position: Any  # (n, 3)
    distance: Any  # (n,) m
    rest: Any  # (n,) m
    picked: Any  # (n,) bool


_AT_HAND_M = 0.15  # from the cup: half of the longest object's diagonal
_SAME_M = 1e-6
_REST = Constant(REST_ARM)


def posture_error(arm: Any) -> Any:
    """The largest distance (n,) in rad of a joint of arms (n, 7) from the resting posture."""
    xp = array_namespace(arm)
    off = arm - _REST.like(arm)
    return xp.max(xp.abs(xp.atan2(xp.sin(off), xp.cos(off))), axis=-1)


class Pick(Skill):
    """The definition; `SkillGoal.object` is what to pick."""

    settings_type = PickSettings
    penalties = ("drop", "wrong_pick")
    needs = ("object",)
    parts = (action.ARM, action.GRIP, action.BASE)
    grip = "keep"
    sensors = ("start_from_ee", "arm", "holding", "to_rest")
    fetch_sensors = ("ee", "start_reach")

    def destination(self, task: TaskState) -> Any:
        """See `Skill.destination`: the object."""
        assert isinstance(task.memory, PickMemory)
        return task.memory.initial_position

    def seeks(self, task: TaskState, world: WorldState) -> Any:
        """See `Skill.seeks`: until the object is picked."""
        return world.held < 0

    def should_be_open(self, task: TaskState, measures: Any, world: WorldState) -> Any:
        """See `Skill.should_be_open`: unless the object is within 0.15 m, and no other nearer."""
        xp = array_namespace(world.base)
        away = length(world.object_pos - world.ee_pos[:, None, :])  # NaN where there is none
        nearer = xp.any(away < measures.distance[:, None] - _SAME_M, axis=-1)
        return (world.held < 0) & ((measures.distance > _AT_HAND_M) | nearer)

    def measure(
        self,
        goals: Goals | TaskState,
        world: WorldState,
        thresholds: Any,
        path: PathProgress | None = None,
    ) -> PickMeasures:
        """See `Skill.measure`."""
        shared, _ = common(world, each(world.object_pos, goals.object))
        return PickMeasures(**shared, distance=length(shared["subject"] - shared["ee"]))

    def remember(self, goals: Goals, measures: Any, world: WorldState) -> Memory:
        """See `Skill.remember`; an object that is in the hand at the start was picked before."""
        start = each(world.object_pos, goals.object)
        return PickMemory(start, measures.distance, measures.rest, world.held == goals.object)

    def conditions(
        self,
        goals: Goals | TaskState,
        measures: Any,
        world: WorldState,
        stop: Any,
        thresholds: Any,
    ) -> Conditions:
        """Holding, intact (no hold violation), rest (m), and MS-HAB's where asked for."""
        found = {
            "holding": Condition.fact(world.held == goals.object),
            "intact": Condition.fact(~world.violation),
            "rest": Condition.below(measures.rest, thresholds.rest_m, "m"),
        }
        if thresholds.arm_rad is not None:
            bent = posture_error(world.arm)
            found["posture"] = Condition.below(bent, thresholds.arm_rad, "rad")
        if thresholds.still is not None:
            xp = array_namespace(world.base)
            speed = xp.max(xp.abs(world.base_velocity), axis=-1)
            found["still"] = Condition.below(speed, thresholds.still, "m/s")
        return found

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
        """Rewards coming nearer to the object, the grasp, then coming nearer to rest."""
        xp, before = array_namespace(world.base), task.memory
        assert isinstance(before, PickMemory)
        has, had = world.held == task.object, before.picked
        free = world.held < 0
        wrong, dropped = ~(has | free), had & free
        # The distance is another one before and after the grasp; only like is compared with like.
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
