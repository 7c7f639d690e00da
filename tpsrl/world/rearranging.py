"""Training apartments with fridge and furniture in other places, for more variety in training.

HAB's 63 training apartments are three rooms furnished in many ways. Counter and fridge stand in
only three places, which policies memorise. In the validation apartments the fridge is at the other
end of the counter, with its hinge beside a wall. Each apartment has four fixed variants:

NAME~1, NAME~2: the fridge is anywhere along the walls, half of the time with a wall or another
    body beside its hinge.
NAME~3, NAME~4: counter, fridge and other furniture are moved (`tpsrl.world.furnishing`).

The fridge is never near its place in the validation apartments.
"""

import functools
import math
import zlib
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tpsrl.errors import RunError, unknown
from tpsrl.world.floor import CELL_M, floor_map, main_floor
from tpsrl.world.furnishing import (
    NoRoomError,
    extent,
    free_front,
    furnished,
    kitchen,
    pose_at_a_wall,
)
from tpsrl.world.layouts import VARIANT, Layout, LayoutSet, Pose, load_layout_set
from tpsrl.world.placement import Crowd, Prism, box_prism, furniture

SPLIT = "rearranged"
_FRIDGES, _VARIANTS = 2, 4  # variants of each apartment with only the fridge moved, and all
_TRIES = 4000
_OFF_M = 0.02  # gap between fridge and wall
_STAND_M = (0.55, 0.75, 0.95)  # distances in front of the fridge at which the base must fit
_BESIDE_M, _FRONT_M = 0.5, 0.2  # size of the region beside the hinge and in front of the fridge
_UNLIKE_M = 0.6  # least distance from the fridge's places in other splits


def names(layout_set: LayoutSet) -> list[str]:
    """Returns the names of all variants: the first of each apartment, then the second, etc."""
    plain = [layout.name for layout in layout_set.split("train")]
    return [f"{name}{VARIANT}{k + 1}" for k in range(_VARIANTS) for name in plain]


@functools.cache
def rearranged(set_name: str, name: str) -> Layout:
    """Returns the layout NAME~K of a set; cached.

    Raises:
        UserError: the layout is unknown; the message names the nearest one.
        RunError: no place was found for the fridge or the counter.
    """
    layout_set = load_layout_set(set_name)
    if name not in (known := names(layout_set)):
        raise unknown("layout", name, known)
    original, _, number = name.partition(VARIANT)
    plain = layout_set.layouts[original]
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    make = _with_fridge_moved if int(number) <= _FRIDGES else _furnished
    return replace(plain, name=name, split=SPLIT, poses=make(layout_set, plain, rng))


def _with_fridge_moved(
    layout_set: LayoutSet, plain: Layout, rng: np.random.Generator
) -> Mapping[str, Pose]:
    fridge = _Fridge(layout_set, plain)
    beside = bool(rng.random() < 0.5)
    for _ in range(_TRIES):
        pose = fridge.along_a_wall(rng)
        if fridge.fits(pose, beside):
            return {**plain.poses, fridge.body: pose}
    raise RunError(f"layout {plain.name}: there is no room for the fridge")


def _furnished(
    layout_set: LayoutSet, plain: Layout, rng: np.random.Generator
) -> Mapping[str, Pose]:
    _, fridge = kitchen(layout_set)
    held_out = _held_out(layout_set, plain, fridge)
    for _ in range(_TRIES):
        try:
            poses = furnished(layout_set, plain, rng)
        except NoRoomError:
            continue
        if all(math.dist(poses[fridge].pos[:2], other) >= _UNLIKE_M for other in held_out):
            return poses
    raise RunError(f"layout {plain.name}: there is no room for the counter")


def _held_out(layout_set: LayoutSet, plain: Layout, fridge: str) -> set[tuple[float, ...]]:
    """Returns the places (x, y) of the fridge in the apartments of other splits."""
    others = (other for other in layout_set.layouts.values() if other.split != plain.split)
    return {other.poses[fridge].pos[:2] for other in others}


class _Fridge:
    """Bounding box of the fridge, front towards x, hinge at -y, and its obstacles in a layout."""

    def __init__(self, layout_set: LayoutSet, plain: Layout) -> None:
        counter, self.body = kitchen(layout_set)
        layout = f"{layout_set.name}/{plain.name}"
        self._low, self._high = extent(layout_set.bodies[self.body])
        self._z = plain.poses[self.body].pos[2]
        self._outline = np.array(layout_set.room)
        self._others = furniture(layout, without=self.body)
        self._drawers = Crowd([free_front(layout_set.bodies[counter], plain.poses[counter])])
        self._origin = np.array(floor_map(layout).origin)
        self._free = main_floor(layout)
        self._held_out = _held_out(layout_set, plain, self.body)

    def along_a_wall(self, rng: np.random.Generator) -> Pose:
        """Draws a pose with the back of the fridge to a random point of the walls."""
        return pose_at_a_wall(self._outline, _OFF_M - self._low[0], self._z, rng)

    def fits(self, pose: Pose, beside: bool) -> bool:
        """Returns whether the fridge, and the robot in front of it, fit at a pose.

        With `beside`, an obstacle beside the hinge is also required.
        """
        if any(math.dist(pose.pos[:2], other) < _UNLIKE_M for other in self._held_out):
            return False
        yaw = 2.0 * math.atan2(pose.quat[3], pose.quat[0])
        c, s = math.cos(yaw), math.sin(yaw)
        turn = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])

        def box(low: np.ndarray, high: np.ndarray) -> Prism:
            centre = np.array(pose.pos) + turn @ ((low + high) / 2)
            return box_prism(centre, turn, (high - low) / 2)

        def is_free(low: np.ndarray, high: np.ndarray) -> bool:
            return self._others.fits(box(low, high), _OFF_M / 2)

        front, hinge = self._high[0], self._low[1]
        stands = [
            np.array(pose.pos) + turn @ np.array([front + away, 0.0, 0.0]) for away in _STAND_M
        ]
        if not all(map(self._is_floor, stands)) or not is_free(self._low, self._high):
            return False
        if not self._drawers.fits(box(self._low, self._high), 0.0):
            return False
        low = np.array([front, hinge - _BESIDE_M, self._low[2]])
        return not beside or not is_free(low, np.array([front + _FRONT_M, hinge, self._high[2]]))

    def _is_floor(self, point: np.ndarray) -> bool:
        ix, iy = ((point[:2] - self._origin) / CELL_M).astype(int)
        rows, columns = self._free.shape
        return bool(0 <= iy < rows and 0 <= ix < columns and self._free[iy, ix])
