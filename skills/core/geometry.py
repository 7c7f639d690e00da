"""Distances that skill definitions are made of; any Array API library, leading batch axis n."""

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
    """The Array API library of an array; quick for numpy, which is asked for at every step."""
    return _NUMPY if type(array) is np.ndarray else array_api_compat.array_namespace(array)


def columns(*parts: Array) -> Array:
    """Arrays (...) side by side (..., k)."""
    return array_namespace(parts[0]).concat([part[..., None] for part in parts], axis=-1)


def points(*parts: Array) -> Array:
    """Points (n, 3) one below the other (n, k, 3)."""
    return array_namespace(parts[0]).concat([part[:, None, :] for part in parts], axis=1)


def length(vector: Array) -> Array:
    """Length (...) of vectors (..., k)."""
    xp = array_namespace(vector)
    return xp.sqrt(xp.vecdot(vector, vector))


def planar_distance(base: Array, point: Array) -> Array:
    """Distance (n,) in metres over the floor from base poses (n, 3) to points (n, 3)."""
    return length(point[..., :2] - base[..., :2])


def distance(first: Array, second: Array) -> Array:
    """Distance (n,) in metres between points (n, 3)."""
    return length(first - second)


def rest_distance(base: Array, ee_pos: Array) -> Array:
    """Distance (n,) in metres from the end effector to its resting point in the base frame."""
    return length(rest_vector(to_base(base, ee_pos[..., None, :])[..., 0, :]))


def rest_vector(ee: Array) -> Array:
    """From end effectors (n, 3), in the base frame, to their resting point (n, 3)."""
    return _REST.like(ee) - ee


class Constant:
    """Numbers, nested in tuples, which are made once an array of each library, type and device."""

    __slots__ = ("_made", "_values")

    def __init__(self, values: tuple[Any, ...]) -> None:
        self._values = values
        self._made: dict[Any, Any] = {}

    def like(self, array: Array) -> Array:
        """These numbers as an array of the same library, type and device as another."""
        kind = array.dtype if type(array) is np.ndarray else (array.dtype, device(array))
        made = self._made.get(kind)
        if made is None:
            xp = array_namespace(array)
            made = xp.asarray(self._values, dtype=array.dtype, device=device(array))
            self._made[kind] = made
        return made


def to_base(base: Array, points: Array) -> Array:
    """Points (n, k, 3) of the world in the frames of base poses (n, 3); z stays."""
    origin = base * _FLOOR.like(base)
    return (points - origin[..., None, :]) @ _turn(base)


def _turn(base: Array) -> Array:
    """Matrices (n, 3, 3) which turn row vectors of the world into the frames of bases (n, 3)."""
    # Every entry is a sine: cos(yaw) = sin(yaw + pi/2), 0 = sin(0), 1 = sin(pi/2).
    angles = base[..., 2, None, None] * _YAWS.like(base) + _PHASES.like(base)
    return array_namespace(base).sin(angles)


_REST = Constant(REST_EE)
_FLOOR = Constant((1.0, 1.0, 0.0))
_YAWS = Constant(((1.0, -1.0, 0.0), (1.0, 1.0, 0.0), (0.0, 0.0, 0.0)))
_PHASES = Constant(((math.pi / 2, 0.0, 0.0), (0.0, math.pi / 2, 0.0), (0.0, 0.0, math.pi / 2)))


def each(values: Array, index: Array) -> Array:
    """Of every home (n, k, ...) the entry of its index (n,)."""
    place = None if type(index) is np.ndarray else device(index)
    return values[_count(index.shape[0], array_namespace(index), place), index]


@functools.lru_cache(maxsize=64)
def _count(size: int, xp: Any, place: Any) -> Array:
    return xp.arange(size, device=place)


def in_each(index: Array) -> Array:
    """True for every home (n,) bool, of an array (n,) of the same library and device."""
    place = None if type(index) is np.ndarray else device(index)
    return _true(index.shape[0], array_namespace(index), place)


@functools.lru_cache(maxsize=64)
def _true(size: int, xp: Any, place: Any) -> Array:
    return xp.ones(size, dtype=xp.bool, device=place)


def seen(world: WorldState, *others: Array) -> Array:
    """What lies around the base, in its frame (n, k + 2, 3).

    The end effector, k other points (n, 3) of the world, and the base's own velocity: forward and
    left in m/s, turn in rad/s.
    """
    base = world.base
    origin = base * _FLOOR.like(base)
    # A velocity is turned as points are when it is put where the base stands.
    around = points(world.ee_pos, *others, world.base_velocity + origin)
    return (around - origin[:, None, :]) @ _turn(base)


def holding(world: WorldState) -> Array:
    """Whether the cup holds an object or a handle (n,) bool."""
    return array_namespace(world.held).maximum(world.held, world.held_joint) >= 0


def millimetres(metres: Array) -> Array:
    """To whole millimetres, in metres, as habitat-lab does against jitter."""
    return array_namespace(metres).round(1000.0 * metres) / 1000.0
