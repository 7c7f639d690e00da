"""Geometry for skill definitions, for any Array API library, with a leading batch axis n."""

import functools
import math
from typing import Any

import array_api_compat
import numpy as np
from array_api_compat import device

from skills.core.arrays import Array
from tpsrl.world.fetch import REST_EE
from tpsrl.world.state import WorldState

_NUMPY: Any = array_api_compat.array_namespace(np.zeros(0))


def array_namespace(array: object) -> Any:
    """Returns the Array API namespace of an array, with a fast path for numpy."""
    return _NUMPY if type(array) is np.ndarray else array_api_compat.array_namespace(array)


def columns(*parts: Array) -> Array:
    """Stacks k arrays (...) along a new last axis, (..., k)."""
    return array_namespace(parts[0]).concat([part[..., None] for part in parts], axis=-1)


def points(*parts: Array) -> Array:
    """Stacks k arrays of points (n, 3) to (n, k, 3)."""
    return array_namespace(parts[0]).concat([part[:, None, :] for part in parts], axis=1)


def length(vector: Array) -> Array:
    """Returns the lengths (...) of vectors (..., k)."""
    xp = array_namespace(vector)
    return xp.sqrt(xp.vecdot(vector, vector))


def planar_distance(base: Array, point: Array) -> Array:
    """Returns horizontal distances (n,) in metres from base poses (n, 3) to points (n, 3)."""
    return length(point[..., :2] - base[..., :2])


def distance(first: Array, second: Array) -> Array:
    """Returns distances (n,) in metres between points (n, 3)."""
    return length(first - second)


def rest_distance(base: Array, ee_pos: Array) -> Array:
    """Returns distances (n,) in metres from the end effector to its resting point.

    Args:
        base: (n, 3) base poses
        ee_pos: (n, 3) positions of the end effector in the world frame
    """
    return length(rest_vector(to_base(base, ee_pos[..., None, :])[..., 0, :]))


def rest_vector(ee: Array) -> Array:
    """Returns vectors (n, 3) from end effectors (n, 3) to the resting point, in the base frame."""
    return _REST.like(ee) - ee


class Constant:
    """Constant from nested tuples, cached as an array for each library, data type and device."""

    __slots__ = ("_made", "_values")

    def __init__(self, values: tuple[Any, ...]) -> None:
        self._values = values
        self._made: dict[Any, Any] = {}

    def like(self, array: Array) -> Array:
        """Returns the constant with the library, data type and device of `array`."""
        kind = array.dtype if type(array) is np.ndarray else (array.dtype, device(array))
        made = self._made.get(kind)
        if made is None:
            xp = array_namespace(array)
            made = xp.asarray(self._values, dtype=array.dtype, device=device(array))
            self._made[kind] = made
        return made


def to_base(base: Array, points: Array) -> Array:
    """Transforms points (n, k, 3) from the world to the frames of base poses (n, 3); z is kept."""
    origin = base * _FLOOR.like(base)
    return (points - origin[..., None, :]) @ _turn(base)


def _turn(base: Array) -> Array:
    """Returns matrices (n, 3, 3) that rotate row vectors from the world to the frames of bases."""
    # One sine gives every entry: cos(yaw) = sin(yaw + pi/2), 0 = sin(0), 1 = sin(pi/2).
    angles = base[..., 2, None, None] * _YAWS.like(base) + _PHASES.like(base)
    return array_namespace(base).sin(angles)


_REST = Constant(REST_EE)
_FLOOR = Constant((1.0, 1.0, 0.0))
_YAWS = Constant(((1.0, -1.0, 0.0), (1.0, 1.0, 0.0), (0.0, 0.0, 0.0)))
_PHASES = Constant(((math.pi / 2, 0.0, 0.0), (0.0, math.pi / 2, 0.0), (0.0, 0.0, math.pi / 2)))


def each(values: Array, index: Array) -> Array:
    """Selects from each row of `values` (n, k, ...) the entry at its `index` (n,)."""
    place = None if type(index) is np.ndarray else device(index)
    return values[_count(index.shape[0], array_namespace(index), place), index]


@functools.lru_cache(maxsize=64)
def _count(size: int, xp: Any, place: Any) -> Array:
    return xp.arange(size, device=place)


def in_each(index: Array) -> Array:
    """Returns True for every home, (n,) bool, with the library and device of `index` (n,)."""
    place = None if type(index) is np.ndarray else device(index)
    return _true(index.shape[0], array_namespace(index), place)


@functools.lru_cache(maxsize=64)
def _true(size: int, xp: Any, place: Any) -> Array:
    return xp.ones(size, dtype=xp.bool, device=place)


def seen(world: WorldState, *others: Array) -> Array:
    """Transforms points and the base's velocity to the base frame.

    Args:
        world: state of n homes
        others: k arrays of points (n, 3) in the world frame

    Returns:
        (n, k + 2, 3): the end effector, the other points, and the velocity of the base (forward and
        left in m/s, turn in rad/s).
    """
    base = world.base
    origin = base * _FLOOR.like(base)
    # With the base's position added, the velocity is rotated along with the points.
    around = points(world.ee_pos, *others, world.base_velocity + origin)
    return (around - origin[:, None, :]) @ _turn(base)


def holding(world: WorldState) -> Array:
    """Returns whether the suction cup holds an object or a handle, (n,) bool."""
    return array_namespace(world.held).maximum(world.held, world.held_joint) >= 0


def millimetres(metres: Array) -> Array:
    """Rounds lengths in metres to millimetres, as habitat-lab does against jitter."""
    return array_namespace(metres).round(1000.0 * metres) / 1000.0
