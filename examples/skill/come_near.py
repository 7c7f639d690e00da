"""A skill of one's own: drive up to a thing, and look at it.

It is all in this file: definition, start states, scripted version and registration;
docs/add_a_skill.md goes through it. From the folder that holds this file:

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

# -- the numbers: weights of the reward, and when it has succeeded ---------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class ComeNearSettings(TaskSettings):
    """What this skill changes of, and adds to, the settings that all skills share."""

    horizon: int = config.option(200, "control steps until the episode is cut off", minimum=1)
    slack: float = config.option(0.005, "penalty for each step")
    nearer: float = config.option(1.0, "reward for each metre nearer")


@dataclasses.dataclass(frozen=True, slots=True)
class ComeNearThresholds:
    """How near over the floor, and how well the thing has to be faced."""

    near_m: float = 1.2
    facing_rad: float = 0.5


# -- what is measured at every step, and what is remembered for the next ---------------------------


@dataclasses.dataclass(slots=True)
class ComeNearMeasures(Measures):
    """From the base to the thing, over the floor; the angle to it, left positive."""

    distance: Array  # (n,) m
    heading: Array  # (n,) rad


@dataclasses.dataclass(slots=True)
class ComeNearMemory(Memory):
    """The distance of the step before."""

    distance: Array  # (n,) m


# -- the definition: batch first, numpy or torch ---------------------------------------------------


ComeNearStep = StepContext[ComeNearSettings, ComeNearThresholds, ComeNearMeasures, ComeNearMemory]


class ComeNear(Skill[ComeNearSettings, ComeNearThresholds, ComeNearMeasures, ComeNearMemory]):
    """Come near a thing; `SkillGoal.position` is where it is."""

    settings_type = ComeNearSettings
    needs = ("position",)
    parts = (action.BASE,)
    sensors = ("goal_polar",)
    full_sensors = ("goal_polar", "velocity", "way", "scan")

    def measure(self, now: MeasureContext[ComeNearThresholds]) -> ComeNearMeasures:
        """Everything in the frame of the base, where forward is x and left is y."""
        shared, _ = common(now.world, now.goals.position)
        thing = shared["subject"]
        heading = array_namespace(thing).atan2(thing[:, 1], thing[:, 0])
        return ComeNearMeasures(**shared, distance=length(thing[:, :2]), heading=heading)

    def remember(self, start: StartContext[ComeNearThresholds, ComeNearMeasures]) -> ComeNearMemory:
        """The memory at the start of episodes."""
        return ComeNearMemory(start.measures.distance)

    def conditions(self, step: ComeNearStep) -> Conditions:
        """What success is made of; reports show each with its margin."""
        measures, thresholds = step.measures, step.thresholds
        turned = array_namespace(measures.heading).abs(measures.heading)
        return {
            "distance": Condition.below(measures.distance, thresholds.near_m, "m"),
            "facing": Condition.below(turned, thresholds.facing_rad, "rad"),
        }

    def evaluate(self, step: ComeNearStep, success: Array) -> Evaluation:
        """Rewards every metre nearer; nothing but time and force can make it fail."""
        return Evaluation(
            failure=array_namespace(step.world.base).zeros_like(step.world.held),
            amounts={"nearer": step.memory.distance - step.measures.distance},
            memory=ComeNearMemory(step.measures.distance),
        )

    def reach_m(self, thresholds: ComeNearThresholds) -> float:
        """The way ends where the skill has succeeded."""
        return thresholds.near_m


# -- the scripted version: knows the map, follows the shortest way ---------------------------------


class ScriptedComeNear:
    """Follows the shortest way over the floor, and turns to the thing at its end."""

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


# -- the registration: the one place where all of it comes together --------------------------------


def goal_of(things: Sequence[Referent]) -> SkillGoal:
    """Of what a planner's action names, what the skill is about: the first thing."""
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
