"""Channel-wise normalisation of images by running moments (DD-PPO, section 6)."""

from collections.abc import Sequence

import torch
from torch import nn

FIXED = 2**40  # number of images in moments that stay as they are
_EPS = 1e-4  # added to a variance: a constant channel stays at zero


class ChannelNorm(nn.Module):
    """Subtracts a running mean from each channel and divides by a running standard deviation.

    DD-PPO normalises colour in this way, since its networks have no BatchNorm. Mean and variance
    are over all pixels of all images learned from, merged batch by batch (Chan, Golub and LeVeque,
    "Updating formulae and a pairwise algorithm for computing sample variances", 1979). Only `take`
    changes them: an image's output does not depend on other images of its batch, and during an
    update the policy normalises as it did while collecting.

    Before the first `take`, images pass unchanged.
    """

    mean: torch.Tensor  # (channels,)
    variance: torch.Tensor  # (channels,)
    pictures: torch.Tensor  # () int64, number of images in mean and variance

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("variance", torch.ones(channels))
        self.register_buffer("pictures", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images (n, channels, H, W) -> the same shape."""
        scale = (self.variance + _EPS * (self.pictures > 0)).rsqrt()
        return (x - self.mean[:, None, None]) * scale[:, None, None]

    def fix(self, mean: Sequence[float], std: Sequence[float]) -> None:
        """Sets mean and standard deviation of each channel, which `take` no longer changes."""
        self.mean.copy_(torch.tensor(mean))
        self.variance.copy_(torch.tensor(std).square())
        self.pictures.fill_(FIXED)

    def sums(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the sums that `take` needs of images (n, channels, H, W).

        Returns:
            (1 + 2 channels,) float64: the number of images and, for each channel, the sums over
            images of the mean deviation and of the mean squared deviation from the running mean.
            Sums of several batches or ranks may be added.
        """
        off = x.detach() - self.mean[:, None, None]
        pixels = off.shape[2] * off.shape[3]
        count = torch.full((1,), float(len(off)), dtype=torch.float64, device=x.device)
        first = off.sum((0, 2, 3), dtype=torch.float64) / pixels
        second = off.square().sum((0, 2, 3), dtype=torch.float64) / pixels
        return torch.cat([count, first, second])

    def take(self, sums: Sequence[float]) -> None:
        """Merges images, given by their `sums`, into mean and variance, each with equal weight."""
        new, total = sums[0], int(self.pictures) + sums[0]
        if new <= 0.0:
            return
        means = torch.tensor(sums[1:], dtype=torch.float64, device=self.mean.device) / new
        apart, square = means.chunk(2)
        share = new / total
        within = (1.0 - share) * self.variance.double() + share * (square - apart.square())
        variance = within + share * (1.0 - share) * apart.square()
        self.variance.copy_(variance.clamp(min=0.0))
        self.mean.add_((share * apart).float())
        self.pictures.add_(int(new))
