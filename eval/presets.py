"""Agent presets: the policy of each skill and the rules of deployment."""

import dataclasses
import math
from collections.abc import Collection, Mapping
from typing import Any, Literal

from planner.execution.limits import ExecutionRules
from skills import registry
from skills.policies import pretrained
from skills.spec import SkillSpec
from tpsrl import config
from tpsrl.errors import UserError, renamed, unknown


def drives(spec: SkillSpec) -> bool:
    """Returns whether the purpose of a skill is to reach a place."""
    return spec.definition.reach_m(spec.values().thresholds) is not None


@dataclasses.dataclass(frozen=True, slots=True)
class AgentPreset:
    """An agent for whole scenarios, `configs/agent/NAME.yaml`.

    The fields from `nav_stop_within_m` on are the deployment. They add to the protocol, which
    decides what counts as success: a stop is ignored if either the agent or the protocol ignores
    it, and `nav_after_open_drawer` replaces the protocol's value unless it is None.

    Attributes:
        learned: skills that may have a checkpoint: "some" (the others are scripted), "never", or
            "all" (a scripted skill stands in where a checkpoint is missing, if `stand_ins` is set)
        stand_ins: whether scripted skills may replace missing checkpoints
        pretrained: whether the policies shipped with tpsrl are used for skills without another one
        without: actions of the planning domain that are left out of plans
        base_masked: skills during which the base does not move
        one_policy: skill that replaces all steps of the plan for an object
    """

    name: str = ""
    learned: Literal["some", "never", "all"] = config.option(
        "some", "skills that may have a checkpoint: some, never or all"
    )
    stand_ins: bool = config.option(True, "use the scripted skill where there is no checkpoint")
    pretrained: bool = config.option(False, "use the shipped policy where there is one")
    nav_stop_within_m: float | None = config.option(
        None, "ignore stops of Navigate farther away from its goal (m)"
    )
    nav_after_open_drawer: bool | None = config.option(
        None, "navigate to the object once its drawer is open (default: the protocol's)"
    )
    without: list[str] = config.entries(list, "actions left out of plans")
    base_masked: list[str] = config.entries(list, "skills during which the base does not move")
    one_policy: str = config.option("", "skill that replaces all steps of the plan for an object")
    arm_reset: Literal["auto", "straight", "planned"] = config.option(
        "auto",
        "reset of the arm between skills: straight to the posture in which skills start, planned "
        "around obstacles, or auto: straight before a trained policy, planned before a scripted",
    )

    def deployed(self, rules: ExecutionRules) -> ExecutionRules:
        """Returns the rules of a protocol with the agent's own rules applied.

        Raises:
            UserError: an entry names an action or skill that does not exist or does not allow this
                deployment.
        """
        actions = {action for spec in registry.specs().values() for action in spec.actions}
        for action in self.without:
            if action not in actions:
                raise unknown("agent.without", action, actions)
        for name in self.base_masked:
            with renamed("skill", "agent.base_masked"):
                spec = registry.get(name)
            if drives(spec):
                raise UserError(
                    f"agent.base_masked: {name} drives to a place, so its base must move; leave it "
                    "out"
                )
        if self.one_policy:
            with renamed("skill", "agent.one_policy"):
                spec = registry.get(self.one_policy)
            if spec.actions:
                raise UserError(
                    f"agent.one_policy: {self.one_policy} carries out one step of a plan, must "
                    "carry out all steps for an object, such as monolithic"
                )
        own = math.inf if self.nav_stop_within_m is None else self.nav_stop_within_m
        plan = rules.plan
        if self.nav_after_open_drawer is not None:
            plan = dataclasses.replace(plan, nav_after_open_drawer=self.nav_after_open_drawer)
        return dataclasses.replace(
            rules,
            nav_stop_within_m=min(own, rules.nav_stop_within_m),
            plan=plan,
            base_masked=tuple(self.base_masked),
            without=tuple(self.without),
            one_skill=self.one_policy,
        )

    def resets_straight(self, learned: Collection[str]) -> Collection[str]:
        """Returns the skills before which the arm is reset without planning around obstacles.

        Args:
            learned: skills that have a trained policy
        """
        if self.arm_reset == "auto":
            return learned
        return self.acting() if self.arm_reset == "straight" else ()

    def acting(self) -> tuple[str, ...]:
        """Returns the skills that need a policy under this agent."""
        if self.one_policy:
            return (self.one_policy,)
        return tuple(
            name
            for name in registry.planned()
            if not set(registry.get(name).actions) <= set(self.without)
        )

    def policies(self, given: Mapping[str, str]) -> dict[str, str]:
        """Returns the path of the trained policy of each skill that has one.

        Args:
            given: paths from the settings, which take precedence over shipped policies
        """
        own = pretrained.names() if self.pretrained else ()
        shipped = {name: pretrained.WORD for name in own if name in self.acting()}
        return {**shipped, **given}

    def check(self, learned: Mapping[str, str]) -> None:
        """Checks that the agent can use the given checkpoints, and that none is missing.

        Raises:
            UserError: a checkpoint is of a skill that the agent does not have or runs scripted
                only, or a required checkpoint is missing; the message names a remedy.
        """
        for name in learned:
            if self.learned == "never":
                raise UserError(
                    f"skills.{name}: agent {self.name} uses scripted skills only; agent=scripted "
                    "accepts checkpoints"
                )
            if self.learned == "all" and name not in self.acting():
                have = ", ".join(self.acting())
                raise UserError(
                    f"skills.{name}: agent {self.name} has no such skill; it has {have}"
                )
        missing = [name for name in self.acting() if name not in learned]
        if self.learned == "all" and missing and not self.stand_ins:
            lacking = f"{pretrained.lacking(missing[0])}; " if self.pretrained else ""
            raise UserError(
                f"skills.{missing[0]}: {lacking}agent {self.name} needs a checkpoint; train one "
                f"with `tpsrl train {missing[0]}`, or set agent.stand_ins=true to use the scripted "
                "skill"
            )

    def changes(self) -> dict[str, Any]:
        """Returns the entries that differ from the preset of this name."""
        return config.preset_changes("agent", self, "scripted")
