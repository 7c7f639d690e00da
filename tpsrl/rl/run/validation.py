"""Validation: a policy's success on starts that it is not trained on."""

from typing import Any

import numpy as np
import torch

from tpsrl.rl.envs.interface import Episode
from tpsrl.rl.envs.serial import Environments, step_all
from tpsrl.rl.policy import gaussian
from tpsrl.rl.policy.actor_critic import ActorCritic


def validate(policy: ActorCritic, environments: Environments, count: int) -> list[Episode]:
    """The episodes from starts 0 to `count` - 1, in their order.

    The environments have just been made, and home i of n takes the starts i, i + n, i + 2 n, ...
    Actions are drawn as in training, by a generator that always begins the same, so a policy has
    the same result again. The mean of the distribution is not what was trained: the mean of a stop
    may stay under the threshold for ever while one draw in three is above it.
    """
    environments.reset()
    size, done = environments.num_envs, dict[int, Episode]()
    device = policy.mask.device
    generator = torch.Generator(device).manual_seed(0)
    memory = policy.initial_memory(size)
    previous = torch.zeros(size, policy.spec.action_size, device=device)
    begins = torch.ones(size, dtype=torch.bool, device=device)
    while len(done) < count:
        shown = {n: torch.from_numpy(v).to(device) for n, v in environments.observation.items()}
        with torch.inference_mode():
            step = policy.act(shown, previous, memory, begins)
            action = gaussian.sample(step.mean, step.std, policy.mask, generator)
        answer = step_all(environments, action.cpu().numpy())
        done |= {episode.start: episode for episode in answer.episodes if episode.start < count}
        assert step.memory is not None
        memory, previous = step.memory, action
        begins = torch.from_numpy(np.asarray(answer.terminated | answer.truncated)).to(device)
    return [done[start] for start in range(count)]


def summary(episodes: list[Episode]) -> dict[str, Any]:
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
