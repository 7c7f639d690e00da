"""Progress of an episode by control step, for captions."""

import dataclasses
from collections.abc import Callable, Mapping

from skills.core.conditions import Margin
from tpsrl.world.state import WorldState

SKILL, RESET_ARM, WAIT = "skill", "reset_arm", "wait"  # phases


@dataclasses.dataclass(frozen=True, slots=True)
class StepInfo:
    """State of the execution in one control step.

    `index` of `total` is the step of the current plan (from 0), `phase` is "skill", "reset_arm" or
    "wait", `margin` is the margin of `predicate`, the purpose of the plan's step, and `object` the
    index into `Episode.objects` of the step's first argument, -1 for none. `conditions` are those
    of the skill's own success, `rewards` the terms of its reward if the skill runs alone.
    """

    index: int
    total: int
    name: str
    action: str
    skill: str
    phase: str
    phase_step: int
    phase_limit: int
    episode_step: int
    predicate: str
    margin: Margin
    object: int = -1
    conditions: Mapping[str, Margin] = dataclasses.field(default_factory=dict)
    rewards: Mapping[str, float] = dataclasses.field(default_factory=dict)


OnStep = Callable[[WorldState, StepInfo], None]
