"""Laser scanner on the base, by ray casting."""

import math

import numpy as np

from tpsrl.render.caster import PLANE, Caster, bounding_radius, cast
from tpsrl.runtime.compiled import njit
from tpsrl.world.fetch import (
    LASER_FOV_DEG,
    LASER_POS,
    LASER_RANGE_M,
    LASER_RAYS,
    LASER_SECTIONS,
    laser_angles,
)

_FOV_DEG = LASER_FOV_DEG / LASER_SECTIONS
_EYE = np.array(LASER_POS)
_NONE = np.float32(1.0 / LASER_RANGE_M)  # inverse depth of pixels that show nothing


class Laser:
    """Scans homes that share one list of geoms.

    Args:
        kinds: (G,) MuJoCo geom types
        visible: (G,) bool, geoms that the laser detects, without those of the robot
    """

    def __init__(self, kinds: np.ndarray, visible: np.ndarray) -> None:
        columns = LASER_RAYS // LASER_SECTIONS
        caster = Caster(kinds, visible)
        self._geoms = caster.kinds, caster.visible
        self._tan_half = math.tan(math.radians(_FOV_DEG) / 2)
        across = self._tan_half * ((2 * np.arange(columns) + 1) / columns - 1)
        # Pictures have planar depth, but a scanner measures along its rays.
        self._stretch = LASER_RANGE_M * np.sqrt(1.0 + across**2)
        turns = np.radians(_FOV_DEG) * (np.arange(LASER_SECTIONS) - (LASER_SECTIONS - 1) / 2)
        self.angles = np.array(laser_angles())
        self._cameras = np.stack([_camera(turn) for turn in turns])

    def ranges(
        self,
        pos: np.ndarray,
        mat: np.ndarray,
        size: np.ndarray,
        base_pos: np.ndarray,
        base_mat: np.ndarray,
        out: np.ndarray,
    ) -> np.ndarray:
        """Writes distances in metres, at most `LASER_RANGE_M`, into `out` and returns it.

        Ray i has the angle `angles[i]` from straight ahead, left positive, rightmost first.

        Args:
            pos, mat, size: poses and sizes of all geoms, as in `Caster.depth`
            base_pos: (3,) position of the base
            base_mat: (3, 3) orientation of the base
            out: (LASER_RAYS,)
        """
        rays = self._cameras, self._tan_half, self._stretch
        _scan(*self._geoms, pos, mat, size, base_pos, base_mat, *rays, out)
        return out


# Compiled as the caster is, so that ranges are those of its depth pictures to the last bit.
@njit(cache=True, fastmath=True, error_model="numpy")
def _scan(
    kinds: np.ndarray,
    visible: np.ndarray,
    pos: np.ndarray,
    mat: np.ndarray,
    size: np.ndarray,
    base_pos: np.ndarray,
    base_mat: np.ndarray,
    cameras: np.ndarray,
    tan_half: float,
    stretch: np.ndarray,
    out: np.ndarray,
) -> None:
    """Writes the ranges of one scan; see `Laser.ranges`."""
    eye, camera = np.empty(3), np.empty((3, 3))
    for k in range(3):
        eye[k] = base_pos[k]
        for i in range(3):
            eye[k] += base_mat[k, i] * _EYE[i]
    # Only geoms that reach the plane of the rays within their range.
    met, count = np.empty_like(visible), 0
    for g in visible:
        if kinds[g] != PLANE:
            radius = bounding_radius(kinds[g], size[g])
            x, y, z = pos[g, 0] - eye[0], pos[g, 1] - eye[1], pos[g, 2] - eye[2]
            above = base_mat[0, 2] * x + base_mat[1, 2] * y + base_mat[2, 2] * z
            limit = LASER_RANGE_M + radius
            if abs(above) > radius or x * x + y * y + z * z > limit * limit:
                continue
        met[count] = g
        count += 1
    columns = len(stretch)
    numbers = np.arange(columns).astype(np.float32)
    picture = np.empty((1, columns), np.float32)
    for section in range(len(cameras)):
        picture[:] = _NONE
        for r in range(3):
            for k in range(3):
                camera[r, k] = 0.0
                for i in range(3):
                    camera[r, k] += base_mat[r, i] * cameras[section, i, k]
        view = eye, camera.reshape(9), tan_half, LASER_RANGE_M
        cast(kinds, met[:count], pos, mat, size, *view, numbers, picture, None)
        for column in range(columns):
            # A picture's columns go from left to right, the rays from right to left.
            along = _NONE / picture[0, column] * stretch[column]
            out[(section + 1) * columns - 1 - column] = min(along, LASER_RANGE_M)


def _camera(turn: float) -> np.ndarray:
    """Returns the orientation of a level camera turned left by `turn` rad.

    The columns of (3, 3) are the directions right, up and backward.
    """
    ahead = np.array([math.cos(turn), math.sin(turn), 0.0])
    right = np.array([ahead[1], -ahead[0], 0.0])
    return np.stack([right, np.array([0.0, 0.0, 1.0]), -ahead], axis=1)
