"""Shapley values: the share of each of a few players in a common gain."""

import math
from collections.abc import Mapping

import numpy as np


def shapley(worth: Mapping[int, np.ndarray], players: int) -> np.ndarray:
    """Returns the exact Shapley values of all players, for each episode.

    The value of player i is the mean of worth(S with i) - worth(S) over all orders of the players
    (Shapley, "A value for n-person games", Contributions to the Theory of Games II, 1953).

    Args:
        worth: (n,) by coalition, for all coalitions; bit i of a coalition is set if it has player i
        players: number of players

    Returns:
        (players, n); for each episode they add up to the worth of the full coalition minus that of
        the empty one. Values are linear in the worth, so their means over episodes are the values
        of the mean worth.
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
