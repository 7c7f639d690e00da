import numpy as np
import pytest
from homes import LAYOUT_A, LAYOUT_B
from scipy import ndimage

from tpsrl.world.floor import CELL_M, CLOSED, cells_to, floor_map, layout_obstacles
from tpsrl.world.slabs import slab_maps

SLAB_M, COUNT, MOST_M = 0.1, 17, 0.5
OPENED = (1.2, 0.3, 0.0, 0.0, 0.0)


def test_distances_in_cells_are_exact() -> None:
    rng = np.random.default_rng(0)
    for share in (0.002, 0.05, 0.5, 0.99):
        marked = rng.random((90, 70)) < share
        marked[3, 5] = True
        expected = ndimage.distance_transform_edt(~marked)
        np.testing.assert_array_equal(cells_to(marked), expected)


@pytest.mark.parametrize("layout", [LAYOUT_A, LAYOUT_B])
@pytest.mark.parametrize("joints", [CLOSED, OPENED])
def test_slab_maps_contain_the_distance_to_the_nearest_box(
    layout: str, joints: tuple[float, ...]
) -> None:
    maps = slab_maps(layout, SLAB_M, COUNT, joints, MOST_M)
    obstacles, floor = layout_obstacles(layout, joints), floor_map(layout)
    reach = (np.abs(obstacles.rotation[:, 2]) * obstacles.half).sum(axis=1)
    upright = np.abs(obstacles.rotation[:, 2, 2]) > 1 - 1e-9
    rng, near = np.random.default_rng(1), 0
    inside = np.argwhere(floor.distance > 0.0)
    for iy, ix in inside[rng.integers(len(inside), size=300)]:
        k = int(rng.integers(COUNT))
        low, high = obstacles.centre[:, 2] - reach, obstacles.centre[:, 2] + reach
        rows = (low < (k + 1) * SLAB_M) & (high > k * SLAB_M)
        point = np.array(floor.origin) + (np.array([ix, iy]) + 0.5) * CELL_M
        local = np.einsum(
            "nji,nj->ni", obstacles.rotation[rows, :2, :2], point - obstacles.centre[rows, :2]
        )
        beyond = np.maximum(np.abs(local) - obstacles.half[rows, :2], 0.0)
        distance = np.hypot(*beyond.T)
        found = float(maps[k, iy, ix])
        assert found <= MOST_M
        away = np.hypot(*(point - obstacles.centre[rows, :2]).T)
        close = away < MOST_M + np.linalg.norm(obstacles.half[rows], axis=1)
        if (upright[rows] | ~close).all():
            # The room's outline, also drawn, agrees with its walls to within a cell.
            assert found == pytest.approx(
                min(distance[upright[rows]].min(initial=MOST_M), MOST_M), abs=0.03
            )
            near += found < MOST_M
    assert near > 50


def test_the_cached_map_of_a_layout_is_not_modified() -> None:
    before = slab_maps(LAYOUT_A, SLAB_M, COUNT, CLOSED, MOST_M)
    opened = slab_maps(LAYOUT_A, SLAB_M, COUNT, OPENED, MOST_M)
    assert (before != opened).any()
    np.testing.assert_array_equal(slab_maps(LAYOUT_A, SLAB_M, COUNT, CLOSED, MOST_M), before)
