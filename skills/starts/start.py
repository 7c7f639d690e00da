"""One start of a skill: what a home is reset to, and what the skill is about."""

import dataclasses

import numpy as np

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


def receptacle(start: Start) -> str:
    """The receptacle that a start is about, "": it is about none.

    That is the one that the goal's position is on, or else the one where the object lies.
    """
    goal, episode = start.goal, start.episode
    if goal.position is not None:
        for target in episode.targets:
            if np.allclose(target.goal, goal.position):
                return target.receptacle
        for placed in episode.objects:
            if np.allclose(placed.pos, goal.position):
                return placed.receptacle
        return ""
    return episode.objects[goal.object].receptacle if goal.object >= 0 else ""
