"""Instances of a searched category that robots have seen: a perfect, privileged detector.

An instance is seen if it is in sight (`tpsrl.world.sight`) from the current base pose, without
turning, within `SIGHT_M`. The detector is privileged: it never errs, and gives exact positions.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from tpsrl.errors import UserError
from tpsrl.world.floor import CLOSED, Joints, rounded
from tpsrl.world.viewpoints import Instance, instances

SIGHT_M = 5.0
_MOST = 4  # instances of a category


class Sightings:
    """Instances that the robots of n homes search for, and those that have been seen.

    Args:
        num_homes: number of homes, n
    """

    def __init__(self, num_homes: int) -> None:
        self._things: list[tuple[Instance, ...]] = [()] * num_homes
        self._joints: list[Joints] = [CLOSED] * num_homes
        self._seen = np.zeros((num_homes, _MOST), np.bool_)

    def begin(self, home: int, layout: str, category: str, joints: Joints) -> None:
        """Starts the search for a category in a home, with nothing seen; "" for no category."""
        self._joints[home] = joints
        self._things[home] = instances(layout, category, joints) if category else ()
        self._seen[home] = False

    def look(self, homes: Sequence[int], base: np.ndarray) -> None:
        """Records the instances seen from base poses (m, 3)."""
        for row, home in enumerate(homes):
            for k, thing in enumerate(self._things[home]):
                if not self._seen[home, k]:
                    self._seen[home, k] = self.sees(thing, base[row])

    @staticmethod
    def sees(thing: Instance, base: np.ndarray) -> bool:
        """Returns whether an instance is seen from a base pose (3,)."""
        return bool(thing.sees(base[None], range_m=SIGHT_M)[0])

    def nearest(self, home: int, base: np.ndarray) -> tuple[Instance, np.ndarray] | None:
        """Returns the seen instance nearest to a base pose (3,), and its nearest point (2,)."""
        best, found = np.inf, None
        for thing, seen in zip(self._things[home], self._seen[home], strict=False):
            away = np.hypot(*(thing.points[:, :2] - base[:2]).T)
            if seen and away.min() < best:
                best, found = away.min(), (thing, thing.points[np.argmin(away), :2])
        return found

    def away(self, homes: Sequence[int], base: np.ndarray) -> np.ndarray:
        """Returns the nearest points of the seen instances relative to base poses (m, 3).

        Returns:
            (m, 3): 1 if any instance was seen, and its nearest point forward and left in the base
            frame, metres; zeros otherwise.
        """
        out = np.zeros((len(homes), 3))
        for row, home in enumerate(homes):
            found = self.nearest(home, base[row])
            if found is not None:
                c, s = np.cos(base[row, 2]), np.sin(base[row, 2])
                dx, dy = found[1] - base[row, :2]
                out[row] = 1.0, c * dx + s * dy, c * dy - s * dx
        return out

    def forget(self, home: int) -> None:
        """Marks all instances of a home as unseen."""
        self._seen[home] = False

    def to_arrays(self, home: int) -> dict[str, np.ndarray]:
        """Returns copies of a home's sightings by name, for snapshots."""
        return {"seen": self._seen[home].copy(), "joints": np.array(self._joints[home])}

    def restore(
        self, home: int, arrays: Mapping[str, np.ndarray], layout: str, category: str
    ) -> None:
        """Restores the search for a category from the result of `to_arrays`.

        Raises:
            UserError: an array is missing or damaged.
        """
        own = self.to_arrays(home)
        for name, array in own.items():
            values = arrays.get(name)
            if values is None or values.shape != array.shape or values.dtype != array.dtype:
                raise UserError(f"sightings: array {name} is missing or damaged")
        if not np.isfinite(arrays["joints"]).all():
            raise UserError("sightings: array joints is damaged")
        self.begin(home, layout, category, rounded(arrays["joints"]))
        self._seen[home] = arrays["seen"]
