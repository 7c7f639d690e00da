"""What encoders of several papers are made of: excitation, shortcuts, the way to a vector."""

import math
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

# DD-PPO's compression layer brings a feature map down to so many numbers.
_COMPRESSED = 2048
_SQUEEZE = 16  # BPS and DD-PPO: r of squeeze-and-excite
_LEAST_SQUEEZED = 8  # of the one unit that r = 16 leaves of a narrow stage, ReLU may leave none


def divisor(width: int, wanted: int) -> int:
    """As many groups as are wanted, or fewer where a width cannot be divided by so many."""
    return math.gcd(width, max(1, wanted))


def channels_of(shape: Sequence[int]) -> int:
    """How many (channels, height, width) has; of (height, width) it is one."""
    return shape[0] if len(shape) > 2 else 1


def as_channels(picture: torch.Tensor) -> torch.Tensor:
    """Depth (n, H, W) as one channel, (n, 1, H, W); pictures that have channels as they are."""
    return picture.unsqueeze(1) if picture.dim() < 4 else picture


def resnet_stem(channels: int, width: int, groups: int) -> list[nn.Module]:
    """The layers before the first block of a ResNet (He et al. 2016), with GroupNorm."""
    return [
        nn.Conv2d(channels, width, 7, 2, 3, bias=False),
        nn.GroupNorm(groups, width),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]


def resnet_shortcut(before: int, planes: int, stride: int, groups: int) -> nn.Module:
    """What is added to a block's branch: its input, projected where the shapes differ."""
    if stride == 1 and before == planes:
        return nn.Identity()
    pointwise = StridedPointwise(before, planes, stride, bias=False)
    return nn.Sequential(pointwise, nn.GroupNorm(groups, planes))


class SqueezeExcite(nn.Module):
    """A factor in (0, 1) for each channel of an image, from the means of all its channels."""

    def __init__(self, planes: int) -> None:
        super().__init__()
        hidden = max(_LEAST_SQUEEZED, planes // _SQUEEZE)
        self.squeeze = nn.Linear(planes, hidden)
        self.excite = nn.Linear(hidden, planes)
        nn.init.kaiming_normal_(self.squeeze.weight, nonlinearity="relu")
        nn.init.zeros_(self.squeeze.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps (n, planes, H, W) -> (n, planes, 1, 1)."""
        hidden = functional.relu(self.squeeze(x.mean((2, 3))))
        return torch.sigmoid(self.excite(hidden))[:, :, None, None]


class StridedPointwise(nn.Conv2d):
    """A 1 x 1 convolution of every `stride`-th row and column.

    They are picked out first: of few channels, channels last, on a processor without AVX-512,
    oneDNN's strided one writes past the end of the gradient (torch 2.13).
    """

    def __init__(self, before: int, planes: int, stride: int, bias: bool = True) -> None:
        super().__init__(before, planes, 1, bias=bias)
        self._stride = stride

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps (n, before, H, W) -> (n, planes, H / stride, W / stride), rounded up."""
        return super().forward(x[:, :, :: self._stride, :: self._stride])


class VectorHead(nn.Module):
    """Feature map to vector, as in DD-PPO: compression, flattening, linear layer.

    The compression is a 3 x 3 convolution to as many channels as make 2,048 numbers; a map that has
    no more than these goes without.

    Args:
        planes: channels of the map
        extent: its height and width
        size: of the vector
        normalise: whether the compressed map is, by one group
    """

    def __init__(self, planes: int, extent: tuple[int, int], size: int, normalise: bool) -> None:
        super().__init__()
        pixels = math.prod(extent)
        channels = min(planes, max(1, _COMPRESSED // pixels))
        layers: list[nn.Module] = []
        if channels < planes:
            conv = nn.Conv2d(planes, channels, 3, 1, 1, bias=not normalise)
            nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
            layers.append(conv)
            if normalise:
                layers.append(nn.GroupNorm(1, channels))
            layers.append(nn.ReLU(inplace=True))
        self.compress = nn.Sequential(*layers)
        self.linear = nn.Linear(channels * pixels, size)
        nn.init.orthogonal_(self.linear.weight, math.sqrt(2))
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps (n, planes, H, W) -> (n, size)."""
        return functional.relu(self.linear(self.compress(x).flatten(1)))
