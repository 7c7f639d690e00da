"""Who carries out the plans of an evaluation, and under which rules."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from eval.running import agents
from eval.settings import BankSettings, EvalSettings
from planner.execution.executor import Executor
from skills.core.interface import SkillPolicy
from tpsrl.errors import UserError
from tpsrl.sim.base import Simulator
from tpsrl.world.slots import capacity_for

Settings = EvalSettings | BankSettings
T = TypeVar("T")


def make_simulator(settings: Settings) -> Simulator:
    """One home that has room for the scenario's objects."""
    from tpsrl import sim

    return sim.make(
        settings.engine,
        num_envs=1,
        slots=capacity_for(settings.scenario.num_objects),
        filter_base=settings.protocol.filter_base,
        habitat=settings.habitat,
    )


def make_executor(
    settings: Settings,
    simulator: Simulator,
    policies: Mapping[str, SkillPolicy],
    reset_arm: SkillPolicy,
    **rules: Any,
) -> Executor:
    """An executor under the protocol's limits and the agent's rules, of which some are changed."""
    protocol = settings.protocol
    return Executor(
        simulator,
        policies,
        reset_arm=reset_arm,
        reset_before=agents.straight_resets(settings.agent, settings.learned()),
        limits=protocol.limits_for(settings.scenario.name),
        rules=dataclasses.replace(settings.rules(), **rules),
        thresholds=protocol.skills,
        predicates=protocol.predicates,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class ChainRunner(Generic[T]):
    """Builds in each worker one simulator, which its jobs use in turn.

    `run(settings, simulator, policies, reset_arm, job)` does one job. Policies are made anew for
    each, so that nothing is left over from the last one.
    """

    settings: Settings
    run: Callable[..., T]

    def __call__(self) -> Callable[[Any], T]:
        """The function that does one job."""
        settings, simulator = self.settings, make_simulator(self.settings)
        return lambda job: self.run(
            settings, simulator, agents.Policies.of(settings), agents.reset_arm(), job
        )


def about_episode(episode: str, error: UserError) -> UserError:
    """The error, which says of which episode it is."""
    prefix, message = f"episode {episode}: ", str(error)
    return UserError(message if message.startswith(prefix) else prefix + message)
