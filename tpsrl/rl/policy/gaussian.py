"""Independent Gaussians over the action dimensions that have an effect.

Arguments are mean and standard deviation (n, A) and the mask (A,) bool of the dimensions that
count. Values in masked dimensions, even infinite ones, change neither a result nor a gradient.
Results are float32.
"""

import math

import torch

_SURE = 1e-4  # minimum probability of a switch's value in imitation
_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


def sample(
    mean: torch.Tensor, std: torch.Tensor, mask: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """Returns actions (n, A), zero where masked; the generator must be on the mean's device."""
    noise = torch.empty_like(mean, dtype=torch.float32).normal_(generator=generator)
    return displaced(mean, std, mask, noise)


def displaced(
    mean: torch.Tensor, std: torch.Tensor, mask: torch.Tensor, noise: torch.Tensor
) -> torch.Tensor:
    """Returns actions (n, A) `noise` (n, A) standard deviations off the mean, zero where masked."""
    return torch.where(mask, torch.addcmul(mean, std, noise), 0.0)


def log_prob_of(std: torch.Tensor, mask: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Returns the log density (n,) of actions `noise` (n, A) standard deviations off the mean."""
    density = 0.5 * noise.square() + std.log() + _LOG_SQRT_2PI
    return -density.masked_fill_(~mask, 0.0).sum(-1)


def log_prob(
    mean: torch.Tensor, std: torch.Tensor, action: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """Returns the log density (n,) of actions (n, A)."""
    # Both are replaced before the division: masking its result would still give a gradient of
    # 0 times infinity.
    std = torch.where(mask, std, 1.0)
    distance = torch.where(mask, action - mean, 0.0) / std
    count = mask.sum()
    return -(0.5 * distance.square() + std.log()).sum(-1) - count * _LOG_SQRT_2PI


def switch_log_prob(
    mean: torch.Tensor, std: torch.Tensor, action: torch.Tensor, switches: torch.Tensor
) -> torch.Tensor:
    """Returns the log probability (n,) of the signs of actions (n, A) in the dimensions `switches`.

    Only the sign of a switch matters; it is on with probability Phi(mean / std). The density of the
    exact number would only add noise.
    """
    odds = mean[:, switches] / std[:, switches]
    return torch.special.log_ndtr(torch.where(action[:, switches] >= 0.0, odds, -odds)).sum(-1)


def switch_entropy(mean: torch.Tensor, std: torch.Tensor, switches: torch.Tensor) -> torch.Tensor:
    """Returns the entropy (n,) in nats of the signs of actions in the dimensions `switches`."""
    odds = mean[:, switches] / std[:, switches]
    total = torch.zeros_like(mean[:, 0])
    for side in (odds, -odds):
        surprise = torch.special.log_ndtr(side)
        total = total - (surprise.exp() * surprise).sum(-1)
    return total


def switch_surprise(mean: torch.Tensor, on: torch.Tensor) -> torch.Tensor:
    """Returns the cross entropy (n, S) of switches with labels `on` (n, S) bool, for imitation.

    A switch is on with probability (1 + mean) / 2. For a mean squashed by tanh, that is the
    logistic function of twice the input of tanh.
    """
    chance = (0.5 + 0.5 * mean).clamp(_SURE, 1.0 - _SURE)
    return -torch.where(on, chance, 1.0 - chance).log()


def entropy(std: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Returns the differential entropy (n,) in nats."""
    count = mask.sum()
    return torch.where(mask, std, 1.0).log().sum(-1) + count * (0.5 + _LOG_SQRT_2PI)
