"""Shortest paths of the cup around furniture, tested against Dijkstra's algorithm and by hand."""

import heapq
import itertools

import numpy as np
import pytest

from skills.envs.hand_meter import HandMeter
from tpsrl.errors import UserError
from tpsrl.world.floor import CLOSED
from tpsrl.world.hand_path import CELL_M, REACH_M, HandField, HandFields, hand_field, spread
from tpsrl.world.layouts import placed_receptacles, resolve
from tpsrl.world.state import JOINTS

LAYOUT = "replica_cad/v3_sc3_staging_00"
N = round(2 * REACH_M / CELL_M)
MIDDLE = N // 2
NONE = np.empty((0, 3)), np.empty((0, 3, 3)), np.empty((0, 3))
WALL = np.array([[0.3, 0.0, 0.0]]), np.eye(3)[None], np.array([[0.02, 0.5, 0.5]])  # x, y, z


def field(*boxes: np.ndarray) -> HandField:
    """Returns the field of the point (0, 0, 0) among boxes."""
    origin = np.full(3, -MIDDLE * CELL_M)
    return HandField(origin, spread(origin, *boxes))


def left(of: HandField, *cups: tuple[float, float, float]) -> np.ndarray:
    fields = HandFields(1)
    fields.set(0, of)
    homes = np.zeros(len(cups), int)
    return fields.ahead(homes, np.array(cups), np.zeros((len(cups), 3)))


def test_a_new_field_replaces_what_is_known_of_a_cup() -> None:
    fields, cup = HandFields(2), np.array([[0.6, 0.0, 0.0]])
    base = np.zeros((1, 3))
    for boxes in (NONE, WALL, NONE):
        fields.set(0, field(*boxes))
        for at in (cup, cup, cup + 0.1, cup):
            np.testing.assert_array_equal(
                fields.ahead(np.zeros(1, int), at, base), left(field(*boxes), *at)
            )
    straight, turned = (
        fields.ahead(np.zeros(1, int), cup, np.array([[0.0, 0.0, yaw]]))[0]
        for yaw in (0.0, np.pi / 2)
    )
    assert straight[1] < -0.1
    left_m, ahead, aside, up = straight
    np.testing.assert_allclose(turned, (left_m, aside, -ahead, up), atol=1e-9)


def shortest(blocked: np.ndarray) -> np.ndarray:
    """Returns distances in metres to the middle cell, computed with a heap."""
    found = np.full(blocked.shape, np.inf)
    queue = [(0.0, (MIDDLE, MIDDLE, MIDDLE))]
    found[queue[0][1]] = 0.0
    moves = [m for m in itertools.product((-1, 0, 1), repeat=3) if any(m)]
    cost = {1: 1.0, 2: 1.4, 3: 1.7}
    while queue:
        here, cell = heapq.heappop(queue)
        if here > found[cell]:
            continue
        for move in moves:
            other = tuple(a + b for a, b in zip(cell, move, strict=True))
            if min(other) < 0 or max(other) >= N or blocked[other]:
                continue
            total = here + CELL_M * cost[sum(map(abs, move))]
            if total < found[other] - 1e-9:
                found[other] = total
                heapq.heappush(queue, (total, other))
    return found


def test_distances_around_boxes_at_any_angle_agree_with_dijkstra() -> None:
    rng = np.random.default_rng(0)
    count = 9
    centre = rng.uniform(-0.6, 0.6, (count, 3)) + np.sign(rng.uniform(-1, 1, (count, 3))) * 0.2
    turns = np.linalg.qr(rng.normal(size=(count, 3, 3)))[0]
    half = rng.uniform(0.02, 0.25, (count, 3))
    cells = np.stack(np.meshgrid(*[np.arange(N)] * 3, indexing="ij"), -1)
    places = (cells - MIDDLE) * CELL_M
    local = np.einsum("kij,...ki->...kj", turns, places[..., None, :] - centre)
    blocked = (np.abs(local) <= half + 0.04).all(-1).any(-1)
    assert 0.02 < blocked.mean() < 0.5 and not blocked[MIDDLE, MIDDLE, MIDDLE]
    np.testing.assert_allclose(field(centre, turns, half).distance, shortest(blocked), atol=1e-4)


def test_without_furniture_the_path_to_the_point_is_nearly_straight() -> None:
    cups = [(0.5, 0.3, 0.2), (-0.4, 0.0, 0.0), (1.5, 0.2, 0.3), (0.05, 0.02, 0.0)]
    ways = left(field(*NONE), *cups)
    straight = np.linalg.norm(cups, axis=1)
    assert (ways[:, 0] > straight - 0.02).all() and (ways[:, 0] < 1.12 * straight + 0.06).all()
    towards = -np.array(cups) / straight[:, None]
    assert (np.sum(ways[:, 1:] * towards, axis=1)[:3] > 0.2).all()
    np.testing.assert_allclose(ways[3, 1:], -np.array(cups[3]), atol=1e-6)


def test_a_path_leads_around_a_wall_and_an_enclosed_point_has_none() -> None:
    behind = (0.4, 0.0, 0.0)
    (way,) = left(field(*WALL), behind)
    assert way[0] > 2 * 0.5 and np.hypot(way[2], way[3]) > 0.1 > abs(way[1])
    sides = np.array(
        [[s * 0.3 if a == b else 0.0 for b in range(3)] for a in range(3) for s in (1, -1)]
    )
    half = np.where(sides != 0.0, 0.02, 0.4)
    shut = field(sides, np.repeat(np.eye(3)[None], 6, 0), half)
    assert left(shut, (0.1, 0.0, 0.0))[0, 0] > 0.0
    assert not np.isfinite(shut.distance[-1]).any()
    assert left(shut, (0.7, 0.0, 0.0)).tolist() == [[0.0] * 4]
    assert left(shut, (np.nan, 0.0, 0.0)).tolist() == [[0.0] * 4]


def test_a_point_on_a_surface_is_reached_from_above() -> None:
    board = np.array([[0.0, 0.0, -0.05]]), np.eye(3)[None], np.array([[0.5, 0.5, 0.02]])
    above, below = left(field(*board), (0.0, 0.0, 0.4), (0.0, 0.0, -0.3))
    assert above[0] < 0.45 and below[0] > 1.0


def test_the_path_into_the_fridge_leads_through_its_opening() -> None:
    shelf = next(r for r in placed_receptacles(*resolve(LAYOUT)) if r.name == "fridge")
    x, y, z = (float(value) for value in shelf.pos)
    wide = (1.57, *CLOSED[1:])
    of = hand_field(LAYOUT, (x, y, z + 0.1), wide)
    front = shelf.rotation @ np.array([1.0, 0.0, 0.0])
    place = np.array([x, y, z + 0.1])
    before, beside, back = (
        left(of, tuple(place + 0.7 * way))[0, 0]
        for way in (front, np.array([-front[1], front[0], 0.0]), -front)
    )
    assert before < 0.9 and beside > before + 0.3 and back > before + 0.3
    assert not np.isfinite(hand_field(LAYOUT, (x, y, z + 0.1), CLOSED).distance).all()


def test_a_meter_continues_from_its_saved_arrays() -> None:
    homes, goals = [1], np.array([[0.0, 1.0, 0.8]])

    class World:
        def __init__(self, x: float) -> None:
            self.ee_pos, self.base = np.array([[x, 1.0, 0.9]]), np.zeros((1, 3))
            self.joints = np.zeros((1, len(JOINTS)))

    begun, other = HandMeter(2), HandMeter(2)
    begun.begin(homes, [LAYOUT], goals, World(0.5))  # type: ignore[arg-type]
    begun.drive(homes, World(0.45))  # type: ignore[arg-type]
    arrays = begun.to_arrays(1)
    other.restore(1, arrays, LAYOUT, goals[0])
    for meter in (begun, other):
        meter.drive(homes, World(0.3))  # type: ignore[arg-type]
    assert begun.gained(homes).tolist() == other.gained(homes).tolist()
    with pytest.raises(UserError, match="array hand_left"):
        other.restore(1, {**arrays, "hand_left": np.zeros(2)}, LAYOUT, goals[0])
