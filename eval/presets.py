"""Agents by name: who acts for the skills, and the rules by which they are deployed."""

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
    """Whether a skill is there to get somewhere."""
    return spec.definition.reach_m(spec.values().thresholds) is not None


@dataclasses.dataclass(frozen=True, slots=True)
class AgentPreset:
    """An agent for whole scenarios, `configs/agent/NAME.yaml`.

    `learned` says which skills may have a checkpoint: "some" (the others are scripted), "never", or
    "all" (a scripted one is a stand-in until there is a checkpoint, and only with `stand_ins`).
    With `pretrained` the policies that come with tpsrl act for the skills that have one, where no
    other is given.

    The other entries are how the agent is deployed, on top of the protocol, which says what counts
    as success: a stop that either of the two ignores is ignored, and `nav_after_open_drawer` holds
    where it is not None. `without` are actions of the planning domain that are left out of plans,
    `base_masked` skills whose base stands still, and `one_policy` is the skill that does all that
    is to be done for an object in the place of the plan's steps.
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
    base_masked: list[str] = config.entries(list, "skills whose base stands still")
    one_policy: str = config.option("", "skill that does everything for an object")
    arm_reset: Literal["auto", "straight", "planned"] = config.option(
        "auto",
        "reset of the arm between skills: straight to the posture in which skills start, planned "
        "around obstacles, or auto: straight before a trained policy, planned before a scripted",
    )

    def deployed(self, rules: ExecutionRules) -> ExecutionRules:
        """The rules of a protocol, with the agent's own.

        Raises:
            UserError: an entry names an action or skill that there is not, or that cannot be so
                deployed.
        """
        actions = {action for spec in registry.specs().values() for action in spec.actions}
        for action in self.without:
            if action not in actions:
                raise unknown("agent.without", action, actions)
        for name in self.base_masked:
            with renamed("skill", "agent.base_masked"):
                spec = registry.get(name)
            if drives(spec):
                raise UserError(f"agent.base_masked: {name} drives, so its base cannot stand still")
        if self.one_policy:
            with renamed("skill", "agent.one_policy"):
                spec = registry.get(self.one_policy)
            if spec.actions:
                raise UserError(
                    f"agent.one_policy: {self.one_policy} does one step of a plan, and not all "
                    "that is to be done for an object, as monolithic does"
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
        """The skills before which the arm is reset straight; `learned` have trained policies."""
        if self.arm_reset == "auto":
            return learned
        return self.acting() if self.arm_reset == "straight" else ()

    def acting(self) -> tuple[str, ...]:
        """The skills that somebody has to act for."""
        if self.one_policy:
            return (self.one_policy,)
        return tuple(
            name
            for name in registry.planned()
            if not set(registry.get(name).actions) <= set(self.without)
        )

    def policies(self, given: Mapping[str, str]) -> dict[str, str]:
        """The skills that a trained policy acts for, and its path: those given, and the shipped."""
        own = pretrained.names() if self.pretrained else ()
        shipped = {name: pretrained.WORD for name in own if name in self.acting()}
        return {**shipped, **given}

    def check(self, learned: Mapping[str, str]) -> None:
        """Raises when the agent cannot have these checkpoints, or needs others.

        Raises:
            UserError: a skill is given that the agent does not have or that it lets no network act
                for, or one is lacking; says what can be done.
        """
        for name in learned:
            if self.learned == "never":
                raise UserError(
                    f"skills.{name}: agent {self.name} is scripted throughout; agent=scripted "
                    "takes checkpoints"
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
                f"skills.{missing[0]}: {lacking}agent {self.name} needs a checkpoint, which "
                f"`tpsrl train {missing[0]}` makes; agent.stand_ins=true has scripted skills act "
                "in its stead"
            )

    def changes(self) -> dict[str, Any]:
        """The entries that differ from the preset of this name."""
        return config.preset_changes("agent", self, "scripted")
