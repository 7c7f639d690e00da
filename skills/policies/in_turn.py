"""Policies that run several policies one after the other, for a skill composed of others."""

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from skills.core import task
from skills.core.interface import SkillGoal, SkillPolicy
from skills.spec import Referent, SkillSpec
from tpsrl.world import action as act
from tpsrl.world.episode import Episode
from tpsrl.world.state import JOINTS, WorldState


def done_anyhow(world: WorldState) -> bool:
    """Returns True for every world: the default `Part.done`."""
    return True


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """Policy of one skill in a sequence.

    `goal` returns its goal from the world of batch one in which the part begins. `done` returns,
    for the world in which the policy has stopped, whether to continue with the next part.
    """

    spec: SkillSpec
    policy: SkillPolicy
    goal: Callable[[WorldState], SkillGoal]
    done: Callable[[WorldState], bool] = done_anyhow


class InTurn(abc.ABC):
    """Base of policies composed of parts, each of which acts until it calls stop.

    The action mask is that of the current part's skill. The whole policy stops when the last part
    stops, or when a part stops and its `done` is False. Parts that need depth are not supported.
    """

    depth_size: tuple[int, int] | None = None

    @abc.abstractmethod
    def parts(self, episode: Episode, goal: SkillGoal, world: WorldState) -> Sequence[Part]:
        """Returns the parts of a run that begins in a world of batch one."""

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """See `skills.core.interface.SkillPolicy.begin`."""
        self._episode = episode
        self._parts = list(self.parts(episode, goal, world))
        self._at, self._begun = 0, False

    def act(self, world: WorldState, depth: np.ndarray | None = None) -> np.ndarray:
        """See `skills.core.interface.SkillPolicy.act`."""
        while self._at < len(self._parts):
            part = self._parts[self._at]
            if not self._begun:
                part.policy.begin(self._episode, part.goal(world), world)
                self._begun = True
            wanted = np.asarray(part.policy.act(world), dtype=float)
            skill = part.spec.definition
            masked = task.masked(
                wanted[None], skill.mask(), world.held, world.held_joint, skill.grip
            )[0]
            if wanted[act.STOP] <= 0:
                masked[act.STOP] = -1.0
                return np.asarray(masked)
            if self._at == len(self._parts) - 1 or not part.done(world):
                masked[act.STOP] = 1.0
                return np.asarray(masked)
            self._at, self._begun = self._at + 1, False
        return self._nothing_to_do(world)

    def _nothing_to_do(self, world: WorldState) -> np.ndarray:
        action = np.zeros(act.SIZE)
        action[act.GRIP] = 1.0 if world.held[0] >= 0 else -1.0
        action[act.STOP] = 1.0
        return action

    def diagnosis(self) -> dict[str, Any]:
        """Returns the current part's skill ("acting", "" for none) and that part's diagnosis."""
        if self._at >= len(self._parts):
            return {"acting": ""}
        part = self._parts[self._at]
        return {"acting": part.spec.name, **part.policy.diagnosis()}


class GoThere(InTurn):
    """Policy that navigates to the place of a skill by other skills' policies, then runs the skill.

    Args:
        ways: navigation skills with their policies, run in this order
        spec: skill to run at the destination
        policy: policy of that skill
    """

    def __init__(
        self, ways: Sequence[tuple[SkillSpec, SkillPolicy]], spec: SkillSpec, policy: SkillPolicy
    ) -> None:
        self._ways, self._spec, self._policy = ways, spec, policy

    def parts(self, episode: Episode, goal: SkillGoal, world: WorldState) -> Sequence[Part]:
        """See `InTurn.parts`."""
        going = [
            Part(spec, policy, lambda now, spec=spec: _way_to(goal, spec, now))  # type: ignore[misc]
            for spec, policy in self._ways
        ]
        return [*going, Part(self._spec, self._policy, lambda now: goal)]


def _way_to(goal: SkillGoal, spec: SkillSpec, world: WorldState) -> SkillGoal:
    """Returns the goal of the navigation skill `spec` that leads to another skill's `goal`."""
    assert spec.goal_of is not None
    return spec.goal_of([referent_of(goal, world)])


def referent_of(goal: SkillGoal, world: WorldState) -> Referent:
    """Returns the argument of a planner's action for a goal: handle, place or object."""
    if goal.marker:
        where = world.marker_pos[0, JOINTS.index(goal.marker)]
        kind, index = "handle", -1
    elif goal.position is not None:
        kind, where, index = "goal", np.asarray(goal.position), goal.object
    else:
        kind, where, index = "object", world.object_pos[0, goal.object], goal.object
    x, y, z = (float(value) for value in where)
    return Referent(kind, index, goal.marker, (x, y, z))  # type: ignore[arg-type]
