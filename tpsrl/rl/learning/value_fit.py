"""More passes over a rollout for a value with a network of its own.

A value that follows the policy late makes what the policy used to do look better than what it does
now, and the policy drifts. One that is read off the true state takes no memory to run: rows may be
shuffled one by one, and a pass costs next to nothing beside one through the policy (phasic policy
gradient trains its value more often as well: Cobbe et al., ICML 2021).
"""

import math

import torch
from torch import nn

from tpsrl.rl.collection.rollout import Rollout
from tpsrl.rl.distributed.group import Group, average_gradients
from tpsrl.rl.learning.guarded_adam import GuardedAdam
from tpsrl.rl.policy.actor_critic import CRITIC, VALUE_PARTS, ActorCritic

_BATCH = 1024  # rows of a gradient step


def fit_value(
    policy: ActorCritic,
    rollout: Rollout,
    weight: torch.Tensor,
    optimizer: GuardedAdam,
    epochs: int,
    max_norm: float,
    generator: torch.Generator,
    group: Group,
    share: float,
) -> None:
    """Fits the critic to the returns of a rollout; nothing else of the policy is changed.

    Args:
        policy: with a critic
        rollout: with returns
        weight: (capacity,) of each row's squared error
        optimizer: of all parameters; those without a gradient it leaves as they are
        epochs: passes
        max_norm: longer gradients are cut to it
        generator: of the order of rows
        group: who fits the same critic together, each to rollouts of one size
        share: how much this rank counts
    """
    rows = torch.as_tensor(rollout.rows, device=rollout.device)
    parameters = [p for name, p in policy.named_parameters() if name.startswith(VALUE_PARTS)]
    parts = math.ceil(rollout.size / _BATCH)
    for _ in range(epochs):
        order = torch.randperm(len(rows), generator=generator).to(rows.device)
        # As many parts on every rank, whatever was lost or preempted there.
        for part in rows[order].tensor_split(parts):
            value = policy.value(rollout.observation[CRITIC][part])
            loss = (weight[part] * squared_errors(value, rollout.returns[part])).mean()
            optimizer.zero_grad()
            loss.backward()
            mean_loss = average_gradients(group, parameters, share, loss)
            norm = nn.utils.clip_grad_norm_(parameters, max_norm)
            optimizer.watch(mean_loss, norm)
            optimizer.step()


def squared_errors(
    value: torch.Tensor,
    returns: torch.Tensor,
    held: tuple[torch.Tensor, float] | None = None,
) -> torch.Tensor:
    """Half the squared error (k,) of values.

    With `held`, old values (k,) and a distance, the larger one of it and of the error of the value
    held within that distance of the old one, so that nothing is to be gained from moving further.
    """
    error = (value - returns).square()
    if held is not None:
        old, clip = held
        error = torch.maximum(error, (old + (value - old).clamp(-clip, clip) - returns).square())
    return 0.5 * error
