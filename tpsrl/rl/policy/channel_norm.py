"""Channel-wise normalisation of pictures by what all pictures so far had (DD-PPO, section 6)."""

import torch
from torch import nn

_EPS = 1e-4  # of a variance: a channel that never varies stays at zero


class ChannelNorm(nn.Module):
    """Takes a running mean off each channel and divides by a running standard deviation.

    DD-PPO does so to colour, since its networks have no BatchNorm. Mean and variance are of all
    pixels of all pictures that were learned from, merged batch by batch (Chan, Golub and LeVeque,
    "Updating formulae and a pairwise algorithm for computing sample variances", 1979). They move
    only in a forward pass in training mode that records gradients, that is, in the learner's: who
    acts, validates or is frozen leaves them. A pass is normalised by what was known before it, so
    that no picture depends on those beside it.

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
        shown = (x - self.mean[:, None, None]) * scale[:, None, None]
        if self.training and torch.is_grad_enabled():
            self._add(x.detach().float())
        return shown

    def _add(self, x: torch.Tensor) -> None:
        """Merges the moments of pictures into those of all before; every picture has one weight."""
        variance, mean = torch.var_mean(x, (0, 2, 3), correction=0)
        before, new = self.pictures.double(), len(x)
        share = (new / (before + new)).float()
        apart = mean - self.mean
        with torch.no_grad():
            # New tensors, and not in place: the backward pass needs those of before.
            self.variance = (
                self.variance * (1.0 - share)
                + variance * share
                + apart.square() * share * (1.0 - share)
            )
            self.mean = self.mean + apart * share
            self.pictures = self.pictures + new
