"""The limits of a protocol within an episode, and the rules by which a plan is carried out."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.domains import DOMAIN
from planner.options import PlanOptions
from planner.plan import PlanStep
from skills import registry
from skills.core.conditions import Margin
from skills.core.limits import SkillLimits
from skills.spec import DEFAULT_PROTOCOL
from skills.tables import SkillTable, limit_entries, make
from tpsrl import config
from tpsrl.world.state import WorldState


@dataclasses.dataclass(frozen=True, slots=True)
class EpisodeLimits:
    """The limits of a whole episode, in steps of 1/30 s and newtons; None is none.

    The defaults are habitat-lab's full task (0.3.3) as habitat-baselines runs it. `end_on_timeout`
    ends the episode when a skill runs out of steps (its `force_end_on_timeout`); otherwise the next
    step of the plan follows. `timeout_calls_stop` has such an end call stop, so that the goal is
    judged as it is then (habitat-baselines); otherwise such an episode has failed. The step limits
    of resetting the arm and of the wait end nothing.
    """

    reset_arm_steps: int = config.option(50, "maximum number of control steps to reset the arm")
    episode_steps: int = config.option(
        3000, "maximum number of control steps of an episode", minimum=1
    )
    wait_end_steps: int = config.option(30, "number of control steps to wait at the end of a plan")
    force_instant_n: float | None = config.option(10_000.0, "maximum force of a control step (N)")
    force_total_n: float | None = config.option(
        100_000.0, "maximum accumulated force of an episode (N)"
    )
    end_on_timeout: bool = config.option(True, "end the episode when a skill runs out of steps")
    timeout_calls_stop: bool = config.option(
        True, "judge the goal when a timeout ends the episode; false: count a failure"
    )


def execution_limits_table() -> type:
    """The class of the limits within an episode: `EpisodeLimits`, and a skill's by its name."""
    entries = limit_entries(lambda spec: spec.values().limits, registry.planned())
    return make("ExecutionLimits", entries, execution_limits_table, SkillTable, EpisodeLimits)


def execution_limits(protocol: str = DEFAULT_PROTOCOL, **changes: Any) -> Any:
    """The limits within an episode, by a protocol's numbers of skills, some entries changed."""
    own = {name: registry.get(name).values(protocol).limits for name in registry.planned()}
    return execution_limits_table()(**own | changes)


def limits_of(step: PlanStep, limits: Any) -> SkillLimits:
    """The limits of one run of a skill for a step of a plan.

    A skill that has to do the work of others too has their steps on top of its own. One that
    carries out no action of the domain has no limits of its own: all steps of the episode are its.
    """
    if not registry.get(step.skill).actions:
        return SkillLimits(limits.episode_steps)
    own: SkillLimits = limits.of(step.skill)
    more = sum(limits.of(name).steps for name in step.takes_over)
    return dataclasses.replace(own, steps=own.steps + more) if more else own


def episode_forces(limits: Any, world: WorldState) -> dict[str, Margin]:
    """How the forces in a world of batch one stand to the limits of the episode, where it has any.

    "instant" is the force of the last control step, "total" the sum over all of them, in newtons.
    """
    pairs = {
        "instant": (world.force, limits.force_instant_n),
        "total": (world.force_total, limits.force_total_n),
    }
    return {
        name: Margin.below(float(force[0]), limit, "N")
        for name, (force, limit) in pairs.items()
        if limit is not None
    }


@dataclasses.dataclass(frozen=True, slots=True)
class ExecutionRules:
    """How a plan is carried out.

    `after_timeout` goes on after a skill that ran out of steps has ended the episode, to see what
    would have come with timeouts ignored (`Trace.other`). `replan` asks for a new plan after a
    failure, at most `max_replans` times. `add_arm_rest` runs the policy that resets the arm between
    two skills, as HAB's fixed plan does. `nav_stop_within_m`
    ignores the stop of a skill that drives somewhere while it is farther away from its goal (VER
    deploys with 2 m). `snapshots` keeps the home's state at every handoff. `plan` is how the
    scenario is planned, and `plan_file` a file with the first plan, which is followed instead of
    searching one; `carried_out_by` names the skill for some actions of the domain, where
    several can (see `skills.registry.carrying_out`), and `domain` is the PDDL file with them.
    `base_masked` are skills that may not move the base, though their definition lets them;
    `without` are actions that are left out of the plan, and `one_skill` carries out all that is to
    be done for an object (see `planner.rewriting`).
    """

    after_timeout: bool = False
    replan: bool = False
    max_replans: int = 20
    add_arm_rest: bool = True
    nav_stop_within_m: float = math.inf
    snapshots: bool = False
    plan: PlanOptions = dataclasses.field(default_factory=PlanOptions)
    plan_file: Path | None = None
    carried_out_by: Mapping[str, str] = dataclasses.field(default_factory=dict)
    domain: Path = DOMAIN
    base_masked: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    one_skill: str = ""
