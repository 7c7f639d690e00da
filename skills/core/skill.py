"""Definition of a skill: action parts, measures, success, failure and reward.

All arrays have a leading batch axis n. Definitions use the Array API standard, so that numpy in a
worker and torch on a GPU give the same numbers.
"""

import abc
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Generic, Literal

import numpy as np

from skills.core.arrays import Array
from skills.core.conditions import Conditions
from skills.core.context import MeasureContext, StartContext, StepContext, ThresholdsT
from skills.core.geometry import array_namespace
from skills.core.measures import MeasuresT, Memory, MemoryT
from skills.core.path_metrics import PathProgress
from skills.core.settings import SettingsT, TaskSettings
from skills.core.state import TaskState
from tpsrl.world import action as act

if TYPE_CHECKING:
    from skills.core.sensors import Sensor

# Kinds of failure; the codes in `Evaluation.failure` are indices into `Skill.failures`.
FAILURES = (
    "",
    "dropped",
    "wrong_object",
    "wrong_drop",
    "wrong_grasp",
    "stopped",
    "force_limit",
    "hold_broken",
)
DROPPED, WRONG_OBJECT, WRONG_DROP, WRONG_GRASP, STOPPED, FORCE_LIMIT, HOLD_BROKEN = range(1, 8)

# Restriction of the grip: "free": none; "keep": the cup never releases what it holds; "release":
# an empty cup never grasps anything.
Grip = Literal["free", "keep", "release"]


@dataclasses.dataclass(slots=True)
class Evaluation:
    """Result of `Skill.evaluate`: failure, reward terms and new memory after a step.

    `amounts` has the unweighted reward terms by the name of their weight in the settings: metres,
    radians, or bool for events. Unless it has "success", that term is 1 in the step of success.
    """

    failure: Array  # (n,) int, indices into `Skill.failures`, 0 for none
    amounts: dict[str, Array]  # (n,) each, unweighted reward terms
    memory: Memory  # after the step


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """Threshold of a skill's effect: success is a measure within `limit`, or beyond it.

    `unit` is "m" or "rad". The planner has predicates for the same effects, with its own limits.
    """

    limit: float
    unit: str
    beyond: bool = False


class Skill(abc.ABC, Generic[SettingsT, ThresholdsT, MeasuresT, MemoryT]):
    """Definition of a skill, shared by training, evaluation and the executor.

    A skill lists the usable parts of the action in `parts` and has four methods, given here in the
    order in which they run: `measure` at the start of episodes and after every step, `remember` at
    the start, `conditions` and `evaluate` after every step. They are pure and do not modify their
    arguments. The methods after these have defaults; a skill overrides those that it needs.

    The four type parameters are the skill's own dataclasses: reward weights, success thresholds,
    measures, memory. A `skills.spec.SkillSpec` registers the skill (docs/add_a_skill.md).
    """

    settings_type: ClassVar[type[TaskSettings]] = TaskSettings
    penalties: ClassVar[tuple[str, ...]] = ()  # the skill's own weights that are subtracted
    needs: ClassVar[tuple[str, ...]]  # fields of SkillGoal that must be given, or "category"
    parts: ClassVar[tuple[int | slice, ...]]  # indices of the action that the skill may use
    grip: ClassVar[Grip] = "free"
    sensors: ClassVar[tuple[str, ...]]  # habitat-lab's, see `skills.core.sensors`
    fetch_sensors: ClassVar[tuple[str, ...]] = ()  # sensors that "fetch" adds for this skill
    full_sensors: ClassVar[tuple[str, ...]] = ()  # sensors of "full" if they differ from FULL
    own_sensors: ClassVar[Mapping[str, "Sensor"]] = {}  # sensors of this skill only, by name
    failures: ClassVar[tuple[str, ...]] = FAILURES  # a skill appends its own
    grips_by_gaps: ClassVar[bool] = False  # whether `should_be_open` reads `StepContext.gaps`
    follows_path: ClassVar[bool] = False  # whether success depends on the path along the floor
    teacher_sensors: ClassVar[tuple[str, ...]] = ()  # sensors that "teacher" adds for this skill
    gaze_sensors: ClassVar[tuple[str, ...]] = ()  # that "gaze" adds for this skill
    explores: ClassVar[bool] = False  # whether "mapping" has the path on the robot's own map
    searches: ClassVar[bool] = False  # whether "mapping" explores to find a category
    surveys_floor: ClassVar[bool] = False  # whether success also depends on the size of the floor
    begins_holding: ClassVar[bool] = False  # whether the robot holds the object at the start

    @abc.abstractmethod
    def measure(self, now: MeasureContext[ThresholdsT]) -> MeasuresT:
        """Computes the quantities that the other methods and the sensors share."""

    def remember(self, start: StartContext[ThresholdsT, MeasuresT]) -> Memory:
        """Returns the memory at the start of episodes; `evaluate` returns that of later steps."""
        return Memory()

    @abc.abstractmethod
    def conditions(
        self, step: StepContext[SettingsT, ThresholdsT, MeasuresT, MemoryT]
    ) -> Conditions:
        """Returns the conditions of success by name; success is that all of them hold."""

    @abc.abstractmethod
    def evaluate(
        self, step: StepContext[SettingsT, ThresholdsT, MeasuresT, MemoryT], success: Array
    ) -> Evaluation:
        """Returns failure, reward terms and memory of a step.

        Args:
            step: the control step
            success: (n,) bool, whether all conditions hold
        """

    def seeks(self, step: StepContext[SettingsT, ThresholdsT, MeasuresT, MemoryT]) -> Array:
        """Returns whether robots are still approaching what they have to reach, (n,) bool.

        Progress is rewarded by the weights `way` and `hand` only then. By default True.
        """
        return array_namespace(step.world.base).ones_like(step.world.violation)

    def should_be_open(
        self, step: StepContext[SettingsT, ThresholdsT, MeasuresT, MemoryT]
    ) -> Array:
        """Returns whether the grip should be open now, (n,) bool, for the penalty `grip`."""
        return array_namespace(step.world.base).zeros_like(step.world.violation)

    def destination(self, task: TaskState[MemoryT]) -> Array:
        """Returns the point that the arm has to reach first, (n, 3) in metres in the world frame.

        The point is that of the task's start; it does not move with the object.
        """
        return task.position

    def reach_m(self, thresholds: ThresholdsT) -> float | None:
        """Returns the distance in metres from the goal at which the path ends.

        None for skills that do not drive to a position.
        """
        return None

    def driving(self, task: TaskState[MemoryT], path: PathProgress) -> dict[str, Array] | None:
        """Returns the metrics of driving in reports, (n,) by name, for a skill that drives.

        None stands for the default metrics, `skills.envs.path_meter.PathMeter.metrics`.
        """
        return None

    def line(self, thresholds: ThresholdsT) -> Line | None:
        """Returns the threshold of success, None for a skill whose effect has no measure."""
        return None

    def mask(self) -> np.ndarray:
        """Returns the action mask (11,) bool: True for the parts that the skill may use."""
        mask = np.zeros(act.SIZE, dtype=bool)
        for part in self.parts:
            mask[part] = True
        return mask
