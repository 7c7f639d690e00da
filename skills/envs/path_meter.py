"""Path measurement of driving robots; `skills.core.path_metrics` has the metrics."""

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from skills.core.path_metrics import PathProgress, soft_spl, spl, step_length
from tpsrl.errors import UserError
from tpsrl.world import survey
from tpsrl.world.approach import approach
from tpsrl.world.floor import Joints, rounded
from tpsrl.world.geodesic import DistanceField, DistanceFields, field_of, free_floor
from tpsrl.world.state import JOINTS, WorldState
from tpsrl.world.viewpoints import category_field

_FARTHEST = 1e6  # bound in metres or radians on arrays of snapshots


@functools.lru_cache(maxsize=128)
def _surveyed(
    layout: str, x: float, y: float, joints: Joints, reach_m: float
) -> tuple[float, float]:
    """Returns the longest path to a goal in metres, and the number of squares of the floor."""
    floor = free_floor(layout, joints)
    return survey.farthest(field_of(layout, x, y, joints, reach_m), floor)[2], survey.squares(floor)


def check_array(name: str, values: np.ndarray, shape: tuple[int, ...], finite: bool = True) -> None:
    """Checks type, shape and range of a float64 array of a snapshot.

    Args:
        name: name of the array, for the error message
        values: the array
        shape: expected shape
        finite: whether all values must be finite and at most `_FARTHEST` in absolute value

    Raises:
        UserError: the array does not fit.
    """
    if values.dtype != np.float64 or values.shape != shape:
        raise UserError(f"path: array {name}: is {values.dtype} {values.shape}, expected {shape}")
    if finite and not (np.abs(values) <= _FARTHEST).all():
        raise UserError(f"path: array {name}: not finite, or beyond {_FARTHEST:g}")


class PathMeter:
    """Path measurement in n homes, each with its own goal.

    Distances are geodesic, for the disc of the base on the free floor, with doors and drawers as at
    the start of the path. The distance map of a home is computed on first use.

    Args:
        num_homes: n
        reach_m: distance from the goal, in a straight line, at which the path ends
        surveys: whether to measure the size of the floor, too
        near: whether the path ends where the arm can reach the goal; it is then known only in the
            surroundings of the goal (`tpsrl.world.approach`)
        allow_unreachable: whether a goal without free floor nearby, such as an object that fell
            behind furniture, has no path instead of raising an error
    """

    def __init__(
        self,
        num_homes: int,
        reach_m: float = 0.0,
        surveys: bool = False,
        near: bool = False,
        allow_unreachable: bool = False,
    ) -> None:
        self._reach_m, self._surveys, self._near = reach_m, surveys, near
        self._allow_unreachable = allow_unreachable
        self._floor = np.zeros((2, num_homes))  # longest path, squares
        self._fields = DistanceFields(num_homes)
        # Layout, goal, and the category to whose viewpoints the path leads instead ("" for none).
        self._unmapped: dict[int, tuple[str, np.ndarray, str]] = {}
        self._joints = np.zeros((num_homes, len(JOINTS)))
        self._start = np.zeros((num_homes, 2))
        self._here = np.zeros((num_homes, 2))
        self._left = np.zeros(num_homes)
        self._driven = np.zeros(num_homes)

    def begin(
        self,
        homes: Sequence[int],
        layouts: Sequence[str],
        goals: np.ndarray,
        world: WorldState,
        categories: Sequence[str] | None = None,
    ) -> None:
        """Starts the paths of homes from their current worlds.

        Args:
            homes: numbers of n homes
            layouts: layout of each home
            goals: (n, 2 or 3) in the world frame
            world: current state of these homes
            categories: for each home, a category: its path leads to the nearest viewpoint of an
                instance (`tpsrl.world.viewpoints`) instead of the goal; "" for the goal
        """
        rows = np.asarray(homes)
        categories = [""] * len(homes) if categories is None else categories
        self._unmapped |= dict(
            zip(homes, zip(layouts, goals, categories, strict=True), strict=True)
        )
        self._joints[rows] = world.joints
        self._start[rows] = self._here[rows] = np.asarray(world.base)[:, :2]
        self._left[rows], self._driven[rows] = np.nan, 0.0

    def field_from(
        self, layout: str, goal: np.ndarray, joints: np.ndarray, start: np.ndarray
    ) -> DistanceField:
        """Returns the distances to a goal (2 or 3,), measured in home 0.

        Args:
            layout: of the apartment
            goal: in the world frame (m)
            joints: positions of doors and drawers
            start: x and y of the base (m)

        Raises:
            UserError: no free floor is near the goal.
        """
        self._joints[0], self._start[0] = joints, start
        self._unmapped[0] = layout, goal, ""
        self._map([0])
        return self._fields[0]

    def drive(self, homes: Sequence[int], world: WorldState) -> None:
        """Adds the control step that led to `world` to the lengths driven."""
        rows = np.asarray(homes)
        here = np.asarray(world.base)[:, :2]
        self._driven[rows] += step_length(self._here[rows], here)
        self._here[rows] = here

    def path(self, homes: Sequence[int]) -> PathProgress:
        """Returns the current progress of homes; `gained` is since the last call.

        Where the base was pushed off the map, the distance left keeps its previous value.

        Raises:
            UserError: no free floor is near a goal, or the homes' layouts are not of one set.
        """
        rows = np.asarray(homes)
        self._map(homes)
        shortest = self._fields.distances(rows, self._start[rows])
        left = self._fields.distances(rows, self._here[rows])
        before = np.where(np.isnan(self._left[rows]), shortest, self._left[rows])
        left = np.where(np.isfinite(left), left, before)
        self._left[rows] = left
        known = np.isfinite(before)
        gained = np.where(known, before, 0.0) - np.where(known, left, 0.0)
        progress = PathProgress(shortest, left, gained, self._driven[rows])
        if self._surveys:
            progress.farthest, progress.squares = self._floor[:, rows]
        return progress

    def ahead(self, homes: Sequence[int], base: np.ndarray) -> np.ndarray:
        """Returns the distance left from base poses (n, 3) and the next corner of the path, (n, 3).

        See `tpsrl.world.geodesic.DistanceFields.ahead`.

        Raises:
            UserError: see `path`.
        """
        self._map(homes)
        return self._fields.ahead(np.asarray(homes), base)

    def _map(self, homes: Sequence[int]) -> None:
        """Computes the distance maps of homes that have none yet."""
        if not self._unmapped:
            return
        for home in self._unmapped.keys() & set(homes):
            layout, goal, category = self._unmapped.pop(home)
            x, y = float(goal[0]), float(goal[1])
            joints = rounded(self._joints[home])
            if category:
                self._fields.set(home, category_field(layout, category, joints))
                continue
            if self._near:
                field = approach(layout, (x, y, float(goal[2])), joints, self._start[home])
                self._fields.set(home, field)
                continue
            where = layout, x, y, joints, self._reach_m
            floor = free_floor(layout, joints)
            if self._allow_unreachable and not floor.is_near(x, y, self._reach_m):
                nowhere = DistanceField.unreachable(floor.origin, floor.free.shape)
                self._fields.set(home, nowhere)
                continue
            self._fields.set(home, field_of(*where))
            if self._surveys:
                self._floor[:, home] = _surveyed(*where)

    def metrics(self, homes: Sequence[int], success: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the metrics of m homes for reports, (m,) by name, as if episodes ended now."""
        path = self.path(homes)
        record = {
            "distance_left_m": path.left,
            "driven_m": path.driven,
            "shortest_m": path.shortest,
            "spl": spl(success, path.shortest, path.driven),
            "soft_spl": soft_spl(path.left, path.shortest, path.driven),
        }
        return {name: np.asarray(values) for name, values in record.items()}

    def to_arrays(self, home: int) -> dict[str, np.ndarray]:
        """Returns the progress of a home as numpy copies by name, for snapshots."""
        return {name: values[home].copy() for name, values in self._arrays().items()}

    def restore(
        self,
        home: int,
        arrays: Mapping[str, np.ndarray],
        layout: str,
        goal: np.ndarray,
        category: str = "",
    ) -> None:
        """Restores the progress of a home from `to_arrays`, for a goal (2 or 3,).

        See `begin` for `category`.

        Raises:
            UserError: an array is missing or unknown, has another shape, or is not finite.
        """
        own = self._arrays()
        if wrong := set(own) ^ set(arrays):
            raise UserError(f"path: arrays {', '.join(sorted(wrong))} missing or unknown")
        for name, values in own.items():
            # The distance left is NaN before the first call of `path`, infinite without a path.
            check_array(name, arrays[name], values[home].shape, finite=name != "left")
        self._unmapped[home] = (layout, goal, category)
        for name, values in own.items():
            values[home] = arrays[name]

    def _arrays(self) -> dict[str, np.ndarray]:
        return {
            "start": self._start,
            "here": self._here,
            "left": self._left,
            "driven": self._driven,
            "joints": self._joints,
        }
