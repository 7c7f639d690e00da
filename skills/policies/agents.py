"""Two policies that no skill may be solved by: one that does nothing, and one that plays dice."""

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
    """All parts of its action are 0: nothing moves, and the cup takes what touches it."""

    depth_size: tuple[int, int] | None = None

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """See `skills.core.interface.SkillPolicy.begin`."""

    def act(self, world: WorldState, depth: np.ndarray | None = None) -> np.ndarray:
        """See `skills.core.interface.SkillPolicy.act`."""
        return np.zeros(act.SIZE)

    def diagnosis(self) -> dict[str, Any]:
        """Always {}."""
        return {}


class RandomAgent(ZeroAgent):
    """Every part of its action is uniform in [-1, 1], anew with every step but for the stop.

    A fair coin for the stop would end every episode at once, so it is called in one step of 200.
    The dice are the same for each episode.
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
    """The names of the agents."""
    return tuple(_AGENTS)


def make(name: str) -> SkillPolicy:
    """The agent of a name.

    Raises:
        UserError: there is none of that name; names the nearest.
    """
    if name not in _AGENTS:
        raise unknown("agent", name, _AGENTS)
    return _AGENTS[name]()
