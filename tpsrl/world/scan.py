"""A planar laser scanner on the base, as Fetch has one, cast on the map of the floor.

It sees what stands in the band of heights that the base must stay clear of, arm included
(`floor.BASE_BAND_M`): apartment and furniture, doors and drawers as the map has them, no loose
objects.
"""

import math
from collections.abc import Sequence

import numpy as np

from tpsrl.errors import UserError
from tpsrl.runtime.compiled import njit
from tpsrl.world.floor import CELL_M, FloorMap

RAYS = 24  # all around, the first straight ahead, the next to its left
RANGE_M = 3.0


class Scanner:
    """Scans n homes, each on a map of its own.

    The homes' layouts must be of one set, so that their maps have one frame.
    """

    def __init__(self, num_homes: int) -> None:
        self._distance = np.empty((num_homes, 0, 0), dtype=np.float32)
        self._origin = (0.0, 0.0)

    def set(self, home: int, floor: FloorMap) -> None:
        """Gives a home its map.

        Raises:
            UserError: the map has another frame than those of the other homes.
        """
        if self._distance.size == 0:
            self._origin = floor.origin
            shape = (len(self._distance), *floor.distance.shape)
            self._distance = np.zeros(shape, dtype=np.float32)
        if floor.origin != self._origin or floor.distance.shape != self._distance.shape[1:]:
            raise UserError("layout: homes that are asked together must be of one layout set")
        self._distance[home] = floor.distance

    def ranges(self, homes: Sequence[int], base: np.ndarray) -> np.ndarray:
        """Metres (n, RAYS) from the centres of base poses (n, 3) to what is there.

        At most `RANGE_M`; 0 where the centre is inside something or off the map.
        """
        base = np.ascontiguousarray(base, np.float64)
        return _ranges(self._distance, *self._origin, np.asarray(homes, np.int64), base)


@njit(cache=True)
def _ranges(
    distance: np.ndarray, x0: float, y0: float, homes: np.ndarray, base: np.ndarray
) -> np.ndarray:
    """Sphere tracing: from any point one may go as far as the nearest obstacle is away."""
    _, ny, nx = distance.shape
    out = np.empty((len(base), RAYS))
    for i in range(len(base)):
        x, y, yaw = base[i]
        for ray in range(RAYS):
            angle = yaw + ray * (2.0 * math.pi / RAYS)
            c, s = math.cos(angle), math.sin(angle)
            gone = 0.0
            while gone < RANGE_M:
                fx, fy = (x + gone * c - x0) / CELL_M, (y + gone * s - y0) / CELL_M
                if not (0.0 <= fx < nx and 0.0 <= fy < ny):
                    break
                left = distance[homes[i], int(fy), int(fx)]
                if left <= 0.0:
                    break
                # The map's distance is that of the cell's centre.
                gone += max(left - 0.7 * CELL_M, 0.5 * CELL_M)
            out[i, ray] = min(gone, RANGE_M)
    return out
