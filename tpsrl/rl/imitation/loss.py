"""Loss of behaviour cloning."""

import torch
from torch.nn import functional

from tpsrl.rl.imitation.dataset import CloningBatch
from tpsrl.rl.policy import gaussian
from tpsrl.rl.policy.actor_critic import ActorCritic

_SMOOTH = 0.1  # error at which the loss changes from quadratic to linear
_TURNING = 2.0  # weight of steps in which a switch is to change


def cloning_loss(
    policy: ActorCritic,
    batch: CloningBatch,
    switches: torch.Tensor,
    switch_weight: float = 0.2,
    scale: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Computes the distance between a policy's means and the expert's labels.

    Continuous dimensions count by a smooth L1 distance, which limits the influence of the few
    labels that are far off. Switches, on where the label is at least 0, count by the cross entropy
    of the probability (1 + mean) / 2, which for a squashed mean is the logistic function of twice
    the input of tanh. Steps in which a switch is to change have a higher weight: a gripper that
    never opens while it holds an object would be right in 99 steps of a hundred, but would never
    release the object.

    Args:
        policy: policy with means in [-1, 1] (`squash_mean`)
        batch: whole episodes; their previous actions count as zero
        switches: (A,) bool, action dimensions of which only the sign matters
        switch_weight: weight of the cross entropy, which is a mean over the switches
        scale: (A,) factors of errors before the smooth L1 distance; larger where small differences
            of an action matter

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
