"""What a training can be told about rollouts, network and learner: a preset of `configs/train`."""

import dataclasses
from typing import Literal

from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.rl.collection.preemption_settings import PreemptionSettings
from tpsrl.rl.collection.settings import CollectorSettings
from tpsrl.rl.learning.settings import PPOSettings
from tpsrl.rl.policy.settings import PolicySettings

_DAY_S = 86_400


@dataclasses.dataclass(frozen=True, slots=True)
class TrainSettings:
    """Rollouts of `num_envs` x `num_steps` steps, each learned from at once."""

    name: str = ""
    steps: int = config.option(500_000_000, "steps of experience in all", minimum=1)
    num_envs: int = config.option(16, "environments, N", minimum=1)
    num_steps: int = config.option(128, "steps of each in a rollout, T", minimum=1)
    collector: str = config.option(
        "sync", "how experience is collected: sync, nover, ver or overlap"
    )
    min_batch: int = config.option(
        1, "environments that inference waits for, of ver, nover and overlap", minimum=1
    )
    max_batch: int = config.option(0, "environments that it takes at once; 0: all", minimum=0)
    inference_workers: int = config.option(
        1,
        "threads that choose actions, the one that collects among them",
        minimum=1,
        maximum=config.MOST_PROCESSES,
    )
    hang_s: float = config.option(
        120.0,
        "seconds after which a worker at one step or command is replaced",
        minimum=1.0,
        maximum=_DAY_S,
    )
    max_failures: int = config.option(
        10, "workers that may be replaced within ten minutes", minimum=0
    )
    preempt: str = config.option(
        "optimal",
        "when ranks that collect slowly stop: none, share (DD-PPO), optimal (VER) or marginal",
    )
    preempt_share: float = config.option(
        0.6, "of the ranks that have whole rollouts then, of preempt=share", minimum=0, maximum=1
    )
    preempt_least: float = config.option(
        0.25, "of a rollout that every rank collects before", minimum=0, maximum=1
    )
    refill: bool = config.option(
        True, "a rollout that was cut short is filled up with the youngest steps of those before"
    )
    average_steps: int = config.option(
        0,
        "steps of experience that the weights are averaged over, to act by; 0: those of the end",
        minimum=0,
    )
    practice: Literal["uniform", "success"] = config.option(
        "uniform",
        "how start states are drawn: uniform, or success, by p (1 - p) of their success rate p",
    )
    practice_floor: float = config.option(
        0.02, "of practice=success: what is added to p (1 - p)", minimum=1e-6, maximum=1.0
    )
    retry: float = config.option(
        0.0,
        "share of the episodes that begin once more where one of the same environment failed",
        minimum=0.0,
        maximum=0.9,
    )
    sensors: str = config.option(
        "", "what the policy is shown beside the camera, unless sensors= says so"
    )
    task: str = config.option(
        "",
        "changes of the skill's settings, as task= has them, which come before those of task=; "
        "SKILL.KEY:VALUE is for one skill alone",
    )
    plan_horizon: bool = config.option(
        False, "episodes last as long as a run of the skill within a plan may, not as one alone"
    )
    along: int = config.option(
        0,
        "runs of the skill's scripted version that are recorded first, for half of the starts to "
        "be within them and a quarter with the fridge elsewhere, unless start_states= says where "
        "to start",
        minimum=0,
        maximum=100_000,
    )
    teacher_acts: float = config.option(
        0.0,
        "share of the training in which the teacher's action gives way to the student's",
        minimum=0,
        maximum=1,
    )
    final_std: float = config.option(
        0.0,
        "the largest standard deviation falls from policy.initial_std to this; 0: it stays free",
        minimum=0,
        maximum=10,
    )
    desynchronise: bool = config.option(
        False, "first episodes begin with some of their steps gone, so that not all end together"
    )
    policy: PolicySettings = config.part(PolicySettings, "the network")
    ppo: PPOSettings = config.part(PPOSettings, "the learner")

    def check_surroundings(
        self, processes: int | None, demos: bool = False, prefix: str = "preset."
    ) -> None:
        """Refuses what does not fit what it is trained in, or the network.

        Args:
            processes: workers for the environments, 0: none; None: some
            demos: whether there are demonstrations
            prefix: stands before the names of fields

        Raises:
            UserError: names the field.
        """
        threads = self.inference_workers
        if threads > 1 and processes == 0:
            raise UserError(
                f"{prefix}inference_workers: {threads} need environments in processes of their "
                "own, and processes is 0; nearest: 1"
            )
        if self.ppo.imitation_coef > 0.0 and not demos:
            raise UserError(
                f"{prefix}ppo.imitation_coef: there are no demonstrations to imitate; name them by "
                "demos=, or set it to 0"
            )
        if self.policy.critic and self.policy.separate_value:
            raise UserError(
                f"{prefix}policy.separate_value: contradicts {prefix}policy.critic; set one of "
                "them to false"
            )
        if self.ppo.value_epochs and not self.policy.critic:
            raise UserError(
                f"{prefix}ppo.value_epochs: the value has no network of its own; set it to 0, or "
                f"{prefix}policy.critic=true"
            )

    def collector_settings(
        self, processes: int, seed: int, device: str, rank: int = 0
    ) -> CollectorSettings:
        """What of these a rank's collector is told, with what the machine has to offer."""
        return CollectorSettings(
            name=self.collector,
            num_envs=self.num_envs,
            first_env=rank * self.num_envs,
            processes=processes,
            seed=seed,
            device=device,
            min_batch=self.min_batch,
            max_batch=self.max_batch,
            inference_workers=self.inference_workers,
            refill=self.refill,
        )

    def preemption_settings(self) -> PreemptionSettings:
        """What of these is about ranks that collect slowly."""
        return PreemptionSettings(self.preempt, self.preempt_share, self.preempt_least)
