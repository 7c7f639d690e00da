"""Encoders of several images: images of the same size are the channels of one tower."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import nn

from tpsrl.errors import UserError
from tpsrl.rl.envs.pictures import (
    CATEGORIES,
    CLASSES,
    COLOUR,
    DEPTH,
    INSTANCES,
    kind_of,
    pictures_of,
)
from tpsrl.rl.envs.vec_env import EnvSpec
from tpsrl.rl.policy.channel_norm import ChannelNorm
from tpsrl.rl.policy.encoder_registry import encode_channels
from tpsrl.rl.policy.timm_encoder import TimmEncoder

ONLY_DEPTH = (DEPTH,)  # images that an encoder takes without a tower
_COLOURS = 3


class Towers(nn.Module):
    """Encoder of all images of an observation to one vector (n, `size`).

    Each tower encodes the images of one size to a vector; the vectors are concatenated.

    Raises:
        UserError: see `tpsrl.rl.policy.encoder_registry.encode_channels`.
    """

    def __init__(self, name: str, width: int, spec: EnvSpec, size: int) -> None:
        """Creates one tower per image size.

        Args:
            name: name of the encoder
            width: channels of its first stage
            spec: specification of the environments
            size: size of each tower's vector; networks of timm have their own
        """
        super().__init__()
        by_size: dict[tuple[int, ...], list[str]] = {}
        for picture in pictures_of(spec.observations):
            by_size.setdefault(spec.observations[picture][:2], []).append(picture)
        self.towers = nn.ModuleList(
            Tower(name, width, tuple(names), spec, size) for names in by_size.values()
        )
        self.size = sum(tower.size for tower in self.towers if isinstance(tower, Tower))

    def forward(self, pictures: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Images (n, ...) by name -> (n, size)."""
        return torch.cat([tower(pictures) for tower in self.towers], dim=1)


class Tower(nn.Module):
    """Encoder of the images `names`, all of one size, as normalised channels.

    Depth is one channel, colour three in [0, 1]. Classes are one-hot channels, for which the first
    convolution learns an embedding; class 0, of pixels where nothing is seen, has no channel.
    Numbers of instances and categories have no order, so each is shown as a fixed colour, three
    channels in [0, 1]; pixels where nothing is seen are black.
    """

    number_colours: torch.Tensor  # (256, 3)

    def __init__(
        self, name: str, width: int, names: tuple[str, ...], spec: EnvSpec, size: int
    ) -> None:
        super().__init__()
        self.names, self.classes = names, spec.classes
        height, across = spec.observations[names[0]][:2]
        channels = sum(self._channels(picture) for picture in names)
        self.norm = ChannelNorm(channels)
        self.encoder = encode_channels(name, width, (channels, height, across), size)
        self.size = self.encoder.size if isinstance(self.encoder, TimmEncoder) else size
        self.register_buffer("number_colours", number_colours(), persistent=False)

    def channels(self, pictures: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Returns the tower's images as channels (n, channels, H, W), not normalised."""
        return torch.cat([self._as_channels(name, pictures[name]) for name in self.names], dim=1)

    def forward(self, pictures: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Images (n, ...) by name -> (n, size)."""
        vector: torch.Tensor = self.encoder(self.norm(self.channels(pictures)))
        return vector

    def sums(self, pictures: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Returns the sums of these images for `ChannelNorm.take`."""
        return self.norm.sums(self.channels(pictures))

    def expect(self, mean: Sequence[float], std: Sequence[float]) -> None:
        """Normalises colour by these moments (3,), depth by their mean; other images stay."""
        means: list[float] = []
        stds: list[float] = []
        for name in self.names:
            kind, count = kind_of(name), self._channels(name)
            coloured, deep = kind == COLOUR, kind == DEPTH
            means += mean if coloured else [sum(mean) / len(mean) if deep else 0.0] * count
            stds += std if coloured else [sum(std) / len(std) if deep else 1.0] * count
        self.norm.fix(means, stds)

    def _channels(self, name: str) -> int:
        kind = kind_of(name)
        if kind == CLASSES and self.classes < 2:
            raise UserError(f"{name}: the environment does not define the number of classes")
        return {DEPTH: 1, CLASSES: self.classes - 1}.get(kind or DEPTH, _COLOURS)

    def _as_channels(self, name: str, picture: torch.Tensor) -> torch.Tensor:
        kind = kind_of(name)
        if kind == DEPTH:
            return picture.unsqueeze(1)
        if kind == COLOUR:
            return picture.movedim(3, 1) * (1.0 / 255.0)
        if kind in (INSTANCES, CATEGORIES):
            return self.number_colours[picture.long()].movedim(3, 1)
        numbers = torch.arange(1, self.classes, device=picture.device)[:, None, None]
        return (picture.unsqueeze(1) == numbers).float()


def number_colours() -> torch.Tensor:
    """Colours (256, 3) float32 in [0, 1] of instances or categories by number.

    They are the same in every process. Hues go around the colour wheel in steps of the golden
    ratio, so that neighbouring numbers look different.
    """
    number = torch.arange(256, dtype=torch.float64)[:, None]
    hue = (number * 0.618033988749895 + torch.tensor([0.0, 1 / 3, 2 / 3])) % 1.0
    colours = 0.5 + 0.5 * torch.cos(2.0 * math.pi * hue)
    colours *= 0.5 + 0.5 * ((number % 3.0) / 2.0)  # three brightnesses
    colours[0] = 0.0
    return colours.float()
