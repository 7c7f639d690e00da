"""The loss of behaviour cloning."""

import torch
from torch.nn import functional

from tpsrl.rl.imitation.dataset import CloningBatch
from tpsrl.rl.policy import gaussian
from tpsrl.rl.policy.actor_critic import ActorCritic

_SMOOTH = 0.1  # below this an error counts by its square, above it in proportion
_TURNING = 2.0  # how much a step counts in which a switch is to be turned


def cloning_loss(
    policy: ActorCritic,
    batch: CloningBatch,
    switches: torch.Tensor,
    switch_weight: float = 0.2,
    scale: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """How far a policy's means are from what the expert would have done.

    A smooth L1 distance for what is a quantity, which does not follow the few labels that are far
    off. What is a switch, on above zero, counts by the cross entropy of a probability (1 + mean) /
    2, which is the logistic function of what the squashed mean is made of, twice. A switch that is
    to be turned counts for more than one that is to stay: a hand that keeps its grip as long as it
    holds something is right in 99 steps of a hundred, and never lets go.

    Args:
        policy: with means in [-1, 1] (`squash_mean`)
        batch: whole episodes, whose previous actions count as zero
        switches: (A,) bool, the parts of the action of which only the sign matters
        switch_weight: of the cross entropy, a mean over the switches
        scale: (A,), by which errors are multiplied first, more where little of an action is much

    Returns:
        The loss (), and its two parts, without gradient.
    """
    previous = torch.zeros_like(batch.label)
    mean = policy.evaluate(batch.observation, previous, batch.pack).mean
    total = batch.weight.sum().clamp(min=1.0)
    amounts, turned = policy.mask & ~switches, policy.mask & switches
    wanted = batch.label.clamp(-1.0, 1.0)
    by = 1.0 if scale is None else scale
    off = functional.smooth_l1_loss(by * mean, by * wanted, beta=_SMOOTH, reduction="none")
    distance = (off[:, amounts].mean(1) * batch.weight).sum() / total
    loss = distance
    parts = {"distance": distance.detach()}
    if bool(turned.any()):
        on = wanted[:, turned] >= 0.0
        counts = torch.where((batch.previous[:, turned] >= 0.0) != on, _TURNING, 1.0)
        surprise = gaussian.switch_surprise(mean[:, turned], on) * counts
        surprise = (surprise.mean(1) * batch.weight).sum() / total
        loss = loss + switch_weight * surprise
        parts["switches"] = surprise.detach()
    return loss, parts
