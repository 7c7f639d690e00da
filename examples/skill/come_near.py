"""Example of a custom skill: drive up to an object and face it.

This file holds the definition, start states, scripted version and registration.
docs/add_a_skill.md explains it. From the folder that holds this file:

    tpsrl train come_near skill_modules=come_near.py
    tpsrl eval come_near skill_modules=come_near.py
    tpsrl eval tidy_house skill_modules=come_near.py actions=nav:come_near
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from skills.core.arrays import Array
from skills.core.conditions import Condition, Conditions
from skills.core.context import MeasureContext, StartContext, StepContext
from skills.core.geometry import array_namespace, length
from skills.core.interface import SkillGoal
from skills.core.limits import SkillLimits
from skills.core.measures import Measures, Memory, common
from skills.core.settings import TaskSettings
from skills.core.skill import Evaluation, Skill
from skills.registry import register
from skills.spec import ProtocolValues, Referent, SkillSpec
from tpsrl import config
from tpsrl.world import action
from tpsrl.world.episode import Episode
from tpsrl.world.floor import rounded
from tpsrl.world.geodesic import distance_field, free_floor
from tpsrl.world.geometry import wrap_angle
from tpsrl.world.state import WorldState

# -- settings: weights of the reward, thresholds of success ----------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class ComeNearSettings(TaskSettings):
    """Settings of ComeNear: changed defaults of the shared settings, and its own weights."""

    horizon: int = config.option(200, "control steps until the episode is cut off", minimum=1)
    slack: float = config.option(0.005, "penalty for each step")
    nearer: float = config.option(1.0, "reward for each metre nearer")


@dataclasses.dataclass(frozen=True, slots=True)
class ComeNearThresholds:
    """Success thresholds: horizontal distance and angle to the object."""

    near_m: float = 1.2
    facing_rad: float = 0.5


# -- measures of each step, and memory from one step to the next -----------------------------------


@dataclasses.dataclass(slots=True)
class ComeNearMeasures(Measures):
    """Horizontal distance from the base to the object, and the angle to it (left positive)."""

    distance: Array  # (n,) m
    heading: Array  # (n,) rad


@dataclasses.dataclass(slots=True)
class ComeNearMemory(Memory):
    """Distance at the previous step."""

    distance: Array  # (n,) m


# -- definition: batch first, for numpy and torch arrays -------------------------------------------


ComeNearStep = StepContext[ComeNearSettings, ComeNearThresholds, ComeNearMeasures, ComeNearMemory]


class ComeNear(Skill[ComeNearSettings, ComeNearThresholds, ComeNearMeasures, ComeNearMemory]):
    """Definition of ComeNear; `SkillGoal.position` is the position of the object."""

    settings_type = ComeNearSettings
    needs = ("position",)
    parts = (action.BASE,)
    sensors = ("goal_polar",)
    full_sensors = ("goal_polar", "velocity", "way", "scan")

    def measure(self, now: MeasureContext[ComeNearThresholds]) -> ComeNearMeasures:
        """Computes the measures in the frame of the base: x is forward, y is left."""
        shared, _ = common(now.world, now.goals.position)
        thing = shared["subject"]
        heading = array_namespace(thing).atan2(thing[:, 1], thing[:, 0])
        return ComeNearMeasures(**shared, distance=length(thing[:, :2]), heading=heading)

    def remember(self, start: StartContext[ComeNearThresholds, ComeNearMeasures]) -> ComeNearMemory:
        """Returns the memory at the start of episodes."""
        return ComeNearMemory(start.measures.distance)

    def conditions(self, step: ComeNearStep) -> Conditions:
        """Returns the conditions of success; reports show each of them with its margin."""
        measures, thresholds = step.measures, step.thresholds
        turned = array_namespace(measures.heading).abs(measures.heading)
        return {
            "distance": Condition.below(measures.distance, thresholds.near_m, "m"),
            "facing": Condition.below(turned, thresholds.facing_rad, "rad"),
        }

    def evaluate(self, step: ComeNearStep, success: Array) -> Evaluation:
        """Rewards progress to the object; only timeout and force limits make the skill fail."""
        return Evaluation(
            failure=array_namespace(step.world.base).zeros_like(step.world.held),
            amounts={"nearer": step.memory.distance - step.measures.distance},
            memory=ComeNearMemory(step.measures.distance),
        )

    def reach_m(self, thresholds: ComeNearThresholds) -> float:
        """Returns the distance from the object (m) at which the path ends: that of success."""
        return thresholds.near_m


# -- scripted version: privileged, follows the shortest path of the map ----------------------------


class ScriptedComeNear:
    """Follows the shortest path along the floor, and turns towards the object at its end."""

    depth_size: tuple[int, int] | None = None

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """See `skills.core.interface.SkillPolicy.begin`."""
        assert goal.position is not None
        self._thing = np.array(goal.position[:2])
        floor = free_floor(episode.layout, rounded(world.joints[0]))
        x, y = (float(value) for value in self._thing)
        self._field = distance_field(floor, (x, y), ComeNearThresholds().near_m - 0.3)

    def act(self, world: WorldState, depth: np.ndarray | None = None) -> np.ndarray:
        """See `skills.core.interface.SkillPolicy.act`."""
        base = world.base[0]
        way = self._field.path(float(base[0]), float(base[1]))
        away = np.hypot(*(way - base[:2]).T) if len(way) else np.zeros(0)
        ahead = way[away > 0.15]
        to = ahead[0] if len(ahead) else self._thing
        turn = wrap_angle(math.atan2(to[1] - base[1], to[0] - base[0]) - float(base[2]))
        forward = math.cos(turn) ** 3 if len(ahead) and abs(turn) < 0.7 else 0.0
        result = np.zeros(action.SIZE)
        result[action.BASE] = (
            min(0.4, 0.1 + 0.5 * float(away.max(initial=0.0))) * forward,
            (math.copysign(min(1.0, 2.0 * abs(turn)), turn)),
        )
        result[action.STOP] = -1.0
        return result

    def diagnosis(self) -> dict[str, Any]:
        """See `skills.core.interface.SkillPolicy.diagnosis`."""
        return {}


# -- registration: combines the parts above --------------------------------------------------------


def goal_of(things: Sequence[Referent]) -> SkillGoal:
    """Returns the skill's goal for an action of a plan: the first argument of the action."""
    first = things[0]
    return SkillGoal(first.object if first.kind == "object" else -1, first.position, first.marker)


SPEC = register(
    SkillSpec(
        name="come_near",
        definition=ComeNear(),
        starts="skills.pointnav.starts:STARTS",
        settings=ComeNearSettings(),
        scripted=ScriptedComeNear,
        actions=("nav",),
        goal_of=goal_of,
        protocols={
            "habitat": ProtocolValues(
                ComeNearThresholds(), limits=SkillLimits(300), alone=SkillLimits(300)
            ),
            "mshab": ProtocolValues(ComeNearThresholds(near_m=1.0), limits=SkillLimits(1000)),
        },
    )
)
