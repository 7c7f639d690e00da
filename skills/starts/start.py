"""Start state of a skill, with checks."""

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from skills.core.interface import FARTHEST_HELD_M, Grasp, SkillGoal
from tpsrl.errors import UserError, unknown
from tpsrl.sim.base import Snapshot
from tpsrl.world.categories import CATEGORIES
from tpsrl.world.episode import FARTHEST, Episode
from tpsrl.world.state import JOINTS

if TYPE_CHECKING:
    from skills.spec import SkillSpec

_ROUNDING = 1e-3  # of the length of a unit vector


@dataclasses.dataclass(frozen=True, slots=True)
class Start:
    """Start state of a skill: the episode that a home is reset to, and the goal.

    With a `snapshot`, a recorded exit state of the previous skill, the home is restored to it
    instead of being reset; `episode` is then the snapshot's. With a `memory`, the arrays of
    `skills.core.state.TaskState.memory`, the start state is within a run of the skill, and the task
    continues with this memory. `where` is the origin for error messages, "" for none.
    """

    episode: Episode
    goal: SkillGoal
    snapshot: Snapshot | None = None
    memory: Mapping[str, np.ndarray] | None = None
    where: str = dataclasses.field(default="", compare=False)


@contextlib.contextmanager
def told_where(start: Start) -> Iterator[None]:
    """Prefixes errors raised inside the block with the origin of a start state."""
    try:
        yield
    except UserError as error:
        if not start.where:
            raise
        message = str(error).removeprefix("snapshot: ")
        raise UserError(f"starts: {start.where}: {message}") from None


def check_goal(start: Start) -> None:
    """Checks that the goal is valid in the episode.

    Raises:
        UserError: an entry of the goal is invalid; the message names the field.
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
    if goal.grasp is not None:
        _check_grasp(goal.grasp)


def _check_grasp(grasp: Grasp) -> None:
    away, length = math.hypot(*grasp.centre), math.hypot(*grasp.up)
    if not away <= FARTHEST_HELD_M:
        raise UserError(
            f"goal.grasp.centre: {away:g} m from the cup, must be at most {FARTHEST_HELD_M:g} m"
        )
    if not abs(length - 1.0) <= _ROUNDING:
        raise UserError(f"goal.grasp.up: must be a unit vector, has length {length:g}")


def check_sought(skill: "SkillSpec", episode: Episode) -> None:
    """Checks that the episode has a category if the skill needs one.

    Raises:
        UserError: the category is missing.
    """
    if "category" in skill.definition.needs and not episode.category:
        raise UserError(
            f"episode.category: {skill.name} needs one, episode {episode.id} has none; nearest: "
            f"'{CATEGORIES[0]}'"
        )


def receptacle(start: Start) -> str:
    """Returns the receptacle that a start state is about, "" for none.

    That is the receptacle at the goal's position, or the one of the object if the goal has no
    position.
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
