"""Visibility from the head camera, with objects and walls made of a few boxes."""

import math

import numpy as np
import pytest

from tpsrl.world.sight import NUM_POINTS, in_sight, surface_points

Boxes = tuple[np.ndarray, np.ndarray, np.ndarray]
NOTHING: Boxes = (np.empty((0, 3)), np.empty((0, 3, 3)), np.empty((0, 3)))
HERE = np.zeros((1, 3))


def box(x: float, y: float, z: float, *half: float, yaw: float = 0.0) -> Boxes:
    c, s = math.cos(yaw), math.sin(yaw)
    turn = np.array([[[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]]])
    return np.array([[x, y, z]]), turn, np.array([half])


def together(*boxes: Boxes) -> Boxes:
    centre, rotation, half = (np.concatenate(parts) for parts in zip(*boxes, strict=True))
    return centre, rotation, half


CHAIR = box(0.9, 0.0, 0.4, 0.2, 0.2, 0.4)
WALL = box(0.6, 0.0, 1.2, 0.02, 2.0, 1.2)


def test_points_are_distributed_over_surfaces_by_area() -> None:
    large, small = box(0.0, 0.0, 0.5, 0.4, 0.3, 0.5, yaw=0.7), box(5.0, 0.0, 0.5, 0.2, 0.15, 0.25)
    points = surface_points(*together(large, small))
    assert points.shape == (NUM_POINTS, 3)
    on_small = points[:, 0] > 3.0
    assert on_small.sum() == NUM_POINTS / 5  # half as long, so a quarter of the other's surface
    for own, boxes in ((points[~on_small], large), (points[on_small], small)):
        local = np.abs((own - boxes[0][0]) @ boxes[1][0]) / boxes[2][0]
        assert np.allclose(local.max(axis=1), 1.0) and (local > 0.999).sum() == len(own)


def test_an_object_in_front_is_seen_and_one_behind_only_by_turning() -> None:
    points = surface_points(*CHAIR)
    behind = np.array([[0.0, 0.0, math.pi]])
    assert in_sight(HERE, points, NOTHING).tolist() == [True]
    assert in_sight(behind, points, NOTHING).tolist() == [False]
    assert in_sight(behind, points, NOTHING, turning=True).tolist() == [True]


def test_a_tall_wall_in_between_hides_an_object_and_other_walls_do_not() -> None:
    points = surface_points(*CHAIR)
    assert not in_sight(HERE, points, WALL, turning=True)[0]
    assert in_sight(HERE, points, box(1.2, 0.0, 1.2, 0.02, 2.0, 1.2), turning=True)[0]
    assert in_sight(HERE, points, box(0.6, 0.0, 0.1, 0.02, 2.0, 0.1), turning=True)[0]


@pytest.mark.parametrize(("height", "seen"), [(0.3, True), (1.4, True), (2.4, False)])
def test_an_object_above_the_picture_is_not_seen(height: float, seen: bool) -> None:
    points = surface_points(*box(0.9, 0.0, height, 0.1, 0.3, 0.1))
    assert in_sight(HERE, points, NOTHING, turning=True)[0] == seen


def test_an_object_out_of_range_is_not_seen() -> None:
    points = surface_points(*box(4.0, 0.0, 0.5, 0.2, 0.2, 0.5))
    assert in_sight(HERE, points, NOTHING)[0]
    assert not in_sight(HERE, points, NOTHING, range_m=3.0)[0]


def test_an_object_is_seen_if_a_tenth_of_its_points_is_visible() -> None:
    points = surface_points(*CHAIR)
    shares = []
    for edge in np.linspace(-0.5, 0.5, 21):  # y (m) of the wall's end
        wall = box(0.6, edge - 1.0, 1.2, 0.02, 1.0, 1.2)
        each = [in_sight(HERE, np.tile(p, (NUM_POINTS, 1)), wall, turning=True)[0] for p in points]
        shares.append((sum(each) / NUM_POINTS, in_sight(HERE, points, wall, turning=True)[0]))
    assert [seen for _, seen in shares] == [share >= 0.1 for share, _ in shares]
    assert {seen for _, seen in shares} == {True, False}
