"""Validation: a policy's success on start states that it is not trained on."""

from typing import Any

import numpy as np
import torch

from tpsrl.rl.envs.pool import EnvPool, step_all
from tpsrl.rl.envs.vec_env import EpisodeStats
from tpsrl.rl.policy import gaussian
from tpsrl.rl.policy.actor_critic import ActorCritic


def validate(policy: ActorCritic, pool: EnvPool, count: int) -> list[EpisodeStats]:
    """The episodes from starts 0 to `count` - 1, in their order.

    The environments have just been made, and environment i of n takes the starts i, i + n,
    i + 2 n, ... Actions are drawn as in training, by a generator that always begins the same, so a
    policy has the same result again. The mean of the distribution is not what was trained: the mean
    of a stop may stay under the threshold for ever while one draw in three is above it.
    """
    pool.reset()
    size, done = pool.num_envs, dict[int, EpisodeStats]()
    device = policy.mask.device
    generator = torch.Generator(device).manual_seed(0)
    memory = policy.initial_memory(size)
    previous = torch.zeros(size, policy.spec.action_size, device=device)
    is_first = torch.ones(size, dtype=torch.bool, device=device)
    while len(done) < count:
        shown = {n: torch.from_numpy(v).to(device) for n, v in pool.observation.items()}
        with torch.inference_mode():
            step = policy.act(shown, previous, memory, is_first)
            action = gaussian.sample(step.mean, step.std, policy.mask, generator)
        reply = step_all(pool, action.cpu().numpy())
        done |= {
            episode.start_index: episode
            for episode in reply.episodes
            if episode.start_index < count
        }
        assert step.memory is not None
        memory, previous = step.memory, action
        is_first = torch.from_numpy(np.asarray(reply.terminated | reply.truncated)).to(device)
    return [done[start] for start in range(count)]


def summary(episodes: list[EpisodeStats]) -> dict[str, Any]:
    """Means over episodes: success, return, steps, and the share of each end."""
    count = len(episodes)
    ends = [episode.ended_by for episode in episodes]
    return {
        "episodes": count,
        "success": sum(episode.success for episode in episodes) / count,
        "return": sum(episode.reward for episode in episodes) / count,
        "length": sum(episode.steps for episode in episodes) / count,
        "ended": {name: ends.count(name) / count for name in sorted(set(ends))},
    }
