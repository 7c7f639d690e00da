"""A protocol: every number that decides what counts as success."""

import dataclasses
import math

from planner.executor import ExecutionLimits, ExecutionRules
from planner.predicates import PredicateThresholds
from skills.base import SkillThresholds
from tpsrl import config


@dataclasses.dataclass(frozen=True, slots=True)
class Protocol:
    """Thresholds of skills and of predicates, limits on steps and forces, and rules of execution.

    `nav_stop_within_m` ignores Navigate's stop farther away from its goal (None: never), and
    `filter_base` keeps the base's target on the free floor; the others are as in
    `planner.executor.ExecutionRules`. Values are in `configs/protocol/NAME.yaml`.
    """

    name: str = ""
    skills: SkillThresholds = dataclasses.field(default_factory=SkillThresholds)
    predicates: PredicateThresholds = dataclasses.field(default_factory=PredicateThresholds)
    limits: ExecutionLimits = dataclasses.field(default_factory=ExecutionLimits)
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
        )

    def changes(self) -> dict[str, object]:
        """The entries, by dotted key, that differ from the preset of this name."""
        return config.changes(self, config.load_preset("protocol", self.name, Protocol))
