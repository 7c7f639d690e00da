"""Random generators that have nothing in common, though all are made from one seed.

Numpy pads what a generator is seeded by with zeros: (seed, 3) and (seed, 3, 0) are one stream, and
whoever else counts something from 0 draws from it too. So every use has a tag of its own here.
"""

import enum

import numpy as np


class Stream(enum.IntEnum):
    """What is drawn; the values are part of what a seed gives."""

    STARTS = 1  # of an environment's episodes
    NOISE = 2  # of an environment's actions
    SCHEDULE = 3  # when the steps of a serial pool are ready
    COLOURS = 4  # of an environment's colour pictures


def generator(stream: Stream, seed: int, *numbers: int) -> np.random.Generator:
    """The generator of a use, for a seed and the numbers of what it is for."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(stream, *numbers)))
