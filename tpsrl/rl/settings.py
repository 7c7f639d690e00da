"""What a training can be told about rollouts, network and learner: a preset of `configs/train`."""

import dataclasses

from tpsrl import config
from tpsrl.rl.policy import PolicySettings
from tpsrl.rl.ppo import PPOSettings


@dataclasses.dataclass(frozen=True, slots=True)
class TrainSettings:
    """Rollouts of `num_envs` x `num_steps` steps, each learned from at once."""

    name: str = ""
    steps: int = config.option(500_000_000, "steps of experience in all", minimum=1)
    num_envs: int = config.option(16, "environments, N", minimum=1)
    num_steps: int = config.option(128, "steps of each in a rollout, T", minimum=1)
    collector: str = config.option("sync", "how experience is collected")
    policy: PolicySettings = config.part(PolicySettings, "the network")
    ppo: PPOSettings = config.part(PPOSettings, "the learner")
