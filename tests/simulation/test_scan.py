import math

import numpy as np
import pytest
from scipy import ndimage

from tpsrl.errors import UserError
from tpsrl.world.floor import CELL_M, FloorMap, floor_map
from tpsrl.world.scan import RANGE_M, RAYS, Scanner


def room(width_m: float, depth_m: float, origin: tuple[float, float] = (-1.0, -2.0)) -> FloorMap:
    """Returns a room with walls one cell thick and its lower left corner at `origin`."""
    shape = (round(depth_m / CELL_M) + 2, round(width_m / CELL_M) + 2)
    blocked = np.ones(shape, bool)
    blocked[1:-1, 1:-1] = False
    distance = ndimage.distance_transform_edt(~blocked) - ndimage.distance_transform_edt(blocked)
    x, y = origin
    return FloorMap((x - CELL_M, y - CELL_M), (distance * CELL_M).astype(np.float32))


def scan(floor: FloorMap, *base: tuple[float, float, float]) -> np.ndarray:
    scanner = Scanner(1)
    scanner.set(0, floor)
    return scanner.ranges([0] * len(base), np.array(base))


def test_the_rays_run_counterclockwise_from_straight_ahead() -> None:
    ahead, left, behind, right = scan(room(2.0, 3.0), (0.0, 0.0, 0.0))[0, :: RAYS // 4]
    assert ahead == pytest.approx(1.0, abs=CELL_M)
    assert left == pytest.approx(1.0, abs=CELL_M)
    assert behind == pytest.approx(1.0, abs=CELL_M)
    assert right == pytest.approx(2.0, abs=CELL_M)


def test_a_turn_by_one_ray_shifts_the_ranges_by_one_ray() -> None:
    floor = room(2.0, 3.0)
    straight, turned = scan(floor, (0.1, -0.4, 0.0), (0.1, -0.4, 2 * math.pi / RAYS))
    np.testing.assert_allclose(np.roll(straight, -1), turned, atol=1e-9)


def test_ranges_are_limited_and_zero_inside_obstacles() -> None:
    floor = room(10.0, 10.0)
    assert scan(floor, (4.0, 3.0, 0.3)).max() == RANGE_M
    assert (scan(floor, (-1.01, 0.0, 0.3), (50.0, 0.0, 0.0)) == 0.0).all()


def test_ranges_in_an_apartment_agree_with_fine_ray_marching() -> None:
    floor = floor_map("replica_cad/v3_sc3_staging_00")
    rows, columns = floor.distance.shape
    rng = np.random.default_rng(0)
    y, x = np.argwhere(floor.distance > 0.3)[rng.integers(0, (floor.distance > 0.3).sum(), 40)].T
    base = np.column_stack(
        [
            floor.origin[0] + (x + 0.5) * CELL_M,
            floor.origin[1] + (y + 0.5) * CELL_M,
            rng.uniform(-math.pi, math.pi, len(x)),
        ]
    )
    seen = scan(floor, *map(tuple, base))
    beyond = []
    for pose, ranges in zip(base, seen, strict=True):
        for ray, reach in enumerate(ranges):
            angle = pose[2] + ray * 2 * math.pi / RAYS
            gone = np.arange(0.0, RANGE_M, CELL_M / 8)
            ix = ((pose[0] + gone * math.cos(angle) - floor.origin[0]) / CELL_M).astype(int)
            iy = ((pose[1] + gone * math.sin(angle) - floor.origin[1]) / CELL_M).astype(int)
            inside = floor.distance[iy.clip(0, rows - 1), ix.clip(0, columns - 1)]
            hit = np.flatnonzero(inside <= 0.0)
            march = gone[hit[0]] if len(hit) else RANGE_M
            beyond.append(reach - march)
    # A ray that grazes a corner may or may not touch it.
    assert np.mean(np.abs(beyond) > CELL_M) < 0.02


def test_homes_of_different_frames_are_refused() -> None:
    scanner = Scanner(2)
    scanner.set(0, room(2.0, 3.0))
    with pytest.raises(UserError, match="layout: homes of one batch"):
        scanner.set(1, room(3.0, 3.0))
