"""Planar laser scanner on the base, like that of Fetch, simulated on the floor map.

The scanner sees the obstacles in the band of heights of base and arm (`floor.BASE_BAND_M`): walls
and furniture, and doors and drawers at their positions in the map. It does not see loose objects.
"""

import math
from collections.abc import Sequence

import numpy as np

from tpsrl.errors import UserError
from tpsrl.runtime.compiled import njit
from tpsrl.world.floor import CELL_M, FloorMap

RAYS = 24  # evenly spaced over the full circle, counter-clockwise from straight ahead
TURN_RAD = 2.0 * math.pi / RAYS  # from one ray to the next
RANGE_M = 3.0


class Scanner:
    """Scanner for n homes, each with its own map.

    The layouts of all homes must be of one set, so that their maps have the same frame.
    """

    def __init__(self, num_homes: int) -> None:
        self._distance = np.empty((num_homes, 0, 0), dtype=np.float32)
        self._origin = (0.0, 0.0)

    def set(self, home: int, floor: FloorMap) -> None:
        """Sets the map of a home.

        Raises:
            UserError: the frame of the map differs from those of the other homes.
        """
        if self._distance.size == 0:
            self._origin = floor.origin
            shape = (len(self._distance), *floor.distance.shape)
            self._distance = np.zeros(shape, dtype=np.float32)
        if floor.origin != self._origin or floor.distance.shape != self._distance.shape[1:]:
            raise UserError("layout: homes of one batch must have the same layout set")
        self._distance[home] = floor.distance

    def ranges(self, homes: Sequence[int], base: np.ndarray) -> np.ndarray:
        """Returns ranges (n, RAYS) from the centres of base poses (n, 3) to obstacles, metres.

        Ranges are at most `RANGE_M`, and 0 if the centre is inside an obstacle or off the map.
        """
        base = np.ascontiguousarray(base, np.float64)
        return ranges_on(self._distance, *self._origin, np.asarray(homes, np.int64), base)


@njit(cache=True)
def ranges_on(
    distance: np.ndarray, x0: float, y0: float, homes: np.ndarray, base: np.ndarray
) -> np.ndarray:
    """Returns the ranges (n, RAYS) on maps; see `Scanner.ranges`.

    Casts the rays by sphere tracing: each step is the distance to the nearest obstacle.

    Args:
        distance: (k, ny, nx) distances of cells from obstacles (m)
        x0, y0: origin of the maps (m)
        homes: (n,) int64, the map of each base
        base: (n, 3) float64, poses
    """
    _, ny, nx = distance.shape
    out = np.empty((len(base), RAYS))
    for i in range(len(base)):
        x, y, yaw = base[i]
        for ray in range(RAYS):
            angle = yaw + ray * TURN_RAD
            c, s = math.cos(angle), math.sin(angle)
            gone = 0.0
            while gone < RANGE_M:
                fx, fy = (x + gone * c - x0) / CELL_M, (y + gone * s - y0) / CELL_M
                if not (0.0 <= fx < nx and 0.0 <= fy < ny):
                    break
                left = distance[homes[i], int(fy), int(fx)]
                if left <= 0.0:
                    break
                # The map has the distance from the cell's centre, not from the point on the ray.
                gone += max(left - 0.7 * CELL_M, 0.5 * CELL_M)
            out[i, ray] = min(gone, RANGE_M)
    return out
