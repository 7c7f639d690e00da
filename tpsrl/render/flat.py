"""Depth, flat colours, classes, instances and categories of a camera's view, from one ray cast.

The depth caster finds the geom and the depth at each pixel. The geom's colour is lit by one lamp at
infinity, without shadows, reflections or outlines: each face of a box has one colour. Colour costs
half as much as the ray cast; the other pictures are looked up in tables at negligible cost.
"""

import math
from typing import Any

import numpy as np

from tpsrl.render.caster import BOX, CAPSULE, CYLINDER, PLANE, Caster, cast
from tpsrl.runtime.compiled import njit
from tpsrl.world.fetch import HEAD_CAMERA_FAR_M, HEAD_CAMERA_FOV_DEG

# A face turned to the lamp has its full colour and a face turned away a tenth, so that faces of a
# box that are visible at the same time differ.
LAMP = (0.36, -0.48, 0.80)  # direction to the lamp, a unit vector
AMBIENT, DIFFUSE = 0.55, 0.45
_SAME_FACE_M = 1e-4  # points this near to a face of a box are on it
_JIT: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "fastmath": True,
    "error_model": "numpy",
}
_INLINE = {**_JIT, "forceinline": True}
_f4 = np.float32
_NO_COLOUR = np.empty((0, 0, 3), np.uint8)
_NO_NUMBER = np.empty((0, 0), np.uint8)


class FlatPictures:
    """Renders pictures of homes that share one list of geoms."""

    def __init__(
        self,
        kinds: np.ndarray,
        classes: np.ndarray,
        instances: np.ndarray,
        categories: np.ndarray,
        far_m: float = HEAD_CAMERA_FAR_M,
    ) -> None:
        """Initialises the renderer.

        Args:
            kinds: (G,) MuJoCo geom types.
            classes, instances, categories: (G,) class, instance and category of each geom, below
                256; 0 for pixels without a geom.
            far_m: depth beyond which nothing is seen.

        Raises:
            UserError: a geom has a type that cannot be drawn.
        """
        self._kinds = np.asarray(kinds, dtype=np.int32).copy()
        self._caster = Caster(self._kinds, far_m=far_m)
        # Pixels without a geom have id -1, so the tables are shifted by one.
        self._classes, self._instances, self._categories = (
            np.append(np.uint8(0), np.asarray(numbers, dtype=np.uint8))
            for numbers in (classes, instances, categories)
        )

    def take(
        self,
        pos: np.ndarray,
        mat: np.ndarray,
        size: np.ndarray,
        rgba: np.ndarray,
        camera_pos: np.ndarray,
        camera_mat: np.ndarray,
        shape: tuple[int, int],
        fov_deg: float = HEAD_CAMERA_FOV_DEG,
        depth: np.ndarray | None = None,
        rgb: np.ndarray | None = None,
        semantic: np.ndarray | None = None,
        instance: np.ndarray | None = None,
        category: np.ndarray | None = None,
    ) -> None:
        """Writes the pictures whose arrays are given, each (H, W, ...) and contiguous.

        Args:
            pos, mat, size, camera_pos, camera_mat, fov_deg: as in `Caster.depth`.
            rgba: (G, 4) float32 colours, 0 to 1.
            shape: (H, W) of all pictures.
            depth: (H, W) float32, the same bits as `Caster.depth` writes.
            rgb: (H, W, 3) uint8; black where nothing is seen.
            semantic: (H, W) uint8, the class of the geom that is seen.
            instance: (H, W) uint8, the instance that the geom belongs to.
            category: (H, W) uint8, the category of furniture that the geom belongs to.
        """
        numbers = semantic, instance, category
        if rgb is None and all(picture is None for picture in numbers):
            if depth is not None:
                view = (pos, mat, size, camera_pos, camera_mat)
                self._caster.depth(*view, depth, fov_deg)
            return
        _take(
            self._kinds,
            self._caster.visible,
            pos,
            mat,
            size,
            rgba,
            (self._classes, self._instances, self._categories),
            camera_pos,
            camera_mat.reshape(9),
            math.tan(math.radians(fov_deg) / 2),
            self._caster.far_m,
            np.empty(shape, np.float32) if depth is None else depth,
            _NO_COLOUR if rgb is None else rgb,
            tuple(_NO_NUMBER if picture is None else picture for picture in numbers),
            depth is not None,
        )


@njit(**_JIT)
def _take(
    kinds: Any,
    visible: Any,
    pos: Any,
    mat: Any,
    size: Any,
    rgba: Any,
    tables: Any,
    cam: Any,
    axes: Any,
    tan_half: float,
    far: float,
    u: Any,
    rgb: Any,
    numbers: Any,
    measures: bool,
) -> None:
    """Writes all pictures from one ray cast; empty arrays are skipped.

    `u` receives inverse depth, and depth instead if `measures` is true.
    """
    floor = _f4(1.0 / far)
    u[:] = floor
    ids = np.full(u.shape, -1, np.int32)
    columns = np.arange(max(u.shape[0], u.shape[1])).astype(np.float32)
    cast(kinds, visible, pos, mat, size, cam, axes, tan_half, far, columns, u, ids)
    if rgb.size:
        _colour(u, ids, kinds, pos, mat, size, rgba, cam, axes, tan_half, rgb)
    for k in range(len(tables)):
        _look_up(ids, tables[k], numbers[k])
    if measures:
        for r in range(u.shape[0]):
            row = u[r]
            for c in range(row.size):
                row[c] = floor / row[c]


@njit(**_INLINE)
def _look_up(ids: Any, numbers: Any, out: Any) -> None:
    """Writes the number of each pixel's geom into `out` (H, W), which may be empty."""
    for r in range(out.shape[0]):
        for c in range(out.shape[1]):
            out[r, c] = numbers[np.uint32(ids[r, c] + 1)]


@njit(**_JIT)
def _colour(
    inverse: Any,
    ids: Any,
    kinds: Any,
    pos: Any,
    mat: Any,
    size: Any,
    rgba: Any,
    cam: Any,
    axes: Any,
    tan_half: float,
    out: Any,
) -> None:
    """Writes the colour of each pixel from inverse depth u and geom (H, W).

    In the frame of its geom the visible point is o + (F + c A + r B) / u. The point times u needs
    no division and has the same normal. A pixel on the same face of a box as the previous pixel has
    the same colour; one coordinate suffices to test for the same face.
    """
    height, width = inverse.shape
    step = 2.0 * tan_half / width
    x0, y0 = 0.5 * step - tan_half, tan_half * height / width - 0.5 * step
    known = np.zeros(len(kinds), np.bool_)
    frames = np.empty((len(kinds), 5, 3), np.float32)  # o, A, B, F and the lamp of each geom
    for r in range(height):
        row = _f4(r)
        last = last_face = -1
        kind = face = 0
        red = green = blue = np.uint8(0)
        fx = fy = fz = ox = oy = oz = ax = ay = az = lx = ly = lz = _f4(0.0)
        s0 = s1 = s2 = _f4(0.0)
        # Terms of the coordinate normal to the last face of a box.
        across_f = across_o = across_a = across_s = _f4(0.0)
        for c in range(width):
            g = ids[r, c]
            if g != last:
                last, last_face = g, -1
                if g < 0:
                    red = green = blue = np.uint8(0)
                else:
                    if not known[g]:
                        known[g] = True
                        _to_frame(frames[g], g, pos, mat, cam, axes, x0, y0, step)
                    f = frames[g]
                    kind = kinds[g]
                    ox, oy, oz = f[0, 0], f[0, 1], f[0, 2]
                    ax, ay, az = f[1, 0], f[1, 1], f[1, 2]
                    fx, fy, fz = (
                        f[3, 0] + row * f[2, 0],
                        f[3, 1] + row * f[2, 1],
                        f[3, 2] + row * f[2, 2],
                    )
                    lx, ly, lz = f[4, 0], f[4, 1], f[4, 2]
                    s0, s1, s2 = _f4(size[g, 0]), _f4(size[g, 1]), _f4(size[g, 2])
            if g >= 0:
                face, cosine = 0, lz
                if kind != PLANE:
                    u, at = inverse[r, c], _f4(c)
                    across = across_o * u + across_f + at * across_a
                    if last_face >= 0 and abs(across) > across_s * u:
                        out[r, c, 0] = red
                        out[r, c, 1] = green
                        out[r, c, 2] = blue
                        continue
                    px = ox * u + fx + at * ax
                    py = oy * u + fy + at * ay
                    pz = oz * u + fz + at * az
                    if kind == BOX:
                        face, cosine = _box_face(px, py, pz, s0 * u, s1 * u, s2 * u, lx, ly, lz)
                        k = face // 2
                        across_o, across_a = frames[g, 0, k], frames[g, 1, k]
                        across_f = frames[g, 3, k] + row * frames[g, 2, k]
                        across_s = _f4(size[g, k] - _SAME_FACE_M)
                    else:
                        face = -2
                        cosine = _round(kind, px, py, pz, s0 * u, s1 * u, lx, ly, lz)
                if face != last_face:
                    last_face = face if face >= 0 else -1
                    bright = _f4(255.0) * (_f4(AMBIENT) + _f4(DIFFUSE) * cosine)
                    red = np.uint8(rgba[g, 0] * bright + _f4(0.5))
                    green = np.uint8(rgba[g, 1] * bright + _f4(0.5))
                    blue = np.uint8(rgba[g, 2] * bright + _f4(0.5))
            out[r, c, 0] = red
            out[r, c, 1] = green
            out[r, c, 2] = blue


@njit(**_JIT)
def _to_frame(
    frame: Any,
    g: int,
    pos: Any,
    mat: Any,
    cam: Any,
    axes: Any,
    x0: float,
    y0: float,
    step: float,
) -> None:
    """Writes camera, ray step per column and row, first ray and lamp, in the geom's frame."""
    for k in range(3):
        here = across = up = back = lit = 0.0
        for i in range(3):
            turn = mat[g, 3 * i + k]
            here += turn * (cam[i] - pos[g, i])
            across += turn * axes[3 * i]
            up += turn * axes[3 * i + 1]
            back += turn * axes[3 * i + 2]
            lit += turn * LAMP[i]
        frame[0, k] = here
        frame[1, k] = across * step
        frame[2, k] = -up * step
        frame[3, k] = x0 * across + y0 * up - back
        frame[4, k] = lit


@njit(**_INLINE)
def _box_face(
    px: float,
    py: float,
    pz: float,
    s0: float,
    s1: float,
    s2: float,
    lx: float,
    ly: float,
    lz: float,
) -> tuple[int, float]:
    """Returns the number of the box face at a point, and the cosine between its normal and lamp."""
    ex, ey, ez = abs(px) - s0, abs(py) - s1, abs(pz) - s2
    if ex >= ey and ex >= ez:
        return (0, lx) if px > 0.0 else (1, -lx)
    if ey >= ez:
        return (2, ly) if py > 0.0 else (3, -ly)
    return (4, lz) if pz > 0.0 else (5, -lz)


@njit(**_INLINE)
def _round(
    kind: int,
    px: float,
    py: float,
    pz: float,
    s0: float,
    s1: float,
    lx: float,
    ly: float,
    lz: float,
) -> Any:
    """Returns the cosine between lamp and normal of a sphere, cylinder or capsule at a point."""
    if kind == CYLINDER:
        radial = math.sqrt(px * px + py * py)
        if abs(pz) - s1 > radial - s0:
            return lz if pz > 0.0 else -lz
        return (px * lx + py * ly) / (radial + _f4(1e-9))
    if kind == CAPSULE:
        pz -= min(max(pz, -s1), s1)
    length = math.sqrt(px * px + py * py + pz * pz) + _f4(1e-9)
    return (px * lx + py * ly + pz * lz) / length
