"""Who acts for the skills."""

import zlib
from typing import Any

import numpy as np

from skills.base import SkillGoal, SkillPolicy
from tpsrl.errors import unknown
from tpsrl.world import action
from tpsrl.world.episode import Episode
from tpsrl.world.state import WorldState

# The skills that HAB's plans need, and the reset of the arm between them.
SCRIPTED = (
    "navigate",
    "pick",
    "place",
    "open_fridge",
    "close_fridge",
    "open_drawer",
    "close_drawer",
    "reset_arm",
)
_RANDOM_STOP = 0.01  # share of its steps in which the random agent calls stop


def make(agent: str) -> dict[str, SkillPolicy]:
    """The policies of an agent for a whole plan, by the name of the skill.

    Raises:
        UserError: there is no such agent.
    """
    if agent != "scripted":
        raise unknown("agent", agent, ["scripted"])
    from skills import scripted

    return {name: scripted.make(name) for name in SCRIPTED}


def make_for_skill(agent: str, skill: str, seed: int = 0) -> SkillPolicy:
    """The policy of an agent for one skill by itself.

    Raises:
        UserError: there is no such agent, or it cannot act for the skill.
    """
    if agent == "zero":
        return Zero()
    if agent == "random":
        return Random(seed)
    if agent != "scripted":
        raise unknown("agent", agent, ["random", "scripted", "zero"])
    from skills import scripted

    return scripted.make(skill)


class Zero:
    """Does nothing: what succeeds under it needs no skill."""

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """Starts the skill."""

    def act(self, world: WorldState, depth: np.ndarray | None = None) -> np.ndarray:
        """Arm and base stand still, the grip keeps what it holds, stop is not called."""
        result = np.zeros(action.SIZE)
        result[action.GRIP] = 1.0 if world.held[0] >= 0 else -1.0
        result[action.STOP] = -1.0
        return result

    def diagnosis(self) -> dict[str, Any]:
        """Nothing to say."""
        return {}


class Random:
    """Draws every part of the action evenly, but calls stop only once in a hundred steps.

    Drawn evenly as well, stop would end Navigate within two steps, before anything could be solved
    by chance. The draws depend on the seed and the episode alone.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self._draws = np.random.default_rng(seed)

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """Starts the skill, and the draws of this episode."""
        self._draws = np.random.default_rng([self.seed, zlib.crc32(episode.id.encode())])

    def act(self, world: WorldState, depth: np.ndarray | None = None) -> np.ndarray:
        """A random action."""
        result = self._draws.uniform(-1.0, 1.0, action.SIZE)
        result[action.STOP] = 1.0 if self._draws.random() < _RANDOM_STOP else -1.0
        return result

    def diagnosis(self) -> dict[str, Any]:
        """Nothing to say."""
        return {}
