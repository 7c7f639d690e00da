"""What the methods of a skill's definition are given, batch first (leading axis n).

Each context has what is there when its method runs, and the next one has that and more:
`MeasureContext` (the world), `StartContext` (with its measures), `StepContext` (with the step that
led to it). So a method cannot ask for what is made of its own answer, mypy says so where it
tries, and whatever is added to a context later reaches every skill without a change to a
signature.

A skill's file says once which kinds its own are:
`PickStep = StepContext[PickSettings, PickThresholds, PickMeasures, PickMemory]`.
"""

import dataclasses
from typing import Generic, TypeVar

from skills.core.arrays import Array
from skills.core.measures import MeasuresT, MemoryT
from skills.core.path_metrics import PathProgress
from skills.core.settings import SettingsT
from skills.core.state import Goals
from tpsrl.errors import UserError
from tpsrl.world.state import WorldState

ThresholdsT = TypeVar("ThresholdsT")


@dataclasses.dataclass(frozen=True, slots=True)
class MeasureContext(Generic[ThresholdsT]):
    """For `Skill.measure`: worlds, before anything is known of them."""

    goals: Goals  # what each home is about: object, joint, position
    world: WorldState  # at the start, or after the step
    thresholds: ThresholdsT  # the skill's own, of the protocol: when it has succeeded


@dataclasses.dataclass(frozen=True, slots=True)
class StartContext(MeasureContext[ThresholdsT], Generic[ThresholdsT, MeasuresT]):
    """For `Skill.remember`: worlds in which episodes begin."""

    measures: MeasuresT  # of `world`, the skill's own


@dataclasses.dataclass(frozen=True, slots=True)
class StepContext(
    StartContext[ThresholdsT, MeasuresT],
    Generic[SettingsT, ThresholdsT, MeasuresT, MemoryT],
):
    """For `Skill.conditions` and `Skill.evaluate`: the control step that led to the world."""

    memory: MemoryT  # after the step before, the skill's own
    steps: Array  # (n,) int, control steps before this one
    stop: Array  # (n,) bool, called in this step
    settings: SettingsT  # the skill's own: horizon, limits on force, weights of the reward
    path: PathProgress | None  # along the floor after the step, None where it is not measured

    def way(self) -> PathProgress:
        """The way along the floor, for a skill with `follows_path`.

        Raises:
            UserError: it was not measured.
        """
        if self.path is None:
            raise UserError("path: the skill is judged by the way along the floor; there is none")
        return self.path
