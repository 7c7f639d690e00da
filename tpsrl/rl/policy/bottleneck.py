"""The encoders of the DD-PPO paper (section 4 and appendix C): ResNet50, SE-ResNeXt50 and -101.

As there, a picture is averaged over 2 x 2 pixels first, there are half as many channels in every
layer as in the papers of the networks, GroupNorm stands in the place of BatchNorm, and a 3 x 3
convolution compresses the last map to about 2,048 numbers: 128 x 4 x 4 of 256 x 256 pixels.

The number of groups is habitat-baselines', half the base planes: 16 at half width.
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

_HALVED = 64  # one pixel of the last map for so many of the picture, a side


class _Bottlenecks(nn.Module):
    """Stages of bottleneck blocks; `width` base planes, 64 being the whole and 32 half width.

    Args:
        width: base planes
        shape: (height, width) in pixels of depth, or (channels, height, width) of other pictures
        size: of the vector
        blocks: of each of the four stages
        expanded: channels behind a block for each one that it has inside
        cardinality: groups of a block's 3 x 3 convolution for 64 base planes; 1: it has one
        excite: whether a block has squeeze-and-excite
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
        before, inner = width, 4 * width // expanded  # ResNeXt's are twice as wide inside
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
        """Depth (n, height, width), or pictures (n, channels, height, width), -> (n, size)."""
        x = functional.avg_pool2d(as_channels(picture), 2, ceil_mode=True)
        return self.head(self.body(x))


class ResNet50(_Bottlenecks):
    """ResNet-50 (He et al., "Deep residual learning for image recognition", CVPR 2016).

    Bottlenecks 3, 4, 6, 3, each four times as wide behind as inside, with the stride in its 3 x 3
    convolution, as everybody has it since. See `_Bottlenecks` for the arguments and shapes.
    """

    def __init__(self, width: int, shape: Sequence[int], size: int) -> None:
        super().__init__(width, shape, size, (3, 4, 6, 3), 4, 1, False)


class SeResNeXt50(_Bottlenecks):
    """SE-ResNeXt-50, 32 x 4d at whole width (Xie et al., CVPR 2017; Hu et al., CVPR 2018).

    Bottlenecks 3, 4, 6, 3, each twice as wide behind as inside; 32 groups in the 3 x 3 convolution,
    16 at half width, so that a group has as many channels; squeeze-and-excite with r = 16.
    """

    def __init__(self, width: int, shape: Sequence[int], size: int) -> None:
        super().__init__(width, shape, size, (3, 4, 6, 3), 2, 32, True)


class SeResNeXt101(_Bottlenecks):
    """`SeResNeXt50` with bottlenecks 3, 4, 23, 3."""

    def __init__(self, width: int, shape: Sequence[int], size: int) -> None:
        super().__init__(width, shape, size, (3, 4, 23, 3), 2, 32, True)


class _Bottleneck(nn.Module):
    """1 x 1, 3 x 3, 1 x 1; `planes` are the channels before, inside and behind."""

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
