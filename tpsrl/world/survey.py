"""How much floor there is: how far one can get from a point, and how many squares can be visited.

DD-PPO's Flee is measured by the one, its Explore by the other (section 6 of the paper, "Transfer
learning").
"""

import numpy as np

from tpsrl.world.floor import CELL_M
from tpsrl.world.geodesic import DistanceField, FreeFloor

SQUARE_M = 1.0  # DD-PPO's places are cubes of 1 m; a robot on a floor visits squares


def farthest(field: DistanceField, floor: FreeFloor) -> tuple[float, float, float]:
    """The centre (x, y) of the free cell from which the way to a field's goal is longest.

    The third number is that way, in metres. Cells from which no path leads to the goal do not
    count; where there are none others all three are 0.
    """
    centres = _centres(floor)
    ways = field.distances(centres)
    if not len(ways) or not np.isfinite(ways).any():
        return 0.0, 0.0, 0.0
    most = int(np.argmax(np.where(np.isfinite(ways), ways, -1.0)))
    x, y = centres[most]
    return float(x), float(y), float(ways[most])


def squares(floor: FreeFloor) -> int:
    """In how many squares of the world, `SQUARE_M` wide, a free cell's centre lies."""
    return len(np.unique(np.floor(_centres(floor) / SQUARE_M), axis=0))


def _centres(floor: FreeFloor) -> np.ndarray:
    """(k, 2) metres, of the free cells."""
    iy, ix = np.nonzero(floor.free)
    x0, y0 = floor.origin
    return np.stack([x0 + (ix + 0.5) * CELL_M, y0 + (iy + 0.5) * CELL_M], axis=1)
