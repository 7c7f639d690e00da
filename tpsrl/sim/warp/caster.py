"""Depth of the head camera and the laser as kernels: one thread per ray.

A ray is intersected with each geom analytically.

The pictures are those of `tpsrl.render.caster`: planes are seen from their front, other geoms also
from inside, and depth is along the optical axis. Rays are not normalised (forward component 1), so
that a ray's parameter is its depth.
"""

import warp as wp

from tpsrl.render import caster

_PLANE, _SPHERE = wp.constant(caster.PLANE), wp.constant(caster.SPHERE)
_CAPSULE, _CYLINDER = wp.constant(caster.CAPSULE), wp.constant(caster.CYLINDER)
_NEVER = wp.constant(1.0e10)


@wp.func
def _met(enter: float, leave: float) -> float:
    """Returns the depth at which a ray meets a body that it crosses from `enter` to `leave`.

    A ray that starts inside the body meets the body at `leave`.
    """
    if enter > leave or leave <= 0.0:
        return _NEVER
    return wp.where(enter > 0.0, enter, leave)


@wp.func
def _slab(origin: float, along: float, half: float) -> wp.vec2:
    """Returns the interval of parameters in which a ray is within `half` of 0 on one axis."""
    if wp.abs(along) < 1.0e-12:
        if wp.abs(origin) > half:
            return wp.vec2(_NEVER, -_NEVER)
        return wp.vec2(-_NEVER, _NEVER)
    one, other = (-half - origin) / along, (half - origin) / along
    return wp.vec2(wp.min(one, other), wp.max(one, other))


@wp.func
def _round(a: float, b: float, c: float) -> wp.vec2:
    """Returns the interval of t in which a t^2 + 2 b t + c is negative, for a >= 0."""
    if a < 1.0e-12:
        if c > 0.0:
            return wp.vec2(_NEVER, -_NEVER)
        return wp.vec2(-_NEVER, _NEVER)
    root = b * b - a * c
    if root < 0.0:
        return wp.vec2(_NEVER, -_NEVER)
    root = wp.sqrt(root)
    return wp.vec2((-b - root) / a, (-b + root) / a)


@wp.func
def _plane(o: wp.vec3, d: wp.vec3, size: wp.vec3) -> float:
    if o[2] <= 0.0 or d[2] >= 0.0:
        return _NEVER
    t = -o[2] / d[2]
    if size[0] > 0.0 and wp.abs(o[0] + t * d[0]) > size[0]:
        return _NEVER
    if size[1] > 0.0 and wp.abs(o[1] + t * d[1]) > size[1]:
        return _NEVER
    return t


@wp.func
def _box(o: wp.vec3, d: wp.vec3, size: wp.vec3) -> float:
    x, y, z = _slab(o[0], d[0], size[0]), _slab(o[1], d[1], size[1]), _slab(o[2], d[2], size[2])
    return _met(wp.max(wp.max(x[0], y[0]), z[0]), wp.min(wp.min(x[1], y[1]), z[1]))


@wp.func
def _tube(o: wp.vec3, d: wp.vec3, radius: float, half: float) -> wp.vec2:
    """Returns the interval in which a ray is in a cylinder along z; reversed if there is none."""
    side = _round(
        d[0] * d[0] + d[1] * d[1],
        o[0] * d[0] + o[1] * d[1],
        o[0] * o[0] + o[1] * o[1] - radius * radius,
    )
    caps = _slab(o[2], d[2], half)
    return wp.vec2(wp.max(side[0], caps[0]), wp.min(side[1], caps[1]))


@wp.func
def _cylinder(o: wp.vec3, d: wp.vec3, radius: float, half: float) -> float:
    tube = _tube(o, d, radius, half)
    return _met(tube[0], tube[1])


@wp.func
def _ball(o: wp.vec3, d: wp.vec3, radius: float) -> wp.vec2:
    return _round(wp.dot(d, d), wp.dot(o, d), wp.dot(o, o) - radius * radius)


@wp.func
def _capsule(o: wp.vec3, d: wp.vec3, radius: float, half: float) -> float:
    """Returns the depth of a capsule: a convex union, so its parts' intervals join to one."""
    tube = _tube(o, d, radius, half)
    enter, leave = tube[0], tube[1]
    if enter > leave:
        enter, leave = _NEVER, -_NEVER
    top = _ball(o - wp.vec3(0.0, 0.0, half), d, radius)
    bottom = _ball(o + wp.vec3(0.0, 0.0, half), d, radius)
    enter = wp.min(enter, wp.min(top[0], bottom[0]))
    leave = wp.max(leave, wp.max(top[1], bottom[1]))
    return _met(enter, leave)


@wp.func
def _meet(kind: int, o: wp.vec3, d: wp.vec3, size: wp.vec3) -> float:
    """Returns the depth at which a ray from `o` along `d` meets a geom, in the geom's frame."""
    if kind == _PLANE:
        return _plane(o, d, size)
    if kind == _SPHERE:
        ball = _ball(o, d, size[0])
        return _met(ball[0], ball[1])
    if kind == _CAPSULE:
        return _capsule(o, d, size[0], size[1])
    if kind == _CYLINDER:
        return _cylinder(o, d, size[0], size[1])
    return _box(o, d, size)


@wp.func
def _may_meet(away: wp.vec3, d: wp.vec3, radius: float, nearest: float) -> bool:
    """Returns whether a ray comes within `radius` of a point `away` before the depth `nearest`."""
    along, length2 = wp.dot(away, d), wp.dot(d, d)
    if wp.dot(away, away) - along * along / length2 > radius * radius:
        return False
    return along - radius * wp.sqrt(length2) < nearest * length2


@wp.func
def _nearer(
    kind: int,
    size: wp.vec3,
    bound: float,
    pos: wp.vec3,
    mat: wp.mat33,
    eye: wp.vec3,
    ray: wp.vec3,
    nearest: float,
) -> float:
    """Returns the depth at which a ray meets a geom, at most `nearest`."""
    away = pos - eye
    if bound > 0.0 and not _may_meet(away, ray, bound, nearest):
        return nearest
    back = wp.transpose(mat)
    return wp.min(nearest, _meet(kind, back @ (-away), back @ ray, size))


@wp.kernel(enable_backward=False)
def cast_depth(
    kind: wp.array[int],
    size: wp.array2d[wp.vec3],
    bound: wp.array2d[float],
    pos: wp.array2d[wp.vec3],
    mat: wp.array2d[wp.mat33],
    body_pos: wp.array2d[wp.vec3],
    body_mat: wp.array2d[wp.mat33],
    body: int,
    camera_pos: wp.vec3,
    camera_mat: wp.mat33,
    tan_half: float,
    far: float,
    depth: wp.array3d[float],
) -> None:
    """Writes depth pictures, 0 to `far` (m) mapped to 0 to 1.

    Args:
        kind: (geoms,) MuJoCo geom types.
        size, bound, pos, mat: (n, geoms) sizes, bounding radii (0 for planes), poses.
        body_pos, body_mat: (n, bodies) poses; `body` carries the camera.
        camera_pos, camera_mat: the camera in that body's frame; columns right, up, backward.
        tan_half: tangent of half the horizontal field of view; pixels are square.
        far: depth beyond which nothing is seen (m).
        depth: (n, height, width) receives the pictures.
    """
    env, row, column = wp.tid()
    height, width = depth.shape[1], depth.shape[2]
    step = 2.0 * tan_half / float(width)
    x = (float(column) + 0.5) * step - tan_half
    y = (0.5 * float(height) - float(row) - 0.5) * step
    turn = body_mat[env, body]
    eye = body_pos[env, body] + turn @ camera_pos
    ray = turn @ (camera_mat @ wp.vec3(x, y, -1.0))
    nearest = far
    for geom in range(kind.shape[0]):
        nearest = _nearer(
            kind[geom],
            size[env, geom],
            bound[env, geom],
            pos[env, geom],
            mat[env, geom],
            eye,
            ray,
            nearest,
        )
    depth[env, row, column] = nearest / far


@wp.kernel(enable_backward=False)
def cast_laser(
    kind: wp.array[int],
    size: wp.array2d[wp.vec3],
    bound: wp.array2d[float],
    pos: wp.array2d[wp.vec3],
    mat: wp.array2d[wp.mat33],
    body_pos: wp.array2d[wp.vec3],
    body_mat: wp.array2d[wp.mat33],
    body: int,
    own: wp.array[bool],
    laser_pos: wp.vec3,
    angle: wp.array[float],
    far: float,
    ranges: wp.array2d[float],
) -> None:
    """Writes the ranges of a laser scanner, at most `far` (m).

    Args:
        kind, size, bound, pos, mat, body_pos, body_mat: see `cast_depth`.
        body: the base, which carries the scanner.
        own: (geoms,) the robot's geoms, which the scanner does not detect.
        laser_pos: position in the base's frame (m).
        angle: (rays,) from straight ahead, left positive (rad).
        far: maximum range (m).
        ranges: (n, rays) receives the ranges.
    """
    env, ray = wp.tid()
    turn = body_mat[env, body]
    eye = body_pos[env, body] + turn @ laser_pos
    along = turn @ wp.vec3(wp.cos(angle[ray]), wp.sin(angle[ray]), 0.0)
    nearest = far
    for geom in range(kind.shape[0]):
        if not own[geom]:
            nearest = _nearer(
                kind[geom],
                size[env, geom],
                bound[env, geom],
                pos[env, geom],
                mat[env, geom],
                eye,
                along,
                nearest,
            )
    ranges[env, ray] = nearest
