"""What robots have caught sight of among the things that they look for: a perfect detector.

A thing is seen when its viewpoint test (`tpsrl.world.sight`) holds from where the base is, without
turning, up to `SIGHT_M` away. No robot has such a detector: it never errs, and says exactly where a
thing is.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from tpsrl.errors import UserError
from tpsrl.world.floor import CLOSED, Joints, rounded
from tpsrl.world.viewpoints import Instance, instances

SIGHT_M = 5.0
_MOST = 4  # instances of a category


class Sightings:
    """What n robots look for, and which of these things they have seen.

    Args:
        num_homes: n
    """

    def __init__(self, num_homes: int) -> None:
        self._things: list[tuple[Instance, ...]] = [()] * num_homes
        self._joints: list[Joints] = [CLOSED] * num_homes
        self._seen = np.zeros((num_homes, _MOST), np.bool_)

    def begin(self, home: int, layout: str, category: str, joints: Joints) -> None:
        """A robot begins to look for a category; nothing was seen yet."""
        self._joints[home] = joints
        self._things[home] = instances(layout, category, joints) if category else ()
        self._seen[home] = False

    def look(self, homes: Sequence[int], base: np.ndarray) -> None:
        """Notes what is seen from base poses (m, 3)."""
        for row, home in enumerate(homes):
            for k, thing in enumerate(self._things[home]):
                if not self._seen[home, k]:
                    self._seen[home, k] = self.sees(thing, base[row])

    @staticmethod
    def sees(thing: Instance, base: np.ndarray) -> bool:
        """Whether a thing is seen from a base pose (3,)."""
        return bool(thing.sees(base[None], range_m=SIGHT_M)[0])

    def nearest(self, home: int, base: np.ndarray) -> tuple[Instance, np.ndarray] | None:
        """The thing seen whose surface is nearest to a base pose (3,), and that point (2,)."""
        best, found = np.inf, None
        for thing, seen in zip(self._things[home], self._seen[home], strict=False):
            away = np.hypot(*(thing.points[:, :2] - base[:2]).T)
            if seen and away.min() < best:
                best, found = away.min(), (thing, thing.points[np.argmin(away), :2])
        return found

    def away(self, homes: Sequence[int], base: np.ndarray) -> np.ndarray:
        """Whether anything was seen, and the nearest point of it from base poses (m, 3).

        Returns:
            (m, 3): 1 or 0, metres forward and left in the base frame.
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
        """Nothing was seen yet."""
        self._seen[home] = False

    def to_arrays(self, home: int) -> dict[str, np.ndarray]:
        """What was seen, as numpy copies by name, for snapshots."""
        return {"seen": self._seen[home].copy(), "joints": np.array(self._joints[home])}

    def restore(
        self, home: int, arrays: Mapping[str, np.ndarray], layout: str, category: str
    ) -> None:
        """Puts a robot that looks for a category back to what `to_arrays` said.

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
