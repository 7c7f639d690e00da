"""What one run of a skill is about, and what acts for it."""

import dataclasses
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tpsrl.sim.base import Simulator
from tpsrl.world.episode import Episode
from tpsrl.world.state import WorldState


@dataclasses.dataclass(frozen=True, slots=True)
class SkillGoal:
    """What one run of a skill is about.

    `object` is the index of the object concerned (-1: none); `position` (3,) in metres is where
    to navigate to, or where to place; `marker` is the articulated handle concerned ("" for none).
    """

    object: int = -1
    position: tuple[float, float, float] | None = None
    marker: str = ""


class SkillPolicy(Protocol):
    """What acts for a skill: a scripted controller or a learned network.

    A policy that has finished sets the stop entry of its action. The executor masks the action
    by the skill's mask before it reaches the simulator.

    One that is shown what the engine measures has an attribute `asks_engine` that is True, and its
    `act` is given what its method `measure(simulator, env_id)` returns as a third argument.
    """

    @property
    def depth_size(self) -> tuple[int, int] | None:
        """(height, width) of the head depth that it looks at, None if it does not look."""
        ...

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """Starts the skill from a world state of batch one."""
        ...

    def act(self, world: WorldState, depth: np.ndarray | None = None) -> np.ndarray:
        """The action (11,) in [-1, 1] for this control step; `depth` is of `depth_size`."""
        ...

    def diagnosis(self) -> dict[str, Any]:
        """Why the policy stopped or what it could not do ({} when nothing to say)."""
        ...


def sensed(policy: SkillPolicy, simulator: Simulator, env_id: int) -> tuple[Any, ...]:
    """What a policy's `act` is given beside the world: depth, and what the engine measures."""
    size = policy.depth_size
    depth = None if size is None else simulator.depth([env_id], *size)[0]
    if not getattr(policy, "asks_engine", False):
        return (depth,)
    measuring: Any = policy
    return depth, measuring.measure(simulator, env_id)


@runtime_checkable
class Demonstrator(Protocol):
    """What demonstrations are recorded of: says in a state of an episode what to do there.

    Who acts does not matter: the states may be those that a learner got itself into, as in DAgger
    (Ross, Gordon and Bagnell, "A reduction of imitation learning and structured prediction to
    no-regret online learning", AISTATS 2011).
    """

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """Starts an episode from a world state of batch one; forgets the one before."""
        ...

    def label(self, world: WorldState) -> tuple[np.ndarray, bool]:
        """The action for the control step that begins in a world state of batch one.

        Returns:
            The action (11,) in [-1, 1], and whether it is good for anything: an action that is not
            valid stands still and is not to be learned from.
        """
        ...
