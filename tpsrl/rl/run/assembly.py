"""Assembly of a training's parts: collector, rollouts, policy, learner and preemption."""

import dataclasses
from collections.abc import Callable

import torch

from tpsrl.rl.collection import collectors, preemption
from tpsrl.rl.collection.preemption import NoPreemption, Preemption
from tpsrl.rl.collection.rollout import Rollout
from tpsrl.rl.collection.settings import DEVICE
from tpsrl.rl.distributed.group import Alone, Group
from tpsrl.rl.envs.numbered import NumberedFactory
from tpsrl.rl.envs.supervision import FaultTolerance
from tpsrl.rl.envs.vec_env import VecEnvFactory
from tpsrl.rl.learning.ppo import PPO, Imitation
from tpsrl.rl.learning.teaching import Teacher
from tpsrl.rl.policy.actor_critic import ActorCritic
from tpsrl.rl.run import warm_start
from tpsrl.rl.run.checkpoint import Checkpoint
from tpsrl.rl.run.settings import TrainSettings

_APART = 1_000_003  # between the seeds of ranks


@dataclasses.dataclass(slots=True)
class Assembly:
    """A collector, its rollouts of `num_envs` x `num_steps` steps, a policy and its learner."""

    collector: collectors.AnyCollector
    rollouts: list[Rollout]
    policy: ActorCritic
    ppo: PPO
    preemption: Preemption


def assemble(
    settings: TrainSettings,
    factory: VecEnvFactory,
    processes: int = 0,
    seed: int = 0,
    device: torch.device | str = "cpu",
    tolerance: FaultTolerance | None = None,
    say: Callable[[str], None] = lambda text: None,
    init: Checkpoint | None = None,
    imitation: Imitation | None = None,
    group: Group | None = None,
    stops: Preemption | None = None,
    teacher: Teacher | None = None,
) -> Assembly:
    """Makes a new policy and all parts of its training; the caller closes the collector.

    Args:
        settings: settings of the training
        factory: makes the environments
        processes: number of worker processes; 0: the environments are in this process
        seed: of weights, actions and the order of mini-batches
        device: of the network
        tolerance: handling of worker failures; None: the first failure ends the run
        say: receives messages about failures and slow workers
        init: checkpoint from which the policy's weights are taken (`tpsrl.rl.run.warm_start`)
        imitation: see `PPO`
        group: ranks that train the policy together; they differ in environments, actions and the
            order of mini-batches
        stops: decides when a slow rank stops collecting; None: according to the settings
        teacher: see `PPO`

    Raises:
        UserError: a setting is out of range, or `init` does not fit.
        RunError: a worker could not be launched.
    """
    group = group or Alone()
    collection = settings.collector_settings(processes, seed, str(device), group.rank)
    own = NumberedFactory(factory, collection.first_env)
    size = settings.num_envs * settings.num_steps
    if settings.collector == DEVICE:  # its rollouts are always whole
        stops = NoPreemption()
    stops = stops or preemption.make(group, settings.preemption_settings(), size)
    collector = collectors.make(collection, own, tolerance, say, stops)
    try:
        torch.manual_seed(seed)
        policy = ActorCritic(collector.spec, settings.policy).to(device)
        if init is not None:
            warm_start.take_over(policy, init)
        if settings.compile:
            policy.compile_encoders()
        made = [
            collector.rollout_type(
                policy.rollout_spec, settings.num_envs, size, policy.memory_size, device
            )
            for _ in range(collector.rollouts)
        ]
        ppo = PPO(policy, settings.ppo, seed + _APART * group.rank, imitation, group, teacher)
        return Assembly(collector, made, policy, ppo, stops)
    except BaseException:
        collector.close()
        raise
