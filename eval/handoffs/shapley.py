"""Shapley values: how much of a gain is owed to each of a few players, whatever their order."""

import math
from collections.abc import Mapping

import numpy as np


def shapley(worth: Mapping[int, np.ndarray], players: int) -> np.ndarray:
    """The exact values of all players, for every episode by itself.

    Args:
        worth: (n,) by coalition, a number whose bit i says that player i is in it; all of them
        players: how many

    Returns:
        (players, n); for each episode they add up to the worth of all less that of none. Values are
        linear in the worth, so their means over episodes are the values of the mean.

    Shapley, "A value for n-person games" (Contributions to the Theory of Games II, 1953): the mean
    of worth(S with i) - worth(S) over all orders in which the players may come.
    """
    values = np.zeros((players, len(np.asarray(worth[0]))))
    for player in range(players):
        for coalition in range(2**players):
            if coalition >> player & 1:
                continue
            size = coalition.bit_count()
            share = 1.0 / (players * math.comb(players - 1, size))
            joined = np.asarray(worth[coalition | 1 << player], dtype=float)
            values[player] += share * (joined - np.asarray(worth[coalition], dtype=float))
    return values
