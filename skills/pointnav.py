"""PointNav: drive to a point of the floor and say so (DD-PPO, section 4).

Succeeds when the policy calls stop within 0.2 m of the goal; any stop ends the episode. The reward
is DD-PPO's: 2.5 x SPL at success, and at every step what the geodesic distance to the goal fell,
less 0.01. Its agent turns by steps of 10 degrees and drives by steps of 0.25 m, 500 of them; here a
step turns up to 4.8 degrees while it drives up to 0.083 m.

Pure functions of arrays with a leading axis n, for any Array API library. Geodesic distances come
in from outside, from `skills.path_metrics.PathMeter`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from skills.path_metrics import spl, step_length
from skills.task import STOPPED, Outcome, TaskSettings
from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.world import action as act
from tpsrl.world.state import WorldState

OBSERVATION = 6


@dataclasses.dataclass(frozen=True, slots=True)
class PointNavSettings(TaskSettings):
    """What PointNav changes of, and adds to, the settings that all skills share."""

    horizon: int = config.option(500, "control steps until the episode is cut off", minimum=1)
    success: float = config.option(2.5, "reward for success, times SPL")
    slack: float = config.option(0.01, "penalty for each step")
    progress: float = config.option(1.0, "reward for each metre nearer, along the floor")
    success_m: float = config.option(0.2, "geodesic distance within which to stop", minimum=0)


@dataclasses.dataclass(frozen=True, slots=True)
class PointNavState:
    """What the task remembers from step to step."""

    goal: Any  # (n, 2) m, world frame
    shortest: Any  # (n,) m, geodesic distance at the start
    distance: Any  # (n,) m, geodesic distance after the last step
    driven: Any  # (n,) m
    last: Any  # (n, 2) m, where the base was after the last step
    steps: Any  # (n,) int

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Plain numpy copies by name, for snapshots and checkpoints."""
        return {name: np.array(getattr(self, name)) for name in _FIELDS}

    @staticmethod
    def from_arrays(arrays: Mapping[str, np.ndarray]) -> "PointNavState":
        """The state of `to_arrays`.

        Raises:
            UserError: an array is missing or unknown.
        """
        wrong = set(_FIELDS) ^ set(arrays)
        if wrong:
            raise UserError(f"pointnav state: arrays {', '.join(sorted(wrong))} missing or unknown")
        return PointNavState(**{name: np.array(arrays[name]) for name in _FIELDS})


_FIELDS = tuple(field.name for field in dataclasses.fields(PointNavState))


def mask() -> np.ndarray:
    """(11,) bool: base and stop."""
    allowed = np.zeros(act.SIZE, dtype=bool)
    allowed[act.BASE] = True
    allowed[act.STOP] = True
    return allowed


def begin(world: WorldState, goal: Any, distance: Any) -> PointNavState:
    """Tasks that begin in these worlds, goals (n, 2), at geodesic distances (n,)."""
    xp = array_namespace(world.base)
    none = xp.zeros_like(distance)
    steps = xp.zeros_like(world.step)
    return PointNavState(goal, distance, distance, none, world.base[:, :2], steps)


def goal_polar(base: Any, goal: Any) -> Any:
    """GPS+compass sensor (n, 2): distance (m) and angle (rad, left positive) of goals (n, 2)."""
    xp = array_namespace(base, goal)
    dx, dy = goal[:, 0] - base[:, 0], goal[:, 1] - base[:, 1]
    turn = xp.atan2(dy, dx) - base[:, 2]
    return xp.stack([xp.sqrt(dx * dx + dy * dy), xp.atan2(xp.sin(turn), xp.cos(turn))], axis=-1)


def observe(state: PointNavState, world: WorldState) -> Any:
    """What an agent knows besides its camera (n, 6).

    Distance to the goal as the crow flies (m), cosine and sine of its angle (as DD-PPO's network
    takes it), velocity forwards and to the left (m/s), and of turning (rad/s): unlike its agent,
    this one has momentum.
    """
    xp = array_namespace(world.base)
    polar = goal_polar(world.base, state.goal)
    cos, sin = xp.cos(world.base[:, 2]), xp.sin(world.base[:, 2])
    vx, vy = world.base_velocity[:, 0], world.base_velocity[:, 1]
    forwards, leftwards = cos * vx + sin * vy, cos * vy - sin * vx
    columns = [polar[:, 0], xp.cos(polar[:, 1]), xp.sin(polar[:, 1])]
    return xp.stack([*columns, forwards, leftwards, world.base_velocity[:, 2]], axis=-1)


def step(
    state: PointNavState,
    actions: Any,
    world: WorldState,
    distance: Any,
    settings: PointNavSettings,
) -> tuple[PointNavState, Outcome]:
    """Judges the control step by actions (n, 11) that led to `world`.

    `distance` (n,) is the geodesic distance from there to the goal, metres; where it is not finite,
    because something pushed the base off the map, it stays what it was. A stop too far away fails
    as "stopped".
    """
    xp = array_namespace(world.base)
    distance = xp.where(xp.isfinite(distance), distance, state.distance)
    here = world.base[:, :2]
    driven = state.driven + step_length(state.last, here)
    stop = actions[:, act.STOP] > 0
    success = stop & (distance < settings.success_m)
    terms = {
        "success": settings.success * spl(success, state.shortest, driven),
        "progress": settings.progress * (state.distance - distance),
        "slack": xp.full_like(distance, -settings.slack),
    }
    after = PointNavState(state.goal, state.shortest, distance, driven, here, state.steps + 1)
    reward = terms["success"] + terms["progress"] + terms["slack"]
    failure = xp.where(stop & ~success, STOPPED, 0)
    truncated = (after.steps >= settings.horizon) & ~stop
    return after, Outcome(reward, terms, success, failure, stop, truncated)
