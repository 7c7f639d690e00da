"""Demonstrations in memory: episodes of observations and of what the expert would have done."""

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np
import torch

from tpsrl.rl.learning.sequences import pack_order
from tpsrl.rl.policy.recurrent import Pack

# Depth is kept in whole numbers of a ten thousandth of its range, half the size of float32: of 10 m
# that is a millimetre.
DEPTH_UNIT = 1e-4


@dataclasses.dataclass(frozen=True, slots=True)
class Demonstration:
    """One episode of T steps.

    `observation` has "state" (T, k) float32 and pictures: depth (T, height, width) uint16 in units
    of `DEPTH_UNIT`, colour (T, height, width, 3) and classes (T, height, width) uint8. `label`
    (T, A) float32 is what the expert would have done, `valid` (T,) bool whether it knew. `action`
    (T, A) float32 is what was done, by whomever.
    """

    observation: Mapping[str, np.ndarray]
    label: np.ndarray
    valid: np.ndarray
    action: np.ndarray

    def __len__(self) -> int:
        return len(self.label)


@dataclasses.dataclass(frozen=True, slots=True)
class CloningBatch:
    """Whole episodes in packed order: observation (S, ...), label and previous (S, A), pack.

    `weight` (S,) is 0 where the expert did not know. `previous` is what was done the step before,
    and at an episode's first step the label.
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
    """All episodes once, in random order, in batches of about so many frames.

    Args:
        episodes: of one kind
        frames: of a batch; it ends with the episode that reaches this
        memory_size: of the policy, which begins each episode with zeros
        generator: of the order
        device: of what is yielded
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
    """Episodes as one batch."""
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
    """Depth in [0, 1] as uint16 in units of `DEPTH_UNIT`."""
    return np.rint(depth * (1.0 / DEPTH_UNIT)).astype(np.uint16)


def _tensor(values: np.ndarray, device: torch.device | str) -> torch.Tensor:
    if values.dtype == np.uint16:
        values = values.astype(np.float32) * np.float32(DEPTH_UNIT)
    return torch.from_numpy(values).to(device)
