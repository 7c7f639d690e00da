"""ObjectNav by frontier exploration: a classical baseline that builds its own map.

The agent drives to the nearest frontier of the explored area until an instance of the category is
in sight. It then drives to the instance on its own map, and stops when the instance is near and in
sight. Depth, laser and odometry are available to a robot; the detector is privileged and perfect
(`tpsrl.world.sightings`).
"""

import math
from typing import Any

import numpy as np

from skills.core.interface import SkillGoal
from skills.pointnav.baselines import speed_towards, turn_towards
from tpsrl.sim.base import Simulator
from tpsrl.world import action as act
from tpsrl.world.episode import Episode
from tpsrl.world.floor import rounded
from tpsrl.world.frontiers import FrontierMaps
from tpsrl.world.sightings import Sightings
from tpsrl.world.state import WorldState
from tpsrl.world.viewpoints import VIEW_M

_STOP_M = VIEW_M - 0.05  # from an instance in sight
_REACH_M = 0.8  # distance from a point of the instance at which the path ends
_NEAR_M = 0.2  # beyond _STOP_M, within which steps count as near
_FACING_RAD = 0.15
_PATIENCE = 75  # near steps without sight, after which seen instances are given up
_FASTEST = 0.8  # fraction of the base's maximum speed: obstacles may come into view


class FrontierExplorer:
    """Frontier explorer of ObjectNav, a `skills.core.interface.SkillPolicy`."""

    depth_size: tuple[int, int] | None = (64, 64)
    asks_engine = True

    def __init__(self) -> None:
        self._maps, self._sightings = FrontierMaps(1), Sightings(1)

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """See `skills.core.interface.SkillPolicy.begin`."""
        self._maps.begin([0], world.base)
        joints = rounded(world.joints[0])
        self._sightings.begin(0, episode.layout, episode.category, joints)
        self._steps, self._near_steps, self._given_up = 0, 0, 0

    def measure(self, simulator: Simulator, env_id: int) -> np.ndarray:
        """Returns the laser's ranges (1, rays)."""
        return simulator.laser([env_id])

    def act(
        self, world: WorldState, depth: np.ndarray | None = None, laser: np.ndarray | None = None
    ) -> np.ndarray:
        """See `skills.core.interface.SkillPolicy.act`."""
        assert depth is not None and laser is not None
        self._maps.look([0], world, laser, depth[None])
        self._sightings.look([0], world.base)
        action = np.zeros(act.SIZE)
        action[act.GRIP] = action[act.STOP] = -1.0
        move = self._approach(world)
        if move is None:
            action[act.STOP] = 1.0
        else:
            action[act.BASE] = move
        self._steps += 1
        return action

    def diagnosis(self) -> dict[str, Any]:
        """Returns how often seen instances were given up ("given_up"), {} if never."""
        return {"given_up": self._given_up} if self._given_up else {}

    def _approach(self, world: WorldState) -> tuple[float, float] | None:
        """Returns linear and angular command towards a seen instance or frontier; None: stop."""
        base, steps = world.base, np.array([self._steps])
        found = self._sightings.nearest(0, base[0])
        if found is None:
            return self._follow(self._maps.ahead([0], base, steps)[0])
        thing, point = found
        if thing.away(base)[0] < _STOP_M and self._sightings.sees(thing, base[0]):
            return None
        self._near_steps += int(thing.away(base)[0] < _STOP_M + _NEAR_M)
        if self._near_steps > _PATIENCE:
            self._near_steps, self._given_up = 0, self._given_up + 1
            self._sightings.forget(0)
        ahead = self._maps.explored.ahead([0], base, point[None], _REACH_M, steps)[0]
        if ahead[0] > 0.05:
            return self._follow(ahead)
        dx, dy = thing.centre[0] - base[0, 0], thing.centre[1] - base[0, 1]
        angle = (math.atan2(dy, dx) - base[0, 2] + math.pi) % (2 * math.pi) - math.pi
        return (0.0 if abs(angle) > _FACING_RAD else 0.1), turn_towards(float(angle))

    @staticmethod
    def _follow(ahead: np.ndarray) -> tuple[float, float]:
        """Returns the command to the next corner of a path; without a path, a turn on the spot."""
        length, forward, left = (float(value) for value in ahead)
        if length <= 0.0:
            return 0.0, 1.0
        angle = math.atan2(left, forward)
        speed = speed_towards(length) * max(0.0, math.cos(min(2.0 * abs(angle), math.pi / 2)))
        return min(_FASTEST, speed), turn_towards(angle)
