"""One start of a skill: what a home is reset to, and what the skill is about."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from skills.core.interface import SkillGoal
from tpsrl.errors import UserError, unknown
from tpsrl.sim.base import Snapshot
from tpsrl.world.categories import CATEGORIES
from tpsrl.world.episode import FARTHEST, Episode
from tpsrl.world.state import JOINTS

if TYPE_CHECKING:
    from skills.spec import SkillSpec


@dataclasses.dataclass(frozen=True, slots=True)
class Start:
    """One start of a skill: what a home is reset to, and what the skill is about.

    With a `snapshot` (a recorded exit state of the skill before) the home is restored to it
    instead; `episode` is the snapshot's own. With a `memory` as well, of
    `skills.core.state.TaskState.memory`, the start is within a run of the skill, which goes on with
    what it remembered there. `where` is what it was read from, "": from nowhere.
    """

    episode: Episode
    goal: SkillGoal
    snapshot: Snapshot | None = None
    memory: Mapping[str, np.ndarray] | None = None
    where: str = dataclasses.field(default="", compare=False)


@contextlib.contextmanager
def told_where(start: Start) -> Iterator[None]:
    """Has errors about a start say where it was read, and by which field."""
    try:
        yield
    except UserError as error:
        if not start.where:
            raise
        said = str(error).removeprefix("snapshot: ")
        raise UserError(f"starts: {start.where}: {said}") from None


def check_goal(start: Start) -> None:
    """Refuses a goal that is not of the episode.

    Raises:
        UserError: names the field.
    """
    goal, episode = start.goal, start.episode
    count = len(episode.objects)
    if not -1 <= goal.object < count:
        raise UserError(
            f"goal.object: {goal.object} is out of range, episode {episode.id} has objects 0 to "
            f"{count - 1}"
        )
    for metres in goal.position or ():
        if not abs(metres) <= FARTHEST:
            raise UserError(
                f"goal.position: {metres:g} is out of range, must be from {-FARTHEST:g} to "
                f"{FARTHEST:g}"
            )
    if goal.marker and goal.marker not in JOINTS:
        raise unknown("goal.marker", goal.marker, JOINTS)


def check_sought(skill: "SkillSpec", episode: Episode) -> None:
    """Refuses an episode without a category for a skill that is to find one.

    Raises:
        UserError: says so.
    """
    if "category" in skill.definition.needs and not episode.category:
        raise UserError(
            f"episode.category: {skill.name} needs one, episode {episode.id} has none; nearest: "
            f"'{CATEGORIES[0]}'"
        )


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
