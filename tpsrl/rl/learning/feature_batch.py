"""Inputs of an auxiliary loss: sizes of a policy's features, and features of a mini-batch."""

import dataclasses
from collections.abc import Mapping

import torch


@dataclasses.dataclass(frozen=True, slots=True)
class FeatureSizes:
    """Sizes of a policy's features.

    Attributes:
        features: F, length of the features
        vision: V, length of the camera's features; None without a camera
        actions: A, dimensions of the action, masked ones included
        observations: shapes by name, without batch axis
        has_memory: whether features depend on earlier steps; otherwise every row is its own stretch
    """

    features: int
    vision: int | None
    actions: int
    observations: Mapping[str, tuple[int, ...]]
    has_memory: bool


@dataclasses.dataclass(frozen=True, slots=True)
class FeatureBatch:
    """The n rows of a mini-batch. A stretch is a contiguous part of one episode.

    Attributes:
        features: (n, F) input of the action head; with a memory, the output of the memory
        vision: (n, V) output of the encoder for the camera's image; None without a camera
        action: (n, A) actions taken, masked dimensions 0
        observation: name -> (n, ...)
        stretch: (n,) int64 on the CPU, index of each row's stretch
        time: (n,) int64 on the CPU, steps since the stretch began
        batch_sizes: (t,) int64 on the CPU, number of stretches that have a row at each time;
            stretches are in descending order of length and rows in the order of (time, stretch)
        generator: random generator of the loss, on the CPU
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
        """Builds a batch from rows in packed order, as in `torch.nn.utils.rnn.PackedSequence`."""
        time = torch.arange(len(batch_sizes)).repeat_interleave(batch_sizes)
        first = batch_sizes.cumsum(0) - batch_sizes
        stretch = torch.arange(len(time)) - first[time]
        return cls(features, vision, action, observation, stretch, time, batch_sizes, generator)

    def left(self) -> torch.Tensor:
        """Returns the number of later rows in each row's stretch, (n,) int64 on the CPU."""
        lengths = (self.batch_sizes[:, None] > torch.arange(int(self.batch_sizes[0]))).sum(0)
        return lengths[self.stretch] - 1 - self.time

    def ahead(
        self, rows: torch.Tensor, steps: torch.Tensor | int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the rows that are `steps` after given rows, where the stretch reaches that far.

        Args:
            rows: (...) int64 on the CPU
            steps: >= 0, a number or (...)

        Returns:
            Later rows (...) int64, or the given row where its stretch is shorter, and whether the
            stretch has the later row (...) bool; both on the CPU.
        """
        later, stretch = self.time[rows] + steps, self.stretch[rows]
        within = later.clamp(max=len(self.batch_sizes) - 1)
        there = (later == within) & (stretch < self.batch_sizes[within])
        first = self.batch_sizes.cumsum(0) - self.batch_sizes
        return torch.where(there, first[within] + stretch, rows), there
