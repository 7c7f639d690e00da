"""Settings of a training: rollouts, network and learner, as in presets of `configs/train`."""

import dataclasses
from typing import Any, Literal

from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.rl.collection.preemption_settings import PreemptionSettings
from tpsrl.rl.collection.settings import IN_PROCESS, CollectorSettings
from tpsrl.rl.learning.settings import PPOSettings
from tpsrl.rl.policy.settings import PolicySettings

_DAY_S = 86_400


@dataclasses.dataclass(frozen=True, slots=True)
class TrainSettings:
    """Settings of a training with rollouts of `num_envs` x `num_steps` steps."""

    name: str = ""
    steps: int = config.option(500_000_000, "total number of steps", minimum=1)
    num_envs: int = config.option(16, "number of environments (N)", minimum=1)
    num_steps: int = config.option(128, "steps per environment and rollout (T)", minimum=1)
    collector: str = config.option("sync", "collector: sync, nover, ver, overlap, batch or device")
    min_batch: int = config.option(
        1, "minimum inference batch of ver, nover and overlap", minimum=1
    )
    max_batch: int = config.option(0, "maximum inference batch; 0: no limit", minimum=0)
    inference_workers: int = config.option(
        1,
        "number of inference threads, the collecting thread included",
        minimum=1,
        maximum=config.MOST_PROCESSES,
    )
    hang_s: float = config.option(
        120.0,
        "seconds after which an unresponsive worker is replaced",
        minimum=1.0,
        maximum=_DAY_S,
    )
    max_failures: int = config.option(
        10, "maximum number of workers replaced within ten minutes", minimum=0
    )
    preempt: str = config.option(
        "optimal",
        "preemption of slow ranks: none, share (DD-PPO), optimal (VER) or marginal",
    )
    preempt_share: float = config.option(
        0.6,
        "preempt=share: fraction of ranks with complete rollouts that ends collection",
        minimum=0,
        maximum=1,
    )
    preempt_least: float = config.option(
        0.25, "minimum fraction of a rollout that every rank collects", minimum=0, maximum=1
    )
    refill: bool = config.option(
        True, "fill a preempted rollout with the latest steps of previous rollouts"
    )
    average_steps: int = config.option(
        0,
        "averaging window of the weights used for acting (steps); 0: no averaging",
        minimum=0,
    )
    device_starts: int = config.option(
        1024,
        "collector=device: number of start states on the device, from which episodes are drawn",
        minimum=1,
        maximum=1_000_000,
    )
    practice: Literal["uniform", "success"] = config.option(
        "uniform",
        "sampling of start states: uniform, or success (by p (1 - p) of their success rate p)",
    )
    practice_floor: float = config.option(
        0.02, "practice=success: constant added to p (1 - p)", minimum=1e-6, maximum=1.0
    )
    retry: float = config.option(
        0.0,
        "fraction of episodes that restart from a start state that the same environment failed",
        minimum=0.0,
        maximum=0.9,
    )
    sensors: str = config.option(
        "", "sensors of the policy beside the camera, unless sensors= is given"
    )
    task: dict[str, Any] = config.some_of(
        None,
        "defaults of task.KEY, which takes precedence; preset.task.SKILL.KEY applies to one skill",
    )
    plan_horizon: bool = config.option(
        False, "limit episodes to the step limit within a plan instead of the standalone limit"
    )
    along: int = config.option(
        0,
        "number of scripted runs to record first; half of the start states then lie along them "
        "and a quarter are in rearranged apartments, unless start_states= is given",
        minimum=0,
        maximum=100_000,
    )
    clone: int = config.option(
        0,
        "number of frames of these runs on which to clone the initial policy, unless init= is "
        "given; 0: random initial weights",
        minimum=0,
        maximum=1_000_000_000,
    )
    object_margin: float = config.option(
        0.0,
        "distance (m) by which objects other than the target appear nearer to the hand in "
        "privileged sensors, so that teachers keep away from them",
        minimum=0.0,
        maximum=0.2,
    )
    teacher_acts: float = config.option(
        0.0,
        "fraction of training over which control passes from teacher to student",
        minimum=0,
        maximum=1,
    )
    final_std: float = config.option(
        0.0,
        "final maximum standard deviation, annealed from policy.initial_std; 0: not annealed",
        minimum=0,
        maximum=10,
    )
    noise_correlation: float = config.option(
        0.0,
        "correlation of exploration noise between successive steps; 0: independent noise",
        minimum=0.0,
        maximum=0.999,
    )
    desynchronise: bool = config.option(
        False,
        "start the first episodes at random step counts, so that episodes are not synchronised",
    )
    compile: bool = config.option(
        False, "compile the visual encoder with torch.compile (needs a C++ compiler)"
    )
    policy: PolicySettings = config.part(PolicySettings, "network")
    ppo: PPOSettings = config.part(PPOSettings, "learner")

    def check_surroundings(
        self, processes: int | None, demos: bool = False, prefix: str = "preset."
    ) -> None:
        """Checks that the settings fit the worker processes, the demonstrations and each other.

        Args:
            processes: number of worker processes, 0: none; None: any positive number
            demos: whether there are demonstrations
            prefix: precedes the names of fields in messages

        Raises:
            UserError: names the field.
        """
        threads = self.inference_workers
        if self.collector in IN_PROCESS and processes:
            raise UserError(
                f"processes: is {processes}, but {prefix}collector={self.collector} steps all "
                "environments in one process; nearest: 0"
            )
        if threads > 1 and (processes == 0 or self.collector in IN_PROCESS):
            raise UserError(
                f"{prefix}inference_workers: {threads} requires environments in worker processes, "
                "but there are none; nearest: 1"
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
        if self.ppo.auxiliary_name == "state" and not self.policy.critic:
            raise UserError(
                f"{prefix}ppo.auxiliary: state needs the true state; set {prefix}policy.critic=true"
            )
        if self.ppo.auxiliary_name == "cpca" and not self.policy.lstm_layers:
            raise UserError(
                f"{prefix}ppo.auxiliary: cpca needs a memory; set {prefix}policy.lstm_layers to at "
                "least 1"
            )
        if self.ppo.value_epochs and not self.policy.critic:
            raise UserError(
                f"{prefix}ppo.value_epochs: there is no separate value network; set it to 0, or "
                f"{prefix}policy.critic=true"
            )

    def collector_settings(
        self, processes: int, seed: int, device: str, rank: int = 0
    ) -> CollectorSettings:
        """Returns the settings of a rank's collector.

        The collectors `batch` and `device` have no worker processes, whatever `processes` is.
        """
        return CollectorSettings(
            name=self.collector,
            num_envs=self.num_envs,
            first_env=rank * self.num_envs,
            processes=0 if self.collector in IN_PROCESS else processes,
            seed=seed,
            device=device,
            min_batch=self.min_batch,
            max_batch=self.max_batch,
            inference_workers=self.inference_workers,
            refill=self.refill,
            noise_correlation=self.noise_correlation,
        )

    def preemption_settings(self) -> PreemptionSettings:
        """Returns the settings of the preemption of slow ranks."""
        return PreemptionSettings(self.preempt, self.preempt_share, self.preempt_least)
