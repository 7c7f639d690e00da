"""Small encoders of pictures beside the main one: height maps, and cut-outs of head depth."""

import math
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

MAP_STAGES = ((5, 2, 8), (3, 2, 16), (3, 2, 16))  # kernel, stride, output channels
GLIMPSE_STAGES = ((5, 2, 16), (3, 2, 32), (3, 1, 32))


class SmallCnn(nn.Module):
    """Three convolutions and a linear layer.

    Args:
        shape: (channels, height, width) of a picture
        size: size of the output vector
        stages: kernel, stride and output channels of each convolution
    """

    def __init__(
        self, shape: Sequence[int], size: int, stages: Sequence[tuple[int, int, int]] = MAP_STAGES
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before, *sides = shape
        for kernel, stride, planes in stages:
            layers += [nn.Conv2d(before, planes, kernel, stride), nn.ReLU(inplace=True)]
            sides = [(side - kernel) // stride + 1 for side in sides]
            before = planes
        self.body = nn.Sequential(*layers)
        self.linear = nn.Linear(before * math.prod(sides), size)
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.orthogonal_(module.weight, math.sqrt(2))
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]
        self.body.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Pictures (n, channels, height, width) -> (n, size)."""
        x = self.body(pictures.contiguous(memory_format=torch.channels_last))
        return functional.relu(self.linear(x.flatten(1)))
