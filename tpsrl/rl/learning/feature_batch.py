"""What an auxiliary loss is shown of a policy and of a mini-batch."""

import dataclasses
from collections.abc import Mapping

import torch


@dataclasses.dataclass(frozen=True, slots=True)
class FeatureSizes:
    """What a policy's features are like.

    features: F, length of the features
    vision: V, length of the camera's features; None without a camera
    actions: A, parts of the action, masked ones included
    observations: shapes by name, without batch axis
    has_memory: whether features depend on earlier steps; without, every row is a stretch of its own
    """

    features: int
    vision: int | None
    actions: int
    observations: Mapping[str, tuple[int, ...]]
    has_memory: bool


@dataclasses.dataclass(frozen=True, slots=True)
class FeatureBatch:
    """The n rows of a mini-batch. A stretch is a part of one episode without gaps.

    features: (n, F) that the action is made of; with a memory its output
    vision: (n, V) that the encoder makes of the camera's image; None without a camera
    action: (n, A) that was taken, masked parts 0
    observation: name -> (n, ...)
    stretch: (n,) int64 on the CPU, the number of each row's stretch
    time: (n,) int64 on the CPU, steps since the stretch began
    batch_sizes: (t,) int64 on the CPU, stretches that have a row at each time; stretches are in
        descending order of length and rows in the order of (time, stretch)
    generator: of whatever is drawn by chance; on the CPU
    """

    features: torch.Tensor
    vision: torch.Tensor | None
    action: torch.Tensor
    observation: Mapping[str, torch.Tensor]
    stretch: torch.Tensor
    time: torch.Tensor
    batch_sizes: torch.Tensor
    generator: torch.Generator

    @classmethod
    def of(
        cls,
        features: torch.Tensor,
        vision: torch.Tensor | None,
        action: torch.Tensor,
        observation: Mapping[str, torch.Tensor],
        batch_sizes: torch.Tensor,
        generator: torch.Generator,
    ) -> "FeatureBatch":
        """The batch of rows in packed order, as `torch.nn.utils.rnn.PackedSequence` has them."""
        time = torch.arange(len(batch_sizes)).repeat_interleave(batch_sizes)
        first = batch_sizes.cumsum(0) - batch_sizes
        stretch = torch.arange(len(time)) - first[time]
        return cls(features, vision, action, observation, stretch, time, batch_sizes, generator)

    def left(self) -> torch.Tensor:
        """How many rows of its stretch come after each row, (n,) int64 on the CPU."""
        lengths = (self.batch_sizes[:, None] > torch.arange(int(self.batch_sizes[0]))).sum(0)
        return lengths[self.stretch] - 1 - self.time

    def ahead(
        self, rows: torch.Tensor, steps: torch.Tensor | int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The rows so many steps after others, and whether they are in the same stretch.

        Args:
            rows: (...) int64 on the CPU
            steps: >= 0, a number or (...)

        Returns:
            Rows (...) int64, those of the given ones where there is none, and whether there is one
            (...) bool; both on the CPU.
        """
        later, stretch = self.time[rows] + steps, self.stretch[rows]
        within = later.clamp(max=len(self.batch_sizes) - 1)
        there = (later == within) & (stretch < self.batch_sizes[within])
        first = self.batch_sizes.cumsum(0) - self.batch_sizes
        return torch.where(there, first[within] + stretch, rows), there
