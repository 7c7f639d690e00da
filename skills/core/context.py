"""Arguments of the methods of a skill's definition; arrays have a leading axis of n homes.

Each of the three contexts extends the one before: `MeasureContext` (a world), `StartContext` (with
its measures) and `StepContext` (with the control step that led to the world). A method takes the
context of all that is known when it runs, so that mypy reports a `measure` that reads measures. New
fields reach every skill without a change of signatures.

A skill's file binds its own four types once:

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


# Read-only by convention: contexts are created at every step, five times slower if frozen.
@dataclasses.dataclass(slots=True)
class MeasureContext(Generic[ThresholdsT]):
    """Argument of `Skill.measure`: goals, world and thresholds."""

    goals: Goals  # object (n,), joint (n,) and position (n, 3) of each home's task
    world: WorldState  # at the start, or after the step
    thresholds: ThresholdsT  # the skill's success thresholds under the protocol


@dataclasses.dataclass(slots=True)
class StartContext(MeasureContext[ThresholdsT], Generic[ThresholdsT, MeasuresT]):
    """Argument of `Skill.remember`: the state in which episodes begin."""

    measures: MeasuresT  # the skill's measures of `world`


@dataclasses.dataclass(slots=True)
class StepContext(
    StartContext[ThresholdsT, MeasuresT],
    Generic[SettingsT, ThresholdsT, MeasuresT, MemoryT],
):
    """Argument of `Skill.conditions` and `Skill.evaluate`: the control step that led to `world`."""

    memory: MemoryT  # the skill's memory after the previous step
    steps: Array  # (n,) int, control steps before this one
    stop: Array  # (n,) bool, whether stop was called in this step
    settings: SettingsT  # the skill's horizon, force limits and reward weights
    path: PathProgress | None  # path along the floor after the step, None if not measured
    # (n, 2) m, from the cup to the surface of the task's object and of the nearest other one,
    # at most `CLEARANCE_RANGE_M`. None if not measured.
    gaps: Array | None = None

    def way(self) -> PathProgress:
        """Returns the progress along the floor, for a skill with `follows_path`.

        Raises:
            UserError: the path was not measured.
        """
        if self.path is None:
            raise UserError("path: the skill needs the path along the floor, which is not measured")
        return self.path
