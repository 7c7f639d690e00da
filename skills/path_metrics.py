"""How well a robot drove: distance left, path driven, SPL. For PointNav, and for Navigate too.

SPL is success weighted by path length (Anderson et al., "On evaluation of embodied navigation
agents", 2018; DD-PPO, section 4): success x shortest / max(shortest, driven).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from tpsrl.world.episode import Episode
from tpsrl.world.floor import CLOSED, Joints, rounded
from tpsrl.world.geodesic import DistanceFields, distance_field, free_floor
from tpsrl.world.state import JOINTS, WorldState


def spl(success: Any, shortest: Any, driven: Any) -> Any:
    """SPL (n,) of successes (n,) bool, shortest paths (n,) and paths driven (n,), metres.

    A success without a way to drive counts 1; one over floor that the map says cannot be passed
    (`shortest` inf) is NaN.
    """
    xp = array_namespace(shortest, driven)
    return xp.where(success, _efficiency(shortest, driven), 0.0)


def soft_spl(left: Any, shortest: Any, driven: Any) -> Any:
    """SPL (n,) with the share of the way that was covered in place of success.

    `left` (n,) is the distance left in metres (Datta et al., "Integrating egocentric localization
    for more realistic point-goal navigation agents", CoRL 2020).
    """
    xp = array_namespace(shortest, driven)
    covered = 1.0 - left / xp.where(shortest > 0.0, shortest, 1.0)
    return xp.where(covered > 0.0, covered, 0.0) * _efficiency(shortest, driven)


def _efficiency(shortest: Any, driven: Any) -> Any:
    xp = array_namespace(shortest, driven)
    longest = xp.where(driven > shortest, driven, shortest)
    known = xp.isfinite(longest)
    share = xp.where(known, shortest, 0.0) / xp.where(known & (longest > 0.0), longest, 1.0)
    return xp.where(known, xp.where(longest > 0.0, share, 1.0), xp.nan)


def step_length(before: Any, after: Any) -> Any:
    """Metres (n,) over the floor between base poses (n, 2 or 3)."""
    xp = array_namespace(before, after)
    return xp.linalg.vector_norm(after[:, :2] - before[:, :2], axis=-1)


def door_positions(episode: Episode) -> Joints:
    """Where doors and drawers stand at the start of an episode."""
    if not episode.articulation:
        return CLOSED
    return rounded([episode.articulation.get(key, 0.0) for key in JOINTS])


class PathMeter:
    """Measures the paths of n homes, each to a goal of its own.

    Distances are geodesic, for the base's disc on the floor as doors and drawers leave it at the
    start. With `reach_m` the way ends where the goal is that near as the crow flies: Navigate is
    there within 1.5 m.
    """

    def __init__(self, num_homes: int, reach_m: float = 0.0) -> None:
        self._reach_m = reach_m
        self._fields = DistanceFields(num_homes)
        self.shortest = np.zeros(num_homes)  # (n,) m, from the start
        self.left = np.zeros(num_homes)  # (n,) m, from where the base is now
        self.driven = np.zeros(num_homes)  # (n,) m
        self._last = np.zeros((num_homes, 2))

    def begin(
        self,
        homes: Sequence[int],
        episodes: Sequence[Episode],
        goals: np.ndarray,
        world: WorldState,
    ) -> None:
        """Starts to measure the ways of homes to goals (n, 2 or 3) from their present worlds.

        Raises:
            UserError: no free floor is near a goal, or the homes' layouts are not of one set.
        """
        rows = np.asarray(homes)
        for home, episode, goal in zip(homes, episodes, goals, strict=True):
            floor = free_floor(episode.layout, door_positions(episode))
            self._fields.set(home, distance_field(floor, goal[:2], self._reach_m))
        here = np.asarray(world.base)[:, :2]
        self._last[rows], self.driven[rows] = here, 0.0
        self.shortest[rows] = self.left[rows] = self._fields.distances(rows, here)

    def step(self, homes: Sequence[int], world: WorldState) -> np.ndarray:
        """Adds the control step that led to these worlds; metres left (n,)."""
        rows = np.asarray(homes)
        here = np.asarray(world.base)[:, :2]
        self.driven[rows] += step_length(self._last[rows], here)
        self.left[rows] = self._fields.distances(rows, here)
        self._last[rows] = here
        return self.left[rows]

    def metrics(self, home: int, success: bool) -> dict[str, float]:
        """What a report says of an episode that ends now."""
        left, driven = self.left[home : home + 1], self.driven[home : home + 1]
        shortest = self.shortest[home : home + 1]
        return {
            "distance_left_m": float(left[0]),
            "driven_m": float(driven[0]),
            "shortest_m": float(shortest[0]),
            "spl": float(spl(np.array([success]), shortest, driven)[0]),
            "soft_spl": float(soft_spl(left, shortest, driven)[0]),
        }
