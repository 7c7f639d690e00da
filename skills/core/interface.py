"""What a skill is, and what the executor and the environments need of one."""

import dataclasses
from typing import Any, Protocol

import numpy as np

from tpsrl.world.episode import Episode
from tpsrl.world.state import WorldState


@dataclasses.dataclass(frozen=True, slots=True)
class Margin:
    """A named result: whether it holds, by how much, and in which unit.

    `margin` is positive when the result holds and negative by what is missing; for yes-or-no
    facts it is +1 or -1 with unit "bool".
    """

    holds: bool
    margin: float
    unit: str

    @staticmethod
    def below(value: float, limit: float, unit: str) -> "Margin":
        """value < limit."""
        return Margin(bool(value < limit), float(limit - value), unit)

    @staticmethod
    def above(value: float, limit: float, unit: str) -> "Margin":
        """value > limit."""
        return Margin(bool(value > limit), float(value - limit), unit)

    @staticmethod
    def flag(value: bool) -> "Margin":
        """A yes-or-no fact."""
        return Margin(bool(value), 1.0 if value else -1.0, "bool")


@dataclasses.dataclass(frozen=True, slots=True)
class SkillThresholds:
    """When a skill has succeeded; the defaults are habitat-lab's (FACTS B2, B4).

    `navigate_region_m` is the radius around the goal within which all free floor counts as the
    goal; `navigate_distance_m` is measured from there. `pick_arm_rad` (each joint from the resting
    posture) and `pick_still` (the most that the base may move, m/s and rad/s) are asked of Pick
    where they are not None. A drawer or door is open from target - `open_tolerance` on, and closed
    up to `close_tolerance`, both in m or rad; `articulated_rest_m` is how near the end effector has
    to be to its resting point after opening and closing. `pointnav_distance_m` is DD-PPO's, along
    the floor.
    """

    navigate_distance_m: float = 1.5
    navigate_angle_rad: float = 0.261799
    navigate_region_m: float = 0.0
    pick_rest_m: float = 0.15
    pick_arm_rad: float | None = None
    pick_still: float | None = None
    place_goal_m: float = 0.15
    place_rest_m: float = 0.15
    open_drawer_target_m: float = 0.45
    open_fridge_target_rad: float = 1.2208
    open_tolerance: float = 0.05
    close_tolerance: float = 0.05
    articulated_rest_m: float = 0.15
    pointnav_distance_m: float = 0.2


@dataclasses.dataclass(frozen=True, slots=True)
class SkillGoal:
    """What one skill execution is about.

    `object` is the index of the object concerned (-1: none); `position` (3,) in metres is where
    to navigate to, or where to place; `marker` is the articulated handle concerned ("" for none).
    """

    object: int = -1
    position: tuple[float, float, float] | None = None
    marker: str = ""


class Skill(Protocol):
    """The definition of a skill, separate from whatever policy acts for it."""

    @property
    def name(self) -> str:
        """What it is called: "pick", "open_drawer", ..."""
        ...

    def mask(self) -> np.ndarray:
        """(11,) bool: the parts of the action that the skill may use."""
        ...

    def results(
        self, goal: SkillGoal, world: WorldState, stop: bool, thresholds: SkillThresholds
    ) -> dict[str, Margin]:
        """Named results for a batch of one; "success" is among them, the others are its parts."""
        ...

    def failure(self, goal: SkillGoal, world: WorldState, thresholds: SkillThresholds) -> str:
        """Why the skill can no longer succeed ("dropped", "wrong_object"), or ""."""
        ...


class SkillPolicy(Protocol):
    """What acts for a skill: a scripted controller or a learned network.

    A policy that has finished sets the stop entry of its action. The executor masks the action
    by the skill's mask before it reaches the simulator.
    """

    @property
    def depth_size(self) -> tuple[int, int] | None:
        """(height, width) of the head depth that it looks at, None if it does not look."""
        ...

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """Starts the skill from a world state of batch one."""
        ...

    def act(self, world: WorldState, depth: np.ndarray | None = None) -> np.ndarray:
        """The action (11,) in [-1, 1] for this control step; `depth` is of `depth_size`."""
        ...

    def diagnosis(self) -> dict[str, Any]:
        """Why the policy stopped or what it could not do ({} when nothing to say)."""
        ...
