import math

import numpy as np
import pytest
from homes import LAYOUT_A, LAYOUT_B

from tpsrl.errors import UserError
from tpsrl.world.collision import distance_to
from tpsrl.world.handles import Handle, handle
from tpsrl.world.layouts import load_layout_set
from tpsrl.world.state import JOINTS

HOLD_M = 0.15  # HAB's grasp_thresh
ALL = [
    pytest.param(handle(layout, marker), id=f"{layout[-2:]}-{marker}")
    for layout in (LAYOUT_A, LAYOUT_B)
    for marker in JOINTS
]


def openings(grip: Handle) -> list[float]:
    return [0.0, 0.3 * grip.limit, grip.limit]


def gap(grip: Handle, joint: float, point: np.ndarray) -> float:
    """Signed distance (m) of a point from the nearest box of the link; negative inside."""
    boxes = grip.boxes(joint)
    rows = zip(boxes.kind, boxes.centre, boxes.rotation, boxes.half, strict=True)
    return min(distance_to(*row, point) for row in rows)


@pytest.mark.parametrize("grip", ALL)
def test_the_point_of_a_handle_lies_on_the_surface_of_its_link(grip: Handle) -> None:
    for joint in openings(grip):
        point, normal = grip.point(joint), grip.normal(joint)
        assert gap(grip, joint, point) == pytest.approx(0.0, abs=1e-9)
        assert gap(grip, joint, point + 0.01 * normal) == pytest.approx(0.01)
        assert gap(grip, joint, point - 0.01 * normal) == pytest.approx(-0.01)


def test_every_marker_is_within_grasping_distance_of_its_face() -> None:
    layouts = load_layout_set("replica_cad")
    for name in layouts.layouts:
        for marker in JOINTS:
            grip = handle(f"replica_cad/{name}", marker)
            local = np.array(grip.link.marker) - grip.face
            assert np.linalg.norm(local) < HOLD_M
            assert local[0] >= 0.0, "HAB's marker is behind the face"
            assert local[1:] == pytest.approx(0.0)


@pytest.mark.parametrize("grip", ALL)
def test_points_beside_and_above_stay_in_the_plane_of_the_face(grip: Handle) -> None:
    for joint in openings(grip):
        centre, normal = grip.point(joint), grip.normal(joint)
        beside, above = grip.point(joint, across=0.1) - centre, grip.point(joint, up=0.2) - centre
        assert np.linalg.norm(beside) == pytest.approx(0.1)
        np.testing.assert_allclose(above, [0.0, 0.0, 0.2], atol=1e-9)
        assert beside @ above == pytest.approx(0.0, abs=1e-9)
        assert beside @ normal == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("grip", ALL)
def test_motion_is_the_derivative_of_a_point_fixed_to_the_link(grip: Handle) -> None:
    step = 1e-6
    for joint in (0.05, 0.3 * grip.limit, 0.9 * grip.limit):
        for across, up in ((0.0, 0.0), (0.2, -0.1)):
            point = grip.point(joint, across, up)
            ends = (grip.point(joint + step, across, up), grip.point(joint - step, across, up))
            slope = (ends[0] - ends[1]) / (2 * step)
            np.testing.assert_allclose(grip.motion(joint, point), slope, atol=1e-7)


@pytest.mark.parametrize("grip", ALL)
def test_opening_moves_the_face_outwards(grip: Handle) -> None:
    assert grip.motion(0.0, grip.point(0.0)) @ grip.normal(0.0) > 0.3
    assert grip.limit > (0.45 if grip.slides else 1.2208)


def test_drawers_slide_and_the_fridge_turns_about_an_upright_hinge() -> None:
    assert [handle(LAYOUT_A, marker).slides for marker in JOINTS] == [False] + 4 * [True]
    fridge = handle(LAYOUT_A, JOINTS[0])
    shut, wide = fridge.normal(0.0), fridge.normal(math.pi / 2)
    assert shut @ wide == pytest.approx(0.0, abs=1e-9)
    hinge = fridge.pose(0.0)[0]
    away = [np.linalg.norm(fridge.point(joint) - hinge) for joint in (0.0, 0.7, 1.5)]
    assert away == pytest.approx([away[0]] * 3)
    drawer = handle(LAYOUT_A, JOINTS[2])
    way = drawer.point(0.4) - drawer.point(0.0)
    np.testing.assert_allclose(way, 0.4 * drawer.normal(0.0), atol=1e-9)


def test_an_unknown_marker_or_layout_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UserError, match="did you mean 'fridge_push_point'"):
        handle(LAYOUT_A, "fridge_push_pont")
    with pytest.raises(UserError, match="did you mean 'v3_sc3_staging_07'"):
        handle("replica_cad/v3_sc3_stagin_07", JOINTS[0])
