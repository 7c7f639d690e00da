"""Open and close the fridge and the drawers (HAB's articulated object tasks; habitat-lab 0.3.3).

Opening succeeds when the joint is within 0.05 (m or rad) of its target or beyond it, closing when
it is within 0.05 of zero. Both also require the end effector within 0.15 m of its resting point, an
empty cup, and stop. Closing has no grip action: the door or drawer is pushed.

The protocol's setting `broken_hold` determines the effect of a broken hold of the handle: "fails"
ends the skill as a failure, as in habitat-lab's skill tasks; with "goes_on" the skill continues
with an empty cup, as in habitat-lab's full task.
"""

import abc
import dataclasses
from typing import Literal, TypeVar

from skills.core.arrays import Array
from skills.core.conditions import Condition, Conditions
from skills.core.context import MeasureContext, StartContext, StepContext
from skills.core.geometry import array_namespace, each, length
from skills.core.limits import SkillLimits
from skills.core.measures import Measures, Memory, common
from skills.core.settings import TaskSettings
from skills.core.skill import HOLD_BROKEN, STOPPED, WRONG_GRASP, Evaluation, Line, Skill
from skills.core.state import TaskState
from tpsrl import config
from tpsrl.world import action

BrokenHold = Literal["fails", "goes_on"]


@dataclasses.dataclass(frozen=True, slots=True)
class ArticulatedSettings(TaskSettings):
    """Settings of opening and closing, in addition to those that all skills share."""

    handle: float = config.option(1.0, "reward per metre of progress of the cup to the handle")
    grasp: float = config.option(5.0, "one-time reward for grasping the handle")
    joint: float = config.option(
        10.0, "reward per metre or radian of progress of the joint to its target"
    )
    reached: float = config.option(5.0, "one-time reward for the joint at its target")
    rest: float = config.option(
        1.0, "reward per metre of progress to the rest position, with the joint at its target"
    )
    wrong_grasp: float = config.option(
        5.0, "penalty for grasping anything else, which ends the episode"
    )
    broken_hold: BrokenHold = config.option(
        "fails", "effect of a broken hold: the episode fails, or goes on"
    )


@dataclasses.dataclass(frozen=True, slots=True)
class ArticulatedLimits(SkillLimits):
    """Limits of opening and closing, and the effect of a broken hold."""

    broken_hold: BrokenHold = config.option(
        "fails", "effect of a broken hold: the episode fails, or goes on"
    )


@dataclasses.dataclass(frozen=True, slots=True)
class OpenThresholds:
    """Success thresholds of opening: the joint is at `target` - `tolerance` or beyond."""

    target: float = config.option(0.45, "joint position to reach (m or rad)")
    tolerance: float = config.option(
        0.05, "maximum distance of the joint from its target (m or rad)"
    )
    rest_m: float = config.option(
        0.15, "maximum distance of the end effector from its resting point (m)"
    )


@dataclasses.dataclass(frozen=True, slots=True)
class CloseThresholds:
    """Success thresholds of closing: the joint is within `tolerance` of zero."""

    tolerance: float = config.option(
        0.05, "maximum distance of the joint from its target (m or rad)"
    )
    rest_m: float = config.option(
        0.15, "maximum distance of the end effector from its resting point (m)"
    )


@dataclasses.dataclass(slots=True)
class ArticulatedMeasures(Measures):
    """Distance from the end effector to the handle, and of the joint from its target."""

    distance: Array  # (n,) m
    gap: Array  # (n,) m or rad; at most 0: the target is reached


@dataclasses.dataclass(slots=True)
class ArticulatedMemory(Memory):
    """Initial handle position, measures of the previous step, and one-time rewards given so far."""

    initial_position: Array  # (n, 3) m
    distance: Array  # (n,) m
    rest: Array  # (n,) m
    gap: Array  # (n,) m or rad
    grasped: Array  # (n,) bool
    reached: Array  # (n,) bool


JointThresholdsT = TypeVar("JointThresholdsT", bound=OpenThresholds | CloseThresholds)
ArticulatedStep = StepContext[
    ArticulatedSettings, JointThresholdsT, ArticulatedMeasures, ArticulatedMemory
]


class Articulated(
    Skill[ArticulatedSettings, JointThresholdsT, ArticulatedMeasures, ArticulatedMemory]
):
    """Base class of opening and closing; `SkillGoal.marker` is the handle.

    Args:
        unit: of the joint, "m" or "rad"
    """

    settings_type = ArticulatedSettings
    penalties = ("wrong_grasp",)
    needs = ("marker",)
    sensors = ("arm", "ee", "holding", "to_rest")
    fetch_sensors = ("start_reach", "start_facing")

    def __init__(self, unit: str) -> None:
        self.unit = unit

    @abc.abstractmethod
    def gap(self, opening: Array, thresholds: JointThresholdsT) -> Array:
        """Returns the distance (m or rad) of joints at `opening` (n,) from their target.

        Values of at most 0 mean that the target is reached.
        """

    def measure(self, now: MeasureContext[JointThresholdsT]) -> ArticulatedMeasures:
        """Computes the distances from the cup to the handle and of the joint from its target."""
        goals, world = now.goals, now.world
        shared, _ = common(world, each(world.marker_pos, goals.joint))
        gap = self.gap(each(world.joints, goals.joint), now.thresholds)
        distance = length(shared["subject"] - shared["ee"])
        return ArticulatedMeasures(**shared, distance=distance, gap=gap)

    def remember(
        self, start: StartContext[JointThresholdsT, ArticulatedMeasures]
    ) -> ArticulatedMemory:
        """Returns the initial memory; a handle that is held at the start counts as grasped."""
        world, measures = start.world, start.measures
        never = array_namespace(world.base).zeros_like(world.violation)
        return ArticulatedMemory(
            each(world.marker_pos, start.goals.joint),
            measures.distance,
            measures.rest,
            measures.gap,
            measures.holding,
            never,
        )

    def conditions(self, step: ArticulatedStep[JointThresholdsT]) -> Conditions:
        """Returns the conditions joint (m or rad), released, rest (m), and stop."""
        measures, thresholds = step.measures, step.thresholds
        return {
            "joint": Condition.at_most(measures.gap, thresholds.tolerance, self.unit),
            "released": Condition.fact(~measures.holding),
            "rest": Condition.below(measures.rest, thresholds.rest_m, "m"),
            "stop": Condition.fact(step.stop),
        }

    def evaluate(self, step: ArticulatedStep[JointThresholdsT], success: Array) -> Evaluation:
        """Rewards progress to the handle, the grasp, motion of the joint, then progress to rest.

        A stop always ends the episode. Any other grasp is a failure.
        """
        world, measures, before = step.world, step.measures, step.memory
        xp = array_namespace(world.base)
        wrong = measures.holding & (world.held_joint != step.goals.joint)
        grasped = measures.holding & ~wrong
        done = measures.gap <= step.thresholds.tolerance
        nearer = before.distance - measures.distance
        opened = xp.abs(before.gap) - xp.abs(measures.gap)
        failure = xp.where(wrong, WRONG_GRASP, xp.where(step.stop & ~success, STOPPED, 0))
        if step.settings.broken_hold == "fails":
            failure = xp.where(world.violation & ~success, HOLD_BROKEN, failure)
        return Evaluation(
            failure=failure,
            amounts={
                "handle": xp.where(done | measures.holding, 0.0, nearer),
                "grasp": grasped & ~before.grasped,
                "joint": xp.where(done, 0.0, opened),
                "reached": done & ~before.reached,
                "rest": xp.where(done, before.rest - measures.rest, 0.0),
                "wrong_grasp": wrong,
            },
            memory=ArticulatedMemory(
                before.initial_position,
                measures.distance,
                measures.rest,
                measures.gap,
                before.grasped | grasped,
                before.reached | done,
            ),
        )

    def seeks(self, step: ArticulatedStep[JointThresholdsT]) -> Array:
        """Returns whether the handle is still to be grasped (n,): nothing articulated is held."""
        return step.world.held_joint < 0

    def destination(self, task: TaskState[ArticulatedMemory]) -> Array:
        """Returns the initial position of the handle (n, 3)."""
        return task.memory.initial_position


class Open(Articulated[OpenThresholds]):
    """Definition of opening a door or drawer to `OpenThresholds.target`."""

    parts = (action.ARM, action.GRIP, action.BASE, action.STOP)

    def gap(self, opening: Array, thresholds: OpenThresholds) -> Array:
        """See `Articulated.gap`."""
        return thresholds.target - opening

    def line(self, thresholds: OpenThresholds) -> Line:
        """Returns the joint position beyond which the joint counts as open."""
        return Line(thresholds.target - thresholds.tolerance, self.unit, beyond=True)


class Close(Articulated[CloseThresholds]):
    """Definition of closing a door or drawer."""

    parts = (action.ARM, action.BASE, action.STOP)

    def gap(self, opening: Array, thresholds: CloseThresholds) -> Array:
        """See `Articulated.gap`; the distance from zero, to either side."""
        return array_namespace(opening).abs(opening)

    def line(self, thresholds: CloseThresholds) -> Line:
        """Returns the joint position within which the joint counts as closed."""
        return Line(thresholds.tolerance, self.unit)
