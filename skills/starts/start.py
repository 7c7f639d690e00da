"""One start of a skill: what a home is reset to, and what the skill is about."""

import dataclasses

from skills.core.interface import SkillGoal
from tpsrl.sim.base import Snapshot
from tpsrl.world.episode import Episode


@dataclasses.dataclass(frozen=True, slots=True)
class Start:
    """One start of a skill: what a home is reset to, and what the skill is about.

    With a `snapshot` (a recorded exit state of the skill before) the home is restored to it
    instead; `episode` is the snapshot's own.
    """

    episode: Episode
    goal: SkillGoal
    snapshot: Snapshot | None = None
