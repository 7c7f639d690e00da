"""Baselines that must not solve any skill: an agent of zeros and a random agent."""

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from skills.core.interface import SkillGoal, SkillPolicy
from tpsrl.errors import unknown
from tpsrl.world import action as act
from tpsrl.world.episode import Episode
from tpsrl.world.state import WorldState


class ZeroAgent:
    """Agent whose actions are all 0: nothing moves, and the cup grasps what touches it."""

    depth_size: tuple[int, int] | None = None

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """See `skills.core.interface.SkillPolicy.begin`."""

    def act(self, world: WorldState, depth: np.ndarray | None = None) -> np.ndarray:
        """See `skills.core.interface.SkillPolicy.act`."""
        return np.zeros(act.SIZE)

    def diagnosis(self) -> dict[str, Any]:
        """Returns {}."""
        return {}


class RandomAgent(ZeroAgent):
    """Agent whose actions are uniform in [-1, 1] in every step, except for stop.

    Stop is called with probability 1/200, since a uniform one would end every episode at once. The
    random generator is seeded by the episode's id.
    """

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """See `skills.core.interface.SkillPolicy.begin`."""
        self._rng = np.random.default_rng(zlib.crc32(episode.id.encode()))

    def act(self, world: WorldState, depth: np.ndarray | None = None) -> np.ndarray:
        """See `skills.core.interface.SkillPolicy.act`."""
        action = self._rng.uniform(-1.0, 1.0, act.SIZE)
        action[act.STOP] -= 0.99
        return action


_AGENTS: dict[str, Callable[[], SkillPolicy]] = {"zero": ZeroAgent, "random": RandomAgent}


def names() -> tuple[str, ...]:
    """Returns the names of the agents."""
    return tuple(_AGENTS)


def make(name: str) -> SkillPolicy:
    """Creates an agent by name.

    Raises:
        UserError: the name is unknown; the message names the nearest.
    """
    if name not in _AGENTS:
        raise unknown("agent", name, _AGENTS)
    return _AGENTS[name]()
