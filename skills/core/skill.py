"""The definition of a skill: what it may do, what it measures, when it has succeeded or failed.

Everything is batch first (leading axis n) and written against the Array API standard, so that numpy
in a worker and torch on a GPU give the same numbers.
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

# How an episode fails; the codes of `Evaluation.failure` are places in `Skill.failures`.
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

# What the grip may do where a skill has one: all; never let go of what the cup holds; never take
# anything once the cup is empty.
Grip = Literal["free", "keep", "release"]


@dataclasses.dataclass(slots=True)
class Evaluation:
    """A skill's verdict on a step, beside its conditions of success.

    `amounts` has each reward term by the name of its weight in the settings: metres, radians, or
    bool for events. "success" counts once unless it is among them.
    """

    failure: Array  # (n,) int, places in `Skill.failures`, 0 for none
    amounts: dict[str, Array]  # (n,) each, how much of the term there was
    memory: Memory  # after the step


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """Where a skill draws the line of what it is to bring about: within `limit`, or beyond it.

    `unit` is "m" or "rad". The planner has predicates for the same, with limits of their own.
    """

    limit: float
    unit: str
    beyond: bool = False


class Skill(abc.ABC, Generic[SettingsT, ThresholdsT, MeasuresT, MemoryT]):
    """The definition of a skill, for training, evaluation and the executor alike.

    A skill names the parts of the action in `parts` and has four methods, here in the order in
    which they run: `measure` at the start of episodes and after every step, `remember` at the
    start, `conditions` and `evaluate` after every step. They are pure: what they are given stays
    as it is. The methods after these are for skills that need them.

    The four types are a skill's own dataclasses: weights of the reward, thresholds of success,
    measures, memory. A `skills.spec.SkillSpec` registers the skill (docs/add_a_skill.md).
    """

    settings_type: ClassVar[type[TaskSettings]] = TaskSettings
    penalties: ClassVar[tuple[str, ...]] = ()  # the skill's own weights that are taken off
    needs: ClassVar[tuple[str, ...]]  # fields of SkillGoal that must be given, or "category"
    parts: ClassVar[tuple[int | slice, ...]]  # of the action, that the skill may use
    grip: ClassVar[Grip] = "free"
    sensors: ClassVar[tuple[str, ...]]  # habitat-lab's, see `skills.core.sensors`
    fetch_sensors: ClassVar[tuple[str, ...]] = ()  # that "fetch" has besides
    full_sensors: ClassVar[tuple[str, ...]] = ()  # where they are others than all skills have
    own_sensors: ClassVar[Mapping[str, "Sensor"]] = {}  # that only this skill knows, by name
    failures: ClassVar[tuple[str, ...]] = FAILURES  # a skill's own come after these
    follows_path: ClassVar[bool] = False  # whether it is judged by the way along the floor
    explores: ClassVar[bool] = False  # whether "mapping" has the path on a map of its own
    searches: ClassVar[bool] = False  # whether "mapping" has the way to what it has not seen yet
    surveys_floor: ClassVar[bool] = False  # whether it is judged by how much floor there is, too
    begins_holding: ClassVar[bool] = False  # whether it starts with its object in the hand

    @abc.abstractmethod
    def measure(self, now: MeasureContext[ThresholdsT]) -> MeasuresT:
        """What is measured of worlds, for the other methods and the sensors."""

    def remember(self, start: StartContext[ThresholdsT, MeasuresT]) -> Memory:
        """The memory of episodes that begin; that of later steps is `Evaluation.memory`."""
        return Memory()

    @abc.abstractmethod
    def conditions(
        self, step: StepContext[SettingsT, ThresholdsT, MeasuresT, MemoryT]
    ) -> Conditions:
        """What success is made of, by name, each with margin and unit; all have to hold."""

    @abc.abstractmethod
    def evaluate(
        self, step: StepContext[SettingsT, ThresholdsT, MeasuresT, MemoryT], success: Array
    ) -> Evaluation:
        """Failure and reward of a step; `success` (n,) bool is that all conditions hold."""

    def seeks(self, step: StepContext[SettingsT, ThresholdsT, MeasuresT, MemoryT]) -> Array:
        """Whether robots are still on their way to what they are to get at (n,) bool.

        Their way there is rewarded by the weights `way` and `hand`.
        """
        return array_namespace(step.world.base).ones_like(step.world.violation)

    def should_be_open(
        self, step: StepContext[SettingsT, ThresholdsT, MeasuresT, MemoryT]
    ) -> Array:
        """Whether the grip should be open now (n,) bool, for the penalty `grip`."""
        return array_namespace(step.world.base).zeros_like(step.world.violation)

    def destination(self, task: TaskState[MemoryT]) -> Array:
        """What the arm is to get at first (n, 3) in metres, as it was when the task began."""
        return task.position

    def reach_m(self, thresholds: ThresholdsT) -> float | None:
        """For a skill that drives to a position, how near to it in metres the way ends."""
        return None

    def driving(self, task: TaskState[MemoryT], path: PathProgress) -> dict[str, Array] | None:
        """What a report says of ways that end, (n,) by name, for a skill that drives somewhere.

        None is what it says of most: `skills.envs.path_meter.PathMeter.metrics`.
        """
        return None

    def line(self, thresholds: ThresholdsT) -> Line | None:
        """Where success begins, for a skill whose effect has a measure."""
        return None

    def mask(self) -> np.ndarray:
        """(11,) bool: the parts of the action that the skill may use."""
        mask = np.zeros(act.SIZE, dtype=bool)
        for part in self.parts:
            mask[part] = True
        return mask
