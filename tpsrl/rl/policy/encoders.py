"""Encoders: a depth image, or the channels of several pictures, become a vector.

Every encoder treats each image by itself (no batch statistics), so that the policy that acts on a
few images and the learner that sees thousands compute the same numbers.

`tpsrl.rl.policy.encoder_registry` has them by name, and others of a user's own.
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

_FEW = 4  # images that are few enough for `NatureCNN._few` to be quicker
_LAYER_SCALE = 0.1  # CaiT's for networks of up to 18 layers


class ResNet18(nn.Module):
    """The VER paper's ResNet-18 (section 4): `width` base planes, 32 being its half width.

    Of ConvNeXt it has the stem of 4 x 4 patches and down-sampling stages of their own (normalise,
    then 2 x 2 convolution), and layer scale. The second convolution of a block is dilated by 2, so
    a block sees 7 x 7 for the price of 5 x 5, unless the map is so small that only the middle of
    the kernel would ever lie on it. As in DD-PPO every normalisation is by half as many groups as
    there are base planes. Layer scale is the initial weight of a block's last normalisation, which
    is the same function without another pass over the data.
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
    """The BPS paper's SE-ResNet9 (section 3.3): ResNet-18 with every other block left out.

    Squeeze-and-excite in each block, a stem that moves 4 x 4 pixels into channels, and Fixup
    initialisation in the place of normalisation. Fixup's scalar biases are here the convolutions'
    own, one per channel, which cost nothing.
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

    It looks at as many pixels of the image's middle as the convolutions use each of: 60 x 60 of
    64 x 64, where they would otherwise leave out 4 rows and columns at one side.
    """

    def __init__(self, width: int, shape: Sequence[int], size: int) -> None:
        super().__init__()
        # Kernel, stride, channels out of `width`; 32, 64 and 64 in the paper.
        # 8 n + 28 pixels a side end in n with none left over; of other images the middle is taken.
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
        """The convolutions of images (n, H, W), the first one over blocks of 4 x 4 pixels.

        A kernel of 8 x 8 with stride 4 is one of 2 x 2 over these blocks, of 16 channels each. With
        one channel torch's own takes four times as long to learn, and the others are faster when
        channels are last.
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
        """The convolutions of a few images (n, H, W), as products of matrices.

        Of one image they take two thirds of the time: torch's own lay the weights out anew in each
        call.
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
        """Fixup (Zhang et al. 2019) for a network of so many blocks with m = 2 layers each.

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
    """Height and width rounded up to multiples of 32."""
    height, width = (-(-side // SMALLEST_DEPTH) * SMALLEST_DEPTH for side in shape[-2:])
    return height, width


def _extent(shape: Sequence[int]) -> tuple[int, int]:
    """Height and width of what five halvings leave."""
    height, width = (side // SMALLEST_DEPTH for side in _sides(shape))
    return height, width


def _nature_side(side: int) -> int:
    """How many pixels `NatureCNN` looks at, each of them: 36, 44, 52, 60 (of 64), ..., 84."""
    return 28 + 8 * max(1, (side - 28) // 8)


def _whole(depth: torch.Tensor) -> torch.Tensor:
    """Images (n, ..., H, W) with zeros at the bottom and the right up to multiples of 32."""
    return _padded(depth, *_sides(depth.shape))


def _padded(depth: torch.Tensor, full_height: int, full_width: int) -> torch.Tensor:
    """Images (n, ..., H, W) with zeros at the bottom and the right up to that size, if smaller."""
    height, width = depth.shape[-2:]
    down, right = max(0, full_height - height), max(0, full_width - width)
    return functional.pad(depth, (0, right, 0, down)) if down or right else depth


def _middle(depth: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """The middle of images (n, ..., H, W), of that size or what there is."""
    top, left = (depth.shape[-2] - height) // 2, (depth.shape[-1] - width) // 2
    return depth[..., top : top + height, left : left + width]


def _space_to_depth(depth: torch.Tensor) -> torch.Tensor:
    """Images (n, H, W) -> (n, 16, H / 4, W / 4), channels last in memory, by a single copy.

    Of c channels, (n, c, H, W), there are 16 c.
    """
    if depth.dim() == 4:
        return functional.pixel_unshuffle(depth, 4).contiguous(memory_format=torch.channels_last)
    rows, columns = depth.shape[1] // 4, depth.shape[2] // 4
    patches = depth.reshape(-1, rows, 4, columns, 4).transpose(2, 3)
    return patches.reshape(-1, rows, columns, 16).permute(0, 3, 1, 2)
