"""Test of whether a policy uses its sensors: runs with the readings of another episode.

A policy that has memorised the rooms succeeds as often when its camera shows another apartment. So
a run is repeated with the readings of a donor, step by step. The donor is the run of the same
policy from the next start state: its readings are realistic, but uninformative.
"""

import dataclasses
from typing import Any

import numpy as np

from skills.core.interface import SkillGoal, SkillPolicy
from skills.core.sensors import Readings
from tpsrl.errors import UserError, unknown
from tpsrl.sim.base import Simulator
from tpsrl.world.cameras import HEAD_DEPTH, PICTURES
from tpsrl.world.episode import Episode
from tpsrl.world.state import WorldState

SENSORS = ("depth", "laser", *(name for name in PICTURES if name != HEAD_DEPTH))


def parse(text: str | None) -> tuple[str, ...]:
    """Returns the sensors named by `blind=`.

    Raises:
        UserError: a sensor does not exist or is repeated; names the nearest.
    """
    names = tuple(name.strip() for name in text.split(",")) if text else ()
    for name in names:
        if name not in SENSORS:
            raise unknown("blind", name, SENSORS)
    if len(set(names)) < len(names):
        raise UserError(f"blind: {text} contains a duplicate")
    return names


def check(policy: SkillPolicy, names: tuple[str, ...]) -> None:
    """Checks that a policy has the sensors that it is to be blinded to.

    Raises:
        UserError: the policy lacks one; names the sensor.
    """
    has = {
        "depth": policy.depth_size is not None,
        "laser": getattr(policy, "sees_laser", False),
    }
    has |= dict.fromkeys(getattr(policy, "pictures", ()), True)
    for name in names:
        if not has.get(name):
            seen = [other for other in SENSORS if has.get(other)]
            raise UserError(f"blind: the policy has no {name}; it has {', '.join(seen) or 'none'}")


@dataclasses.dataclass(slots=True)
class Seen:
    """Head depth, laser scan and other images that a policy received, by step."""

    depth: list[np.ndarray | None] = dataclasses.field(default_factory=list)
    laser: list[Any] = dataclasses.field(default_factory=list)
    pictures: list[Any] = dataclasses.field(default_factory=list)

    def at(self, step: int) -> tuple[np.ndarray | None, Any, Any]:
        """Returns the readings of a step, or of the last step if the run was shorter."""
        row = min(step, len(self.depth) - 1)
        return self.depth[row], self.laser[row], self.pictures[row] if self.pictures else None


class Blinded:
    """Wraps a policy: records its readings in `seen`, and replaces them by those of a donor.

    Args:
        policy: that acts
        donor: readings of another run; None: the policy receives its own
        names: sensors whose readings are replaced
    """

    def __init__(
        self, policy: SkillPolicy, donor: Seen | None = None, names: tuple[str, ...] = ()
    ) -> None:
        self._policy, self._donor, self._names = policy, donor, names
        self._step, self.seen = 0, Seen()

    @property
    def depth_size(self) -> tuple[int, int] | None:
        """See `skills.core.interface.SkillPolicy.depth_size`."""
        return self._policy.depth_size

    @property
    def asks_engine(self) -> bool:
        """See `skills.core.interface.SkillPolicy`."""
        return getattr(self._policy, "asks_engine", False)

    def measure(self, simulator: Simulator, env_id: int) -> Readings:
        """See `skills.core.interface.SkillPolicy`."""
        policy: Any = self._policy
        readings: Readings = policy.measure(simulator, env_id)
        return readings

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """See `skills.core.interface.SkillPolicy.begin`."""
        self._step, self.seen = 0, Seen()
        self._policy.begin(episode, goal, world)

    def act(
        self,
        world: WorldState,
        depth: np.ndarray | None = None,
        measured: Readings | None = None,
    ) -> np.ndarray:
        """See `skills.core.interface.SkillPolicy.act`."""
        self.seen.depth.append(None if depth is None else depth.copy())
        self.seen.laser.append(None if measured is None else measured.laser)
        self.seen.pictures.append(None if measured is None else measured.pictures)
        if self._donor is not None:
            other, scan, pictures = self._donor.at(self._step)
            depth = other if "depth" in self._names else depth
            if "laser" in self._names and measured is not None:
                measured = dataclasses.replace(measured, laser=scan)
            if pictures is not None and measured is not None:
                theirs = {name: pictures[name] for name in self._names if name in pictures}
                measured = dataclasses.replace(measured, pictures=measured.pictures | theirs)
        self._step += 1
        policy: Any = self._policy
        action: np.ndarray = (
            policy.act(world, depth) if measured is None else policy.act(world, depth, measured)
        )
        return action

    def diagnosis(self) -> dict[str, Any]:
        """See `skills.core.interface.SkillPolicy.diagnosis`."""
        return self._policy.diagnosis()
