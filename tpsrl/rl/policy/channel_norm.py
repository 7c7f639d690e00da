"""Channel-wise normalisation of pictures by what all pictures so far had (DD-PPO, section 6)."""

from collections.abc import Sequence

import torch
from torch import nn

_EPS = 1e-4  # of a variance: a channel that never varies stays at zero


class ChannelNorm(nn.Module):
    """Takes a running mean off each channel and divides by a running standard deviation.

    DD-PPO does so to colour, since its networks have no BatchNorm. Mean and variance are of all
    pixels of all pictures that were learned from, merged batch by batch (Chan, Golub and LeVeque,
    "Updating formulae and a pairwise algorithm for computing sample variances", 1979). They move
    only when `take` is told to, so that no picture depends on those beside it, and a policy sees
    as it did when it acted for as long as it learns from that.

    Before the first picture it changes nothing.
    """

    mean: torch.Tensor  # (channels,)
    variance: torch.Tensor  # (channels,)
    pictures: torch.Tensor  # () int64, that mean and variance are of

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("variance", torch.ones(channels))
        self.register_buffer("pictures", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Pictures (n, channels, H, W) -> the same shape."""
        scale = (self.variance + _EPS * (self.pictures > 0)).rsqrt()
        return (x - self.mean[:, None, None]) * scale[:, None, None]

    def sums(self, x: torch.Tensor) -> torch.Tensor:
        """What `take` has to be told of pictures (n, channels, H, W): (1 + 2 channels,) float64.

        How many they are, and of each channel what lies off its mean, summed, and squared. Those
        of several batches, or ranks, add up.
        """
        off = x.detach() - self.mean[:, None, None]
        pixels = off.shape[2] * off.shape[3]
        count = torch.full((1,), float(len(off)), dtype=torch.float64, device=x.device)
        first = off.sum((0, 2, 3), dtype=torch.float64) / pixels
        second = off.square().sum((0, 2, 3), dtype=torch.float64) / pixels
        return torch.cat([count, first, second])

    def take(self, sums: Sequence[float]) -> None:
        """Merges pictures of these `sums` with all before; every picture has one weight."""
        new, total = sums[0], int(self.pictures) + sums[0]
        if new <= 0.0:
            return
        told = torch.tensor(sums[1:], dtype=torch.float64, device=self.mean.device) / new
        apart, square = told.chunk(2)
        share = new / total
        within = (1.0 - share) * self.variance.double() + share * (square - apart.square())
        variance = within + share * (1.0 - share) * apart.square()
        self.variance.copy_(variance.clamp(min=0.0))
        self.mean.add_((share * apart).float())
        self.pictures.add_(int(new))
