"""Simulator, executor and workers for the plans of an evaluation."""

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
    """Returns a simulator of one home with room for the scenario's objects."""
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
    """Returns an executor under the protocol's limits and the agent's rules.

    Args:
        settings: of the evaluation
        simulator: of one home
        policies: by skill
        reset_arm: policy that resets the arm
        **rules: entries of `ExecutionRules` to change
    """
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
    """Builds one simulator in each worker, which all jobs of the worker use.

    `run(settings, simulator, policies, reset_arm, job)` runs one job. Each job has new policies, so
    that no state is carried over from the previous one.
    """

    settings: Settings
    run: Callable[..., T]

    def __call__(self) -> Callable[[Any], T]:
        """Returns the function that runs one job."""
        settings, simulator = self.settings, make_simulator(self.settings)
        return lambda job: self.run(
            settings, simulator, agents.Policies.of(settings), agents.reset_arm(), job
        )


def about_episode(episode: str, error: UserError) -> UserError:
    """Returns the error with the episode's id as prefix."""
    prefix, message = f"episode {episode}: ", str(error)
    return UserError(message if message.startswith(prefix) else prefix + message)
