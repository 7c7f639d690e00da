"""A protocol: every number that decides what counts as success."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal

from planner.execution.limits import ExecutionRules, execution_limits, execution_limits_table
from planner.options import PlanOptions
from planner.predicates import PredicateThresholds
from skills import tables
from tpsrl import config
from tpsrl.errors import UserError


@dataclasses.dataclass(frozen=True, slots=True)
class EpisodeSteps:
    """The most steps of an episode of each scenario; None: `limits.episode_steps` alone holds."""

    tidy_house: int | None = config.option(None, "of Tidy House", minimum=1)
    prepare_groceries: int | None = config.option(None, "of Prepare Groceries", minimum=1)
    set_table: int | None = config.option(None, "of Set Table", minimum=1)


@dataclasses.dataclass(frozen=True, slots=True)
class Protocol:
    """Thresholds of skills and of predicates, limits on steps and forces, and rules of execution.

    `skills` are the thresholds of each skill by its name. `limits` hold within an episode of a
    scenario, `alone` where a skill is run by itself; of `limits.episode_steps` and the scenario's
    own entry of `episode_steps` the lower one holds. `plan` is how the scenarios are planned.
    `stage_rule` says when a stage goal counts as reached: "ever", when its atoms held together at
    some step (HAB); "cumulative", when they did after every stage goal before it was reached (M3);
    "subtask", when the skills of the plan's steps up to this one all succeeded (MS-HAB).
    `nav_stop_within_m` ignores the stop of a skill that drives somewhere farther away from its goal
    (None: never), and `filter_base` keeps the base's target on the free floor; the others are as in
    `planner.execution.limits.ExecutionRules`.

    What is each skill's own comes from where the skill is registered; what is common to all is in
    `configs/protocol/NAME.yaml`. A protocol that is `based_on` another one there has all of its
    numbers, the skills' too, but for those that its file states.
    """

    name: str = ""
    skills: Any = config.table(tables.thresholds_table, "success thresholds of each skill")
    predicates: PredicateThresholds = dataclasses.field(default_factory=PredicateThresholds)
    limits: Any = config.table(execution_limits_table, "limits within a scenario")
    episode_steps: EpisodeSteps = dataclasses.field(default_factory=EpisodeSteps)
    alone: Any = config.table(tables.alone_table, "limits of a skill evaluated alone")
    plan: PlanOptions = dataclasses.field(default_factory=PlanOptions)
    stage_rule: Literal["ever", "cumulative", "subtask"] = config.option(
        "ever",
        "when a stage goal counts as reached: ever (HAB), cumulative (M3) or subtask (MS-HAB)",
    )
    add_arm_rest: bool = config.option(True, "reset the arm after each skill")
    nav_stop_within_m: float | None = config.option(
        None, "ignore stops of Navigate farther away from its goal (m)"
    )
    filter_base: bool = config.option(True, "keep the base's target on the free floor")

    @staticmethod
    def for_preset(name: str) -> "Protocol":
        """What the skills say of a protocol, to which its file adds what is common to all."""
        return Protocol(
            name=name,
            skills=tables.thresholds(name),
            limits=execution_limits(name),
            alone=tables.alone(name),
        )

    def rules(
        self, replan: bool, carried_out_by: Mapping[str, str], after_timeout: bool = False
    ) -> ExecutionRules:
        """The executor's rules under this protocol.

        Raises:
            UserError: by its thresholds something could be open and closed at once.
        """
        self._check_gaps()
        within = math.inf if self.nav_stop_within_m is None else self.nav_stop_within_m
        return ExecutionRules(
            after_timeout=after_timeout,
            replan=replan,
            add_arm_rest=self.add_arm_rest,
            nav_stop_within_m=within,
            plan=self.plan,
            carried_out_by=carried_out_by,
        )

    def _check_gaps(self) -> None:
        for closed, opened in (
            ("closed_cab_m", "opened_cab_m"),
            ("closed_fridge_rad", "opened_fridge_rad"),
        ):
            most, least = getattr(self.predicates, closed), getattr(self.predicates, opened)
            if most > least:
                raise UserError(
                    f"protocol.predicates.{closed}: {most:g} must not be more than "
                    f"protocol.predicates.{opened}, which is {least:g}"
                )

    def limits_for(self, scenario: str) -> Any:
        """The limits of an episode of a scenario."""
        own: int | None = getattr(self.episode_steps, scenario.removesuffix("_reachable"), None)
        steps = self.limits.episode_steps if own is None else min(self.limits.episode_steps, own)
        return dataclasses.replace(self.limits, episode_steps=steps)

    def values(self) -> dict[str, Any]:
        """Every entry by its dotted key, as JSON types."""
        return config.flat(self)

    def changes(self) -> dict[str, object]:
        """The entries, by dotted key, that differ from the preset of this name, or from habitat."""
        return config.preset_changes("protocol", self, "habitat")
