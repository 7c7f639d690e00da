"""Collectors by name."""

from collections.abc import Callable
from typing import Any

import torch

from tpsrl.errors import UserError, unknown
from tpsrl.rl.collection.collector import Collector, NoVer, Sync, Ver
from tpsrl.rl.collection.overlap import Overlap
from tpsrl.rl.envs.pool import EnvPool
from tpsrl.rl.envs.serial_pool import SerialEnvPool
from tpsrl.rl.envs.supervision import FaultTolerance
from tpsrl.rl.envs.vec_env import VecEnvFactory
from tpsrl.rl.envs.worker_pool import WorkerEnvPool

COLLECTORS: dict[str, Callable[..., Any]] = {
    kind.name: kind for kind in (Sync, NoVer, Ver, Overlap)
}


def make(
    name: str,
    factory: VecEnvFactory,
    num_envs: int,
    processes: int = 0,
    seed: int = 0,
    device: torch.device | str = "cpu",
    min_batch: int = 1,
    max_batch: int = 0,
    inference_workers: int = 1,
    tolerance: FaultTolerance | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Collector:
    """A collector with environments of its own.

    Args:
        name: one of `COLLECTORS`
        factory: of the environments
        num_envs: how many
        processes: workers that the environments are spread over; 0: they are in this process, and
            answer in an order that is random and always the same
        seed: of the actions that are drawn
        device: of the policy
        min_batch: answers that inference waits for
        max_batch: answers that it takes at once, 0: all
        inference_workers: threads that choose actions, the one that collects among them; more
            than one only where the environments are in processes of their own
        tolerance: of workers that fail; None: the first failure ends the run
        say: is told what goes wrong and who waits for whom

    Raises:
        UserError: the name is unknown (names the nearest), a number is out of range, or one that
            the factory raised.
        RunError: a worker could not start.
    """
    if name not in COLLECTORS:
        raise unknown("collector", name, COLLECTORS)
    if num_envs < 1:
        raise UserError(f"num_envs: must be at least 1, got {num_envs}")
    for field, value in (("min_batch", min_batch), ("max_batch", max_batch or num_envs)):
        if not 1 <= value <= num_envs:
            raise UserError(f"{field}: {value} is out of range, must be between 1 and {num_envs}")
    if inference_workers < 1:
        raise UserError(f"inference_workers: must be at least 1, got {inference_workers}")
    if inference_workers > 1 and processes == 0:
        raise UserError(
            f"inference_workers: {inference_workers} need environments in processes of their own, "
            "and processes is 0; nearest: 1"
        )
    pool: EnvPool
    if processes == 0:
        pool = SerialEnvPool(factory, num_envs, seed)
    else:
        pool = WorkerEnvPool(factory, num_envs, processes, tolerance, say)
    collector: Collector = COLLECTORS[name](
        pool, seed, device, min_batch, max_batch, inference_workers
    )
    return collector
