"""Additional epochs over a rollout for a value with its own network.

A value that lags behind the policy overestimates the policy's former actions relative to its
present ones, and the policy drifts. A value computed from the true state has no memory: rows can be
shuffled individually, and an epoch costs little compared with one through the policy (phasic policy
gradient also trains its value more often: Cobbe et al., ICML 2021).
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
    """Fits the critic to the returns of a rollout, without changing the rest of the policy.

    Args:
        policy: a policy with a critic
        rollout: a rollout with returns
        weight: (capacity,) weight of each row's squared error
        optimizer: optimizer of all parameters; it skips those without a gradient
        epochs: epochs over the rollout
        max_norm: maximum gradient norm
        generator: random generator of the order of rows
        group: ranks that fit the same critic, each to a rollout of the same size
        share: weight of this rank
    """
    rows = torch.as_tensor(rollout.rows, device=rollout.device)
    parameters = [p for name, p in policy.named_parameters() if name.startswith(VALUE_PARTS)]
    parts = math.ceil(rollout.size / _BATCH)
    for _ in range(epochs):
        order = torch.randperm(len(rows), generator=generator).to(rows.device)
        # Every rank makes the same number of steps, even where rows were lost or preempted.
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
    """Returns half the squared errors (k,) of values.

    With `held`, old values (k,) and a clip range, the error is the larger of the plain one and that
    of the value clamped to this range around the old value: moving further than the range has no
    benefit.
    """
    error = (value - returns).square()
    if held is not None:
        old, clip = held
        error = torch.maximum(error, (old + (value - old).clamp(-clip, clip) - returns).square())
    return 0.5 * error
