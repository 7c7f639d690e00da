"""`tpsrl.sim.control.command` and the base's velocity filter as a kernel, one thread per home.

The search for obstacles ahead takes a different number of iterations in each home, which a kernel
allows. A test compares the kernel with the compiled functions for one home.
"""

import warp as wp

from tpsrl.sim import base_filter
from tpsrl.sim.mjcf.home import SUBSTEPS
from tpsrl.world.action import (
    ARM_DELTA_RAD,
    ARM_LEASH_RAD,
    BASE_ANGULAR_RPS,
    BASE_LINEAR_MPS,
    CONTROL_HZ,
)
from tpsrl.world.fetch import BASE_RADIUS
from tpsrl.world.floor import CELL_M
from tpsrl.world.kinematics import LOWER, UPPER

_Joints = wp.types.vector(length=7, dtype=float)
_LOWER, _UPPER = wp.constant(_Joints(*LOWER.tolist())), wp.constant(_Joints(*UPPER.tolist()))
_SUBSTEPS = wp.constant(SUBSTEPS)
_DELTA, _LEASH = wp.constant(ARM_DELTA_RAD), wp.constant(ARM_LEASH_RAD)
_LINEAR, _ANGULAR = wp.constant(BASE_LINEAR_MPS), wp.constant(BASE_ANGULAR_RPS)
_STEP_S = wp.constant(1.0 / CONTROL_HZ)
_RADIUS, _CELL = wp.constant(BASE_RADIUS), wp.constant(CELL_M)
_BRAKE, _SHARE = wp.constant(base_filter.BRAKE), wp.constant(base_filter.SHARE)
_TOLERANCE, _LEAST_STEP = (
    wp.constant(base_filter.TOLERANCE_M),
    wp.constant(base_filter.LEAST_STEP_M),
)
_CREEP, _ATTEMPTS = wp.constant(base_filter.CREEP_M), wp.constant(base_filter.ATTEMPTS)


@wp.func
def _gradient(distance: wp.array2d[float], x0: float, y0: float, x: float, y: float) -> wp.vec3:
    """Returns distance (m) and gradient at (x, y), as `tpsrl.world.floor.clearance_gradient`."""
    fx, fy = (x - x0) / _CELL - 0.5, (y - y0) / _CELL - 0.5
    ny, nx = distance.shape[0], distance.shape[1]
    ix = wp.clamp(int(wp.floor(fx)), 0, nx - 2)
    iy = wp.clamp(int(wp.floor(fy)), 0, ny - 2)
    tx = wp.clamp(fx - float(ix), 0.0, 1.0)
    ty = wp.clamp(fy - float(iy), 0.0, 1.0)
    a, b = distance[iy, ix], distance[iy, ix + 1]
    c, d = distance[iy + 1, ix], distance[iy + 1, ix + 1]
    value = (a * (1.0 - tx) + b * tx) * (1.0 - ty) + (c * (1.0 - tx) + d * tx) * ty
    gx = ((b - a) * (1.0 - ty) + (d - c) * ty) / _CELL
    gy = ((c - a) * (1.0 - tx) + (d - b) * tx) / _CELL
    return wp.vec3(value, gx, gy)


@wp.func
def _slid(velocity: wp.vec2, gradient: wp.vec2, free: float) -> wp.vec2:
    """Limits the velocity's component against the gradient so that it stops within `free` (m)."""
    norm = wp.length(gradient)
    if norm < 1.0e-6:
        return velocity
    limit = wp.float32(0.0)
    if free > 0.0:
        limit = _SHARE * wp.sqrt(2.0 * _BRAKE * free)
    over = -wp.dot(velocity, gradient) / norm - limit
    if over <= 1.0e-6:
        return velocity
    return velocity + over / norm * gradient


@wp.func
def _ahead(
    distance: wp.array2d[float],
    x0: float,
    y0: float,
    place: wp.vec2,
    velocity: wp.vec2,
    least: float,
) -> wp.vec3:
    """Finds the first point ahead with an obstacle nearer than `least` (m).

    Returns the distance to that point (m), -1 if there is none within the braking distance, and
    the gradient of the distance map there.
    """
    speed = wp.length(velocity)
    if speed < 1.0e-6:
        return wp.vec3(-1.0, 0.0, 0.0)
    stop = speed * speed / (2.0 * _BRAKE * _SHARE * _SHARE)
    ux, uy = velocity[0] / speed, velocity[1] / speed
    ahead = wp.float32(0.0)
    found = wp.vec3(-1.0, 0.0, 0.0)
    searching = wp.bool(True)
    while searching:
        here = _gradient(distance, x0, y0, place[0] + ahead * ux, place[1] + ahead * uy)
        if here[0] < least and wp.length(wp.vec2(here[1], here[2])) > 1.0e-6:
            found = wp.vec3(ahead, here[1], here[2])
            searching = False
        elif ahead >= stop:
            searching = False
        else:
            ahead = wp.min(ahead + wp.max(here[0] - least, _LEAST_STEP), stop)
    return found


@wp.func
def _filtered(
    distance: wp.array2d[float], x0: float, y0: float, place: wp.vec2, wanted: wp.vec2
) -> wp.vec2:
    """Limits the base's velocity, as `tpsrl.sim.base_filter.filter_velocity`."""
    here = _gradient(distance, x0, y0, place[0], place[1])
    value = here[0]
    velocity = _slid(wanted, wp.vec2(here[1], here[2]), value - _RADIUS)
    least = wp.min(value, _RADIUS) - _TOLERANCE
    attempt = wp.int32(0)
    while attempt < _ATTEMPTS:
        attempt += 1
        there = _ahead(distance, x0, y0, place, velocity, least)
        if there[0] < 0.0:
            attempt = _ATTEMPTS
        else:
            gradient = wp.vec2(there[1], there[2])
            towards = -wp.dot(velocity, gradient) / wp.length(gradient)
            free = there[0] * wp.max(towards, 0.0) / wp.length(velocity)
            velocity = _slid(velocity, gradient, free)
    least = wp.min(value - _CREEP, _RADIUS - _TOLERANCE)
    for _ in range(_ATTEMPTS):
        following = place + velocity * _STEP_S
        if _gradient(distance, x0, y0, following[0], following[1])[0] < least:
            velocity = 0.5 * velocity
        else:
            return velocity
    return wp.vec2(0.0, 0.0)


@wp.kernel(enable_backward=False)
def command(
    action: wp.array2d[float],
    qpos: wp.array2d[float],
    base: int,
    arm: int,
    target: wp.array2d[float],
    filtered: bool,
    maps: wp.array3d[float],
    map_of: wp.array[int],
    x0: float,
    y0: float,
    ramp: wp.array3d[float],
    velocity: wp.array2d[float],
) -> None:
    """Computes the actuator commands of one control step of each home.

    Args:
        action: (n, 11), clipped here.
        qpos: (n, nq), of which x, y, yaw begin at `base` and the arm's seven joints at `arm`.
        target: (n, 7) joint targets of the arms, updated by the actions.
        filtered: whether to keep the bases on the free floor.
        maps: (layouts, ny, nx) metres to the nearest obstacle.
        map_of: (n,) index of each home's map.
        x0, y0: corner of the maps (m).
        ramp: (n, substeps, 7) receives arm commands interpolated to the new targets.
        velocity: (n, 3) receives the velocity commands of the bases, world frame.
    """
    env = wp.tid()
    for j in range(7):
        start = target[env, j]
        now = qpos[env, arm + j]
        goal = start + wp.clamp(action[env, j], -1.0, 1.0) * _DELTA
        goal = wp.clamp(goal, now - _LEASH, now + _LEASH)
        goal = wp.clamp(goal, _LOWER[j], _UPPER[j])
        for s in range(_SUBSTEPS):
            ramp[env, s, j] = start + float(s + 1) * ((goal - start) / float(_SUBSTEPS))
        target[env, j] = goal
    speed = wp.clamp(action[env, 8], -1.0, 1.0) * _LINEAR
    turn = wp.clamp(action[env, 9], -1.0, 1.0) * _ANGULAR
    heading = qpos[env, base + 2] + 0.5 * turn * _STEP_S
    wanted = wp.vec2(speed * wp.cos(heading), speed * wp.sin(heading))
    if filtered and speed != 0.0:
        place = wp.vec2(qpos[env, base], qpos[env, base + 1])
        wanted = _filtered(maps[map_of[env]], x0, y0, place, wanted)
    velocity[env, 0] = wanted[0]
    velocity[env, 1] = wanted[1]
    velocity[env, 2] = turn
