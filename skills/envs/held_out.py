"""Environments of validations: apartments and start states not used in training or reports."""

import dataclasses
from collections.abc import Sequence

from skills import registry
from skills.envs.options import EnvOptions
from skills.envs.training import TrainingVecEnvFactory
from skills.starts.dataset import BASE_EPISODES
from tpsrl.rl.envs.delay import DelayedVecEnvFactory
from tpsrl.rl.envs.pool import EnvPool
from tpsrl.rl.envs.serial_pool import SerialEnvPool
from tpsrl.rl.envs.supervision import FaultTolerance
from tpsrl.rl.envs.worker_pool import WorkerEnvPool
from tpsrl.rl.run.validation import MakePool


@dataclasses.dataclass(frozen=True, slots=True)
class HeldOut:
    """Settings of a validation on the validation split.

    Args:
        episodes: number of episodes
        seed: seed of the dataset
        homes: maximum number of homes at once
        starts: start states, as in `EnvOptions`
        processes: number of worker processes; 0 keeps the homes in this process
        delay: whether observations are delayed by one step
        hang_s: seconds after which a worker that has not finished a step counts as failed
    """

    episodes: int
    seed: int
    homes: int = 32
    starts: str | None = None
    processes: int = 0
    delay: bool = False
    hang_s: float = 120.0


def validation_pools(options: EnvOptions, how: HeldOut) -> MakePool:
    """Prepares a validation's episodes and returns a function that creates its environments.

    The environments have the skill's default settings and success thresholds.

    Args:
        options: environment options of the training
        how: settings of the validation

    Raises:
        UserError: an option is out of range.
        RunError: an episode cannot be generated.
    """
    other = dataclasses.replace(
        options,
        split="val",
        task=registry.get(options.skill).load_settings(),
        thresholds=registry.get(options.skill).thresholds,
        starts=how.starts,
        dataset_seed=how.seed,
        num_episodes=min(how.episodes, BASE_EPISODES),
    )
    factory = TrainingVecEnvFactory(other)
    factory.prepare(max(how.processes, 1))

    def make(starts: Sequence[int]) -> EnvPool:
        count = min(how.homes, len(starts))
        homes = dataclasses.replace(factory, order=tuple(starts), stride=count)
        shown = DelayedVecEnvFactory(homes) if how.delay else homes
        processes = min(how.processes, count)
        if not processes:
            return SerialEnvPool(shown, count)
        tolerance = FaultTolerance(hang_s=how.hang_s, max_failures=0)
        return WorkerEnvPool(shown, count, processes, tolerance)

    return make
