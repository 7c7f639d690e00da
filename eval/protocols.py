"""A protocol: every number that decides what counts as success."""

import dataclasses
import math
from typing import Any, Literal

from planner.execution.executor import ExecutionLimits, ExecutionRules, LimitsBySkill, SkillLimits
from planner.options import PlanOptions
from planner.predicates import PredicateThresholds
from skills.core.interface import SkillThresholds
from tpsrl import config

_POINTNAV = SkillLimits(500)


@dataclasses.dataclass(frozen=True, slots=True)
class AloneLimits(LimitsBySkill):
    """The limits of each skill when it is run alone; the defaults are DD-PPO's for PointNav."""

    pointnav: SkillLimits = _POINTNAV


@dataclasses.dataclass(frozen=True, slots=True)
class EpisodeSteps:
    """The most steps of an episode of each scenario; None: `limits.episode_steps` alone holds."""

    tidy_house: int | None = config.option(None, "of Tidy House", minimum=1)
    prepare_groceries: int | None = config.option(None, "of Prepare Groceries", minimum=1)
    set_table: int | None = config.option(None, "of Set Table", minimum=1)


@dataclasses.dataclass(frozen=True, slots=True)
class Protocol:
    """Thresholds of skills and of predicates, limits on steps and forces, and rules of execution.

    `limits` hold within an episode of a scenario, `alone` where a skill is run by itself; of
    `limits.episode_steps` and the scenario's own entry of `episode_steps` the lower one holds.
    `plan` is how the scenarios are planned. `stage_rule` says when a stage goal counts as reached:
    "ever", when its atoms held together at some step (HAB); "cumulative", when they did after every
    stage goal before it was reached (M3); "subtask", when the skills of the plan's steps up to this
    one all succeeded (MS-HAB). `nav_stop_within_m` ignores Navigate's stop farther away from its
    goal (None: never), and `filter_base` keeps the base's target on the free floor; the others are
    as in `planner.execution.executor.ExecutionRules`. Values are in `configs/protocol/NAME.yaml`.
    """

    name: str = ""
    skills: SkillThresholds = dataclasses.field(default_factory=SkillThresholds)
    predicates: PredicateThresholds = dataclasses.field(default_factory=PredicateThresholds)
    limits: ExecutionLimits = dataclasses.field(default_factory=ExecutionLimits)
    episode_steps: EpisodeSteps = dataclasses.field(default_factory=EpisodeSteps)
    alone: AloneLimits = dataclasses.field(default_factory=AloneLimits)
    plan: PlanOptions = dataclasses.field(default_factory=PlanOptions)
    stage_rule: Literal["ever", "cumulative", "subtask"] = "ever"
    add_arm_rest: bool = True
    nav_stop_within_m: float | None = None
    filter_base: bool = True

    def rules(self, replan: bool) -> ExecutionRules:
        """The executor's rules under this protocol."""
        within = math.inf if self.nav_stop_within_m is None else self.nav_stop_within_m
        return ExecutionRules(
            replan=replan,
            add_arm_rest=self.add_arm_rest,
            nav_stop_within_m=within,
            plan=self.plan,
        )

    def limits_for(self, scenario: str) -> ExecutionLimits:
        """The limits of an episode of a scenario."""
        own: int | None = getattr(self.episode_steps, scenario, None)
        steps = self.limits.episode_steps if own is None else min(self.limits.episode_steps, own)
        return dataclasses.replace(self.limits, episode_steps=steps)

    def values(self) -> dict[str, Any]:
        """Every entry by its dotted key, as JSON types."""
        return config.flat(self)

    def changes(self) -> dict[str, object]:
        """The entries, by dotted key, that differ from the preset of this name."""
        return config.changes(self, config.load_preset("protocol", self.name, Protocol))
