import heapq
import itertools
import math

import numpy as np
import pytest

from tpsrl.errors import UserError
from tpsrl.world.approach import REACH_M, SURROUNDINGS_M, approach, sees
from tpsrl.world.doors import moved_receptacles
from tpsrl.world.fetch import BASE_RADIUS
from tpsrl.world.floor import (
    CELL_M,
    CLOSED,
    floor_map,
    layout_obstacles,
    main_floor,
    random_base_pose,
)
from tpsrl.world.geodesic import (
    SNAP_M,
    DistanceFields,
    FreeFloor,
    distance_field,
    free_floor,
)
from tpsrl.world.handles import handle
from tpsrl.world.layouts import placed_receptacles, resolve
from tpsrl.world.state import JOINTS

LAYOUT = "replica_cad/v3_sc3_staging_00"


def blocks() -> np.ndarray:
    """Returns a walled room of 60 x 80 cells with a bar, a post and a nook."""
    free = np.zeros((60, 80), dtype=bool)
    free[1:-1, 1:-1] = True
    free[1:40, 30:34] = False  # a bar to go around
    free[45:50, 50:55] = False  # a post
    free[10:12, 45:70] = False  # a nook: two sides of a square
    free[10:35, 68:70] = False
    return free


def clear_line(free: np.ndarray, a: np.ndarray, b: np.ndarray) -> bool:
    """Returns whether a line between points, in cells, stays in free cells.

    Points along the line are sampled. Corners of blocked cells may be touched.
    """
    count = int(np.linalg.norm(b - a) / 0.02) + 2
    points = a + np.linspace(0.0, 1.0, count)[:, None] * (b - a)
    cells = np.floor(points).astype(int)
    inside = np.abs(points - cells - 0.5).max(axis=1) < 0.5 - 1e-6
    return bool(free[cells[inside, 1], cells[inside, 0]].all())


def corners(free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns corners (k, 2) of blocked areas and the centres (k, 2) of the opposite cells.

    Units are cells. A corner is a point where exactly one of four cells is blocked.
    """
    points, centres = [], []
    for iy, ix in itertools.product(range(1, free.shape[0]), range(1, free.shape[1])):
        blocked = np.argwhere(~free[iy - 1 : iy + 1, ix - 1 : ix + 1])
        if len(blocked) == 1:
            points.append((ix, iy))
            centres.append((ix + 0.5 - blocked[0, 1], iy + 0.5 - blocked[0, 0]))
    return np.array(points, dtype=float), np.array(centres)


def visibility_distances(free: np.ndarray, points: np.ndarray, bends: np.ndarray) -> np.ndarray:
    """Returns lengths (n, n), in cells, of shortest paths between points (n, 2).

    The paths bend only at `bends` (k, 2). The search is Dijkstra's algorithm on the visibility
    graph.
    """
    nodes = np.concatenate([points, bends])
    length = np.full((len(nodes), len(nodes)), np.inf)
    for i, j in itertools.combinations(range(len(nodes)), 2):
        if clear_line(free, nodes[i], nodes[j]):
            length[i, j] = length[j, i] = np.linalg.norm(nodes[i] - nodes[j])
    result = np.full((len(points), len(points)), np.inf)
    for source in range(len(points)):
        done: set[int] = set()
        queue = [(0.0, source)]
        while queue:
            away, node = heapq.heappop(queue)
            if node in done:
                continue
            done.add(node)
            if node < len(points):
                result[source, node] = away
            for other in np.flatnonzero(np.isfinite(length[node])):
                heapq.heappush(queue, (away + length[node, other], int(other)))
    return result


def some_points(layout: str, count: int) -> np.ndarray:
    """Returns points (n, 2) of the main floor that are not at the centres of cells."""
    rng = np.random.default_rng(5)
    poses = np.array([random_base_pose(layout, rng)[:2] for _ in range(count)])
    return poses + rng.uniform(-0.4, 0.4, poses.shape) * CELL_M


def all_distances(layout: str, points: np.ndarray) -> np.ndarray:
    floor = free_floor(layout)
    return np.stack([distance_field(floor, p).distances(points) for p in points], axis=1)


@pytest.fixture(scope="module")
def apartment() -> tuple[np.ndarray, np.ndarray]:
    points = some_points(LAYOUT, 16)
    return points, all_distances(LAYOUT, points)


def test_distances_agree_with_a_visibility_graph() -> None:
    free = blocks()
    cells = np.argwhere(free)[:, ::-1]
    rng = np.random.default_rng(0)
    points = cells[rng.choice(len(cells), 24, replace=False)] + 0.5
    floor, metres = FreeFloor.of_cells(free), points * CELL_M
    ours = np.stack([distance_field(floor, p).distances(metres) for p in metres], axis=1) / CELL_M
    sharp, centres = corners(free)
    exact = visibility_distances(free, points, sharp)
    at_cells = visibility_distances(free, points, centres)
    assert (exact - np.linalg.norm(points[:, None] - points, axis=-1) > 1e-3).sum() > 100
    # No path is shorter than one that cuts corners sharply. The field bends its paths at cells
    # at least as well as a path through the cells opposite the corners.
    assert (ours - exact).min() > -1e-3
    assert (ours - at_cells).max() < 0.1
    assert (ours - exact).max() * CELL_M < 0.07  # after three bends


def test_distance_to_a_visible_goal_is_the_straight_line() -> None:
    floor = FreeFloor.of_cells(np.ones((120, 120), dtype=bool))
    goal = np.array([1.013, 1.487])
    points = np.random.default_rng(1).uniform(0.02, 2.98, (500, 2))
    straight = np.linalg.norm(points - goal, axis=1)
    assert np.abs(distance_field(floor, goal).distances(points) - straight).max() < 1e-5


def test_distance_in_an_apartment_is_symmetric(apartment: tuple) -> None:
    _, distances = apartment
    assert np.abs(distances - distances.T).max() < 0.02


def test_distance_in_an_apartment_is_never_below_the_straight_line(apartment: tuple) -> None:
    points, distances = apartment
    straight = np.linalg.norm(points[:, None] - points, axis=-1)
    assert (distances - straight).min() > -1e-4
    assert np.abs(np.diag(distances)).max() < 1e-5
    assert (distances > 1.3 * straight + 0.1).any()  # there is furniture to go around


def test_distances_in_an_apartment_satisfy_the_triangle_inequality(apartment: tuple) -> None:
    _, d = apartment
    excess = d[:, None, :] - (d[:, :, None] + d[None, :, :])  # from i to j by way of k
    assert excess.max() < 0.01


def test_distance_changes_no_faster_than_the_robot_moves() -> None:
    field = distance_field(free_floor(LAYOUT), some_points(LAYOUT, 1)[0])
    points = some_points(LAYOUT, 400)
    moved = points + np.random.default_rng(2).uniform(-0.01, 0.01, points.shape)
    change = np.abs(field.distances(points) - field.distances(moved))
    assert (change <= np.linalg.norm(points - moved, axis=1) + 0.005).all()


def test_a_path_has_the_length_of_the_distance_and_stays_on_free_floor() -> None:
    floor = floor_map(LAYOUT)
    points = some_points(LAYOUT, 12)
    for goal in points[:4]:
        field = distance_field(free_floor(LAYOUT), goal)
        for start in points[4:]:
            path = field.path(*start)
            assert np.allclose(path[0], start) and np.allclose(path[-1], goal, atol=1e-5)
            length = np.linalg.norm(np.diff(path, axis=0), axis=1).sum()
            assert abs(length - field.distance(*start)) < 0.02
            for a, b in itertools.pairwise(path):
                for t in np.linspace(0.0, 1.0, 40):
                    assert floor.clearance(*(a + t * (b - a))) > 0.3 - 1.5 * CELL_M


def test_a_goal_off_the_floor_is_moved_to_the_nearest_free_point() -> None:
    free = np.ones((80, 80), dtype=bool)
    free[30:50, 30:50] = False
    floor = FreeFloor.of_cells(free)
    inside = (32.5 * CELL_M, 40.5 * CELL_M)  # three cells from the left edge
    field = distance_field(floor, inside)
    assert floor.snap(*inside) == pytest.approx((29.5 * CELL_M, 40.5 * CELL_M))
    assert field.distance(9.5 * CELL_M, 40.5 * CELL_M) == pytest.approx(20 * CELL_M, abs=1e-5)


def test_a_point_off_the_floor_adds_its_gap_to_the_nearest_free_point() -> None:
    free = np.ones((80, 80), dtype=bool)
    free[30:50, 30:50] = False
    field = distance_field(FreeFloor.of_cells(free), (9.5 * CELL_M, 40.5 * CELL_M))
    assert field.distance(32.5 * CELL_M, 40.5 * CELL_M) == pytest.approx(23 * CELL_M, abs=1e-5)


def test_unreachable_points_are_at_infinite_distance() -> None:
    field = distance_field(free_floor(LAYOUT), some_points(LAYOUT, 1)[0])
    assert math.isinf(field.distance(100.0, 0.0))
    assert math.isinf(field.distance(math.nan, 0.0))
    assert field.path(100.0, 0.0).shape == (0, 2)
    walled = np.ones((40, 40), dtype=bool)
    walled[:, 20] = False
    field = distance_field(FreeFloor.of_cells(walled), (0.1, 0.1))
    assert math.isinf(field.distance(30.5 * CELL_M, 5.5 * CELL_M))
    assert math.isfinite(field.distance(10.5 * CELL_M, 5.5 * CELL_M))


def test_a_pocket_of_free_floor_has_the_distance_of_the_main_floor_beside_it() -> None:
    layouts = [f"replica_cad/v3_sc3_staging_{number:02d}" for number in range(21)]
    pockets = {
        layout: (floor_map(layout).distance >= BASE_RADIUS) & ~main_floor(layout)
        for layout in layouts
    }
    layout = max(pockets, key=lambda name: int(pockets[name].sum()))
    assert pockets[layout].any()
    x0, y0 = floor_map(layout).origin
    cells = np.argwhere(pockets[layout])[:, ::-1]
    points = np.array([x0, y0]) + (cells + 0.5) * CELL_M
    point = min(points, key=lambda p: math.dist(p, free_floor(layout).snap(*p) or (99.0, 99.0)))
    near = free_floor(layout).snap(*point)
    assert near is not None and math.dist(near, point) > CELL_M
    field = distance_field(free_floor(layout), some_points(layout, 1)[0])
    gap = float(np.linalg.norm(point - near))
    assert field.distance(*point) == pytest.approx(field.distance(*near) + gap, abs=CELL_M)


def test_a_goal_far_from_all_free_floor_is_refused() -> None:
    free = np.zeros((10, 200), dtype=bool)
    free[:, :5] = True
    with pytest.raises(UserError, match=r"goal: no free floor within 1\.5 m of \(4\.00, 0\.10\)"):
        distance_field(FreeFloor.of_cells(free), (4.0, 0.1))
    assert FreeFloor.of_cells(free).snap(5 * CELL_M + SNAP_M - 0.05, 0.1) is not None


def test_a_path_to_a_goal_with_a_radius_ends_at_the_edge_of_the_circle() -> None:
    floor = FreeFloor.of_cells(np.ones((160, 160), dtype=bool))
    field = distance_field(floor, (2.0, 2.0), radius_m=1.0)
    points = np.random.default_rng(3).uniform(0.1, 3.9, (300, 2))
    away = np.linalg.norm(points - 2.0, axis=1)
    expected = np.maximum(away - 1.0, 0.0)
    assert np.abs(field.distances(points) - expected).max() < 1.5 * CELL_M


def test_floor_blocked_by_an_open_door_is_not_free() -> None:
    wide = tuple(1.5 if joint == "fridge_push_point" else 0.0 for joint in JOINTS)
    closed, opened = main_floor(LAYOUT, CLOSED), main_floor(LAYOUT, wide)
    shut = np.argwhere(closed & ~opened)
    assert len(shut) > 0
    x0, y0 = floor_map(LAYOUT).origin
    iy, ix = shut[len(shut) // 2]
    at = (x0 + (ix + 0.5) * CELL_M, y0 + (iy + 0.5) * CELL_M)
    assert free_floor(LAYOUT).snap(*at) == pytest.approx(at)
    assert free_floor(LAYOUT, wide).snap(*at) != pytest.approx(at)


def test_batched_distances_equal_those_of_single_homes() -> None:
    layouts = [LAYOUT, "replica_cad/v3_sc3_staging_05", "replica_cad/v3_sc1_staging_12"]
    fields = DistanceFields(3)
    alone = []
    for home, layout in enumerate(layouts):
        alone.append(distance_field(free_floor(layout), some_points(layout, 1)[0]))
        fields.set(home, alone[-1])
    homes = np.array([2, 0, 1, 2])
    points = np.stack([some_points(layouts[h], 7 + i)[-1] for i, h in enumerate(homes)])
    expected = [alone[h].distance(*p) for h, p in zip(homes, points, strict=True)]
    assert fields.distances(homes, points) == pytest.approx(expected)


def test_ahead_gives_the_next_corner_of_the_path_in_the_frame_of_the_base() -> None:
    fields, field = DistanceFields(2), distance_field(free_floor(LAYOUT), some_points(LAYOUT, 1)[0])
    fields.set(1, field)
    bases = np.column_stack([some_points(LAYOUT, 40)[1:], np.linspace(-3, 3, 39)])
    seen = fields.ahead(np.ones(39, int), bases)
    assert len(np.unique(seen[:, 1].round(3))) > 30
    for (x, y, yaw), (left, forward, aside) in zip(bases, seen, strict=True):
        assert left == pytest.approx(field.distance(x, y))
        corner = (
            x + forward * np.cos(yaw) - aside * np.sin(yaw),
            (y + forward * np.sin(yaw) + aside * np.cos(yaw)),
        )
        assert corner == pytest.approx(tuple(field.path(x, y)[1]), abs=1e-5)
    nowhere = np.array([[1e3, 0.0, 0.0], [np.nan, 0.0, 0.0]])
    assert not fields.ahead(np.ones(2, int), nowhere).any()


def test_homes_with_maps_of_different_shapes_are_refused() -> None:
    fields = DistanceFields(2)
    fields.set(0, distance_field(FreeFloor.of_cells(np.ones((9, 9), dtype=bool)), (0.1, 0.1)))
    with pytest.raises(UserError, match="same layout set"):
        other = FreeFloor.of_cells(np.ones((9, 10), dtype=bool))
        fields.set(1, distance_field(other, (0.1, 0.1)))


# -- the floor from which the arm can get at a point -------------------------------------------


PLACES = ((0.8, 0.0), (1.0, 0.85))  # in front, behind the door; (out, aside), m


def fridge_shelf() -> tuple[float, float, float]:
    """Returns a point in the middle of the fridge of `LAYOUT`."""
    shelf = next(r for r in placed_receptacles(*resolve(LAYOUT)) if r.name == "fridge")
    x, y, z = (float(value) for value in shelf.pos)
    return x, y, z + 0.1


def test_the_path_to_a_shelf_leads_around_the_open_door_of_the_fridge() -> None:
    point = fridge_shelf()
    wide = (1.57, *CLOSED[1:])
    grip = handle(LAYOUT, JOINTS[0])
    front = grip.normal(0.0)[:2]
    swing = (grip.point(wide[0]) - grip.point(0.0))[:2]
    aside = swing - (swing @ front) * front
    aside /= np.linalg.norm(aside)
    before, behind = (np.array(point[:2]) + out * front + off * aside for out, off in PLACES)
    field = approach(LAYOUT, point, wide, behind)
    assert field.distance(*before) < 0.1
    assert field.distance(*behind) > 0.8
    assert np.isfinite(distance_field(free_floor(LAYOUT, wide), point).distance(*behind))
    # The field is computed for the surroundings only, to save time; it is infinite far away.
    assert field.distance(point[0] + 2 * SURROUNDINGS_M, point[1]) == np.inf


def field_start(point: tuple[float, float, float]) -> tuple[float, float]:
    """Returns the free floor nearest to a point, as a start for the base."""
    return free_floor(LAYOUT, (1.57, *CLOSED[1:])).snap(point[0], point[1]) or point[:2]


@pytest.mark.parametrize("name", ["sink", "drawer_left_top", "counter_left", "chair", "table_1"])
def test_an_approach_keeps_clear_of_furniture_and_ends_within_reach_of_the_point(name: str) -> None:
    joints = (CLOSED[0], *(0.45 for _ in CLOSED[1:]))
    receptacle = next(r for r in moved_receptacles(LAYOUT, joints) if r.name.startswith(name))
    x, y, z = (float(value) for value in receptacle.pos)
    point = x, y, z + 0.05
    floor, free = floor_map(LAYOUT, joints=joints), free_floor(LAYOUT, joints)
    ahead = free.within(x, y, SURROUNDINGS_M - 0.2)
    room = np.array([floor.clearance(*place) for place in ahead]) - BASE_RADIUS
    ways = 0
    for start in ahead[room > 0.15][::97]:
        path = approach(LAYOUT, point, joints, start).path(*start)
        end = path[-1]
        assert math.dist(end, (x, y)) < REACH_M[-1] + CELL_M
        middle = [a + (b - a) * t for a, b in itertools.pairwise(path) for t in (0.25, 0.5, 0.75)]
        least = min(floor.clearance(*place) for place in middle)
        assert least > BASE_RADIUS - CELL_M
        ways += least > BASE_RADIUS + 0.03
    assert ways > 0.8 * len(ahead[room > 0.15][::97]) > 0


def test_an_approach_through_other_rooms_is_found_if_the_surroundings_have_none() -> None:
    layout, joints = "replica_cad/v3_sc2_staging_19", (1.5, 0.49, 0.49, 0.49, 0.49)
    start, chair = (-0.21, -3.37), (0.81, -4.67, 0.54)
    field = approach(layout, chair, joints, start)
    shortest = distance_field(free_floor(layout, joints), chair, radius_m=REACH_M[0])
    way, least = field.distance(*start), shortest.distance(*start)
    assert way > SURROUNDINGS_M > math.dist(start, chair[:2])
    assert least - 4 * CELL_M < way < 1.2 * least
    other = approach(layout, chair, joints, chair)
    assert other.apex.shape == field.apex.shape and other.origin == field.origin


def test_an_approach_to_a_shelf_leaves_room_for_the_forearm() -> None:
    point, wide = fridge_shelf(), (1.57, *CLOSED[1:])
    field = approach(LAYOUT, point, wide, field_start(point))
    obstacles = layout_obstacles(LAYOUT, wide)
    places = free_floor(LAYOUT, wide).within(point[0], point[1], REACH_M[0])
    beside = np.array([[0.05, 0.05, 0.0]])
    lines = [
        sees(places, np.array(point), obstacles.centre, obstacles.rotation, obstacles.half + grown)
        for grown in (0.0 * beside, beside)
    ]
    there = np.array([field.distance(*place) for place in places]) < 0.01
    assert there.any() and lines[1][there].all()
    assert (lines[0] & ~there).any()  # a line without width may graze the door


def test_approach_fields_have_one_shape_even_at_the_edge_of_the_map() -> None:
    floor = floor_map(LAYOUT)
    end = np.array(floor.origin) + np.array(floor.distance.shape[::-1]) * CELL_M
    middle = tuple(map(float, (floor.origin + end) / 2))
    shapes = {
        approach(LAYOUT, (x, y, 0.5), CLOSED, middle).apex.shape
        for x, y in (floor.origin, tuple(map(float, end)), middle)
    }
    assert len(shapes) == 1
    assert not np.isfinite(approach(LAYOUT, (*floor.origin, 0.5), CLOSED, middle).apex).any()


def test_a_place_sees_a_point_if_no_box_is_between_shoulder_and_point() -> None:
    point, places = np.array([0.0, 0.0, 0.5]), np.array([[0.8, 0.0], [-0.8, 0.0], [0.0, 0.8]])
    assert np.hypot(*places.T).max() < REACH_M[0]
    # An upright board at x = 0.3; turned by 45 degrees, it is at x = y.
    board, turn = np.array([[0.3, 0.0, 0.5]]), math.sqrt(0.5)
    half, plain = np.array([[0.02, 0.3, 0.5]]), np.eye(3)[None]
    aslant = np.array([[[turn, -turn, 0.0], [turn, turn, 0.0], [0.0, 0.0, 1.0]]])
    assert sees(places, point, board, plain, half).tolist() == [False, True, True]
    assert sees(places, point, board, aslant, half).tolist() == [False, True, True]
    low = half * (1.0, 1.0, 0.1)  # its top is at 0.55, the line passes 0.16 higher
    assert sees(places, point, board, plain, low).all()
    # The surface on which the point lies does not block the line.
    assert sees(places, point, np.array([[0.0, 0.0, 0.44]]), plain, np.full((1, 3), 0.05)).all()
