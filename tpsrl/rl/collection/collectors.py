"""Collectors by name."""

from collections.abc import Callable

import torch

from tpsrl.errors import UserError, unknown
from tpsrl.rl.collection.batch import BatchCollector
from tpsrl.rl.collection.collector import Collector
from tpsrl.rl.collection.device import DeviceCollector
from tpsrl.rl.collection.overlap import OverlapCollector
from tpsrl.rl.collection.preemption import Preemption
from tpsrl.rl.collection.schedules import NoVerSchedule, Schedule, SyncSchedule, VerSchedule
from tpsrl.rl.collection.settings import BATCH, COLLECTORS, DEVICE, IN_PROCESS, CollectorSettings
from tpsrl.rl.envs.device_env import NO_TENSORS, DeviceEnv, DeviceEnvFactory
from tpsrl.rl.envs.pool import EnvPool
from tpsrl.rl.envs.serial_pool import SerialEnvPool
from tpsrl.rl.envs.supervision import FaultTolerance
from tpsrl.rl.envs.vec_env import VecEnvFactory
from tpsrl.rl.envs.worker_pool import WorkerEnvPool

AnyCollector = Collector | OverlapCollector | DeviceCollector


def make(
    settings: CollectorSettings,
    factory: VecEnvFactory,
    tolerance: FaultTolerance | None = None,
    say: Callable[[str], None] = lambda text: None,
    preemption: Preemption | None = None,
) -> AnyCollector:
    """Makes a collector with its own environments.

    Args:
        settings: name and settings of the collector
        factory: makes the environments
        tolerance: handling of worker failures; None: the first failure ends the run
        say: receives messages about failures and slow workers
        preemption: decides when to stop before a rollout is full; None: never

    Raises:
        UserError: the name is unknown (names the nearest), a number is out of range, or the
            factory raised this error.
        RunError: a worker could not be launched.
    """
    _check(settings)
    if settings.name == DEVICE:
        return DeviceCollector(_on_device(factory, settings), settings, say)
    pool: EnvPool
    if settings.processes == 0:
        pool = SerialEnvPool(factory, settings.num_envs, settings.seed)
        if settings.name == BATCH:
            return BatchCollector(pool, settings, preemption)
    else:
        pool = WorkerEnvPool(factory, settings.num_envs, settings.processes, tolerance, say)
    collector = Collector(pool, _schedule(settings), settings, preemption)
    return OverlapCollector(collector) if settings.name == OverlapCollector.name else collector


def _on_device(factory: VecEnvFactory, settings: CollectorSettings) -> DeviceEnv:
    """Makes environments on a device.

    Raises:
        UserError: the factory's environments run on the processor only, or the policy is to run on
            another device.
    """
    if not isinstance(factory, DeviceEnvFactory):
        raise UserError(NO_TENSORS)
    envs = factory.on_device(range(settings.num_envs))
    if envs.device.type != torch.device(settings.device).type:
        envs.close()
        raise UserError(
            f"device: is {settings.device}, but the environments are on {envs.device.type}; "
            f"nearest: {envs.device.type}"
        )
    return envs


def _schedule(settings: CollectorSettings) -> Schedule:
    num_envs, low = settings.num_envs, settings.min_batch
    high = settings.max_batch or num_envs
    if settings.name == SyncSchedule.name:
        return SyncSchedule(num_envs)
    if settings.name == NoVerSchedule.name:
        return NoVerSchedule(num_envs, low, high)
    return VerSchedule(low, high)


def _check(settings: CollectorSettings) -> None:
    num_envs, threads = settings.num_envs, settings.inference_workers
    if settings.name not in COLLECTORS:
        raise unknown("collector", settings.name, COLLECTORS)
    if settings.name in IN_PROCESS and settings.processes:
        raise UserError(
            f"processes: is {settings.processes}, but collector '{settings.name}' steps all "
            "environments in the calling process; nearest: 0"
        )
    if num_envs < 1:
        raise UserError(f"num_envs: must be at least 1, got {num_envs}")
    batches = (("min_batch", settings.min_batch), ("max_batch", settings.max_batch or num_envs))
    for field, value in batches:
        if not 1 <= value <= num_envs:
            raise UserError(f"{field}: {value} is out of range, must be between 1 and {num_envs}")
    if threads < 1:
        raise UserError(f"inference_workers: must be at least 1, got {threads}")
    if threads > 1 and settings.processes == 0:
        raise UserError(
            f"inference_workers: {threads} requires environments in worker processes, "
            "but processes is 0; nearest: 1"
        )
