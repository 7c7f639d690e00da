"""ObjectNav without learning: blind baselines, and an oracle that follows the shortest path.

All of them stop at the first viewpoint that they reach. The simulator detects the arrival, also for
the blind baselines, as the compass does in PointNav; but they cannot search for a viewpoint.
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

_STOP_M = 0.05  # to a viewpoint; success requires 0.1 m


class ViewpointStop(PointNavAgent):
    """Base class of agents that move until they are at a viewpoint of the category, then stop."""

    stops = False  # not at the goal's position

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
    """`RandomRoamer` that stops at viewpoints."""


class ForwardOnlySearcher(ViewpointStop, ForwardOnlyRoamer):
    """`ForwardOnlyRoamer` that stops at viewpoints."""


class ShortestViewpointPath(ViewpointStop, ShortestPathFollower):
    """Oracle that follows the shortest path of the map to a viewpoint.

    It is also the demonstrator, because its action depends only on the base pose.
    """

    def label(self, world: WorldState) -> tuple[np.ndarray, bool]:
        """See `skills.core.interface.Demonstrator.label`."""
        return self.act(world), True

    def field(self, episode: Episode, world: WorldState) -> DistanceField:
        """See `ShortestPathFollower.field`."""
        return category_field(episode.layout, episode.category, rounded(world.joints[0]))
