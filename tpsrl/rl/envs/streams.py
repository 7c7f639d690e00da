"""Independent random generators from one seed.

Numpy pads the seed of a generator with zeros: (seed, 3) and (seed, 3, 0) give the same stream, and
so may two uses that both count from 0. Every use therefore has its own tag here.
"""

import enum

import numpy as np


class Stream(enum.IntEnum):
    """Use of a random generator. The values determine the results of a seed."""

    STARTS = 1  # of an environment's episodes
    NOISE = 2  # of an environment's actions
    SCHEDULE = 3  # when the steps of a serial pool are ready
    COLOURS = 4  # of an environment's colour pictures


def generator(stream: Stream, seed: int, *numbers: int) -> np.random.Generator:
    """Returns the generator of a use, for a seed and numbers such as that of the environment."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(stream, *numbers)))
