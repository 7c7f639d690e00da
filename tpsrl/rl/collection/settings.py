"""Settings of collectors."""

import dataclasses

BATCH = "batch"  # steps all environments of the calling process together
DEVICE = "device"  # as BATCH, with tensors that stay on the device
COLLECTORS = ("sync", "nover", "ver", "overlap", BATCH, DEVICE)
IN_PROCESS = (BATCH, DEVICE)  # collectors whose environments are always in the calling process


@dataclasses.dataclass(frozen=True, slots=True)
class CollectorSettings:
    """Settings of a collector: its environments, and how their actions are chosen.

    The `num_envs` environments are numbered from `first_env` among those of all ranks; the numbers
    seed their actions. With `processes=0` the environments are in the calling process, and become
    ready in an order that is random but reproducible. `seed` seeds the noise of actions and this
    order; `device` is that of the policy. Inference waits for `min_batch` environments and takes at
    most `max_batch` at once (0: all). `inference_workers` is the number of threads that choose
    actions, the collecting thread included; more than one requires worker processes. With `refill`,
    a rollout that is cut short is filled up with the latest steps of earlier ones.
    `noise_correlation` is the correlation of successive noise (`tpsrl.rl.collection.noise`).
    """

    name: str
    num_envs: int
    first_env: int = 0
    processes: int = 0
    seed: int = 0
    device: str = "cpu"
    min_batch: int = 1
    max_batch: int = 0
    inference_workers: int = 1
    refill: bool = False
    noise_correlation: float = 0.0
