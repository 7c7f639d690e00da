"""Distances that skill definitions are made of; any Array API library, leading batch axis n."""

from typing import Any

from array_api_compat import array_namespace

# The end-effector's resting point in the base frame, metres (habitat-lab, FetchRobot tasks).
REST_POINT = (0.5, 0.0, 1.0)


def planar_distance(base: Any, point: Any) -> Any:
    """Distance (n,) in metres over the floor from base poses (n, 3) to points (n, 3)."""
    xp = array_namespace(base, point)
    return xp.linalg.vector_norm(point[..., :2] - base[..., :2], axis=-1)


def distance(first: Any, second: Any) -> Any:
    """Distance (n,) in metres between points (n, 3)."""
    xp = array_namespace(first, second)
    return xp.linalg.vector_norm(first - second, axis=-1)


def heading_error(base: Any, point: Any) -> Any:
    """Absolute angle (n,) in [0, pi] between a base's heading and the direction to a point."""
    xp = array_namespace(base, point)
    delta = point[..., :2] - base[..., :2]
    turn = xp.atan2(delta[..., 1], delta[..., 0]) - base[..., 2]
    return xp.abs(xp.atan2(xp.sin(turn), xp.cos(turn)))


def rest_distance(base: Any, ee_pos: Any) -> Any:
    """Distance (n,) in metres from the end effector to its resting point in the base frame."""
    xp = array_namespace(base, ee_pos)
    dx, dy = ee_pos[..., 0] - base[..., 0], ee_pos[..., 1] - base[..., 1]
    cos, sin = xp.cos(base[..., 2]), xp.sin(base[..., 2])
    x, y, z = REST_POINT
    return xp.sqrt(
        (cos * dx + sin * dy - x) ** 2 + (cos * dy - sin * dx - y) ** 2 + (ee_pos[..., 2] - z) ** 2
    )
