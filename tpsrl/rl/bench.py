"""How fast experience is collected and learned from, and what the time goes into."""

import collections
import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

import torch

from tpsrl.rl import collectors
from tpsrl.rl.collector import Collector
from tpsrl.rl.envs import HomesFactory
from tpsrl.rl.policy import ActorCritic
from tpsrl.rl.ppo import PPO
from tpsrl.rl.rollout import Rollout
from tpsrl.rl.settings import TrainSettings


def measure(
    settings: TrainSettings,
    factory: HomesFactory,
    processes: int,
    rollouts: int,
    warm_up: int,
    seed: int = 0,
    device: torch.device | str = "cpu",
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Collects and learns from `rollouts` rollouts after `warm_up` others; JSON types.

    "samples_per_s" is over all of them ("mean") and in the best one ("max"); "seconds" of all by
    cause, "learning" beside those of `tpsrl.rl.collector.Collection`; "load" is the machine's load
    average at the end, over a minute, which shows whether it had other things to do.

    Raises:
        UserError, RunError: see `tpsrl.rl.collector.make`.
    """
    begun = time.perf_counter()
    collector = collectors.make(
        settings.collector, factory, settings.num_envs, processes, seed, device
    )
    with contextlib.closing(collector):
        started_s = time.perf_counter() - begun
        torch.manual_seed(seed)
        policy = ActorCritic(collector.spec, settings.policy).to(device)
        ppo = PPO(policy, settings.ppo, seed)
        size = settings.num_envs * settings.num_steps
        made = [
            Rollout(collector.spec, settings.num_envs, size, policy.memory_size, device)
            for _ in range(collector.rollouts)
        ]
        rows: list[dict[str, Any]] = []
        for number in range(warm_up + rollouts):
            say(f"rollout {number + 1} of {warm_up + rollouts}")
            row = _round(collector, policy, ppo, made, number)
            if number >= warm_up:
                rows.append(row)
    total: collections.Counter[str] = collections.Counter()
    for row in rows:
        total.update(row["seconds"])
    samples = sum(row["samples"] for row in rows)
    return {
        "samples_per_s": {
            "mean": samples / sum(total.values()),
            "max": max(row["samples"] / sum(row["seconds"].values()) for row in rows),
        },
        "samples": samples,
        "seconds": dict(total),
        "start_s": started_s,
        "load": os.getloadavg()[0],
        "rollouts": rows,
    }


def _round(
    collector: Collector,
    policy: ActorCritic,
    ppo: PPO,
    made: list[Rollout],
    version: int,
) -> dict[str, Any]:
    """One rollout and what is learned from it."""
    collection = collector.collect(policy, made, version)
    begun = time.perf_counter()
    ppo.update(collection.rollout)
    learning = time.perf_counter() - begun
    return {
        "samples": collection.steps,
        "episodes": len(collection.episodes),
        "seconds": {**collection.seconds, "learning": learning},
    }
