"""Limits of a protocol within an episode, and rules for the execution of plans."""

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
    """Limits of a whole episode, in control steps of 1/30 s and newtons; None means no limit.

    The defaults are those of habitat-lab's full task (0.3.3) as run by habitat-baselines.
    `end_on_timeout` ends the episode when a skill runs out of steps (its `force_end_on_timeout`);
    otherwise the next step of the plan follows. With `timeout_calls_stop`, the goal is judged when
    such a timeout ends the episode (habitat-baselines); otherwise the episode has failed. The
    limits of the arm reset and of the wait do not end an episode.
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
    """Returns the dataclass of limits within an episode: `EpisodeLimits`, and a skill's by name."""
    entries = limit_entries(lambda spec: spec.values().limits, registry.planned())
    return make("ExecutionLimits", entries, execution_limits_table, SkillTable, EpisodeLimits)


def execution_limits(protocol: str = DEFAULT_PROTOCOL, **changes: Any) -> Any:
    """Returns a protocol's limits within an episode, with some entries changed."""
    own = {name: registry.get(name).values(protocol).limits for name in registry.planned()}
    return execution_limits_table()(**own | changes)


def limits_of(step: PlanStep, limits: Any) -> SkillLimits:
    """Returns the limits of one run of a skill for a step of a plan.

    A skill that takes over the work of removed steps gets their steps in addition to its own. A
    skill without actions of the domain has no limits of its own: it may use all steps of the
    episode.
    """
    if not registry.get(step.skill).actions:
        return SkillLimits(limits.episode_steps)
    own: SkillLimits = limits.of(step.skill)
    more = sum(limits.of(name).steps for name in step.takes_over)
    return dataclasses.replace(own, steps=own.steps + more) if more else own


def episode_forces(limits: Any, world: WorldState) -> dict[str, Margin]:
    """Returns the margins of forces to the limits of the episode, if any, in a world of batch one.

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
    """Rules for the execution of a plan.

    Attributes:
        after_timeout: continue after a timeout that ends the episode, to record the episode with
            timeouts ignored (`Trace.other`)
        replan: make a new plan after a failure
        max_replans: maximum number of new plans
        add_arm_rest: run the policy that resets the arm between two skills, as HAB's fixed plan
            does
        nav_stop_within_m: ignore the stop of a navigation skill farther from its goal than this
            (m); VER deploys with 2 m
        snapshots: keep the home's state at every handoff
        plan: options of planning
        plan_file: file with the first plan, used instead of search
        carried_out_by: skill by action, where several can carry it out (see
            `skills.registry.carrying_out`)
        domain: PDDL file of the domain
        base_masked: skills that may not move the base, although their definition allows it
        without: actions to leave out of the plan
        one_skill: skill that carries out everything for an object (see `planner.rewriting`)
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
