"""Place: put the held object at its goal and return (HAB's RearrangePlaceTask; 0.3.3).

Success requires that the object is within 0.15 m of the goal, nothing is held, and the end effector
is within 0.15 m of its resting point.

The protocol's setting `wrong_drop` determines when a release elsewhere is a failure:

- "release": in the step of the release, as in habitat-lab's task. Training uses this value, so that
  no steps are spent on lost episodes.
- "rest": when the arm is back at rest and the object is off its goal; a broken hold still fails at
  once. A single state does not distinguish a falling or settling object from a resting one. At the
  arm's rest, a second or more after the release, the object has settled. Plans use this value,
  because their next step may continue from that state.
"""

import dataclasses
from typing import Literal

from skills.core.arrays import Array
from skills.core.conditions import Condition, Conditions
from skills.core.context import MeasureContext, StartContext, StepContext
from skills.core.geometry import array_namespace, each, length, millimetres
from skills.core.limits import SkillLimits
from skills.core.measures import Measures, Memory, common
from skills.core.settings import TaskSettings
from skills.core.skill import DROPPED, WRONG_DROP, Evaluation, Line, Skill
from tpsrl import config
from tpsrl.world import action
from tpsrl.world.action import CONTROL_HZ

WrongDrop = Literal["release", "rest"]


@dataclasses.dataclass(frozen=True, slots=True)
class PlaceSettings(TaskSettings):
    """Settings of Place, in addition to those that all skills share."""

    distance: float = config.option(
        2.0, "reward per metre of progress: object to goal, then to rest"
    )
    place: float = config.option(5.0, "one-time reward for releasing the object at its goal")
    precision: float = config.option(
        0.0,
        "fraction of that reward that decreases with the object's distance from its goal",
        minimum=0,
        maximum=1,
    )
    drop: float = config.option(
        0.0, "penalty for releasing elsewhere or losing the object, which ends the episode"
    )
    throw: float = config.option(0.0, "penalty per m/s of the object's speed at release", minimum=0)
    wrong_drop: WrongDrop = config.option(
        "release", "time at which a release elsewhere is evaluated: at release, or at rest"
    )
    lost_m: float = config.option(
        0.0,
        "distance from the goal (m) beyond which a released object ends the episode; 0: never",
        minimum=0,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class PlaceLimits(SkillLimits):
    """Limits of Place, and the time at which a release elsewhere is judged."""

    wrong_drop: WrongDrop = config.option(
        "release", "time at which a release elsewhere is evaluated: at release, or at rest"
    )


@dataclasses.dataclass(frozen=True, slots=True)
class PlaceThresholds:
    """Success thresholds of Place: distances of object and end effector from their goals."""

    goal_m: float = config.option(0.15, "maximum distance of the object from its goal (m)")
    rest_m: float = config.option(
        0.15, "maximum distance of the end effector from its resting point (m)"
    )
    still: float | None = config.option(
        None, "maximum speed of the object (m/s); none: it may still roll or fall", minimum=0
    )


@dataclasses.dataclass(slots=True)
class PlaceMeasures(Measures):
    """Goal in the base's frame, and the distance of the object's centre from the goal."""

    goal: Array  # (n, 3) m
    distance: Array  # (n,) m

    def goal_point(self) -> Array:
        """See `Measures.goal_point`."""
        return self.goal


@dataclasses.dataclass(slots=True)
class PlaceMemory(Memory):
    """Measures of the previous step; whether the object was released, and was free at its goal."""

    position: Array  # (n, 3) m, of the object in the world frame
    distance: Array  # (n,) m
    rest: Array  # (n,) m
    released: Array  # (n,) bool
    at_goal: Array  # (n,) bool


PlaceStep = StepContext[PlaceSettings, PlaceThresholds, PlaceMeasures, PlaceMemory]


class Place(Skill[PlaceSettings, PlaceThresholds, PlaceMeasures, PlaceMemory]):
    """Definition of Place; `SkillGoal.object` is placed at `SkillGoal.position`."""

    settings_type = PlaceSettings
    penalties = ("drop", "throw")
    needs = ("object", "position")
    parts = (action.ARM, action.GRIP, action.BASE)
    grip = "release"
    sensors = ("goal_from_ee", "arm", "holding", "to_rest")
    fetch_sensors = ("ee", "goal_reach")
    gaze_sensors = ("ee_gaze", "carried")
    explores = True
    begins_holding = True

    def measure(self, now: MeasureContext[PlaceThresholds]) -> PlaceMeasures:
        """Computes the distance from the object to its goal."""
        thing = each(now.world.object_pos, now.goals.object)
        shared, (goal,) = common(now.world, thing, now.goals.position)
        return PlaceMeasures(**shared, goal=goal, distance=length(goal - shared["subject"]))

    def remember(self, start: StartContext[PlaceThresholds, PlaceMeasures]) -> PlaceMemory:
        """Returns the initial memory; an empty hand counts as released."""
        world, measures = start.world, start.measures
        never = array_namespace(world.base).zeros_like(world.violation)
        thing = each(world.object_pos, start.goals.object)
        return PlaceMemory(thing, measures.distance, measures.rest, ~measures.holding, never)

    def conditions(self, step: PlaceStep) -> Conditions:
        """Returns the conditions at_goal (m), released, rest (m), and still (m/s) if limited."""
        measures, thresholds = step.measures, step.thresholds
        found = {
            "at_goal": Condition.below(measures.distance, thresholds.goal_m, "m"),
            "released": Condition.fact(~measures.holding),
            "rest": Condition.below(measures.rest, thresholds.rest_m, "m"),
        }
        if thresholds.still is not None:
            found["still"] = Condition.below(_speed(step), thresholds.still, "m/s")
        return found

    def evaluate(self, step: PlaceStep, success: Array) -> Evaluation:
        """Rewards progress of the object to its goal, the release, then progress to rest."""
        world, measures, before = step.world, step.measures, step.memory
        settings, thresholds = step.settings, step.thresholds
        xp = array_namespace(world.base)
        free = ~measures.holding
        at_goal = measures.distance < thresholds.goal_m
        released = free & ~before.released
        off_goal = released & ~at_goal
        back = free & at_goal
        # Within the tolerance there is no reward for progress, which would delay the release.
        progress = xp.where(back, before.rest - measures.rest, before.distance - measures.distance)
        same = (back == before.at_goal) & (back | ~at_goal) & ~off_goal
        if settings.wrong_drop == "release":
            broken, wrong = off_goal & world.violation, off_goal
        else:
            broken = world.violation
            wrong = free & ~at_goal & (measures.rest < thresholds.rest_m)
        dropped = off_goal
        if settings.lost_m > 0.0:  # the object rolled away, and Place cannot pick it up again
            lost = free & (measures.distance > settings.lost_m)
            wrong, dropped = wrong | lost, dropped | lost
        # An object that is released near the edge of the tolerance often rolls out of it.
        precise = 1.0 - settings.precision * measures.distance / thresholds.goal_m
        return Evaluation(
            failure=xp.where(broken, DROPPED, xp.where(wrong, WRONG_DROP, 0)),
            amounts={
                "distance": xp.where(same, millimetres(progress), 0.0),
                "place": xp.where(released & at_goal, precise, 0.0),
                "drop": dropped,
                "throw": xp.where(released, _speed(step), 0.0),
            },
            memory=PlaceMemory(
                each(world.object_pos, step.goals.object),
                measures.distance,
                measures.rest,
                before.released | free,
                back,
            ),
        )

    def seeks(self, step: PlaceStep) -> Array:
        """Returns whether the object is still to be released (n,): an object is held."""
        return step.world.held >= 0

    def should_be_open(self, step: PlaceStep) -> Array:
        """Returns whether the grip should be open (n,): the object is within 6 cm of its goal."""
        return (step.world.held == step.goals.object) & (step.measures.distance <= _RELEASE_M)

    def line(self, thresholds: PlaceThresholds) -> Line:
        """Returns the threshold of the object's distance from its goal."""
        return Line(thresholds.goal_m, "m")


def _speed(step: PlaceStep) -> Array:
    """Returns the speed (n,) of the objects in the last control step, m/s."""
    thing = each(step.world.object_pos, step.goals.object)
    return CONTROL_HZ * length(thing - step.memory.position)


_RELEASE_M = 0.06  # distance from the goal at which the object rests on the surface
