"""Depth images of primitive geoms by analytic ray casting, without any GL library.

Every geom is drawn on its own: its bounding box is projected to a rectangle of pixels, and only
the rays inside are intersected. The picture holds inverse depth u = 1 / z, because a plane
n . p = h seen from a camera at o along d = F + c A + r B (column c, row r) has

    u = n . d / (h - n . o),

which is linear in c and r. A convex body is then an interval of u: faces turned to the camera
bound u from above, the others from below, and the nearest body is the one with the largest u.
Depth is planar (along the optical axis), as in OpenGL and habitat-sim.
"""

import math
from typing import Any

import numpy as np

from tpsrl.errors import UserError, unknown
from tpsrl.runtime.compiled import njit
from tpsrl.world.fetch import HEAD_CAMERA_FAR_M, HEAD_CAMERA_FOV_DEG

PLANE, SPHERE, CAPSULE, CYLINDER, BOX = 0, 2, 3, 5, 6  # as in MuJoCo's mjtGeom
KINDS = {"plane": PLANE, "sphere": SPHERE, "capsule": CAPSULE, "cylinder": CYLINDER, "box": BOX}

_NEAR_M = 0.01  # bounding boxes are clipped here; surfaces are not
_TINY = 1e-6
_NO_BOUND = np.float32(1e30)
_JIT: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "fastmath": True,
    "error_model": "numpy",
}
_f4 = np.float32


class Caster:
    """Casts the depth camera rays of homes that share one list of geoms.

    Poses and sizes are arguments of each call, since they differ between homes and steps.
    A camera is a position (3,) and an orientation (3, 3) or (9,) whose columns are the world
    directions right, up and backward: MuJoCo's `cam_xpos` and `cam_xmat`. Row 0 is the top of
    the picture. A camera inside a geom sees that geom from inside, as MuJoCo's rays do; planes
    are seen from their front only.
    """

    def __init__(
        self, kinds: np.ndarray, visible: np.ndarray | None = None, far_m: float = HEAD_CAMERA_FAR_M
    ) -> None:
        """Initialises the caster.

        Args:
            kinds: (G,) MuJoCo geom types.
            visible: (G,) bool, geoms that are drawn; all by default.
            far_m: depth beyond which nothing is seen.

        Raises:
            UserError: a visible geom is not a plane, sphere, capsule, cylinder or box.
        """
        self.kinds = np.asarray(kinds, dtype=np.int32).copy()
        shown = np.ones(len(self.kinds), bool) if visible is None else np.asarray(visible, bool)
        if shown.shape != self.kinds.shape:
            raise UserError(f"visible: expected {self.kinds.shape}, got {shown.shape}")
        for kind in np.unique(self.kinds[shown]):
            if kind not in KINDS.values():
                raise unknown("geom type", kind, [f"{v} ({k})" for k, v in KINDS.items()])
        self.visible = np.flatnonzero(shown).astype(np.int32)
        self.far_m = float(far_m)

    def depth(
        self,
        pos: np.ndarray,
        mat: np.ndarray,
        size: np.ndarray,
        camera_pos: np.ndarray,
        camera_mat: np.ndarray,
        out: np.ndarray,
        fov_deg: float = HEAD_CAMERA_FOV_DEG,
    ) -> np.ndarray:
        """Writes one depth picture, 0 to `far_m` mapped to 0 to 1, to `out` and returns it.

        Args:
            pos: (G, 3) float64 geom centres in metres, world frame (`geom_xpos`).
            mat: (G, 9) float64 row-major geom orientations (`geom_xmat`).
            size: (G, 3) float64 MuJoCo geom sizes in metres.
            camera_pos: (3,) float64.
            camera_mat: (3, 3) or (9,) float64.
            out: (H, W) float32, contiguous.
            fov_deg: horizontal field of view; pixels are square.
        """
        _depth(
            self.kinds,
            self.visible,
            pos,
            mat,
            size,
            camera_pos,
            camera_mat.reshape(9),
            math.tan(math.radians(fov_deg) / 2),
            self.far_m,
            out,
        )
        return out

    def surfaces(
        self,
        pos: np.ndarray,
        mat: np.ndarray,
        size: np.ndarray,
        camera_pos: np.ndarray,
        camera_mat: np.ndarray,
        inverse_depth: np.ndarray,
        ids: np.ndarray | None,
        fov_deg: float = HEAD_CAMERA_FOV_DEG,
        visible: np.ndarray | None = None,
        far_m: float | None = None,
    ) -> None:
        """Writes 1 / depth and the geom seen at every pixel, for shading.

        Args:
            pos, mat, size, camera_pos, camera_mat, fov_deg: as in `depth`.
            inverse_depth: (H, W) float32 in 1/m; 1 / far where nothing is seen.
            ids: (H, W) int32, geom index or -1; None leaves it out.
            visible: (K,) int32 geom indices to draw instead of all visible ones.
            far_m: depth beyond which nothing is seen, `self.far_m` by default.
        """
        far = self.far_m if far_m is None else far_m
        inverse_depth.fill(1.0 / far)
        if ids is not None:
            ids.fill(-1)
        cast(
            self.kinds,
            self.visible if visible is None else visible,
            pos,
            mat,
            size,
            camera_pos,
            camera_mat.reshape(9),
            math.tan(math.radians(fov_deg) / 2),
            far,
            np.arange(max(inverse_depth.shape), dtype=np.float32),
            inverse_depth,
            ids,
        )


@njit(**_JIT)
def _depth(
    kinds: Any,
    visible: Any,
    pos: Any,
    mat: Any,
    size: Any,
    cam_pos: Any,
    cam_mat: Any,
    tan_half: float,
    far: float,
    out: Any,
) -> None:
    floor = _f4(1.0 / far)
    out[:] = floor
    columns = np.arange(max(out.shape[0], out.shape[1])).astype(np.float32)
    cast(kinds, visible, pos, mat, size, cam_pos, cam_mat, tan_half, far, columns, out, None)
    for r in range(out.shape[0]):
        row = out[r]
        for c in range(row.size):
            row[c] = floor / row[c]


@njit(**_JIT)
def cast(
    kinds: Any,
    visible: Any,
    pos: Any,
    mat: Any,
    size: Any,
    cam_pos: Any,
    cam_mat: Any,
    tan_half: float,
    far: float,
    columns: Any,
    u: Any,
    ids: Any,
) -> None:
    """Draws all visible geoms into the inverse depth picture `u` (H, W) and, if given, `ids`."""
    height, width = u.shape
    tan_y = tan_half * height / width
    # Ray direction of pixel (r, c) in the camera frame: (x0 + c dx, y0 + r dy, 1).
    dx = 2.0 * tan_half / width
    dy = -2.0 * tan_y / height
    x0 = -tan_half + 0.5 * dx
    y0 = tan_y + 0.5 * dy
    slant_x = math.sqrt(1.0 + tan_half * tan_half)
    slant_y = math.sqrt(1.0 + tan_y * tan_y)
    axes = np.empty((3, 3))  # axes[i, k]: camera component i of the geom's axis k
    rays = np.empty((3, 3))  # rays[j, k]: A, B, F in the geom frame
    o = np.empty(3)
    centre = np.empty(3)
    half = np.empty(3)
    rect = np.empty(4, np.int64)
    bounds = np.empty((9, 3))
    counts = np.empty(3, np.int64)
    edges = np.empty((4, 8), np.float32)
    spans = np.empty((2, height), np.float32)
    for index in range(visible.size):
        g = visible[index]
        kind = kinds[g]
        for i in range(3):
            value = 0.0
            for k in range(3):
                value += cam_mat[3 * k + i] * (pos[g, k] - cam_pos[k])
            centre[i] = value
        centre[2] = -centre[2]
        if kind != PLANE:
            radius = bounding_radius(kind, size[g])
            z = centre[2]
            if (
                z < -radius
                or z - radius > far
                or abs(centre[0]) - tan_half * z > radius * slant_x
                or abs(centre[1]) - tan_y * z > radius * slant_y
            ):
                continue
        if kind == SPHERE:
            _sphere_rect(centre, radius, x0, y0, dx, dy, height, width, rect)
            _draw_sphere(u, ids, g, centre, radius, x0, y0, dx, dy, rect, columns)
            continue
        for k in range(3):
            for i in range(3):
                value = 0.0
                for j in range(3):
                    value += cam_mat[3 * j + i] * mat[g, 3 * j + k]
                axes[i, k] = value
            axes[2, k] = -axes[2, k]
            o[k] = -(axes[0, k] * centre[0] + axes[1, k] * centre[1] + axes[2, k] * centre[2])
            rays[0, k] = dx * axes[0, k]
            rays[1, k] = dy * axes[1, k]
            rays[2, k] = axes[2, k] + x0 * axes[0, k] + y0 * axes[1, k]
        if kind == PLANE:
            rect[0], rect[1], rect[2], rect[3] = 0, height, 0, width
            _draw_plane(
                u, ids, g, o, rays, size[g], 1.0 / far, rect, bounds, counts, edges, spans, columns
            )
            continue
        _half_extents(kind, size[g], half)
        if not _project(centre, axes, half, x0, y0, dx, dy, height, width, rect):
            continue
        if kind == BOX:
            _draw_box(u, ids, g, o, rays, half, rect, bounds, counts, edges, spans, columns)
        elif kind == CYLINDER:
            _draw_cylinder(u, ids, g, o, rays, size[g, 0], size[g, 1], rect, columns)
        else:
            _draw_capsule(u, ids, g, o, rays, size[g, 0], size[g, 1], rect, columns)


@njit(**_JIT)
def bounding_radius(kind: int, size: Any) -> float:
    """Returns the radius (m) of a sphere around the centre that contains a geom, not a plane."""
    if kind == BOX:
        return math.sqrt(size[0] ** 2 + size[1] ** 2 + size[2] ** 2)
    if kind == CYLINDER:
        return math.sqrt(size[0] ** 2 + size[1] ** 2)
    if kind == CAPSULE:
        return size[0] + size[1]
    return size[0]


@njit(**_JIT)
def _half_extents(kind: int, size: Any, half: Any) -> None:
    if kind == BOX:
        half[0] = size[0]
        half[1] = size[1]
        half[2] = size[2]
    else:
        half[0] = size[0]
        half[1] = size[0]
        half[2] = size[1] + size[0] if kind == CAPSULE else size[1]


@njit(**_JIT)
def _set_rect(
    rect: Any, c_min: float, c_max: float, r_min: float, r_max: float, height: int, width: int
) -> bool:
    """Writes row begin, row end, column begin, column end of a range; returns False if empty."""
    rect[0] = math.ceil(min(max(r_min, 0.0), height))
    rect[1] = math.floor(min(max(r_max, -1.0), height - 1.0)) + 1
    rect[2] = math.ceil(min(max(c_min, 0.0), width))
    rect[3] = math.floor(min(max(c_max, -1.0), width - 1.0)) + 1
    return rect[0] < rect[1] and rect[2] < rect[3]


@njit(**_JIT)
def _project(
    centre: Any,
    axes: Any,
    half: Any,
    x0: float,
    y0: float,
    dx: float,
    dy: float,
    height: int,
    width: int,
    rect: Any,
) -> bool:
    """Writes the rectangle of pixels that an oriented box covers, clipped at the near plane.

    Returns False if the rectangle is empty.
    """
    x_min = y_min = 1e9
    x_max = y_max = -1e9
    reach = abs(axes[2, 0]) * half[0] + abs(axes[2, 1]) * half[1] + abs(axes[2, 2]) * half[2]
    if centre[2] + reach <= _NEAR_M:
        return False
    crosses = centre[2] - reach < _NEAR_M
    for corner in range(8):
        s0 = half[0] if corner & 1 else -half[0]
        s1 = half[1] if corner & 2 else -half[1]
        s2 = half[2] if corner & 4 else -half[2]
        x = centre[0] + s0 * axes[0, 0] + s1 * axes[0, 1] + s2 * axes[0, 2]
        y = centre[1] + s0 * axes[1, 0] + s1 * axes[1, 1] + s2 * axes[1, 2]
        z = centre[2] + s0 * axes[2, 0] + s1 * axes[2, 1] + s2 * axes[2, 2]
        if z >= _NEAR_M:
            inverse = 1.0 / z
            x_min = min(x_min, x * inverse)
            x_max = max(x_max, x * inverse)
            y_min = min(y_min, y * inverse)
            y_max = max(y_max, y * inverse)
        if not crosses:
            continue
        for k in range(3):
            if corner & (1 << k):
                continue
            # The edge from this corner along axis k, where it pierces the near plane.
            dz = 2.0 * half[k] * axes[2, k]
            if (z < _NEAR_M) == (z + dz < _NEAR_M):
                continue
            t = 2.0 * half[k] * (_NEAR_M - z) / dz
            x_cut = (x + t * axes[0, k]) / _NEAR_M
            y_cut = (y + t * axes[1, k]) / _NEAR_M
            x_min = min(x_min, x_cut)
            x_max = max(x_max, x_cut)
            y_min = min(y_min, y_cut)
            y_max = max(y_max, y_cut)
    return _set_rect(
        rect,
        (x_min - x0) / dx,
        (x_max - x0) / dx,
        (y_max - y0) / dy,
        (y_min - y0) / dy,
        height,
        width,
    )


@njit(**_JIT)
def _sphere_rect(
    centre: Any,
    radius: float,
    x0: float,
    y0: float,
    dx: float,
    dy: float,
    height: int,
    width: int,
    rect: Any,
) -> None:
    """Writes the rectangle of pixels that a sphere covers, from its tangents; all if too near."""
    z = centre[2]
    if z <= radius + _NEAR_M:
        _set_rect(rect, 0.0, width, 0.0, height, height, width)
        return
    inverse = 1.0 / (z * z - radius * radius)
    x_mid = centre[0] * z * inverse
    x_reach = radius * math.sqrt(centre[0] ** 2 + z * z - radius * radius) * inverse
    y_mid = centre[1] * z * inverse
    y_reach = radius * math.sqrt(centre[1] ** 2 + z * z - radius * radius) * inverse
    _set_rect(
        rect,
        (x_mid - x_reach - x0) / dx,
        (x_mid + x_reach - x0) / dx,
        (y_mid + y_reach - y0) / dy,
        (y_mid - y_reach - y0) / dy,
        height,
        width,
    )


@njit(**_JIT)
def _plane_bound(bound: Any, rays: Any, k: int, scale: float) -> None:
    """Writes the linear u of a plane normal to axis k: coefficients of column, row and 1."""
    bound[0] = rays[0, k] * scale
    bound[1] = rays[1, k] * scale
    bound[2] = rays[2, k] * scale


@njit(**_JIT)
def _add_edge(edges: Any, counts: Any, p: float, q: float, s: float) -> None:
    """Adds the half plane p c + q r + s >= 0 of pixels as a bound on c that is linear in r."""
    if p >= 0.0:
        p = max(p, 1e-12)
        edges[0, counts[1]] = -q / p
        edges[1, counts[1]] = -s / p
        counts[1] += 1
    else:
        p = min(p, -1e-12)
        edges[2, counts[2]] = -q / p
        edges[3, counts[2]] = -s / p
        counts[2] += 1


@njit(**_JIT)
def _draw_box(
    u: Any,
    ids: Any,
    g: int,
    o: Any,
    rays: Any,
    half: Any,
    rect: Any,
    bounds: Any,
    counts: Any,
    edges: Any,
    spans: Any,
    columns: Any,
) -> None:
    """Draws a box; bounds[:3] are faces turned to the camera, bounds[3:] faces turned away."""
    uppers = lowers = 0
    # Two bits of a mask hold the axis that a bound belongs to.
    upper_axes = lower_axes = 0
    for k in range(3):
        above = half[k] - o[k]
        below = half[k] + o[k]
        if above > 0.0:
            _plane_bound(bounds[3 + lowers], rays, k, 1.0 / max(above, _TINY))
            lower_axes |= k << (2 * lowers)
            lowers += 1
        else:
            _plane_bound(bounds[uppers], rays, k, 1.0 / min(above, -_TINY))
            upper_axes |= k << (2 * uppers)
            uppers += 1
        if below > 0.0:
            _plane_bound(bounds[3 + lowers], rays, k, -1.0 / max(below, _TINY))
            lower_axes |= k << (2 * lowers)
            lowers += 1
        else:
            _plane_bound(bounds[uppers], rays, k, -1.0 / min(below, -_TINY))
            upper_axes |= k << (2 * uppers)
            uppers += 1
    if uppers == 0:
        _draw_inside(u, ids, g, bounds)
        return
    counts[0] = uppers
    counts[1] = counts[2] = 0
    for i in range(uppers):
        for j in range(3, 3 + lowers):
            if (upper_axes >> (2 * i)) & 3 != (lower_axes >> (2 * (j - 3))) & 3:
                _add_edge(
                    edges,
                    counts,
                    bounds[i, 0] - bounds[j, 0],
                    bounds[i, 1] - bounds[j, 1],
                    bounds[i, 2] - bounds[j, 2],
                )
    _fill(u, ids, g, rect, bounds, counts, edges, spans, columns)


@njit(**_JIT)
def _draw_plane(
    u: Any,
    ids: Any,
    g: int,
    o: Any,
    rays: Any,
    size: Any,
    floor: float,
    rect: Any,
    bounds: Any,
    counts: Any,
    edges: Any,
    spans: Any,
    columns: Any,
) -> None:
    if o[2] <= 0.0:
        return
    _plane_bound(bounds[0], rays, 2, -1.0 / max(o[2], _TINY))
    p, q, s = bounds[0]
    counts[0] = 1
    counts[1] = counts[2] = 0
    _add_edge(edges, counts, p, q, s - floor)
    for k in range(2):
        if size[k] > 0.0:
            for sign in (-1.0, 1.0):
                # sign * (o_k u + d_k) <= size_k u, with the plane's own u.
                w = size[k] - sign * o[k]
                _add_edge(
                    edges,
                    counts,
                    w * p - sign * rays[0, k],
                    w * q - sign * rays[1, k],
                    w * s - sign * rays[2, k],
                )
    _fill(u, ids, g, rect, bounds, counts, edges, spans, columns)


@njit(**_JIT)
def _fill(
    u: Any,
    ids: Any,
    g: int,
    rect: Any,
    bounds: Any,
    counts: Any,
    edges: Any,
    spans: Any,
    columns: Any,
) -> None:
    """Draws min(bounds) into the pixels between all edges.

    `counts` are the numbers of bounds, left edges and right edges.
    """
    uppers, lefts, rights = counts[0], counts[1], counts[2]
    p0, q0, s0 = _f4(bounds[0, 0]), _f4(bounds[0, 1]), _f4(bounds[0, 2])
    p1, q1, s1 = _f4(bounds[1, 0]), _f4(bounds[1, 1]), _f4(bounds[1, 2])
    p2, q2, s2 = _f4(bounds[2, 0]), _f4(bounds[2, 1]), _f4(bounds[2, 2])
    first, last = _f4(rect[2]), _f4(rect[3] - 1)
    begins, ends = spans[0, rect[0] : rect[1]], spans[1, rect[0] : rect[1]]
    rows = columns[rect[0] : rect[1]]
    begins[:] = first
    ends[:] = last
    for i in range(lefts):
        p, q = edges[0, i], edges[1, i]
        for j in range(begins.size):
            begins[j] = max(begins[j], p * rows[j] + q)
    for i in range(rights):
        p, q = edges[2, i], edges[3, i]
        for j in range(ends.size):
            ends[j] = min(ends[j], p * rows[j] + q)
    for j in range(begins.size):
        r = rect[0] + j
        y = rows[j]
        begin = math.ceil(begins[j])
        end = math.floor(max(ends[j], _f4(-1.0))) + 1
        if begin >= end:
            continue
        row = u[r, begin:end]
        cs = columns[begin:end]
        a0 = q0 * y + s0
        a1 = q1 * y + s1
        a2 = q2 * y + s2
        if ids is not None:
            id_row = ids[r, begin:end]
            for c in range(row.size):
                new = p0 * cs[c] + a0
                if uppers > 1:
                    new = min(new, p1 * cs[c] + a1)
                if uppers > 2:
                    new = min(new, p2 * cs[c] + a2)
                # Both arrays are written always, as in `_put`.
                id_row[c] = g if new > row[c] else id_row[c]
                row[c] = max(row[c], new)
        elif uppers == 1:
            for c in range(row.size):
                row[c] = max(row[c], p0 * cs[c] + a0)
        elif uppers == 2:
            for c in range(row.size):
                row[c] = max(row[c], min(p0 * cs[c] + a0, p1 * cs[c] + a1))
        else:
            for c in range(row.size):
                new = min(min(p0 * cs[c] + a0, p1 * cs[c] + a1), p2 * cs[c] + a2)
                row[c] = max(row[c], new)


@njit(**_JIT)
def _put(row: Any, id_row: Any, c: int, new: float, g: int) -> None:
    if id_row is not None:
        # Written always: without a branch the loop is vectorised, as it is without ids.
        id_row[c] = g if new > row[c] else id_row[c]
    row[c] = max(row[c], new)


@njit(**_JIT)
def _draw_inside(u: Any, ids: Any, g: int, bounds: Any) -> None:
    """Draws a box around the camera: on each ray the nearest of the six faces."""
    for r in range(u.shape[0]):
        row = u[r]
        id_row = None if ids is None else ids[r]
        for c in range(row.size):
            new = 0.0
            for j in range(3, 9):
                new = max(new, bounds[j, 0] * c + bounds[j, 1] * r + bounds[j, 2])
            _put(row, id_row, c, _f4(new), g)


@njit(**_JIT)
def _draw_sphere(
    u: Any,
    ids: Any,
    g: int,
    centre: Any,
    radius: float,
    x0: float,
    y0: float,
    dx: float,
    dy: float,
    rect: Any,
    columns: Any,
) -> None:
    x, y, z = _f4(centre[0]), _f4(centre[1]), _f4(centre[2])
    outside = centre[0] ** 2 + centre[1] ** 2 + centre[2] ** 2 - radius * radius
    inverse = _f4(1.0 / (max(outside, _TINY) if outside > 0.0 else min(outside, -_TINY)))
    sign = _f4(1.0 if outside > 0.0 else -1.0)
    r2 = _f4(radius * radius)
    dx4, x04 = _f4(dx), _f4(x0)
    for r in range(rect[0], rect[1]):
        row = u[r, rect[2] : rect[3]]
        id_row = None if ids is None else ids[r, rect[2] : rect[3]]
        cs = columns[rect[2] : rect[3]]
        b = _f4(y0 + r * dy)
        cross_x = y - z * b
        for c in range(row.size):
            a = x04 + dx4 * cs[c]
            cross_y = z * a - x
            cross_z = x * b - y * a
            length2 = a * a + b * b + _f4(1.0)
            root = r2 * length2 - (cross_x * cross_x + cross_y * cross_y + cross_z * cross_z)
            along = x * a + y * b + z
            new = (along + sign * math.sqrt(max(root, _f4(0.0)))) * inverse
            _put(row, id_row, c, new if root >= _f4(0.0) else _f4(0.0), g)


@njit(**_JIT)
def _draw_cylinder(
    u: Any,
    ids: Any,
    g: int,
    o: Any,
    rays: Any,
    radius: float,
    half: float,
    rect: Any,
    columns: Any,
) -> None:
    """Draws the intersection of an infinite cylinder and the slab of its caps, intervals of u."""
    ox, oy = _f4(o[0]), _f4(o[1])
    outside = o[0] ** 2 + o[1] ** 2 - radius * radius
    inverse = _f4(1.0 / (max(outside, _TINY) if outside > 0.0 else min(outside, -_TINY)))
    side_free = _f4(0.0) if outside > 0.0 else _NO_BOUND
    above = half - o[2]
    below = half + o[2]
    cap, cap_free = _f4(0.0), _NO_BOUND
    low_1 = _f4(1.0 / max(above, _TINY))
    low_2 = _f4(-1.0 / max(below, _TINY))
    if above <= 0.0:
        cap, cap_free = _f4(1.0 / min(above, -_TINY)), _f4(0.0)
        low_1 = low_2
    elif below <= 0.0:
        cap, cap_free = _f4(-1.0 / min(below, -_TINY)), _f4(0.0)
        low_2 = low_1
    inside = outside <= 0.0 and above > 0.0 and below > 0.0
    r2 = _f4(radius * radius)
    ax, ay, az = _f4(rays[0, 0]), _f4(rays[0, 1]), _f4(rays[0, 2])
    zero = _f4(0.0)
    for r in range(rect[0], rect[1]):
        row = u[r, rect[2] : rect[3]]
        id_row = None if ids is None else ids[r, rect[2] : rect[3]]
        cs = columns[rect[2] : rect[3]]
        fx = _f4(rays[2, 0] + r * rays[1, 0])
        fy = _f4(rays[2, 1] + r * rays[1, 1])
        fz = _f4(rays[2, 2] + r * rays[1, 2])
        for c in range(row.size):
            x = fx + ax * cs[c]
            y = fy + ay * cs[c]
            z = fz + az * cs[c]
            cross = ox * y - oy * x
            root = r2 * (x * x + y * y) - cross * cross
            s = math.sqrt(max(root, zero))
            along = -(ox * x + oy * y)
            upper = min((along + s) * inverse + side_free, z * cap + cap_free)
            lower = max((along - s) * inverse, max(z * low_1, z * low_2))
            new = lower if inside else upper
            _put(row, id_row, c, new if root >= zero and upper >= lower else zero, g)


@njit(**_JIT)
def _draw_capsule(
    u: Any,
    ids: Any,
    g: int,
    o: Any,
    rays: Any,
    radius: float,
    half: float,
    rect: Any,
    columns: Any,
) -> None:
    """Draws the union of a cylinder's side and the spheres at its ends."""
    ox, oy, oz = _f4(o[0]), _f4(o[1]), _f4(o[2])
    side = o[0] ** 2 + o[1] ** 2 - radius * radius
    top = side + (o[2] - half) ** 2
    bottom = side + (o[2] + half) ** 2
    inside = top <= 0.0 or bottom <= 0.0 or (side <= 0.0 and abs(o[2]) <= half)
    # From outside the entry (+) counts, from inside the exit (-).
    sign = _f4(-1.0 if inside else 1.0)
    inv_side = _f4(1.0 / (max(side, _TINY) if side > 0.0 else min(side, -_TINY)))
    inv_top = _f4(1.0 / (max(top, _TINY) if top > 0.0 else min(top, -_TINY)))
    inv_bottom = _f4(1.0 / (max(bottom, _TINY) if bottom > 0.0 else min(bottom, -_TINY)))
    z_top, z_bottom = _f4(o[2] - half), _f4(o[2] + half)
    h4, r2, zero = _f4(half), _f4(radius * radius), _f4(0.0)
    ax, ay, az = _f4(rays[0, 0]), _f4(rays[0, 1]), _f4(rays[0, 2])
    for r in range(rect[0], rect[1]):
        row = u[r, rect[2] : rect[3]]
        id_row = None if ids is None else ids[r, rect[2] : rect[3]]
        cs = columns[rect[2] : rect[3]]
        fx = _f4(rays[2, 0] + r * rays[1, 0])
        fy = _f4(rays[2, 1] + r * rays[1, 1])
        fz = _f4(rays[2, 2] + r * rays[1, 2])
        for c in range(row.size):
            x = fx + ax * cs[c]
            y = fy + ay * cs[c]
            z = fz + az * cs[c]
            flat = x * x + y * y
            cross = ox * y - oy * x
            along = -(ox * x + oy * y)
            root = r2 * flat - cross * cross
            new = (along + sign * math.sqrt(max(root, zero))) * inv_side
            height = oz * new + z
            if root < zero or abs(height) > h4 * new:
                new = zero
                # Without the side, a ray can only meet the end spheres.
                length2 = flat + z * z
                cross2 = cross * cross
                cx, cy = oy * z - z_top * y, z_top * x - ox * z
                root = r2 * length2 - (cx * cx + cy * cy + cross2)
                hit = (along - z_top * z + sign * math.sqrt(max(root, zero))) * inv_top
                if root >= zero and (oz - h4) * hit + z >= zero:
                    new = hit
                ex, ey = oy * z - z_bottom * y, z_bottom * x - ox * z
                root = r2 * length2 - (ex * ex + ey * ey + cross2)
                hit = (along - z_bottom * z + sign * math.sqrt(max(root, zero))) * inv_bottom
                # A root counts only on its sphere's own half, which separates the two ends.
                if root >= zero and (oz + h4) * hit + z <= zero:
                    new = max(new, hit)
            _put(row, id_row, c, new, g)
