"""Encoders of the DD-PPO paper (section 4 and appendix C): ResNet50, SE-ResNeXt50 and -101.

As in that paper, an image is first averaged over 2 x 2 pixels, every layer has half as many
channels as in the networks' original papers, GroupNorm replaces BatchNorm, and a 3 x 3 convolution
compresses the last feature map to about 2,048 numbers: 128 x 4 x 4 for 256 x 256 pixels.

The number of groups is that of habitat-baselines, half the base planes: 16 at half width.
"""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from tpsrl.rl.policy.encoder_parts import (
    SqueezeExcite,
    VectorHead,
    as_channels,
    channels_of,
    divisor,
    resnet_shortcut,
    resnet_stem,
)

_HALVED = 64  # image pixels per pixel of the last feature map, along each side


class _Bottlenecks(nn.Module):
    """Stages of bottleneck blocks.

    Args:
        width: base planes; 64 is full width, 32 half width
        shape: (height, width) of a depth image in pixels, or (channels, height, width) of others
        size: size of the output vector
        blocks: number of blocks in each of the four stages
        expanded: output channels of a block per inner channel
        cardinality: groups of a block's 3 x 3 convolution for 64 base planes; 1: not grouped
        excite: whether blocks use squeeze-and-excite
    """

    def __init__(
        self,
        width: int,
        shape: Sequence[int],
        size: int,
        blocks: tuple[int, int, int, int],
        expanded: int,
        cardinality: int,
        excite: bool,
    ) -> None:
        super().__init__()
        groups = divisor(width, width // 2)
        parts = 1 if cardinality == 1 else divisor(width, cardinality * width // 64)
        layers = resnet_stem(channels_of(shape), width, groups)
        before, inner = width, 4 * width // expanded  # ResNeXt blocks are twice as wide inside
        for stage, count in enumerate(blocks):
            for place in range(count):
                stride = 2 if stage and not place else 1
                after = inner * expanded
                layers.append(_Bottleneck((before, inner, after), stride, groups, parts, excite))
                before = after
            inner *= 2
        self.body = nn.Sequential(*layers)
        height, across = (-(-side // _HALVED) for side in shape[-2:])
        self.head = VectorHead(before, (height, across), size, normalise=True)
        for module in self.body.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        """Depth (n, height, width) or images (n, channels, height, width) -> (n, size)."""
        x = functional.avg_pool2d(as_channels(picture), 2, ceil_mode=True)
        return self.head(self.body(x))


class ResNet50(_Bottlenecks):
    """ResNet-50 (He et al., "Deep residual learning for image recognition", CVPR 2016).

    Stages of 3, 4, 6, 3 bottlenecks, each with four times as many output as inner channels, with
    the stride in the 3 x 3 convolution, as in all later implementations. See `_Bottlenecks` for
    arguments and shapes.
    """

    def __init__(self, width: int, shape: Sequence[int], size: int) -> None:
        super().__init__(width, shape, size, (3, 4, 6, 3), 4, 1, False)


class SeResNeXt50(_Bottlenecks):
    """SE-ResNeXt-50, 32 x 4d at full width (Xie et al., CVPR 2017; Hu et al., CVPR 2018).

    Stages of 3, 4, 6, 3 bottlenecks, each with twice as many output as inner channels; 32 groups in
    the 3 x 3 convolution, 16 at half width, so that the channels per group stay the same;
    squeeze-and-excite with r = 16.
    """

    def __init__(self, width: int, shape: Sequence[int], size: int) -> None:
        super().__init__(width, shape, size, (3, 4, 6, 3), 2, 32, True)


class SeResNeXt101(_Bottlenecks):
    """`SeResNeXt50` with stages of 3, 4, 23, 3 bottlenecks."""

    def __init__(self, width: int, shape: Sequence[int], size: int) -> None:
        super().__init__(width, shape, size, (3, 4, 23, 3), 2, 32, True)


class _Bottleneck(nn.Module):
    """Convolutions 1 x 1, 3 x 3, 1 x 1; `planes` are the input, inner and output channels."""

    def __init__(
        self, planes: tuple[int, int, int], stride: int, groups: int, parts: int, excite: bool
    ) -> None:
        super().__init__()
        before, inner, after = planes
        self.branch = nn.Sequential(
            nn.Conv2d(before, inner, 1, bias=False),
            nn.GroupNorm(groups, inner),
            nn.ReLU(inplace=True),
            nn.Conv2d(inner, inner, 3, stride, 1, groups=parts, bias=False),
            nn.GroupNorm(groups, inner),
            nn.ReLU(inplace=True),
            nn.Conv2d(inner, after, 1, bias=False),
            nn.GroupNorm(groups, after),
        )
        self.excite = SqueezeExcite(after) if excite else None
        self.shortcut = resnet_shortcut(before, after, stride, groups)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        branch = self.branch(x)
        if self.excite is not None:
            branch = branch * self.excite(branch)
        return functional.relu(branch + self.shortcut(x), inplace=True)
