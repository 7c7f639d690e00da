"""Distances from points to surrounding surfaces as kernels: one thread per point.

They are those of `tpsrl.sim.clearance`, for the homes of a batch.
"""

import warp as wp

from tpsrl.render import caster
from tpsrl.sim.mjcf.home import NEVER_M
from tpsrl.world.fetch import CLEARANCE_RANGE_M, CUP, GRIPPER, HAND_POINTS

_BOX, _CYLINDER = wp.constant(caster.BOX), wp.constant(caster.CYLINDER)
_UNUSED = wp.constant(0.5 * NEVER_M)  # margins of unused geoms are below
_RANGE = wp.constant(CLEARANCE_RANGE_M)
_TIP = wp.constant(GRIPPER + CUP)  # of the cup, along the wrist's axis
_HAND = wp.constant(HAND_POINTS)


@wp.func
def _nearest(kind: int, pos: wp.vec3, mat: wp.mat33, size: wp.vec3, point: wp.vec3) -> wp.vec4:
    """Returns the unit vector towards a geom's surface, world frame, and the signed distance.

    Inside the geom the vector is opposite to the nearest face's outward normal.
    """
    p = wp.transpose(mat) @ (point - pos)
    out, distance = p, 0.0  # from the surface outwards, in the geom's frame
    if kind == _BOX:
        q = wp.vec3(wp.abs(p[0]) - size[0], wp.abs(p[1]) - size[1], wp.abs(p[2]) - size[2])
        far = wp.vec3(wp.max(q[0], 0.0), wp.max(q[1], 0.0), wp.max(q[2], 0.0))
        distance = wp.length(far)
        if distance <= 0.0:
            distance = wp.max(q[0], wp.max(q[1], q[2]))
            far = wp.vec3(
                wp.where(q[0] == distance, 1.0, 0.0),
                wp.where(q[1] == distance, 1.0, 0.0),
                wp.where(q[2] == distance, 1.0, 0.0),
            )
        out = wp.vec3(_signed(far[0], p[0]), _signed(far[1], p[1]), _signed(far[2], p[2]))
    elif kind == _CYLINDER:
        axial = wp.sqrt(p[0] * p[0] + p[1] * p[1])
        aside, above = axial - size[0], wp.abs(p[2]) - size[1]
        outwards, upwards = wp.max(aside, 0.0), wp.max(above, 0.0)
        distance = wp.sqrt(outwards * outwards + upwards * upwards)
        if distance <= 0.0:
            distance = wp.max(aside, above)
            outwards = wp.where(aside == distance, 1.0, 0.0)
            upwards = wp.where(above == distance, 1.0, 0.0)
        scale = outwards / wp.max(axial, 1.0e-9)
        out = wp.vec3(scale * p[0], scale * p[1], _signed(upwards, p[2]))
    else:
        distance = wp.length(p) - size[0]
    towards = -(mat @ out) / wp.max(wp.length(out), 1.0e-9)
    return wp.vec4(towards[0], towards[1], towards[2], distance)


@wp.func
def _signed(size: float, like: float) -> float:
    return wp.where(like < 0.0, -size, size)


@wp.func
def _beyond(pos: wp.vec3, bound: float, point: wp.vec3, limit: float) -> bool:
    """Returns whether a geom's bounding sphere is farther than `limit` (m) from a point."""
    far = limit + bound
    return wp.length_sq(pos - point) > far * far


@wp.func
def _nearest_within(
    best: wp.vec4,
    kind: int,
    pos: wp.vec3,
    mat: wp.mat33,
    size: wp.vec3,
    bound: float,
    point: wp.vec3,
    turn: wp.mat33,
) -> wp.vec4:
    """Returns `best`, or the row of a geom that is nearer, its vector in the frame `turn`."""
    if _beyond(pos, bound, point, best[3]):
        return best
    found = _nearest(kind, pos, mat, size, point)
    if found[3] >= best[3]:
        return best
    v = wp.transpose(turn) @ wp.vec3(found[0], found[1], found[2])
    return wp.vec4(v[0], v[1], v[2], found[3])


@wp.kernel(enable_backward=False)
def measure(
    geoms: wp.array[int],
    slots: wp.array[int],
    kind: wp.array[int],
    size: wp.array2d[wp.vec3],
    bound: wp.array2d[float],
    margin: wp.array2d[float],
    pos: wp.array2d[wp.vec3],
    mat: wp.array2d[wp.mat33],
    body_pos: wp.array2d[wp.vec3],
    body_mat: wp.array2d[wp.mat33],
    bodies: wp.array[int],
    local: wp.array[wp.vec3],
    base: int,
    wrist: int,
    held: wp.array[wp.int64],
    target: wp.array[wp.int64],
    out: wp.array2d[wp.vec4],
) -> None:
    """Writes the clearances of points of the robot; see `tpsrl.sim.clearance.Clearance.measure`.

    Args:
        geoms, slots: (g,) obstacles, and the slots of loose objects among them (-1: furniture)
        kind: (geoms,) MuJoCo geom types
        size, bound, margin, pos, mat: (n, geoms)
        body_pos, body_mat: (n, bodies) poses
        bodies, local: (points,) body of each point, and its position there
        base, wrist: bodies
        held, target: (n,) slots of the held object and of the one to touch, -1 for none
        out: (n, rows) receives the rows
    """
    env, row = wp.tid()
    turn = body_mat[env, base]
    inside = int(held[env])
    point, known = wp.vec3(0.0, 0.0, 0.0), int(row < bodies.shape[0])
    if known == 1:
        body = bodies[row]
        point = body_pos[env, body] + body_mat[env, body] @ local[row]
    else:
        for i in range(geoms.shape[0]):
            if known == 0 and inside >= 0 and slots[i] == inside:
                point = pos[env, geoms[i]]
                known = 1
        if row > bodies.shape[0]:
            tip = body_pos[env, wrist] + body_mat[env, wrist] @ wp.vec3(_TIP, 0.0, 0.0)
            point = point + (point - tip)
    best = wp.vec4(0.0, 0.0, 0.0, _RANGE)
    if known == 1:
        for i in range(geoms.shape[0]):
            g, slot = geoms[i], slots[i]
            used = slot < 0 or (slot != inside and margin[env, g] > _UNUSED)
            touched = row < _HAND and slot >= 0 and slot == int(target[env])
            if used and not touched:
                best = _nearest_within(
                    best,
                    kind[g],
                    pos[env, g],
                    mat[env, g],
                    size[env, g],
                    bound[env, g],
                    point,
                    turn,
                )
    out[env, row] = best


@wp.kernel(enable_backward=False)
def measure_loose(
    geoms: wp.array[int],
    slots: wp.array[int],
    kind: wp.array[int],
    size: wp.array2d[wp.vec3],
    bound: wp.array2d[float],
    margin: wp.array2d[float],
    pos: wp.array2d[wp.vec3],
    mat: wp.array2d[wp.mat33],
    body_pos: wp.array2d[wp.vec3],
    body_mat: wp.array2d[wp.mat33],
    base: int,
    wrist: int,
    held: wp.array[wp.int64],
    target: wp.array[wp.int64],
    points: wp.array[wp.vec3],
    out: wp.array2d[wp.vec4],
) -> None:
    """Writes where loose objects are; see `tpsrl.sim.clearance.Clearance.neighbours`.

    Args:
        geoms, slots: (g,) loose objects and their slots
        kind, size, bound, margin, pos, mat, body_pos, body_mat, base, wrist, held, target: see
            `measure`
        points: (n,) second point in the world frame (m); the first is the cup
        out: (n, 3) receives the rows
    """
    env, row = wp.tid()
    point = body_pos[env, wrist] + body_mat[env, wrist] @ wp.vec3(_TIP, 0.0, 0.0)
    if row == 1:
        point = points[env]
    turn, of_target = body_mat[env, base], row == 2
    best = wp.vec4(0.0, 0.0, 0.0, _RANGE)
    for i in range(geoms.shape[0]):
        g, slot = geoms[i], slots[i]
        mine = slot == int(target[env])
        other = not mine and slot != int(held[env]) and margin[env, g] > _UNUSED
        counts = (of_target and mine) or (not of_target and other)
        if counts:
            best = _nearest_within(
                best, kind[g], pos[env, g], mat[env, g], size[env, g], bound[env, g], point, turn
            )
    out[env, row] = best
