"""Goal, policy and demonstrator of a skill's run."""

import dataclasses
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tpsrl.sim.base import Simulator
from tpsrl.world.episode import Episode
from tpsrl.world.state import WorldState

FARTHEST_HELD_M = 0.25  # of a held object's centre from the cup; the longest object is 0.25 m long


@dataclasses.dataclass(frozen=True, slots=True)
class Grasp:
    """How the hand holds its object, as the robot knows it: in the frame of the cup's tip.

    The robot knows where the object was before it took it, which Pick observes, and where its own
    cup was when it gripped. In start states that put the object into the hand, it hangs
    upright. `centre` (3,) in metres is the object's centre, `up` (3,) the unit vector that pointed
    upwards.
    """

    centre: tuple[float, float, float]
    up: tuple[float, float, float]


@dataclasses.dataclass(frozen=True, slots=True)
class SkillGoal:
    """Goal of one run of a skill, and what the robot knows of the object in its hand.

    `object` is the index of the object (-1: none); `position` (3,) in metres is where to navigate
    to, or where to place; `marker` is the name of the articulated handle ("" for none). `grasp` is
    None for an empty hand, or if it is not known how it holds its object.
    """

    object: int = -1
    position: tuple[float, float, float] | None = None
    marker: str = ""
    grasp: Grasp | None = None


class SkillPolicy(Protocol):
    """Policy of a skill: a scripted controller or a learned network.

    A policy that has finished sets the stop entry of its action. The executor applies the skill's
    action mask before the action reaches the simulator.

    A policy that needs measurements of the engine has an attribute `asks_engine` that is True, and
    its `act` gets the result of its method `measure(simulator, env_id)` as a third argument.
    """

    @property
    def depth_size(self) -> tuple[int, int] | None:
        """(height, width) of the head depth that the policy needs, None if it needs none."""
        ...

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """Starts the skill from a world state of batch one."""
        ...

    def act(self, world: WorldState, depth: np.ndarray | None = None) -> np.ndarray:
        """Returns the action (11,) in [-1, 1] for this control step; `depth` has `depth_size`."""
        ...

    def diagnosis(self) -> dict[str, Any]:
        """Returns why the policy stopped or what it failed to do, {} for nothing."""
        ...


def sensed(policy: SkillPolicy, simulator: Simulator, env_id: int) -> tuple[Any, ...]:
    """Returns the arguments of a policy's `act` after the world: depth, and engine measurements."""
    size = policy.depth_size
    depth = None if size is None else simulator.depth([env_id], *size)[0]
    if not getattr(policy, "asks_engine", False):
        return (depth,)
    measuring: Any = policy
    return depth, measuring.measure(simulator, env_id)


@runtime_checkable
class Demonstrator(Protocol):
    """Expert that demonstrations are recorded from: it labels states of an episode with actions.

    The states may result from the actions of another policy, such as a learner's, as in DAgger
    (Ross, Gordon and Bagnell, "A reduction of imitation learning and structured prediction to
    no-regret online learning", AISTATS 2011).
    """

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """Starts an episode from a world state of batch one and resets all memory."""
        ...

    def label(self, world: WorldState) -> tuple[np.ndarray, bool]:
        """Returns the action for the control step that begins in a world state of batch one.

        Returns:
            The action (11,) in [-1, 1], and whether it is valid. An invalid action stands still and
            must not be learned from.
        """
        ...
