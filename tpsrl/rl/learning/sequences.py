"""Sequences of steps for a recurrent policy, in torch's packed order (VER, section 2.2).

A packed batch holds the first steps of all sequences, then the second steps of the sequences that
have one, and so on, with the longest sequence first in each group. The rows of one time step are
contiguous, and there is no padding.
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

    Attributes:
        rows: (k,) int64 indices into the rollout's columns, in packed order, on its device
        pack: division of the rows into sequences
    """

    rows: torch.Tensor
    pack: Pack


def minibatches(
    rollout: Rollout, count: int, generator: torch.Generator | None
) -> Iterator[Minibatch]:
    """Yields the rows of a finished rollout, each once, in `count` mini-batches.

    Sequences begin where an episode or the rollout begins. They are concatenated in random order
    and divided; sizes differ by at most one step. A sequence that crosses a division is cut there,
    and its second part starts from the memory recorded at the cut. For a policy without memory,
    every step is its own sequence: neighbouring steps are correlated, and mini-batches should not
    be.
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
    """Packs rows (k,), consecutive sequences of the given lengths (q,), into a mini-batch.

    Each sequence starts from the memory recorded at its first row.
    """
    order, batch_sizes, heads = pack_order(lengths)
    index = torch.as_tensor(rows[order], device=rollout.device)
    return Minibatch(index, Pack(torch.as_tensor(batch_sizes), rollout.memory[index[:heads]]))


def sequences(
    env: np.ndarray, is_first: np.ndarray, generation: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns rows (k,) sorted by sequence and time, and the lengths (q,) of the sequences.

    The input rows must be in order of time within each environment and generation.
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
    """Returns the rows with their sequences in random order, and the sequences' starts (q,)."""
    chosen = torch.randperm(len(lengths), generator=generator).numpy()
    old_begins = (np.cumsum(lengths) - lengths)[chosen]
    lengths = lengths[chosen]
    begins = np.cumsum(lengths) - lengths
    return order[np.repeat(old_begins - begins, lengths) + np.arange(len(order))], begins


def pack_order(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Computes the packed order of k rows, consecutive sequences of the given lengths (q,).

    Returns:
        Indices (k,) of the rows in packed order, the batch sizes (t,), and q: the first q packed
        rows are the first rows of the sequences, longest sequence first.
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
