"""The definition of a skill: what it may do, what it measures, when it has succeeded or failed.

Everything is batch first (leading axis n) and written against the Array API standard, so that numpy
in a worker and torch on a GPU give the same numbers.
"""

import abc
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from skills.core.conditions import Conditions
from skills.core.geometry import array_namespace
from skills.core.measures import Measures, Memory
from skills.core.path_metrics import PathProgress
from skills.core.settings import TaskSettings
from skills.core.state import Goals, TaskState
from tpsrl.world import action as act
from tpsrl.world.state import WorldState

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

    `failure` (n,) are places in `Skill.failures`, 0 for none. `amounts` has for each reward term,
    by the name of its weight in the settings, how much of it there was (n,): metres, radians, or
    bool for events; "success" counts once unless it is among them. `memory` is that after the step.
    """

    failure: Any
    amounts: dict[str, Any]
    memory: Memory


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """Where a skill draws the line of what it is to bring about: within `limit`, or beyond it.

    `unit` is "m" or "rad". The planner has predicates for the same, with limits of their own.
    """

    limit: float
    unit: str
    beyond: bool = False


class Skill(abc.ABC):
    """The definition of a skill, for training, evaluation and the executor alike.

    To write another: name the parts of the action in `parts`, say in `measure` what is computed of
    a world, in `remember` what is kept of it for the next step, in `conditions` what success is
    made of, and in `evaluate` how a step is rewarded and when the skill has failed. A
    `skills.spec.SkillSpec` registers it (docs/add_a_skill.md).
    """

    settings_type: ClassVar[type[TaskSettings]] = TaskSettings
    penalties: ClassVar[tuple[str, ...]] = ()  # the skill's own weights that are taken off
    needs: ClassVar[tuple[str, ...]]  # fields of SkillGoal that must be given
    parts: ClassVar[tuple[int | slice, ...]]  # of the action, that the skill may use
    grip: ClassVar[Grip] = "free"
    sensors: ClassVar[tuple[str, ...]]  # habitat-lab's, see `skills.core.sensors`
    fetch_sensors: ClassVar[tuple[str, ...]] = ()  # that "fetch" has besides
    full_sensors: ClassVar[tuple[str, ...]] = ()  # where they are others than all skills have
    own_sensors: ClassVar[Mapping[str, "Sensor"]] = {}  # that only this skill knows, by name
    failures: ClassVar[tuple[str, ...]] = FAILURES  # a skill's own come after these
    follows_path: ClassVar[bool] = False  # whether it is judged by the way along the floor
    surveys_floor: ClassVar[bool] = False  # whether it is judged by how much floor there is, too
    begins_holding: ClassVar[bool] = False  # whether it starts with its object in the hand

    def reach_m(self, thresholds: Any) -> float | None:
        """For a skill that drives to a position, how near to it in metres the way ends."""
        return None

    def destination(self, task: TaskState) -> Any:
        """What the arm is to get at first (n, 3), as it was when the task began."""
        return task.position

    def seeks(self, task: TaskState, world: WorldState) -> Any:
        """Whether robots are still on their way to it (n,) bool."""
        return array_namespace(world.base).ones_like(world.violation)

    def should_be_open(self, task: TaskState, measures: Any, world: WorldState) -> Any:
        """Whether the grip should be open now (n,) bool, for the penalty `grip`."""
        return array_namespace(world.base).zeros_like(world.violation)

    def driving(self, task: TaskState, path: PathProgress) -> dict[str, Any] | None:
        """What a report says of ways that end, (n,) by name, for a skill that drives somewhere.

        None is what it says of most: `skills.envs.path_meter.PathMeter.metrics`.
        """
        return None

    def line(self, thresholds: Any) -> Line | None:
        """Where success begins, for a skill whose effect has a measure."""
        return None

    def mask(self) -> np.ndarray:
        """(11,) bool: the parts of the action that the skill may use."""
        mask = np.zeros(act.SIZE, dtype=bool)
        for part in self.parts:
            mask[part] = True
        return mask

    @abc.abstractmethod
    def measure(
        self,
        goals: Goals | TaskState,
        world: WorldState,
        thresholds: Any,
        path: PathProgress | None = None,
    ) -> Measures:
        """The measures of worlds; `path` is given to a skill with `follows_path` at every step."""

    def remember(self, goals: Goals, measures: Measures, world: WorldState) -> Memory:
        """What the skill's memory is at the start of episodes."""
        return Memory()

    @abc.abstractmethod
    def conditions(
        self,
        goals: Goals | TaskState,
        measures: Measures,
        world: WorldState,
        stop: Any,
        thresholds: Any,
    ) -> Conditions:
        """What success is made of, by name; `stop` (n,) bool was called. All have to hold."""

    @abc.abstractmethod
    def evaluate(
        self,
        task: TaskState,
        measures: Measures,
        world: WorldState,
        stop: Any,
        success: Any,
        settings: Any,
        thresholds: Any,
    ) -> Evaluation:
        """Failure and reward of the step from `task` to `measures`; `success` (n,) bool."""
