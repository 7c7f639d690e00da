"""Extent of the free floor: the longest path from a point, and the number of squares to visit.

The first is the measure of DD-PPO's Flee, the second that of its Explore (section 6 of the paper,
"Transfer learning").
"""

import numpy as np

from tpsrl.world.floor import CELL_M
from tpsrl.world.geodesic import DistanceField, FreeFloor

SQUARE_M = 1.0  # DD-PPO's places are cubes of 1 m; a robot on a floor visits squares


def farthest(field: DistanceField, floor: FreeFloor) -> tuple[float, float, float]:
    """Returns the free cell with the longest path to a field's goal.

    Returns:
        Centre (x, y) of the cell and length of its path, metres. Cells without a path to the goal
        are ignored; all three are 0 if no cell has a path.
    """
    centres = _centres(floor)
    ways = field.distances(centres)
    if not len(ways) or not np.isfinite(ways).any():
        return 0.0, 0.0, 0.0
    most = int(np.argmax(np.where(np.isfinite(ways), ways, -1.0)))
    x, y = centres[most]
    return float(x), float(y), float(ways[most])


def squares(floor: FreeFloor) -> int:
    """Returns the number of world-aligned squares, `SQUARE_M` wide, with a free cell's centre."""
    return len(np.unique(np.floor(_centres(floor) / SQUARE_M), axis=0))


def _centres(floor: FreeFloor) -> np.ndarray:
    """Returns the centres (k, 2) of the free cells, metres."""
    iy, ix = np.nonzero(floor.free)
    x0, y0 = floor.origin
    return np.stack([x0 + (ix + 0.5) * CELL_M, y0 + (iy + 0.5) * CELL_M], axis=1)
