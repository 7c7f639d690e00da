"""Parts that encoders of several papers share: squeeze-and-excite, shortcuts, vector head."""

import math
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

# Size of a feature map after DD-PPO's compression layer.
_COMPRESSED = 2048
_SQUEEZE = 16  # BPS and DD-PPO: r of squeeze-and-excite
_LEAST_SQUEEZED = 8  # r = 16 would leave one unit in a narrow stage, which ReLU may disable


def divisor(width: int, wanted: int) -> int:
    """Returns the largest common divisor of `width` and the wanted number of groups."""
    return math.gcd(width, max(1, wanted))


def channels_of(shape: Sequence[int]) -> int:
    """Returns the channels of a shape (channels, height, width); 1 for (height, width)."""
    return shape[0] if len(shape) > 2 else 1


def as_channels(picture: torch.Tensor) -> torch.Tensor:
    """Adds a channel axis to depth, (n, H, W) -> (n, 1, H, W); other images are unchanged."""
    return picture.unsqueeze(1) if picture.dim() < 4 else picture


def resnet_stem(channels: int, width: int, groups: int) -> list[nn.Module]:
    """Returns the layers before the first block of a ResNet (He et al. 2016), with GroupNorm."""
    return [
        nn.Conv2d(channels, width, 7, 2, 3, bias=False),
        nn.GroupNorm(groups, width),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]


def resnet_shortcut(before: int, planes: int, stride: int, groups: int) -> nn.Module:
    """Returns the shortcut of a residual block: identity, or a projection if the shapes differ."""
    if stride == 1 and before == planes:
        return nn.Identity()
    pointwise = StridedPointwise(before, planes, stride, bias=False)
    return nn.Sequential(pointwise, nn.GroupNorm(groups, planes))


class SqueezeExcite(nn.Module):
    """Factor in (0, 1) for each channel of a feature map, from the means of all channels."""

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

    Rows and columns are selected first, since oneDNN's strided convolution of few channels,
    channels last, writes past the end of the gradient on processors without AVX-512 (torch 2.13).
    """

    def __init__(self, before: int, planes: int, stride: int, bias: bool = True) -> None:
        super().__init__(before, planes, 1, bias=bias)
        self._stride = stride

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps (n, before, H, W) -> (n, planes, H / stride, W / stride), rounded up."""
        return super().forward(x[:, :, :: self._stride, :: self._stride])


class VectorHead(nn.Module):
    """Feature map to vector, as in DD-PPO: compression, flattening, linear layer.

    The compression is a 3 x 3 convolution to the number of channels that gives 2,048 numbers;
    smaller maps are not compressed.

    Args:
        planes: channels of the feature map
        extent: height and width of the feature map
        size: size of the output vector
        normalise: whether to normalise the compressed map by GroupNorm with one group
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
