"""A skill that is quick to record: the base drives to a nearby point, and calls stop there.

The teacher has no label in every fifth step of an episode, and none at all for a goal behind the
robot.
"""

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from homes import LAYOUT_A, episode, roomiest

from skills import registry
from skills.core.interface import SkillGoal
from skills.core.limits import SkillLimits
from skills.pointnav.baselines import GoalFollower
from skills.pointnav.task import PointNav, PointNavSettings, PointNavThresholds
from skills.spec import ProtocolValues, SkillSpec
from skills.starts.start import Start
from tpsrl.world.episode import Episode
from tpsrl.world.state import WorldState

NAME, HORIZON = "come_here", 40
AWAY_M = 0.5


class ComeHere(PointNav):
    """PointNav under another name."""


@dataclasses.dataclass(frozen=True, slots=True)
class NearStarts:
    """Start states in the open of one apartment, with the goal ahead and slightly to a side."""

    num_objects: int = 0

    def prepare(self, *arguments: Any) -> None:
        """Does nothing: no preparation is needed."""

    def obtain(
        self, skill: SkillSpec, indices: Iterable[int], split: str, *arguments: Any, **named: Any
    ) -> list[Start]:
        """See `skills.starts.source.StartStates.obtain`."""
        return [near_start(index, split) for index in indices]


def near_start(index: int, split: str = "train", aside: float | None = None) -> Start:
    """Returns a start state with the goal `aside` rad off straight ahead."""
    x, y = roomiest(LAYOUT_A)
    yaw = 0.7 * index
    aside = 0.6 * math.sin(index) if aside is None else aside
    goal = x + AWAY_M * math.cos(yaw + aside), y + AWAY_M * math.sin(yaw + aside), 0.0
    record = dataclasses.replace(episode(LAYOUT_A, (x, y, yaw)), id=f"here_{index}", split=split)
    return Start(record, SkillGoal(position=goal))


class HereDemonstrator(GoalFollower):
    """Turns to the goal and drives to it; its actions depend on the base's pose alone."""

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """See `skills.core.interface.Teacher.begin`."""
        super().begin(episode, goal, world)
        to = self.goal - world.base[0, :2]
        yaw = float(world.base[0, 2])
        self._behind = math.cos(math.atan2(to[1], to[0]) - yaw) < 0.0

    def label(self, world: WorldState) -> tuple[np.ndarray, bool]:
        """See `skills.core.interface.Teacher.label`."""
        return self.act(world), not self._behind and int(world.step[0]) % 5 != 4


SPEC = registry.register(
    SkillSpec(
        name=NAME,
        definition=ComeHere(),
        starts=NearStarts(),
        settings=PointNavSettings(horizon=HORIZON),
        demonstrator=HereDemonstrator,
        protocols={"habitat": ProtocolValues(PointNavThresholds(), alone=SkillLimits(HORIZON))},
    )
)
