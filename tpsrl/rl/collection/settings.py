"""What a collector can be told."""

import dataclasses

BATCH = "batch"  # the one whose environments are always in the calling process
COLLECTORS = ("sync", "nover", "ver", "overlap", BATCH)


@dataclasses.dataclass(frozen=True, slots=True)
class CollectorSettings:
    """How `num_envs` environments are spread and how their actions are chosen.

    They have the numbers from `first_env` on among those of all ranks, which seed their actions.

    With `processes` 0 environments are in the calling process, and are ready in an order that is
    random and always the same. `seed` is of the actions that are drawn, `device` of the policy.
    Inference waits for `min_batch` environments and takes `max_batch` at once, 0: all. Of the
    `inference_workers`, threads that choose actions, the one that collects is one; there may be
    more only where the environments are in processes of their own. With `refill` a rollout that is
    cut short is filled up with the youngest steps of those before. `noise_correlation` is that of
    the noise of successive actions (`tpsrl.rl.collection.noise`).
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
