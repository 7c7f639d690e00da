"""Sequences of steps for a recurrent policy, packed as torch packs them (VER, section 2.2).

A packed batch holds the first steps of all its sequences, then the second steps of those that have
one, and so on, the longest sequence first in each: what happens in a step is contiguous, and so is
the whole, with no padding.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from tpsrl.rl.collection.rollout import Rollout
from tpsrl.rl.policy.recurrent import Pack


@dataclass(frozen=True, slots=True)
class Minibatch:
    """Part of a rollout.

    rows: (k,) int64 indices into the rollout's columns, in packed order, on its device
    pack: how they fall into sequences
    """

    rows: torch.Tensor
    pack: Pack


def minibatches(
    rollout: Rollout, count: int, generator: torch.Generator | None
) -> Iterator[Minibatch]:
    """The rows of a finished rollout, each once, in `count` parts of equally many steps.

    Sequences begin where an episode or the rollout does. In random order they are laid end to end
    and divided; sizes differ by one at most. A sequence that lies across a division begins anew
    behind it, from the memory that was recorded there. For a policy without memory every step is a
    sequence of its own: neighbours resemble each other, and a part should be of all kinds.
    """
    rows = rollout.rows
    if not 0 < count <= len(rows):
        raise ValueError(f"{len(rows)} steps cannot be divided into {count} mini-batches")
    columns = (rollout.env, rollout.is_first, rollout.generation)
    order, lengths = sequences(*(column[rows] for column in columns))
    if rollout.memory.shape[1] == 0:
        lengths = np.ones(len(order), np.int64)
    order, begins = shuffled(order, lengths, generator)
    bounds = np.arange(count + 1) * len(rows) // count
    for first, end in itertools.pairwise(bounds):
        inside = begins[(begins > first) & (begins < end)] - first
        lengths = np.diff(np.concatenate(([0], inside, [end - first])))
        yield packed(rollout, rows[order[first:end]], lengths)


def packed(rollout: Rollout, rows: np.ndarray, lengths: np.ndarray) -> Minibatch:
    """Rows (k,) that are sequences of these lengths (q,), laid end to end, as a mini-batch.

    Each sequence begins from the memory that was recorded there.
    """
    order, batch_sizes, heads = pack_order(lengths)
    index = torch.as_tensor(rows[order], device=rollout.device)
    return Minibatch(index, Pack(torch.as_tensor(batch_sizes), rollout.memory[index[:heads]]))


def sequences(
    env: np.ndarray, is_first: np.ndarray, generation: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Rows (k,) sequence after sequence, each in order of time, and the sequences' lengths (q,).

    Takes rows that are in order of time within each environment and generation.
    """
    order = np.lexsort((env, generation))  # stable
    env, generation = env[order], generation[order]
    begins = is_first[order].copy()
    begins[:1] = True
    begins[1:] |= (env[1:] != env[:-1]) | (generation[1:] != generation[:-1])
    return order, np.diff(np.append(np.flatnonzero(begins), len(order)))


def shuffled(
    order: np.ndarray, lengths: np.ndarray, generator: torch.Generator | None
) -> tuple[np.ndarray, np.ndarray]:
    """The same rows with their sequences in random order, and where each begins (q,)."""
    chosen = torch.randperm(len(lengths), generator=generator).numpy()
    old_begins = (np.cumsum(lengths) - lengths)[chosen]
    lengths = lengths[chosen]
    begins = np.cumsum(lengths) - lengths
    return order[np.repeat(old_begins - begins, lengths) + np.arange(len(order))], begins


def pack_order(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Packed order of k rows that are sequences of these lengths (q,), laid end to end.

    Returns:
        Indices (k,) of the rows in packed order, the batch sizes (t,), and q: the first q of the
        packed rows begin the sequences, the longest first.
    """
    by_length = np.argsort(-lengths, kind="stable")
    rank = np.empty_like(by_length)
    rank[by_length] = np.arange(len(lengths))
    batch_sizes = np.cumsum(np.bincount(lengths - 1)[::-1])[::-1].copy()
    begins = np.cumsum(lengths) - lengths
    when = np.arange(lengths.sum()) - np.repeat(begins, lengths)
    place = (np.cumsum(batch_sizes) - batch_sizes)[when] + np.repeat(rank, lengths)
    packed = np.empty_like(place)
    packed[place] = np.arange(len(place))
    return packed, batch_sizes, len(lengths)
