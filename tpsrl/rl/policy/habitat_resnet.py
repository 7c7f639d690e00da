"""The ResNet-18 of habitat-baselines, for networks trained there.

It has the stem of the original ResNet, two basic blocks per stage (He et al., "Deep residual
learning for image recognition", CVPR 2016, table 1), GroupNorm with half as many groups as base
planes, and DD-PPO's input and head: images are averaged over 2 x 2 pixels first, and a 3 x 3
convolution brings the last feature map to about 2,048 numbers, even if it is smaller.
"""

import math
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from tpsrl.rl.policy.encoder_parts import (
    as_channels,
    channels_of,
    divisor,
    resnet_shortcut,
    resnet_stem,
)

_HALVED = 64  # image pixels per pixel of the last feature map, along each side
_COMPRESSED = 2048
_BLOCKS = 2  # per stage


class HabitatResNet18(nn.Module):
    """Encoder of images with `width` base planes; habitat-baselines uses 32.

    Args:
        width: base planes
        shape: (height, width) of a depth image in pixels, or (channels, height, width) of others
        size: size of the output vector
    """

    def __init__(self, width: int, shape: Sequence[int], size: int) -> None:
        super().__init__()
        groups = divisor(width, width // 2)
        layers = resnet_stem(channels_of(shape), width, groups)
        before = width
        for stage in range(4):
            planes = width << stage
            for place in range(_BLOCKS):
                stride = 2 if stage and not place else 1
                layers.append(_BasicBlock(before, planes, stride, groups))
                before = planes
        self.body = nn.Sequential(*layers)
        pixels = math.prod(-(-side // _HALVED) for side in shape[-2:])
        channels = max(1, round(_COMPRESSED / pixels))
        self.compress = nn.Sequential(
            nn.Conv2d(before, channels, 3, 1, 1, bias=False),
            nn.GroupNorm(1, channels),
            nn.ReLU(inplace=True),
        )
        self.linear = nn.Linear(channels * pixels, size)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        """Depth (n, height, width) or images (n, channels, height, width) -> (n, size)."""
        x = functional.avg_pool2d(as_channels(picture), 2, ceil_mode=True)
        return functional.relu(self.linear(self.compress(self.body(x)).flatten(1)))


class _BasicBlock(nn.Module):
    """Two 3 x 3 convolutions with a shortcut."""

    def __init__(self, before: int, planes: int, stride: int, groups: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            nn.Conv2d(before, planes, 3, stride, 1, bias=False),
            nn.GroupNorm(groups, planes),
            nn.ReLU(inplace=True),
            nn.Conv2d(planes, planes, 3, 1, 1, bias=False),
            nn.GroupNorm(groups, planes),
        )
        self.shortcut = resnet_shortcut(before, planes, stride, groups)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.branch(x) + self.shortcut(x), inplace=True)
