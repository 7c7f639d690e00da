"""Demonstrations in memory: episodes of observations and the expert's labels."""

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np
import torch

from tpsrl.rl.learning.sequences import pack_order
from tpsrl.rl.policy.recurrent import Pack

# Depth is stored as integers in units of this share of its range, at half the size of float32: one
# millimetre for a range of 10 m.
DEPTH_UNIT = 1e-4


@dataclasses.dataclass(frozen=True, slots=True)
class Demonstration:
    """One episode of T steps.

    Attributes:
        observation: "state" (T, k) float32, and images: depth (T, height, width) uint16 in units of
            `DEPTH_UNIT`, colour (T, height, width, 3) and classes (T, height, width) uint8
        label: (T, A) float32, the expert's action
        valid: (T,) bool, whether the expert had a label
        action: (T, A) float32, the action taken, by the expert or not
    """

    observation: Mapping[str, np.ndarray]
    label: np.ndarray
    valid: np.ndarray
    action: np.ndarray

    def __len__(self) -> int:
        return len(self.label)


@dataclasses.dataclass(frozen=True, slots=True)
class CloningBatch:
    """Whole episodes in packed order.

    Attributes:
        observation: name -> (S, ...)
        label: (S, A) the expert's actions
        previous: (S, A) the action taken in the step before; at an episode's first step, the label
        weight: (S,) 1, or 0 where the expert had no label
        pack: division of the rows into episodes
    """

    observation: dict[str, torch.Tensor]
    label: torch.Tensor
    previous: torch.Tensor
    weight: torch.Tensor
    pack: Pack


def batches(
    episodes: list[Demonstration],
    frames: int,
    memory_size: int,
    generator: torch.Generator,
    device: torch.device | str = "cpu",
) -> Iterator[CloningBatch]:
    """Yields all episodes once, in random order, in batches of about `frames` frames.

    Args:
        episodes: episodes with the same observations
        frames: frames per batch; a batch ends with the episode that reaches this number
        memory_size: size of the policy's memory, which is zero at the start of each episode
        generator: random generator of the order
        device: device of the batches
    """
    chosen: list[Demonstration] = []
    count = 0
    for index in torch.randperm(len(episodes), generator=generator).tolist():
        chosen.append(episodes[index])
        count += len(episodes[index])
        if count >= frames:
            yield collate(chosen, memory_size, device)
            chosen, count = [], 0
    if chosen:
        yield collate(chosen, memory_size, device)


def collate(
    episodes: list[Demonstration], memory_size: int, device: torch.device | str = "cpu"
) -> CloningBatch:
    """Collates episodes into one batch."""
    packed, batch_sizes, heads = pack_order(np.array([len(episode) for episode in episodes]))
    observation = {
        name: _tensor(np.concatenate([e.observation[name] for e in episodes])[packed], device)
        for name in episodes[0].observation
    }
    label = np.concatenate([episode.label for episode in episodes])[packed]
    done = [np.concatenate([e.label[:1], e.action[:-1]]) for e in episodes]
    previous = np.concatenate(done)[packed]
    valid = np.concatenate([episode.valid for episode in episodes])[packed]
    memory = torch.zeros(heads, memory_size, device=device)
    return CloningBatch(
        observation,
        torch.from_numpy(label).to(device),
        torch.from_numpy(previous).to(device),
        torch.from_numpy(valid.astype(np.float32)).to(device),
        Pack(torch.as_tensor(batch_sizes), memory),
    )


def quantised(depth: np.ndarray) -> np.ndarray:
    """Returns depth in [0, 1] as uint16 in units of `DEPTH_UNIT`."""
    return np.rint(depth * (1.0 / DEPTH_UNIT)).astype(np.uint16)


def _tensor(values: np.ndarray, device: torch.device | str) -> torch.Tensor:
    if values.dtype == np.uint16:
        values = values.astype(np.float32) * np.float32(DEPTH_UNIT)
    return torch.from_numpy(values).to(device)
