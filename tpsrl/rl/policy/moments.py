"""Normalisation of observations by the running mean and deviation of all previous ones.

Liang et al. 2018, section 4.2: "we whiten the current observations by maintaining online statistics
of mean and standard deviation from the history of past observations".
"""

import torch
from torch import nn

_LIMIT = 5.0  # from OpenAI Baselines' `ppo1`, which the paper adapted
_LEAST_VARIANCE = 1e-2  # for nearly constant numbers; also from `ppo1`


class RunningMoments(nn.Module):
    """Mean and variance (k,) of the vectors (n, k) seen so far; buffers, saved in checkpoints.

    Before the first `add`, vectors are only clamped.
    """

    count: torch.Tensor  # () float64
    mean: torch.Tensor  # (k,) float64
    variance: torch.Tensor  # (k,) float64

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(size, dtype=torch.float64))

    def forward(self, vector: torch.Tensor) -> torch.Tensor:
        """Returns vectors (n, k) minus the mean, divided by the deviation, clamped to [-5, 5]."""
        deviation = self.variance.clamp(min=_LEAST_VARIANCE).sqrt()
        centred = vector - self.mean.to(vector.dtype)
        return (centred / deviation.to(vector.dtype)).clamp(-_LIMIT, _LIMIT)

    def add(self, count: float, mean: torch.Tensor, variance: torch.Tensor) -> None:
        """Merges `count` further vectors, given by their mean and variance (k,) float64.

        Chan, Golub and LeVeque 1979, equation 2.1b.
        """
        if count <= 0.0:
            return
        total = self.count + count
        share, apart = count / total, mean - self.mean
        within = (1.0 - share) * self.variance + share * variance
        self.variance.copy_(within + share * (1.0 - share) * apart.square())
        self.mean.add_(share * apart)
        self.count.copy_(total)
