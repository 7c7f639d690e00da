"""The planar scanner of `tpsrl.world.scan` as a kernel: one thread per ray."""

import warp as wp

from tpsrl.world import scan
from tpsrl.world.floor import CELL_M

_CELL = wp.constant(CELL_M)
_RANGE = wp.constant(scan.RANGE_M)
_TURN = wp.constant(scan.TURN_RAD)


@wp.kernel(enable_backward=False)
def cast_scan(
    maps: wp.array3d[float],
    row: wp.array[wp.int64],
    x0: float,
    y0: float,
    base: wp.array[wp.vec3],
    ranges: wp.array2d[float],
) -> None:
    """Writes the ranges of the scanner; see `tpsrl.world.scan.Scanner.ranges`.

    Args:
        maps: (k, ny, nx) distances of the floor's cells from obstacles (m)
        row: (n,) map of each home
        x0, y0: origin of the maps (m)
        base: (n,) x, y (m) and yaw (rad)
        ranges: (n, rays) receives the ranges (m)
    """
    env, ray = wp.tid()
    pose = base[env]
    angle = pose[2] + float(ray) * _TURN
    c, s = wp.cos(angle), wp.sin(angle)
    gone = wp.float32(0.0)
    going = wp.int32(1)
    while going == 1 and gone < _RANGE:
        x, y = (pose[0] + gone * c - x0) / _CELL, (pose[1] + gone * s - y0) / _CELL
        going = 0
        if x >= 0.0 and y >= 0.0 and x < float(maps.shape[2]) and y < float(maps.shape[1]):
            left = maps[int(row[env]), int(y), int(x)]
            if left > 0.0:
                gone += wp.max(left - 0.7 * _CELL, 0.5 * _CELL)
                going = 1
    ranges[env, ray] = wp.min(gone, _RANGE)
