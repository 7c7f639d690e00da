"""Encoder of height maps (`tpsrl.world.height_map`)."""

import math
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

_STAGES = ((5, 2, 8), (3, 2, 16), (3, 2, 16))  # kernel, stride, output channels


class MapEncoder(nn.Module):
    """Three convolutions and a linear layer.

    Args:
        shape: (channels, height, width) of a map
        size: size of the output vector
    """

    def __init__(self, shape: Sequence[int], size: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before, *sides = shape
        for kernel, stride, planes in _STAGES:
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

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        """Maps (n, channels, height, width) -> (n, size)."""
        x = self.body(maps.contiguous(memory_format=torch.channels_last))
        return functional.relu(self.linear(x.flatten(1)))
