"""Shaded colour pictures of primitive geoms, by the depth caster, without any GL library.

The caster gives inverse depth and geom ids of a picture. The light is a lamp above the scene (with
a shadow map that the same caster draws from the lamp), a sky and a weak light at the camera, with
ambient occlusion and dark outlines where depth or normal jumps. Goal markers are drawn last and
shine through geoms that hide them.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpsrl.render.cameras import CameraPose, Sphere, look_at
from tpsrl.render.caster import BOX, CAPSULE, CYLINDER, PLANE, Caster
from tpsrl.runtime.compiled import njit

_FAR_M = 25.0
_SHADOW_PIXELS = 640
_SHADOW_FOV_DEG = 80.0
_LAMP = np.array([0.9, -1.3, 6.2])  # from the point looked at
_MARKER_SOLID, _MARKER_HIDDEN = 0.85, 0.4
_JIT: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "fastmath": True,
    "error_model": "numpy",
}
_INLINE = {**_JIT, "forceinline": True}  # a call with ten arrays costs more than its work
_f4 = np.float32
_GAMMA = np.rint(255.0 * np.linspace(0, 1, 4096) ** (1 / 2.2)).astype(np.uint8)


class Shader:
    """Draws colour pictures of homes that share one list of geoms."""

    def __init__(
        self,
        kinds: np.ndarray,
        visible: np.ndarray | None = None,
        cutaway: np.ndarray | None = None,
        floor_bounds: tuple[float, float, float, float] | None = None,
    ) -> None:
        """Initialises the shader.

        Args:
            kinds: (G,) MuJoCo geom types.
            visible: (G,) bool, geoms that are drawn; all by default.
            cutaway: (G,) int, group of each geom (a wall, a piece of furniture). A group is left
                out of a picture if one of its boxes is between the camera and its focus; geoms with
                -1, by default all, are never left out.
            floor_bounds: x_min, y_min, x_max, y_max within which planes have planks.

        Raises:
            UserError: a visible geom has an unknown type.
        """
        self._kinds = np.asarray(kinds, dtype=np.int32).copy()
        self._caster = Caster(self._kinds, visible, _FAR_M)
        none = np.full(len(self._kinds), -1)
        self._cutaway = none if cutaway is None else np.asarray(cutaway, int)
        self._barriers = np.flatnonzero((self._cutaway >= 0) & (self._kinds == BOX))
        self._floor = np.array(floor_bounds or (-1e3, -1e3, 1e3, 1e3), dtype=np.float64)

    def render(
        self,
        pos: np.ndarray,
        mat: np.ndarray,
        size: np.ndarray,
        rgba: np.ndarray,
        camera_pos: np.ndarray,
        camera_mat: np.ndarray,
        height: int = 360,
        width: int = 480,
        fov_deg: float = 62.0,
        focus: np.ndarray | None = None,
        hide: np.ndarray | None = None,
        markers: Sequence[Sphere] = (),
        supersample: int = 2,
        shadows: bool = True,
    ) -> np.ndarray:
        """Renders a picture (height, width, 3) uint8.

        Args:
            pos, mat, size, camera_pos, camera_mat, fov_deg: as in `Caster.depth`.
            rgba: (G, 4) colours, 0 to 1; geoms with alpha 0 are not drawn.
            focus: (3,) or (K, 3) points (robot, cup) that cut-away geoms must not hide; without
                focus no geom is cut away.
            hide: (G,) bool, geoms left out of this picture.
            markers: spheres drawn over the scene; 40% opaque where a geom hides them.
            supersample: rays per pixel in each direction (1 or 2).
            shadows: whether the lamp casts shadows.
        """
        camera_mat = np.ascontiguousarray(camera_mat, dtype=np.float64).reshape(3, 3)
        camera_pos = np.ascontiguousarray(camera_pos, dtype=np.float64)
        drawn = self._caster.visible
        drawn = drawn[rgba[drawn, 3] > 0]
        albedo = np.asarray(rgba, dtype=np.float32)[:, :3] ** _f4(2.2)
        if hide is not None:
            drawn = drawn[~np.asarray(hide, bool)[drawn]]
        if focus is not None:
            focus = np.atleast_2d(np.asarray(focus, dtype=np.float64))
            between = self._between(pos, mat, size, camera_pos, focus)
            drawn = drawn[~between[drawn]]

        rows, columns = height * supersample, width * supersample
        view = (pos, mat, size, camera_pos, camera_mat)
        u = np.empty((rows, columns), np.float32)
        ids = np.empty((rows, columns), np.int32)
        self._caster.surfaces(*view, u, ids, fov_deg, drawn)

        lamp = self._lamp(camera_pos, camera_mat, focus)
        lamp_pixels = _SHADOW_PIXELS if shadows else 1
        lamp_u = np.zeros((lamp_pixels, lamp_pixels), np.float32)
        if shadows:
            self._caster.surfaces(
                pos, mat, size, lamp.pos, lamp.mat, lamp_u, None, _SHADOW_FOV_DEG, drawn
            )
        tan_half = math.tan(math.radians(fov_deg) / 2)
        geoms = (self._kinds, pos, mat, size)
        coarse = max(1, min(2 * supersample, rows // 8, columns // 8))
        sky = _open_sky(u, ids, *geoms, camera_pos, camera_mat, tan_half, coarse)
        light = np.empty((height, width, 3), np.float32)
        _light(
            u,
            ids,
            _outlines(u, 2.0 * tan_half / columns),
            *geoms,
            albedo,
            sky,
            coarse,
            camera_pos,
            camera_mat,
            tan_half,
            lamp.pos,
            lamp.mat,
            lamp_u,
            math.tan(math.radians(_SHADOW_FOV_DEG) / 2),
            self._floor,
            light,
        )
        for marker in markers:
            _draw_marker(
                u,
                light,
                camera_mat.T @ (np.asarray(marker.pos) - camera_pos),
                float(marker.radius),
                np.asarray(marker.rgb, np.float32) ** 2.2,
                tan_half,
            )
        picture = np.empty((height, width, 3), np.uint8)
        _encode(light.reshape(-1), _GAMMA, picture.reshape(-1))
        return picture

    def _between(
        self,
        pos: np.ndarray,
        mat: np.ndarray,
        size: np.ndarray,
        camera_pos: np.ndarray,
        focus: np.ndarray,
    ) -> np.ndarray:
        """Returns (G,) bool: geoms of groups with a box on a line of sight to around the focus."""
        sight = focus - camera_pos
        side = np.array([-sight[0, 1], sight[0, 0], 0.0])
        side /= max(float(np.linalg.norm(side)), 1e-9)
        around = [0.35 * s * side + (0, 0, h) for s in (-1, 0, 1) for h in (-0.3, 0.3)]
        lines = (sight[:, None] + np.array(around)).reshape(-1, 3)
        axes = mat[self._barriers].reshape(-1, 3, 3)
        start = np.einsum("gk,gki->gi", camera_pos - pos[self._barriers], axes)[:, None]
        step = np.einsum("lk,gki->gli", lines, axes)
        step = np.where(np.abs(step) < 1e-9, 1e-9, step)
        half = size[self._barriers][:, None]
        to_low, to_high = (-half - start) / step, (half - start) / step
        enter = np.minimum(to_low, to_high).max(axis=2)
        leave = np.maximum(to_low, to_high).min(axis=2)
        # A box that begins in the last fifth of a line is where the robot works, and stays.
        crossed = ((enter <= leave) & (leave > 0) & (enter < 0.8)).any(axis=1)
        return np.isin(self._cutaway, self._cutaway[self._barriers[crossed]])

    @staticmethod
    def _lamp(
        camera_pos: np.ndarray, camera_mat: np.ndarray, focus: np.ndarray | None
    ) -> CameraPose:
        """Returns the lamp's pose over the focus, or over a point 2.5 m ahead of the camera."""
        ahead = -camera_mat[:, 2]
        level = np.array([ahead[0], ahead[1], 0.0])
        level /= max(float(np.linalg.norm(level)), 1e-6)
        centre = camera_pos + 2.5 * level if focus is None else focus.mean(axis=0)
        centre[2] = 0.0
        return look_at(centre + _LAMP, centre + 0.35 * level)


@njit(**_INLINE)
def _surface(
    r: int,
    c: int,
    z: float,
    g: int,
    kinds: Any,
    pos: Any,
    mat: Any,
    size: Any,
    cam: Any,
    axes: Any,
    tan_half: float,
    height: int,
    width: int,
) -> tuple[float, float, float, float, float, float]:
    """Returns world point and normal (towards the camera) of geom `g` at depth `z` of a pixel."""
    step = 2.0 * tan_half / width
    x = (c + 0.5) * step - tan_half
    y = tan_half * height / width - (r + 0.5) * step
    wx = cam[0] + z * (x * axes[0, 0] + y * axes[0, 1] - axes[0, 2])
    wy = cam[1] + z * (x * axes[1, 0] + y * axes[1, 1] - axes[1, 2])
    wz = cam[2] + z * (x * axes[2, 0] + y * axes[2, 1] - axes[2, 2])
    tx, ty, tz = wx - pos[g, 0], wy - pos[g, 1], wz - pos[g, 2]
    px = mat[g, 0] * tx + mat[g, 3] * ty + mat[g, 6] * tz
    py = mat[g, 1] * tx + mat[g, 4] * ty + mat[g, 7] * tz
    pz = mat[g, 2] * tx + mat[g, 5] * ty + mat[g, 8] * tz
    lx, ly, lz = _local_normal(kinds[g], px, py, pz, size[g, 0], size[g, 1], size[g, 2])
    nx = mat[g, 0] * lx + mat[g, 1] * ly + mat[g, 2] * lz
    ny = mat[g, 3] * lx + mat[g, 4] * ly + mat[g, 5] * lz
    nz = mat[g, 6] * lx + mat[g, 7] * ly + mat[g, 8] * lz
    if nx * (wx - cam[0]) + ny * (wy - cam[1]) + nz * (wz - cam[2]) > 0.0:
        return wx, wy, wz, -nx, -ny, -nz
    return wx, wy, wz, nx, ny, nz


@njit(**_INLINE)
def _local_normal(
    kind: int, px: float, py: float, pz: float, size_0: float, size_1: float, size_2: float
) -> tuple[float, float, float]:
    if kind == BOX:
        ex, ey, ez = abs(px) - size_0, abs(py) - size_1, abs(pz) - size_2
        if ex >= ey and ex >= ez:
            return math.copysign(1.0, px), 0.0, 0.0
        if ey >= ez:
            return 0.0, math.copysign(1.0, py), 0.0
        return 0.0, 0.0, math.copysign(1.0, pz)
    if kind == PLANE:
        return 0.0, 0.0, 1.0
    if kind == CYLINDER:
        radial = max(math.sqrt(px * px + py * py), 1e-9)
        if abs(pz) - size_1 > radial - size_0:
            return 0.0, 0.0, math.copysign(1.0, pz)
        return px / radial, py / radial, 0.0
    if kind == CAPSULE:
        pz -= min(max(pz, -size_1), size_1)
    length = max(math.sqrt(px * px + py * py + pz * pz), 1e-9)
    return px / length, py / length, pz / length


@njit(**_JIT)
def _open_sky(
    u: Any,
    ids: Any,
    kinds: Any,
    pos: Any,
    mat: Any,
    size: Any,
    cam: Any,
    axes: Any,
    tan_half: float,
    every: int,
) -> Any:
    """Returns the unoccluded share of the sky, 0 to 1, at every `every`-th pixel, and its u.

    A sample at offset v from the point hides max(0, n . v) / (v . v + eps) of the sky (McGuire et
    al., The Alchemy screen-space ambient obscurance algorithm, HPG 2011, eq. 10).

    Returns:
        (h, w, 2): share of the sky, and inverse depth u.
    """
    height, width = u.shape[0] // every, u.shape[1] // every
    points = np.full((height, width, 3), 1e6, np.float32)  # far away where nothing is seen
    normals = np.zeros((height, width, 3), np.float32)
    raw = np.ones((height, width), np.float32)
    result = np.ones((height, width, 2), np.float32)
    for r in range(height):
        for c in range(width):
            y, x = r * every + every // 2, c * every + every // 2
            result[r, c, 1] = u[y, x]
            g = ids[y, x]
            if g < 0:
                continue
            wx, wy, wz, nx, ny, nz = _surface(
                y, x, 1.0 / u[y, x], g, kinds, pos, mat, size, cam, axes, tan_half, *u.shape
            )
            points[r, c, 0], points[r, c, 1], points[r, c, 2] = wx, wy, wz
            normals[r, c, 0], normals[r, c, 1], normals[r, c, 2] = nx, ny, nz
    samples = 8
    reach_m = 0.45
    # Spirals of samples within the unit disc, turned differently within each 4 x 4 block.
    spiral = np.empty((16, samples, 2), np.float32)
    for k in range(16):
        share = (k * 7 % 16) / 16.0
        for i in range(samples):
            distance = (i + 0.5 + 0.5 * share) / samples
            angle = 2.0 * math.pi * (i * 0.381966 + share)
            spiral[k, i, 0] = distance * math.cos(angle)
            spiral[k, i, 1] = distance * math.sin(angle)
    for r in range(height):
        for c in range(width):
            here = result[r, c, 1]
            px, py, pz = points[r, c, 0], points[r, c, 1], points[r, c, 2]
            nx, ny, nz = normals[r, c, 0], normals[r, c, 1], normals[r, c, 2]
            if px > 1e5:
                continue
            reach = _f4(min(reach_m * here / (2.0 * tan_half), 0.25) * width)
            bias = _f4(0.01) / here
            total = _f4(0.0)
            turn = (r & 3) * 4 + (c & 3)
            for i in range(samples):
                yy = min(max(r + int(reach * spiral[turn, i, 1]), 0), height - 1)
                xx = min(max(c + int(reach * spiral[turn, i, 0]), 0), width - 1)
                vx, vy, vz = points[yy, xx, 0] - px, points[yy, xx, 1] - py, points[yy, xx, 2] - pz
                square = vx * vx + vy * vy + vz * vz
                near = _f4(1.0) if square < _f4(1.5 * reach_m * reach_m) else _f4(0.0)
                above = vx * nx + vy * ny + vz * nz - bias
                total += near * max(_f4(0.0), above) / (square + _f4(0.01))
            raw[r, c] = max(_f4(0.0), _f4(1.0) - _f4(0.32 / samples) * total)
    for r in range(height):
        for c in range(width):
            sum_weight = sum_raw = _f4(0.0)
            here = result[r, c, 1]
            for rr in range(max(r - 2, 0), min(r + 2, height)):
                for cc in range(max(c - 2, 0), min(c + 2, width)):
                    if abs(result[rr, cc, 1] - here) < _f4(0.05) * here:
                        sum_raw += raw[rr, cc]
                        sum_weight += _f4(1.0)
            result[r, c, 0] = sum_raw / max(sum_weight, _f4(1.0))
    return result


@njit(**_INLINE)
def _sky_at(sky: Any, r: int, c: int, every: int, here: float) -> float:
    """Returns the open sky at a pixel, from the nearest four coarse pixels of similar depth."""
    y = (r - every // 2) / every
    x = (c - every // 2) / every
    r0, c0 = int(max(y, 0.0)), int(max(x, 0.0))
    total = weight = 1e-6
    for rr in range(r0, min(r0 + 2, sky.shape[0])):
        for cc in range(c0, min(c0 + 2, sky.shape[1])):
            w = max(1.0 - abs(rr - y), 0.05) * max(1.0 - abs(cc - x), 0.05)
            w *= 1.0 if abs(sky[rr, cc, 1] - here) < 0.03 * here else 1e-3
            total += w * sky[rr, cc, 0]
            weight += w
    return total / weight


@njit(**_INLINE)
def _planks(x: float, y: float, width: float) -> float:
    """Returns the brightness of a floor of 0.15 x 1.3 m boards; `width` is a pixel's (m)."""
    lane = math.floor(y * (1.0 / 0.15))
    place = x * (1.0 / 1.3) + 0.37 * (lane & 7)
    board = math.floor(place)
    across = y - 0.15 * lane
    along = 1.3 * (place - board)
    nearest = min(min(across, 0.15 - across), min(along, 1.3 - along))
    half = 0.0025
    gap = max(0.0, 1.0 - max(nearest - half, 0.0) / width) * min(1.0, half / width)
    return (0.90 + 0.02 * ((lane * 5 + board * 3) & 7)) * (1.0 - 0.45 * gap)


@njit(**_INLINE)
def _shadow(
    x: float, y: float, z: float, slope: float, lamp: Any, axes: Any, lamp_u: Any, tan_lamp: float
) -> float:
    """Returns the share of the lamp's light at a point, by the shadow map `lamp_u` (3 x 3 mean)."""
    pixels = lamp_u.shape[0]
    dx, dy, dz = x - lamp[0], y - lamp[1], z - lamp[2]
    lz = -(axes[0, 2] * dx + axes[1, 2] * dy + axes[2, 2] * dz)
    if lz < 0.1:
        return 1.0
    scale = pixels / (2.0 * tan_lamp * lz)
    column = (axes[0, 0] * dx + axes[1, 0] * dy + axes[2, 0] * dz) * scale + 0.5 * pixels
    row = -(axes[0, 1] * dx + axes[1, 1] * dy + axes[2, 1] * dz) * scale + 0.5 * pixels
    if column < 3 or row < 3 or column >= pixels - 3 or row >= pixels - 3:
        return 1.0
    near = lz - 0.02 - slope * 0.05
    r0, c0 = int(row - 0.5), int(column - 0.5)
    fr, fc = row - 0.5 - r0, column - 0.5 - c0
    corner_1, corner_2 = lamp_u[r0 - 1, c0 - 1], lamp_u[r0 - 1, c0 + 2]
    corner_3, corner_4 = lamp_u[r0 + 2, c0 - 1], lamp_u[r0 + 2, c0 + 2]
    if max(max(corner_1, corner_2), max(corner_3, corner_4)) * near <= 1.0:
        return 1.0
    if min(min(corner_1, corner_2), min(corner_3, corner_4)) * near > 1.0:
        return 0.0
    lit = 0.0
    for i in range(-1, 3):
        wr = 1.0 - fr if i == -1 else (fr if i == 2 else 1.0)
        for j in range(-1, 3):
            if lamp_u[r0 + i, c0 + j] * near <= 1.0:
                lit += wr * (1.0 - fc if j == -1 else (fc if j == 2 else 1.0))
    return lit / 9.0


@njit(**_INLINE)
def _reflected(
    x: float,
    y: float,
    z: float,
    nx: float,
    ny: float,
    nz: float,
    is_plane: bool,
    red: float,
    green: float,
    blue: float,
    open_sky: float,
    pixel: float,
    cam: Any,
    lamp: Any,
    lamp_axes: Any,
    lamp_u: Any,
    tan_lamp: float,
    floor: Any,
) -> tuple[float, float, float, float]:
    """Returns the linear colour that a surface point sends to the camera, and its share of haze."""
    lx, ly, lz = lamp[0] - x, lamp[1] - y, lamp[2] - z
    key = (nx * lx + ny * ly + nz * lz) / math.sqrt(lx * lx + ly * ly + lz * lz)
    if key > 0.0:
        slope = math.sqrt(max(0.0, 1.0 - key * key)) / max(key, 0.2)
        key *= _shadow(x, y, z, slope, lamp, lamp_axes, lamp_u, tan_lamp)
    key = max(key, 0.0)
    vx, vy, vz = cam[0] - x, cam[1] - y, cam[2] - z
    distance = math.sqrt(vx * vx + vy * vy + vz * vz)
    front = max(0.0, (nx * vx + ny * vy + nz * vz) / distance)
    # Ambient light depends on the normal, so that walls that meet at a corner always differ.
    ambient = (0.40 + 0.10 * nz + 0.06 * nx - 0.04 * ny) * open_sky
    fill = 0.20 * front * open_sky
    warm = 0.50 * key
    haze = min(max((distance - 8.0) / 16.0, 0.0), 0.6)
    if is_plane:
        if floor[0] <= x <= floor[2] and floor[1] <= y <= floor[3]:
            tone = _planks(x, y, pixel * distance * distance / max(vz, 0.1))
            red, green, blue = red * tone, green * tone, blue * tone
        else:
            red = green = blue = 0.55
            haze = max(haze, 0.35)
    return (
        red * (ambient * 0.98 + warm * 1.06 + fill),
        green * (ambient + warm + fill),
        blue * (ambient * 1.06 + warm * 0.90 + fill),
        haze,
    )


@njit(**_JIT)
def _outlines(u: Any, step: float) -> Any:
    """Returns the darkness of the outline at each ray, 0 to 1 (H, W) float32.

    On a plane inverse depth is linear in the pixel, so its second difference shows only edges:
    jumps by the size of the difference, creases by the change of slope per pixel.
    """
    height, width = u.shape
    dark = np.zeros((height, width), np.float32)
    per_step = _f4(1.0 / step)
    for r in range(1, height - 1):
        here, left, right = u[r, 1:-1], u[r, :-2], u[r, 2:]
        above, below, row = u[r - 1, 1:-1], u[r + 1, 1:-1], dark[r, 1:-1]
        for c in range(row.size):
            twice, inverse = here[c] + here[c], _f4(1.0) / here[c]
            across = (twice - left[c] - right[c]) * inverse
            down = (twice - above[c] - below[c]) * inverse
            jump = (max(across, down) - _f4(0.02)) * _f4(12.0)
            crease = (max(abs(across), abs(down)) * per_step - _f4(0.25)) * _f4(0.4)
            jump = min(max(jump, _f4(0.0)), _f4(0.55))
            row[c] = max(jump, min(max(crease, _f4(0.0)), _f4(0.22)))
    return dark


@njit(**_JIT)
def _light(
    u: Any,
    ids: Any,
    dark: Any,
    kinds: Any,
    pos: Any,
    mat: Any,
    size: Any,
    albedo: Any,
    sky: Any,
    coarse: int,
    cam: Any,
    axes: Any,
    tan_half: float,
    lamp: Any,
    lamp_axes: Any,
    lamp_u: Any,
    tan_lamp: float,
    floor: Any,
    light: Any,
) -> None:
    """Writes linear colours (H, W, 3), each the mean of its rays; `dark` is from `_outlines`.

    If all rays of a pixel meet one geom away from outlines, only the first ray is lit.
    """
    height, width = u.shape
    every = height // light.shape[0]
    step = 2.0 * tan_half / width
    for row in range(light.shape[0]):
        level = 0.62 + 0.16 * (1.0 - row / light.shape[0])
        back_r, back_g, back_b = 0.93 * level, 0.97 * level, 1.04 * level
        for column in range(light.shape[1]):
            total_r = total_g = total_b = 0.0
            red = green = blue = 0.0
            last_g = -2
            last_x = last_y = last_z = 0.0
            rays = every * every
            if every > 1 and _is_plain(ids, dark, row * every, column * every, every):
                rays = 1
            for ray in range(rays):
                r = row * every + ray // every
                c = column * every + ray % every
                g = ids[r, c]
                if g < 0:
                    total_r, total_g, total_b = total_r + back_r, total_g + back_g, total_b + back_b
                    continue
                x, y, z, nx, ny, nz = _surface(
                    r,
                    c,
                    1.0 / u[r, c],
                    g,
                    kinds,
                    pos,
                    mat,
                    size,
                    cam,
                    axes,
                    tan_half,
                    height,
                    width,
                )
                if g != last_g or nx * last_x + ny * last_y + nz * last_z < 0.98:
                    open_sky = _sky_at(sky, r, c, coarse, u[r, c])
                    is_plane = kinds[g] == PLANE
                    red, green, blue, haze = _reflected(
                        x, y, z, nx, ny, nz, is_plane, albedo[g, 0], albedo[g, 1], albedo[g, 2],
                        open_sky, step * every, cam, lamp, lamp_axes, lamp_u, tan_lamp, floor,
                    )  # fmt: skip
                    red += haze * (back_r - red)
                    green += haze * (back_g - green)
                    blue += haze * (back_b - blue)
                    last_g, last_x, last_y, last_z = g, nx, ny, nz
                bright = 1.0 if rays < every * every else 1.0 - dark[r, c]
                total_r, total_g, total_b = (
                    total_r + bright * red,
                    total_g + bright * green,
                    total_b + bright * blue,
                )
            light[row, column, 0] = total_r / rays
            light[row, column, 1] = total_g / rays
            light[row, column, 2] = total_b / rays


@njit(**_INLINE)
def _is_plain(ids: Any, dark: Any, r0: int, c0: int, every: int) -> bool:
    """Returns whether all rays of a pixel meet one geom, away from outlines."""
    g = ids[r0, c0]
    for r in range(r0, r0 + every):
        for c in range(c0, c0 + every):
            if ids[r, c] != g or dark[r, c] > 0.0:
                return False
    return True


@njit(**_JIT)
def _draw_marker(
    u: Any, light: Any, centre: Any, radius: float, colour: Any, tan_half: float
) -> None:
    """Blends a sphere at `centre` (camera frame: right, up, backward) over the picture."""
    height, width = u.shape
    every = height // light.shape[0]
    depth = -centre[2]
    if depth <= radius:
        return
    step = 2.0 * tan_half / width
    tan_y = tan_half * height / width
    # A circle of pixels around the sphere, widened for spheres off the axis.
    aslant = 1.0 + (abs(centre[0]) + abs(centre[1])) / depth
    pixels = radius * aslant / math.sqrt(depth * depth - radius * radius) / step + 2.0
    c_mid = (centre[0] / depth + tan_half) / step
    r_mid = (tan_y - centre[1] / depth) / step
    square_length = centre[0] ** 2 + centre[1] ** 2 + depth * depth
    for r in range(max(0, int(r_mid - pixels)), min(height, int(r_mid + pixels) + 1)):
        y = tan_y - (r + 0.5) * step
        for c in range(max(0, int(c_mid - pixels)), min(width, int(c_mid + pixels) + 1)):
            x = (c + 0.5) * step - tan_half
            length2 = x * x + y * y + 1.0
            along = (x * centre[0] + y * centre[1] + depth) / length2
            inside = 1.0 - (square_length - along * along * length2) / (radius * radius)
            if inside < 0.0:
                continue
            hidden = u[r, c] * (along - radius * math.sqrt(inside / length2)) > 1.0
            opacity = _MARKER_HIDDEN if hidden else _MARKER_SOLID
            # The opacity per ray, so that all rays of a pixel compose to the full opacity.
            opacity = 1.0 - (1.0 - opacity) ** (1.0 / (every * every))
            shade = 0.55 + 0.45 * math.sqrt(inside)
            row, column = r // every, c // every
            for i in range(3):
                light[row, column, i] += opacity * (colour[i] * shade - light[row, column, i])


@njit(**_JIT)
def _encode(light: Any, table: Any, out: Any) -> None:
    """Converts linear light, clipped to 0 to 1, to bytes by a table of 4096 levels."""
    for i in range(light.size):
        out[i] = table[np.int32(min(max(light[i], _f4(0.0)), _f4(1.0)) * _f4(4095.0))]
