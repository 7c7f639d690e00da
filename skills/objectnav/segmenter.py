"""Segmentation of colour pictures into ObjectNav's categories, by a small network.

The network is a U-Net (Ronneberger et al., MICCAI 2015) with three levels for 64 x 64 pixels. It
was trained on pictures of training apartments by `python -m benchmarks.segmenter`.
"""

import functools
import itertools
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

from tpsrl.world.categories import CATEGORIES

WEIGHTS = Path(__file__).with_name("segmenter.safetensors")  # float16
SIDES = 64, 64  # of the pictures that it was trained on
_WIDTHS = 8, 32, 48, 64  # channels of each level


class Segmenter(nn.Module):
    """Network from colours to the category of each pixel."""

    def __init__(self) -> None:
        super().__init__()
        first, *_ = _WIDTHS
        pairs = list(itertools.pairwise(_WIDTHS))
        self.first = _convolution(3, first)
        self.down = nn.ModuleList(_convolution(fine, coarse, 2) for fine, coarse in pairs)
        self.up = nn.ModuleList(
            _convolution(coarse + fine, fine) for fine, coarse in reversed(pairs)
        )
        self.last = nn.Conv2d(first, 1 + len(CATEGORIES), 1)

    def forward(self, colour: torch.Tensor) -> torch.Tensor:
        """Colours (n, 3, height, width) in [0, 1], sides multiples of 8 -> scores.

        Returns:
            (n, 1 + categories, height, width), for no category and each of `CATEGORIES`.
        """
        shown = [functional.relu(self.first(colour - 0.5))]
        for layer in self.down:
            shown.append(functional.relu(layer(shown[-1])))
        coarse = shown.pop()
        for layer in self.up:
            fine = shown.pop()
            larger = functional.interpolate(coarse, size=fine.shape[2:])
            coarse = functional.relu(layer(torch.cat((larger, fine), dim=1)))
        scores: torch.Tensor = self.last(coarse)
        return scores

    @torch.inference_mode()
    def categories(self, colour: np.ndarray, certain: float = 0.0) -> np.ndarray:
        """Returns category pictures (n, height, width) uint8.

        Args:
            colour: (n, height, width, 3) uint8
            certain: probability below which a pixel has no category
        """
        share, found = functional.softmax(self(to_tensor(colour)), dim=1).max(dim=1)
        found[share < certain] = 0
        return found.to(torch.uint8).numpy()


def to_tensor(colour: np.ndarray) -> torch.Tensor:
    """Converts colours (n, height, width, 3) uint8 to the network's (n, 3, height, width)."""
    return torch.from_numpy(colour).permute(0, 3, 1, 2).float() / 255.0


@functools.cache
def load() -> Segmenter:
    """Returns the trained network, in this process once."""
    made = Segmenter()
    made.load_state_dict({name: value.float() for name, value in load_file(WEIGHTS).items()})
    return made.eval()


def _convolution(before: int, after: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(before, after, 3, stride, padding=1)
