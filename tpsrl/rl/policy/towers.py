"""Encoders of several pictures: those of one size are the channels of one tower."""

from collections.abc import Mapping

import torch
from torch import nn

from tpsrl.errors import UserError
from tpsrl.rl.envs.pictures import CLASSES, COLOUR, DEPTH, kind_of, pictures_of
from tpsrl.rl.envs.vec_env import EnvSpec
from tpsrl.rl.policy.channel_norm import ChannelNorm
from tpsrl.rl.policy.encoder_registry import encode_channels

ONLY_DEPTH = (DEPTH,)  # what an encoder looks at by itself, without a tower
_COLOURS = 3


class Towers(nn.Module):
    """All pictures of an observation to one vector (n, `size`).

    A tower makes a vector of the pictures of one size, and the vectors of all are put side by side.

    Raises:
        UserError: see `tpsrl.rl.policy.encoder_registry.encode_channels`.
    """

    def __init__(self, name: str, width: int, spec: EnvSpec, size: int) -> None:
        """Args:
        name: of the encoder
        width: channels of its first stage
        spec: what is seen
        size: of a tower's vector
        """
        super().__init__()
        by_size: dict[tuple[int, ...], list[str]] = {}
        for picture in pictures_of(spec.observations):
            by_size.setdefault(spec.observations[picture][:2], []).append(picture)
        self.towers = nn.ModuleList(
            Tower(name, width, tuple(names), spec, size) for names in by_size.values()
        )
        self.size = size * len(self.towers)

    def forward(self, pictures: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Pictures (n, ...) by name -> (n, size)."""
        return torch.cat([tower(pictures) for tower in self.towers], dim=1)


class Tower(nn.Module):
    """The pictures `names` of one size as channels, normalised, and their encoder.

    Depth is one channel, colour three in [0, 1]. Classes are a channel each, 1 where a pixel is of
    it, in which the first convolution finds an embedding of its own; class 0, of pixels where
    nothing is seen, has none.
    """

    def __init__(
        self, name: str, width: int, names: tuple[str, ...], spec: EnvSpec, size: int
    ) -> None:
        super().__init__()
        self.names, self.classes = names, spec.classes
        height, across = spec.observations[names[0]][:2]
        channels = sum(self._channels(picture) for picture in names)
        self.norm = ChannelNorm(channels)
        self.encoder = encode_channels(name, width, (channels, height, across), size)

    def channels(self, pictures: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The tower's pictures as channels (n, channels, H, W), not normalised."""
        return torch.cat([self._as_channels(name, pictures[name]) for name in self.names], dim=1)

    def forward(self, pictures: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Pictures (n, ...) by name -> (n, size)."""
        vector: torch.Tensor = self.encoder(self.norm(self.channels(pictures)))
        return vector

    def sums(self, pictures: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """What `ChannelNorm.take` has to be told of these pictures."""
        return self.norm.sums(self.channels(pictures))

    def _channels(self, name: str) -> int:
        kind = kind_of(name)
        if kind == CLASSES and self.classes < 2:
            raise UserError(f"{name}: the environment does not say how many classes there are")
        return {DEPTH: 1, COLOUR: _COLOURS, CLASSES: self.classes - 1}[kind or DEPTH]

    def _as_channels(self, name: str, picture: torch.Tensor) -> torch.Tensor:
        kind = kind_of(name)
        if kind == DEPTH:
            return picture.unsqueeze(1)
        if kind == COLOUR:
            return picture.movedim(3, 1) * (1.0 / 255.0)
        numbers = torch.arange(1, self.classes, device=picture.device)[:, None, None]
        return (picture.unsqueeze(1) == numbers).float()
