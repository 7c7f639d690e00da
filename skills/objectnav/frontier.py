"""ObjectNav by frontier exploration: classical baselines that build their own map.

The agent drives to the nearest frontier of the explored area until an instance of the category is
in sight. It then drives to the instance on its own map, and stops when the instance is near and in
sight. Depth, laser and odometry are available to a robot. The detector of `FrontierExplorer` is
privileged and perfect (`tpsrl.world.sightings`); `PictureExplorer` has category pictures instead
(`tpsrl.world.search_maps`), and `ColourExplorer` computes them from colour.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from skills.core.interface import SkillGoal
from skills.core.sensors import Readings
from skills.pointnav.baselines import speed_towards, turn_towards
from tpsrl.sim.base import Simulator
from tpsrl.world import action as act
from tpsrl.world.cameras import HEAD_CATEGORY, HEAD_RGB
from tpsrl.world.categories import CATEGORIES
from tpsrl.world.episode import Episode
from tpsrl.world.floor import rounded
from tpsrl.world.frontiers import FrontierMaps
from tpsrl.world.search_maps import SearchMaps
from tpsrl.world.sightings import Sightings
from tpsrl.world.state import WorldState
from tpsrl.world.viewpoints import VIEW_M

_STOP_M = VIEW_M - 0.05  # from an instance in sight
_REACH_M = 0.8  # distance from a point of the instance at which the path ends
_NEAR_M = 0.2  # beyond _STOP_M, within which steps count as near
_FACING_RAD = 0.15
_PATIENCE = 75  # near steps without sight, after which seen instances are given up
_FASTEST = 0.8  # fraction of the base's maximum speed: obstacles may come into view
_IN_SIGHT = 0.005  # share of the picture that an instance in sight has at least
_SIDES = 64, 64  # of the pictures
_CERTAIN = 0.98  # probability of a pixel's category: a wrong pixel is worse than a missing one


class _Explorer:
    """Base of the explorers, a `skills.core.interface.SkillPolicy`.

    A subclass has the map, and says where the nearest seen instance is.
    """

    depth_size: tuple[int, int] | None = _SIDES
    asks_engine = sees_laser = True

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """See `skills.core.interface.SkillPolicy.begin`."""
        self._steps, self._near_steps, self._given_up = 0, 0, 0

    def diagnosis(self) -> dict[str, Any]:
        """Returns how often seen instances were given up ("given_up"), {} if never."""
        return {"given_up": self._given_up} if self._given_up else {}

    def act(
        self,
        world: WorldState,
        depth: np.ndarray | None = None,
        measured: Readings | None = None,
    ) -> np.ndarray:
        """See `skills.core.interface.SkillPolicy.act`."""
        assert depth is not None and measured is not None
        self._look(world, depth[None], measured)
        action = np.zeros(act.SIZE)
        action[act.GRIP] = action[act.STOP] = -1.0
        move = self._approach(world)
        if move is None:
            action[act.STOP] = 1.0
        else:
            action[act.BASE] = move
        self._steps += 1
        return action

    def _approach(self, world: WorldState) -> tuple[float, float] | None:
        """Returns linear and angular command towards a seen instance or frontier; None: stop."""
        base, steps = world.base, np.array([self._steps])
        found = self._found(base)
        if found is None:
            return self._follow(self._ahead(base, steps))
        away, sees, (dx, dy) = found
        if away < _STOP_M and sees:
            return None
        self._near_steps += int(away < _STOP_M + _NEAR_M)
        if self._near_steps > _PATIENCE:
            self._near_steps, self._given_up = 0, self._given_up + 1
            self._forget()
        ahead = self._ahead(base, steps)
        if ahead[0] > 0.05:
            return self._follow(ahead)
        angle = (math.atan2(dy, dx) - base[0, 2] + math.pi) % (2 * math.pi) - math.pi
        return (0.0 if abs(angle) > _FACING_RAD else 0.1), turn_towards(float(angle))

    def _look(self, world: WorldState, depth: np.ndarray, measured: Readings) -> None:
        """Updates the maps with depth (1, height, width) and the readings of `measure`."""
        raise NotImplementedError

    def _found(self, base: np.ndarray) -> tuple[float, bool, np.ndarray] | None:
        """Returns distance of the nearest seen instance, whether it is in sight now, and the vector
        (2,) to it in the world frame; None if none was seen."""
        raise NotImplementedError

    def _ahead(self, base: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Returns the path (3,) to the nearest seen instance, else to the nearest frontier."""
        raise NotImplementedError

    def _forget(self) -> None:
        """Gives up the seen instances."""
        raise NotImplementedError

    @staticmethod
    def _follow(ahead: np.ndarray) -> tuple[float, float]:
        """Returns the command to the next corner of a path; without a path, a turn on the spot."""
        length, forward, left = (float(value) for value in ahead)
        if length <= 0.0:
            return 0.0, 1.0
        angle = math.atan2(left, forward)
        speed = speed_towards(length) * max(0.0, math.cos(min(2.0 * abs(angle), math.pi / 2)))
        return min(_FASTEST, speed), turn_towards(angle)


class FrontierExplorer(_Explorer):
    """Frontier explorer of ObjectNav with a perfect, privileged detector."""

    def __init__(self) -> None:
        self._maps, self._sightings = FrontierMaps(1), Sightings(1)

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """See `skills.core.interface.SkillPolicy.begin`."""
        super().begin(episode, goal, world)
        self._maps.begin([0], world.base)
        joints = rounded(world.joints[0])
        self._sightings.begin(0, episode.layout, episode.category, joints)

    def measure(self, simulator: Simulator, env_id: int) -> Readings:
        """Returns readings with the laser's ranges (1, rays)."""
        return Readings(laser=simulator.laser([env_id]))

    def _look(self, world: WorldState, depth: np.ndarray, measured: Readings) -> None:
        self._maps.look([0], world, measured.laser, depth)
        self._sightings.look([0], world.base)

    def _found(self, base: np.ndarray) -> tuple[float, bool, np.ndarray] | None:
        found = self._sightings.nearest(0, base[0])
        if found is None:
            return None
        thing, _ = found
        towards = np.subtract(thing.centre[:2], base[0, :2])
        return float(thing.away(base)[0]), self._sightings.sees(thing, base[0]), towards

    def _ahead(self, base: np.ndarray, steps: np.ndarray) -> np.ndarray:
        found = self._sightings.nearest(0, base[0])
        if found is None:
            return self._maps.ahead([0], base, steps)[0]
        return self._maps.explored.ahead([0], base, found[1][None], _REACH_M, steps)[0]

    def _forget(self) -> None:
        self._sightings.forget(0)


class PictureExplorer(_Explorer):
    """Frontier explorer of ObjectNav with category pictures of the head camera."""

    pictures: tuple[str, ...] = (HEAD_CATEGORY,)

    def __init__(self) -> None:
        self._maps = SearchMaps(1)

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """See `skills.core.interface.SkillPolicy.begin`."""
        super().begin(episode, goal, world)
        self._maps.begin([0], world.base)
        self._sought = np.array([1 + CATEGORIES.index(episode.category)])

    def measure(self, simulator: Simulator, env_id: int) -> Readings:
        """Returns readings with the laser's ranges (1, rays) and the picture (1, height, width)."""
        shown = simulator.look([env_id], dict.fromkeys(self.pictures, _SIDES))
        return Readings(laser=simulator.laser([env_id]), pictures=shown)

    def _look(self, world: WorldState, depth: np.ndarray, measured: Readings) -> None:
        picture = self._categories(measured.pictures)
        self._maps.look([0], world, measured.laser, depth, picture, self._sought)

    def _categories(self, pictures: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns the category picture (1, height, width) from those of `pictures`."""
        return pictures[HEAD_CATEGORY]

    def _found(self, base: np.ndarray) -> tuple[float, bool, np.ndarray] | None:
        seen, forward, left, share = self._maps.spotted([0], base)[0]
        if not seen:
            return None
        c, s = math.cos(base[0, 2]), math.sin(base[0, 2])
        towards = np.array([c * forward - s * left, s * forward + c * left])
        return math.hypot(forward, left), share > _IN_SIGHT, towards

    def _ahead(self, base: np.ndarray, steps: np.ndarray) -> np.ndarray:
        return self._maps.ahead([0], base, steps)[0]

    def _forget(self) -> None:
        self._maps.forget([0])


class ColourExplorer(PictureExplorer):
    """Frontier explorer of ObjectNav with colour pictures, segmented by a trained network."""

    pictures: tuple[str, ...] = (HEAD_RGB,)

    def _categories(self, pictures: Mapping[str, np.ndarray]) -> np.ndarray:
        from skills.objectnav import segmenter

        return segmenter.load().categories(pictures[HEAD_RGB], _CERTAIN)
