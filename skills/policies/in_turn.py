"""Policies that act one after the other, as one policy for a skill that takes all of them."""

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
    """What a part is for has come about, whatever the world is like."""
    return True


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """A skill's policy, and what it is about once its turn has come.

    `done` says, when the policy has stopped in a world of batch one, whether to go on.
    """

    spec: SkillSpec
    policy: SkillPolicy
    goal: Callable[[WorldState], SkillGoal]
    done: Callable[[WorldState], bool] = done_anyhow


class InTurn(abc.ABC):
    """Base of policies that are made of parts, each of which acts until it calls stop.

    Every part may do what its own skill may. The stop of the last one, or of one that has not done
    what it is for, is the stop of the whole. Parts that look at depth cannot be had.
    """

    depth_size: tuple[int, int] | None = None

    @abc.abstractmethod
    def parts(self, episode: Episode, goal: SkillGoal, world: WorldState) -> Sequence[Part]:
        """The parts of a run that begins in a world of batch one."""

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
        """The part that acted last ("acting", "" for none), and what it says."""
        if self._at >= len(self._parts):
            return {"acting": ""}
        part = self._parts[self._at]
        return {"acting": part.spec.name, **part.policy.diagnosis()}


class GoThere(InTurn):
    """Goes to where a skill has to act by the policies of others, then acts.

    Args:
        ways: skills that go there, with who acts for them
        spec: the skill that acts there
        policy: who acts for it
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
    """A skill's goal where it is to go to what another skill's is about."""
    assert spec.goal_of is not None
    return spec.goal_of([referent_of(goal, world)])


def referent_of(goal: SkillGoal, world: WorldState) -> Referent:
    """What a goal is about, as a planner names it: the handle, where to place, or the object."""
    if goal.marker:
        where = world.marker_pos[0, JOINTS.index(goal.marker)]
        kind, index = "handle", -1
    elif goal.position is not None:
        kind, where, index = "goal", np.asarray(goal.position), goal.object
    else:
        kind, where, index = "object", world.object_pos[0, goal.object], goal.object
    x, y, z = (float(value) for value in where)
    return Referent(kind, index, goal.marker, (x, y, z))  # type: ignore[arg-type]
