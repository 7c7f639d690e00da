"""ObjectNav without learning: blind ones, and the shortest path of one that knows the apartment.

All stop at the first viewpoint that they come to. The blind ones are told so by the simulator, as
PointNav's are told by the compass; what they cannot do is to find one.
"""

import numpy as np

from skills.core.interface import SkillGoal
from skills.pointnav.baselines import (
    ForwardOnlyRoamer,
    PointNavAgent,
    RandomRoamer,
    ShortestPathFollower,
)
from tpsrl.world import action as act
from tpsrl.world.episode import Episode
from tpsrl.world.floor import rounded
from tpsrl.world.geodesic import DistanceField
from tpsrl.world.state import WorldState
from tpsrl.world.viewpoints import category_field

_STOP_M = 0.05  # to a viewpoint; 0.1 m count as success


class ViewpointStop(PointNavAgent):
    """Stops at a viewpoint of what is to be found, and moves until then."""

    stops = False  # where the goal's position is

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """See `skills.core.interface.SkillPolicy.begin`."""
        super().begin(episode, goal, world)
        self._to_view = category_field(episode.layout, episode.category, rounded(world.joints[0]))

    def act(self, world: WorldState, depth: np.ndarray | None = None) -> np.ndarray:
        """See `skills.core.interface.SkillPolicy.act`."""
        action = super().act(world, depth)
        x, y = (float(value) for value in world.base[0, :2])
        if self._to_view.distance(x, y) < _STOP_M:
            action[act.BASE], action[act.STOP] = 0.0, 1.0
        return action


class RandomSearcher(ViewpointStop, RandomRoamer):
    """Drives forward, turns left or turns right, as the dice say; the same for each episode."""


class ForwardOnlySearcher(ViewpointStop, ForwardOnlyRoamer):
    """Drives forward."""


class ShortestViewpointPath(ViewpointStop, ShortestPathFollower):
    """Knows the apartment and follows the shortest path to a viewpoint.

    It is the demonstrator too: what it does depends on where the base is alone.
    """

    def label(self, world: WorldState) -> tuple[np.ndarray, bool]:
        """See `skills.core.interface.Demonstrator.label`."""
        return self.act(world), True

    def field(self, episode: Episode, world: WorldState) -> DistanceField:
        """See `ShortestPathFollower.field`."""
        return category_field(episode.layout, episode.category, rounded(world.joints[0]))
