"""Evaluation protocols: all numbers that decide what counts as success."""

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
    """Step limits of an episode by scenario; None: `limits.episode_steps` applies."""

    tidy_house: int | None = config.option(None, "of Tidy House", minimum=1)
    prepare_groceries: int | None = config.option(None, "of Prepare Groceries", minimum=1)
    set_table: int | None = config.option(None, "of Set Table", minimum=1)


@dataclasses.dataclass(frozen=True, slots=True)
class Protocol:
    """Thresholds, limits of steps and forces, and rules of execution.

    The values of a single skill come from the skill's registration; `configs/protocol/NAME.yaml`
    has the common ones. A protocol that is `based_on` another one in its file inherits all values
    of that protocol, those of skills included, except the ones it sets.

    Attributes:
        skills: success thresholds of each skill
        predicates: thresholds of the planning predicates
        limits: limits of a skill and an episode within a scenario
        episode_steps: step limit of each scenario; the lower one of this and `limits.episode_steps`
            applies
        alone: limits of a skill evaluated in isolation
        plan: options of planning
        stage_rule: when a stage goal counts as reached: "ever", its atoms held together at some
            step (HAB); "cumulative", they did after every earlier stage goal was reached (M3);
            "subtask", the skills of all plan steps up to this one succeeded (MS-HAB)
        add_arm_rest: see `planner.execution.limits.ExecutionRules`
        nav_stop_within_m: distance (m) from its goal beyond which the stop of a skill that drives
            is ignored; None: no stop is ignored
        filter_base: whether the base's target is kept on the free floor
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
        """Returns the values that skills define for a protocol, without those of its file."""
        return Protocol(
            name=name,
            skills=tables.thresholds(name),
            limits=execution_limits(name),
            alone=tables.alone(name),
        )

    def rules(
        self, replan: bool, carried_out_by: Mapping[str, str], after_timeout: bool = False
    ) -> ExecutionRules:
        """Returns the executor's rules under this protocol.

        Raises:
            UserError: the thresholds allow a joint to be open and closed at once.
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
        """Returns the limits of an episode of a scenario."""
        own: int | None = getattr(self.episode_steps, scenario.removesuffix("_reachable"), None)
        steps = self.limits.episode_steps if own is None else min(self.limits.episode_steps, own)
        return dataclasses.replace(self.limits, episode_steps=steps)

    def values(self) -> dict[str, Any]:
        """Returns all entries by dotted key, as JSON types."""
        return config.flat(self)

    def changes(self) -> dict[str, object]:
        """Returns the entries that differ from the preset of this name, by dotted key.

        A protocol whose name has no preset is compared with `habitat`.
        """
        return config.preset_changes("protocol", self, "habitat")
