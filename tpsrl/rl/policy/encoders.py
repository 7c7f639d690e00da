"""Encoders from a depth image, or the channels of several images, to a vector.

Every encoder processes each image independently (no batch statistics), so that acting on a few
images and learning from thousands give the same numbers.

`tpsrl.rl.policy.encoder_registry` maps names to encoders, custom ones included.
"""

import math
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from tpsrl.rl.policy.encoder_parts import (
    SqueezeExcite,
    StridedPointwise,
    VectorHead,
    as_channels,
    channels_of,
    divisor,
)
from tpsrl.rl.policy.settings import SMALLEST_DEPTH

_FEW = 4  # largest batch for which `NatureCNN._few` is faster
_LAYER_SCALE = 0.1  # CaiT's for networks of up to 18 layers


class ResNet18(nn.Module):
    """ResNet-18 of the VER paper (section 4): `width` base planes, 32 for its half width.

    From ConvNeXt it has the stem of 4 x 4 patches, separate down-sampling stages (normalisation,
    then a 2 x 2 convolution), and layer scale. The second convolution of a block is dilated by 2,
    so that a block's receptive field is 7 x 7 at the cost of 5 x 5, unless the map is so small that
    only the middle of the kernel would lie on it. As in DD-PPO, every normalisation has half as
    many groups as there are base planes. Layer scale is the initial weight of a block's last
    normalisation, which is the same function without another pass over the data.
    """

    def __init__(self, width: int, shape: Sequence[int], size: int) -> None:
        super().__init__()
        groups = divisor(width, width // 2)
        planes = [width, 2 * width, 4 * width, 8 * width]
        layers: list[nn.Module] = [
            nn.Conv2d(channels_of(shape), width, 4, 4, bias=False),
            nn.GroupNorm(groups, width),
        ]
        for stage, count in enumerate(planes):
            if stage:
                before = planes[stage - 1]
                layers += [nn.GroupNorm(groups, before), nn.Conv2d(before, count, 2, 2)]
            dilation = min(2, min(_sides(shape)) // (4 << stage) - 1)
            layers += [_DilatedBlock(count, groups, max(1, dilation)) for _ in range(2)]
        self.body = nn.Sequential(*layers)
        self.head = VectorHead(planes[-1], _extent(shape), size, normalise=True)
        for module in self.body.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        """Depth (n, height, width) in [0, 1], or (n, channels, height, width), -> (n, size)."""
        return self.head(self.body(as_channels(_whole(picture))))


class SeResNet9(nn.Module):
    """SE-ResNet9 of the BPS paper (section 3.3): ResNet-18 without every other block.

    It has squeeze-and-excite in each block, a stem that moves 4 x 4 pixels into channels, and Fixup
    initialisation instead of normalisation. Fixup's scalar biases are replaced by the convolutions'
    own biases, one per channel, which cost nothing.
    """

    def __init__(self, width: int, shape: Sequence[int], size: int) -> None:
        super().__init__()
        planes = [width, width, 2 * width, 4 * width, 8 * width]
        self.stem = nn.Conv2d(16 * channels_of(shape), width, 3, 1, 1)
        self.body = nn.Sequential(
            *[_FixupBlock(planes[i], planes[i + 1], 1 if i == 0 else 2) for i in range(4)]
        )
        self.head = VectorHead(planes[-1], _extent(shape), size, normalise=False)
        nn.init.kaiming_normal_(self.stem.weight, nonlinearity="relu")
        nn.init.zeros_(self.stem.bias)  # type: ignore[arg-type]
        for block in self.body:
            assert isinstance(block, _FixupBlock)
            block.initialise(len(self.body))
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        """Depth (n, height, width) in [0, 1], or (n, channels, height, width), -> (n, size)."""
        x = self.stem(_space_to_depth(_whole(picture)))
        return self.head(self.body(functional.relu(x, inplace=True)))


class NatureCNN(nn.Module):
    """Three convolutions (Mnih et al. 2015), `width` channels in the first, and a linear layer.

    The image is cropped to the central pixels that the convolutions cover completely: 60 x 60 of 64
    x 64, where they would otherwise skip 4 rows and columns on one side.
    """

    def __init__(self, width: int, shape: Sequence[int], size: int) -> None:
        super().__init__()
        # Kernel, stride, output channels; with a `width` of 32 as in the paper.
        # A side of 8 n + 28 pixels is covered completely; other images are cropped to such sides.
        sides = (_nature_side(shape[-2]), _nature_side(shape[-1]))
        self._sides = sides
        layers: list[nn.Module] = []
        before = channels_of(shape)
        for kernel, stride, planes in ((8, 4, width), (4, 2, 2 * width), (3, 1, 2 * width)):
            layers += [nn.Conv2d(before, planes, kernel, stride), nn.ReLU(inplace=True)]
            before = planes
            sides = ((sides[0] - kernel) // stride + 1, (sides[1] - kernel) // stride + 1)
        self.body = nn.Sequential(*layers)
        self.linear = nn.Linear(before * sides[0] * sides[1], size)
        for module in self.body:
            if isinstance(module, nn.Conv2d):
                nn.init.orthogonal_(module.weight, math.sqrt(2))
                nn.init.zeros_(module.bias)  # type: ignore[arg-type]
        nn.init.orthogonal_(self.linear.weight, math.sqrt(2))
        nn.init.zeros_(self.linear.bias)
        self.body.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        """Depth (n, height, width) in [0, 1], or (n, channels, height, width), -> (n, size)."""
        x = _middle(_padded(picture, *self._sides), *self._sides)
        if x.device.type != "cpu" or x.dim() == 4:
            x = self.body(as_channels(x))
        elif len(x) <= _FEW and not torch.is_grad_enabled():
            x = self._few(x)
        else:
            x = self._many(x)
        return functional.relu(self.linear(x.flatten(1)))

    def _many(self, x: torch.Tensor) -> torch.Tensor:
        """Convolutions of images (n, H, W), the first one over blocks of 4 x 4 pixels.

        An 8 x 8 kernel with stride 4 is a 2 x 2 kernel over these blocks of 16 channels each. With
        one channel, the backward pass of torch's convolution takes four times as long, and the
        later convolutions are faster with channels last.
        """
        first = self.body[0]
        assert isinstance(first, nn.Conv2d)
        weight = first.weight.view(-1, 2, 4, 2, 4).permute(0, 2, 4, 1, 3).flatten(1, 2)
        weight = weight.contiguous(memory_format=torch.channels_last)
        x = functional.conv2d(_space_to_depth(x), weight, first.bias).relu_()
        for layer in list(self.body)[2:]:
            x = layer(x)
        return x

    def _few(self, x: torch.Tensor) -> torch.Tensor:
        """Convolutions of a few images (n, H, W), as matrix products.

        For one image this takes two thirds of the time, since torch's convolutions rearrange the
        weights in each call.
        """
        x = x.unsqueeze(3)  # channels last
        for layer in self.body:
            if isinstance(layer, nn.Conv2d):
                size, step = layer.kernel_size[0], layer.stride[0]
                count, height, width, channels = x.shape
                rows, columns = (height - size) // step + 1, (width - size) // step + 1
                by, down, right, on = x.stride()
                patches = x.as_strided(
                    (count, rows, columns, size, size, channels),
                    (by, down * step, right * step, down, right, on),
                )
                weight = layer.weight.permute(2, 3, 1, 0).reshape(-1, layer.out_channels)
                flat = patches.reshape(count * rows * columns, -1)
                assert layer.bias is not None
                product = torch.addmm(layer.bias, flat, weight).relu_()
                x = product.view(count, rows, columns, layer.out_channels)
        return x.permute(0, 3, 1, 2)


class _DilatedBlock(nn.Module):
    def __init__(self, planes: int, groups: int, dilation: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.norm1 = nn.GroupNorm(groups, planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, dilation, dilation=dilation, bias=False)
        self.norm2 = nn.GroupNorm(groups, planes)
        nn.init.constant_(self.norm2.weight, _LAYER_SCALE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        branch = functional.relu(self.norm1(self.conv1(x)), inplace=True)
        branch = self.norm2(self.conv2(branch))
        return functional.relu(branch.add_(x), inplace=True)


class _FixupBlock(nn.Module):
    def __init__(self, before: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, planes, 3, stride, 1)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1)
        self.excite = SqueezeExcite(planes)
        self.scale = nn.Parameter(torch.ones(()))
        same = stride == 1 and before == planes
        self.shortcut = nn.Identity() if same else StridedPointwise(before, planes, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        branch = self.conv2(functional.relu(self.conv1(x), inplace=True))
        gate = self.excite(branch) * self.scale
        return functional.relu(torch.addcmul(self.shortcut(x), branch, gate), inplace=True)

    def initialise(self, blocks: int) -> None:
        """Applies Fixup initialisation (Zhang et al. 2019) for `blocks` blocks with m = 2 layers.

        The last layer of a branch is zero, the others are He's times blocks^(-1 / (2m - 2)).
        """
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        with torch.no_grad():
            self.conv1.weight.mul_(blocks**-0.5)
            self.conv2.weight.zero_()


def _sides(shape: Sequence[int]) -> tuple[int, int]:
    """Returns height and width rounded up to multiples of 32."""
    height, width = (-(-side // SMALLEST_DEPTH) * SMALLEST_DEPTH for side in shape[-2:])
    return height, width


def _extent(shape: Sequence[int]) -> tuple[int, int]:
    """Returns height and width after five halvings."""
    height, width = (side // SMALLEST_DEPTH for side in _sides(shape))
    return height, width


def _nature_side(side: int) -> int:
    """Returns the side that `NatureCNN` covers completely: 36, 44, 52, 60 (of 64), ..., 84."""
    return 28 + 8 * max(1, (side - 28) // 8)


def _whole(depth: torch.Tensor) -> torch.Tensor:
    """Pads images (n, ..., H, W) with zeros at the bottom and right to multiples of 32."""
    return _padded(depth, *_sides(depth.shape))


def _padded(depth: torch.Tensor, full_height: int, full_width: int) -> torch.Tensor:
    """Pads smaller images (n, ..., H, W) with zeros at the bottom and right to the given size."""
    height, width = depth.shape[-2:]
    down, right = max(0, full_height - height), max(0, full_width - width)
    return functional.pad(depth, (0, right, 0, down)) if down or right else depth


def _middle(depth: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Crops images (n, ..., H, W) to the given size around the middle."""
    top, left = (depth.shape[-2] - height) // 2, (depth.shape[-1] - width) // 2
    return depth[..., top : top + height, left : left + width]


def _space_to_depth(depth: torch.Tensor) -> torch.Tensor:
    """Rearranges images (n, H, W) -> (n, 16, H / 4, W / 4), channels last, in a single copy.

    Images (n, c, H, W) give 16 c channels.
    """
    if depth.dim() == 4:
        return functional.pixel_unshuffle(depth, 4).contiguous(memory_format=torch.channels_last)
    rows, columns = depth.shape[1] // 4, depth.shape[2] // 4
    patches = depth.reshape(-1, rows, 4, columns, 4).transpose(2, 3)
    return patches.reshape(-1, rows, columns, 16).permute(0, 3, 1, 2)
