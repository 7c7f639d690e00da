"""PointNav without learning: the classical blind baselines, and an oracle with the map.

Random, forward-only and goal-follower are the simple agents of habitat-baselines, which the DD-PPO
paper reports. All of them stop when the compass shows the goal within 0.2 m. The oracle follows the
shortest path and is an upper bound.
"""

import abc
import math
import zlib
from typing import Any

import numpy as np

from skills.core.interface import SkillGoal
from tpsrl.errors import UserError
from tpsrl.motion.base.path_following import BRAKE_MPS2, BRAKE_RPS2
from tpsrl.world import action as act
from tpsrl.world.episode import Episode
from tpsrl.world.floor import rounded
from tpsrl.world.geodesic import DistanceField, distance_field, free_floor
from tpsrl.world.geometry import wrap_angle
from tpsrl.world.state import WorldState
from tpsrl.world.survey import farthest

_STOP_M = 0.2
_TURN_RAD = math.radians(15.0)  # angle to the goal within which the goal-follower drives
_MOVE_STEPS = 3  # length of a random move: 0.25 m, as in the paper
_LOOKAHEAD_M = 0.15  # corners of the path within this distance count as passed


class PointNavAgent(abc.ABC):
    """Base class of agents that move until the compass shows the goal nearby, then stop."""

    depth_size: tuple[int, int] | None = None
    stops = True

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """See `skills.core.interface.SkillPolicy.begin`.

        Raises:
            UserError: the goal has no position.
        """
        if goal.position is None:
            raise UserError("goal: PointNav needs a position")
        self.goal = np.array(goal.position[:2])

    def act(self, world: WorldState, depth: np.ndarray | None = None) -> np.ndarray:
        """See `skills.core.interface.SkillPolicy.act`."""
        distance, angle = polar(world.base[0], self.goal)
        action = np.zeros(act.SIZE)
        action[act.GRIP] = action[act.STOP] = -1.0
        if self.stops and distance < _STOP_M:
            action[act.STOP] = 1.0
        else:
            action[act.BASE] = self.move(world, distance, angle)
        return action

    def diagnosis(self) -> dict[str, Any]:
        """Returns {}: these agents have no diagnosis."""
        return {}

    @abc.abstractmethod
    def move(self, world: WorldState, distance: float, angle: float) -> tuple[float, float]:
        """Returns linear and angular command in [-1, 1]; `distance` (m) and `angle` of the goal."""


class RandomDriver(PointNavAgent):
    """Drives forward, turns left or turns right at random, with a seed from the episode's id."""

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """See `skills.core.interface.SkillPolicy.begin`."""
        super().begin(episode, goal, world)
        self._rng = np.random.default_rng(zlib.crc32(episode.id.encode()))
        self._steps, self._move = 0, (0.0, 0.0)

    def move(self, world: WorldState, distance: float, angle: float) -> tuple[float, float]:
        """See `PointNavAgent.move`."""
        if self._steps % _MOVE_STEPS == 0:
            self._move = ((1.0, 0.0), (0.0, 1.0), (0.0, -1.0))[self._rng.integers(3)]
        self._steps += 1
        return self._move


class ForwardOnlyAgent(PointNavAgent):
    """Always drives forward."""

    def move(self, world: WorldState, distance: float, angle: float) -> tuple[float, float]:
        """See `PointNavAgent.move`."""
        return 1.0, 0.0


class GoalFollower(PointNavAgent):
    """Turns to the goal and drives straight at it, regardless of obstacles."""

    def move(self, world: WorldState, distance: float, angle: float) -> tuple[float, float]:
        """See `PointNavAgent.move`."""
        return (speed_towards(distance) if abs(angle) < _TURN_RAD else 0.0), turn_towards(angle)


class ShortestPathFollower(PointNavAgent):
    """Oracle that follows the shortest path of the base's disc on the map."""

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """See `skills.core.interface.SkillPolicy.begin`."""
        super().begin(episode, goal, world)
        self._field = self.field(episode, world)

    def field(self, episode: Episode, world: WorldState) -> DistanceField:
        """Returns the field of distances to the end of the path."""
        floor = free_floor(episode.layout, rounded(world.joints[0]))
        return distance_field(floor, tuple(self.goal))

    def move(self, world: WorldState, distance: float, angle: float) -> tuple[float, float]:
        """See `PointNavAgent.move`."""
        base = world.base[0]
        path = self._field.path(float(base[0]), float(base[1]))
        if not len(path):
            return 0.0, 0.0
        away = np.hypot(*(path - base[:2]).T)
        ahead = int(np.argmax((away > _LOOKAHEAD_M) | (np.arange(len(path)) == len(path) - 1)))
        to, turn = polar(base, path[ahead])
        # Slower in bends, so that the base does not drift into the obstacle on the inside.
        speed = speed_towards(to) * max(0.0, math.cos(min(3.0 * abs(turn), math.pi / 2)))
        return speed, turn_towards(turn)


class RandomRoamer(RandomDriver):
    """`RandomDriver` that never stops, for tasks without a goal."""

    stops = False


class ForwardOnlyRoamer(ForwardOnlyAgent):
    """`ForwardOnlyAgent` that never stops, for tasks without a goal."""

    stops = False


class FarthestPathFollower(ShortestPathFollower):
    """Oracle that follows the shortest path to the point farthest from the start."""

    stops = False

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """See `skills.core.interface.SkillPolicy.begin`."""
        floor = free_floor(episode.layout, rounded(world.joints[0]))
        x, y = (float(value) for value in world.base[0, :2])
        away = farthest(distance_field(floor, (x, y)), floor)
        super().begin(episode, SkillGoal(position=(*away[:2], 0.0)), world)


def polar(base: np.ndarray, point: np.ndarray) -> tuple[float, float]:
    """Returns distance (m) and angle (rad, left positive) of a point (2,) from a base (3,)."""
    dx, dy = (float(value) for value in point[:2] - base[:2])
    return math.hypot(dx, dy), wrap_angle(math.atan2(dy, dx) - float(base[2]))


def speed_towards(distance: float) -> float:
    """Returns the fastest forward command that allows braking within a distance (m)."""
    return min(1.0, math.sqrt(2.0 * BRAKE_MPS2 * distance) / act.BASE_LINEAR_MPS)


def turn_towards(angle: float) -> float:
    """Returns the turning command towards an angle (rad), slower near the angle."""
    rate = min(math.sqrt(2.0 * BRAKE_RPS2 * abs(angle)), 12.0 * abs(angle))
    return math.copysign(min(1.0, rate / act.BASE_ANGULAR_RPS), angle)
