"""Laser scanner on the base, by ray casting."""

import math

import numpy as np

from tpsrl.render.caster import Caster
from tpsrl.world.fetch import (
    LASER_FOV_DEG,
    LASER_POS,
    LASER_RANGE_M,
    LASER_RAYS,
    LASER_SECTIONS,
    laser_angles,
)

_FOV_DEG = LASER_FOV_DEG / LASER_SECTIONS


class Laser:
    """Scans homes that share one list of geoms.

    Args:
        kinds: (G,) MuJoCo geom types
        visible: (G,) bool, geoms that the laser detects, without those of the robot
    """

    def __init__(self, kinds: np.ndarray, visible: np.ndarray) -> None:
        columns = LASER_RAYS // LASER_SECTIONS
        self._caster = Caster(kinds, visible, LASER_RANGE_M)
        self._picture = np.empty((1, columns), np.float32)
        tan_half = math.tan(math.radians(_FOV_DEG) / 2)
        across = tan_half * ((2 * np.arange(columns) + 1) / columns - 1)
        # Pictures have planar depth, but a scanner measures along its rays.
        self._stretch = LASER_RANGE_M * np.sqrt(1.0 + across**2)
        turns = np.radians(_FOV_DEG) * (np.arange(LASER_SECTIONS) - (LASER_SECTIONS - 1) / 2)
        self.angles = np.array(laser_angles())
        self._cameras = [_camera(turn) for turn in turns]

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
        eye = base_pos + base_mat @ np.array(LASER_POS)
        columns = self._picture.shape[1]
        for section, camera in enumerate(self._cameras):
            self._caster.depth(pos, mat, size, eye, base_mat @ camera, self._picture, _FOV_DEG)
            # A picture's columns go from left to right, the rays from right to left.
            out[section * columns : (section + 1) * columns] = self._picture[0, ::-1]
        out[:] = np.minimum(out * np.tile(self._stretch, LASER_SECTIONS), LASER_RANGE_M)
        return out


def _camera(turn: float) -> np.ndarray:
    """Returns the orientation of a level camera turned left by `turn` rad.

    The columns of (3, 3) are the directions right, up and backward.
    """
    ahead = np.array([math.cos(turn), math.sin(turn), 0.0])
    right = np.array([ahead[1], -ahead[0], 0.0])
    return np.stack([right, np.array([0.0, 0.0, 1.0]), -ahead], axis=1)
