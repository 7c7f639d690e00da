"""What the methods of a skill's definition are given; arrays have a leading axis of n homes.

There are three contexts, each of which extends the one before: `MeasureContext` (a world),
`StartContext` (and its measures), `StepContext` (and the control step that led to it). A method
takes the one that holds what is known when it runs, so that mypy finds a `measure` that reads
measures. A field that is added later is there for every skill, whose signatures stay as they are.

A skill's file names its own four types once:

    PickStep = StepContext[PickSettings, PickThresholds, PickMeasures, PickMemory]
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


# Methods only read them. They are made at every step; frozen ones would take five times as long.
@dataclasses.dataclass(slots=True)
class MeasureContext(Generic[ThresholdsT]):
    """For `Skill.measure`: worlds, before anything is known of them."""

    goals: Goals  # object (n,), joint (n,) and position (n, 3) that each home is about
    world: WorldState  # at the start, or after the step
    thresholds: ThresholdsT  # of success, the skill's own under the protocol


@dataclasses.dataclass(slots=True)
class StartContext(MeasureContext[ThresholdsT], Generic[ThresholdsT, MeasuresT]):
    """For `Skill.remember`: worlds in which episodes begin."""

    measures: MeasuresT  # the skill's own, of `world`


@dataclasses.dataclass(slots=True)
class StepContext(
    StartContext[ThresholdsT, MeasuresT],
    Generic[SettingsT, ThresholdsT, MeasuresT, MemoryT],
):
    """For `Skill.conditions` and `Skill.evaluate`: the control step that led to the world."""

    memory: MemoryT  # the skill's own, after the step before
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
