"""Distances that skill definitions are made of; any Array API library, leading batch axis n."""

import functools
from typing import Any

from array_api_compat import array_namespace, device

from tpsrl.world.state import WorldState

# The end-effector's resting point in the base frame, metres (habitat-lab, FetchRobot tasks).
REST_POINT = (0.5, 0.0, 1.0)


def length(vector: Any) -> Any:
    """Length (...) of vectors (..., k)."""
    xp = array_namespace(vector)
    return xp.sqrt(xp.sum(vector * vector, axis=-1))


def planar_distance(base: Any, point: Any) -> Any:
    """Distance (n,) in metres over the floor from base poses (n, 3) to points (n, 3)."""
    return length(point[..., :2] - base[..., :2])


def distance(first: Any, second: Any) -> Any:
    """Distance (n,) in metres between points (n, 3)."""
    return length(first - second)


def heading_error(base: Any, point: Any) -> Any:
    """Absolute angle (n,) in [0, pi] between a base's heading and the direction to a point."""
    xp = array_namespace(base, point)
    local = to_base(base, point[..., None, :])[..., 0, :]
    return xp.abs(xp.atan2(local[..., 1], local[..., 0]))


def rest_distance(base: Any, ee_pos: Any) -> Any:
    """Distance (n,) in metres from the end effector to its resting point in the base frame."""
    return length(rest_vector(to_base(base, ee_pos[..., None, :])[..., 0, :]))


def rest_vector(ee: Any) -> Any:
    """From end effectors (n, 3), in the base frame, to their resting point (n, 3)."""
    return _rest_point(array_namespace(ee), ee.dtype, device(ee)) - ee


@functools.cache
def _rest_point(xp: Any, dtype: Any, place: Any) -> Any:
    return xp.asarray(REST_POINT, dtype=dtype, device=place)


def to_base(base: Any, points: Any) -> Any:
    """Points (n, k, 3) of the world in the frames of base poses (n, 3); z stays."""
    xp = array_namespace(points)
    dx = points[..., 0] - base[..., None, 0]
    dy = points[..., 1] - base[..., None, 1]
    yaw = base[..., None, 2]
    cos, sin = xp.cos(yaw), xp.sin(yaw)
    return xp.stack([cos * dx + sin * dy, cos * dy - sin * dx, points[..., 2]], axis=-1)


def object_position(index: Any, world: WorldState) -> Any:
    """Where objects (n,) are (n, 3); zero where the index is -1."""
    xp = array_namespace(index)
    rows = xp.arange(index.shape[0], device=device(index))
    found = world.object_pos[rows, index]
    return xp.where((index >= 0)[:, None], found, 0.0)
