"""Example of a custom encoder: three strided convolutions with pixel coordinates as input.

docs/add_an_encoder.md explains it. From the folder that holds this file:

    tpsrl train pick encoder_modules=coord_cnn.py preset.policy.encoder=coord_cnn
    tpsrl eval pick encoder_modules=coord_cnn.py agent=out/train/pick
"""

import math

import torch
from torch import nn
from torch.nn import functional

from tpsrl.rl.policy.encoder_registry import register_encoder


class CoordCNN(nn.Module):
    """CoordConv encoder (Liu et al. 2018, section 3): row and column are two additional channels.

    Args:
        width: channels of the first convolution; the others have twice and four times as many
        shape: height and width of the image in pixels
        size: number of features per image
    """

    place: torch.Tensor  # (1, 2, H, W)

    def __init__(self, width: int, shape: tuple[int, int], size: int) -> None:
        super().__init__()
        sides = [torch.linspace(-1.0, 1.0, side) for side in shape]
        place = torch.stack(torch.meshgrid(*sides, indexing="ij"))[None]
        # A buffer moves with the network to another device; this one is not part of checkpoints.
        self.register_buffer("place", place, persistent=False)
        layers: list[nn.Module] = []
        before = 3
        for planes in (width, 2 * width, 4 * width):
            # GroupNorm normalises each image separately; batch statistics would mix images.
            layers += [nn.Conv2d(before, planes, 3, 2, 1), nn.GroupNorm(1, planes), nn.ReLU()]
            before = planes
        self.body = nn.Sequential(*layers)
        self.linear = nn.Linear(before * math.prod(-(-side // 8) for side in shape), size)
        nn.init.orthogonal_(self.linear.weight, math.sqrt(2))
        nn.init.zeros_(self.linear.bias)

    def forward(self, depth: torch.Tensor) -> torch.Tensor:
        """Returns the features (n, size) of depth images (n, height, width) in [0, 1]."""
        place = self.place.expand(len(depth), -1, -1, -1)
        features = self.body(torch.cat((depth.unsqueeze(1), place), dim=1))
        return functional.relu(self.linear(features.flatten(1)))


register_encoder("coord_cnn", CoordCNN)
