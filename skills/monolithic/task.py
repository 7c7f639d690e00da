"""Monolithic: one policy brings an object from its start to its goal, with the whole action.

The dense reward is that of habitat-lab's full task (0.3.3, `MoveObjectsReward`): progress to the
object, the grasp, progress of the object to its goal, the release there. Success requires the
object within 0.15 m of its goal, an empty cup, and the end effector within 0.15 m of its resting
point. A stop before success ends the episode.
"""

import dataclasses
from typing import ClassVar

from skills.core.arrays import Array
from skills.core.conditions import Condition, Conditions
from skills.core.context import MeasureContext, StartContext, StepContext
from skills.core.geometry import array_namespace, columns, each, length, millimetres, to_base
from skills.core.measures import Measures, Memory, common
from skills.core.sensors import FULL, SCAN, Sensor, SensorContext, polar
from skills.core.settings import TaskSettings
from skills.core.skill import STOPPED, Evaluation, Line, Skill
from tpsrl import config
from tpsrl.world import action
from tpsrl.world.state import WorldState


@dataclasses.dataclass(frozen=True, slots=True)
class MonolithicSettings(TaskSettings):
    """Settings of Monolithic, in addition to those that all skills share."""

    distance: float = config.option(
        1.0, "reward per metre of progress: cup to object, object to goal, then to rest"
    )
    pick: float = config.option(1.0, "one-time reward for picking the object")
    place: float = config.option(1.0, "one-time reward for releasing it at its goal")


@dataclasses.dataclass(frozen=True, slots=True)
class MonolithicThresholds:
    """Success thresholds: distances of the object and the end effector from their goals."""

    goal_m: float = config.option(0.15, "maximum distance of the object from its goal (m)")
    rest_m: float = config.option(
        0.15, "maximum distance of the end effector from its resting point (m)"
    )


@dataclasses.dataclass(slots=True)
class MonolithicMeasures(Measures):
    """Goal in the base's frame; distances cup to object (`reach`) and object to goal."""

    goal: Array  # (n, 3) m
    reach: Array  # (n,) m
    distance: Array  # (n,) m

    def goal_point(self) -> Array:
        """See `Measures.goal_point`."""
        return self.goal


@dataclasses.dataclass(slots=True)
class MonolithicMemory(Memory):
    """Initial object position, measures of the previous step, one-time rewards given so far."""

    initial_position: Array  # (n, 3) m
    reach: Array  # (n,) m
    distance: Array  # (n,) m
    rest: Array  # (n,) m
    phase: Array  # (n,) int, see `_phase`
    picked: Array  # (n,) bool
    placed: Array  # (n,) bool


def _start(seen: SensorContext) -> Array:
    return _polar(seen.world, seen.task.memory.initial_position)


def _goal(seen: SensorContext) -> Array:
    return _polar(seen.world, seen.task.position)


def _polar(world: WorldState, point: Array) -> Array:
    xp = array_namespace(world.base)
    local = to_base(world.base, point[:, None, :])[:, 0]
    return columns(length(local[:, :2]), xp.atan2(local[:, 1], local[:, 0]))


MonolithicStep = StepContext[
    MonolithicSettings, MonolithicThresholds, MonolithicMeasures, MonolithicMemory
]


class Monolithic(
    Skill[MonolithicSettings, MonolithicThresholds, MonolithicMeasures, MonolithicMemory]
):
    """Definition of Monolithic; `SkillGoal.object` is brought to `SkillGoal.position`."""

    settings_type = MonolithicSettings
    needs = ("object", "position")
    parts = (action.ARM, action.GRIP, action.BASE, action.STOP)
    sensors = (
        "start_from_ee", "goal_from_ee", "start_polar", "target_polar", "arm", "holding", "to_rest",
    )  # fmt: skip
    full_sensors: ClassVar[tuple[str, ...]] = (*FULL, SCAN)
    own_sensors: ClassVar[dict[str, Sensor]] = {
        "start_polar": polar(_start),  # of the object's initial position: distance, angle
        "target_polar": polar(_goal),  # of its goal: distance, angle
    }

    def measure(self, now: MeasureContext[MonolithicThresholds]) -> MonolithicMeasures:
        """Computes the distances from the cup to the object and from the object to its goal."""
        thing = each(now.world.object_pos, now.goals.object)
        shared, (goal,) = common(now.world, thing, now.goals.position)
        return MonolithicMeasures(
            **shared,
            goal=goal,
            reach=length(shared["subject"] - shared["ee"]),
            distance=length(goal - shared["subject"]),
        )

    def remember(
        self, start: StartContext[MonolithicThresholds, MonolithicMeasures]
    ) -> MonolithicMemory:
        """Returns the initial memory; an object held at the start counts as picked."""
        goals, world, measures = start.goals, start.world, start.measures
        never = array_namespace(world.base).zeros_like(world.violation)
        return MonolithicMemory(
            initial_position=each(world.object_pos, goals.object),
            reach=measures.reach,
            distance=measures.distance,
            rest=measures.rest,
            phase=_phase(world.held, goals.object, never),
            picked=world.held == goals.object,
            placed=never,
        )

    def conditions(self, step: MonolithicStep) -> Conditions:
        """Returns the conditions at_goal (m), released, and rest (m)."""
        measures, thresholds = step.measures, step.thresholds
        return {
            "at_goal": Condition.below(measures.distance, thresholds.goal_m, "m"),
            "released": Condition.fact(~measures.holding),
            "rest": Condition.below(measures.rest, thresholds.rest_m, "m"),
        }

    def evaluate(self, step: MonolithicStep, success: Array) -> Evaluation:
        """Rewards progress of the current phase; in a step that changes the phase there is none."""
        measures, before = step.measures, step.memory
        xp = array_namespace(step.world.base)
        at_goal = measures.distance < step.thresholds.goal_m
        phase = _phase(step.world.held, step.goals.object, at_goal)
        reached = before.reach - measures.reach
        carried = before.distance - measures.distance
        rested = before.rest - measures.rest
        progress = xp.where(phase == _REACH, reached, xp.where(phase == _CARRY, carried, rested))
        same = phase == before.phase
        picked = (phase == _CARRY) & ~before.picked
        placed = (phase == _REST) & (before.phase == _CARRY) & ~before.placed
        return Evaluation(
            failure=xp.where(step.stop & ~success, STOPPED, 0),
            amounts={
                "distance": xp.where(same, millimetres(progress), 0.0),
                "pick": picked,
                "place": placed,
            },
            memory=MonolithicMemory(
                initial_position=before.initial_position,
                reach=measures.reach,
                distance=measures.distance,
                rest=measures.rest,
                phase=phase,
                picked=before.picked | picked,
                placed=before.placed | placed,
            ),
        )

    def line(self, thresholds: MonolithicThresholds) -> Line:
        """Returns the threshold of the object's distance from its goal."""
        return Line(thresholds.goal_m, "m")


_REACH, _CARRY, _REST = 0, 1, 2


def _phase(held: Array, target: Array, at_goal: Array) -> Array:
    """Returns the phase (n,): reach for the object, carry it, or return to rest.

    With another object in the hand the phase is still to reach. Otherwise moving away would cost
    nothing in that phase, and repeated approaches would be rewarded again and again.
    """
    xp = array_namespace(held)
    return xp.where(held == target, _CARRY, xp.where(at_goal & (held < 0), _REST, _REACH))
