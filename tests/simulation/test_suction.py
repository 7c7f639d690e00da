import dataclasses
import json

import numpy as np
import pytest
from homes import (
    DRAWER,
    FRIDGE,
    HOLD,
    IDLE,
    LAYOUT_A,
    UP,
    arm_on_object,
    before_handle,
    box_in_front,
    driving,
    episode,
    holding,
    in_drawer,
    move_arm,
    on_floor,
    posture_above,
    pull_drawer,
    reach_face,
    repeat,
    roomiest,
    take_drawer,
)

import tpsrl.sim
from tpsrl.errors import UserError
from tpsrl.sim.contacts import touched
from tpsrl.sim.mujoco_sim import MujocoSimulator
from tpsrl.world import action as act
from tpsrl.world.episode import Episode, load_episodes, save_episodes
from tpsrl.world.geometry import quat_matrix
from tpsrl.world.handles import handle
from tpsrl.world.layouts import placed_receptacles, resolve
from tpsrl.world.objects import object_kind, object_kinds
from tpsrl.world.state import JOINTS

INDEX = JOINTS.index(DRAWER)


@pytest.fixture(scope="module")
def simulator() -> MujocoSimulator:
    simulator = tpsrl.sim.make(slots=12)
    assert isinstance(simulator, MujocoSimulator)
    return simulator


def joint(simulator: MujocoSimulator) -> float:
    """Returns the joint position of the drawer, in m."""
    return float(simulator.state([0]).joints[0, INDEX])


# -- objects -----------------------------------------------------------------------------------


def test_nothing_is_grasped_without_contact(simulator: MujocoSimulator) -> None:
    simulator.reset([0], [box_in_front()])
    state = simulator.state([0])
    top = state.object_pos[0, 0] + object_kind("003_cracker_box").half[2] * UP
    over = posture_above(state.base[0], top + 0.08 * UP)
    move_arm(simulator, over)
    move_arm(simulator, posture_above(state.base[0], top + 0.015 * UP, over), grip=1.0)
    grip = IDLE.copy()
    grip[act.GRIP] = 1.0
    repeat(simulator, grip, 10)
    assert simulator.state([0]).held[0] == -1
    move_arm(simulator, posture_above(state.base[0], top, over), grip=1.0)
    repeat(simulator, grip, 5)
    assert simulator.state([0]).held[0] == 0


def test_contact_alone_does_not_grasp(simulator: MujocoSimulator) -> None:
    arm_on_object(simulator)
    assert simulator.state([0]).held[0] == -1


def test_a_held_object_keeps_its_place_at_the_cup_while_driving(simulator: MujocoSimulator) -> None:
    holding(simulator)
    grip = IDLE.copy()
    grip[act.GRIP] = 1.0
    drive = grip.copy()
    drive[act.BASE] = 0.2, 0.2
    offset = []
    for action in [grip] * 10 + [drive] * 30:
        simulator.step([0], action[None])
        state = simulator.state([0])
        offset.append(np.linalg.norm(state.ee_pos[0] - state.object_pos[0, 0]))
    assert np.ptp(offset) < 0.003
    assert state.held[0] == 0 and not state.violation[0]


def test_release_drops_the_object(simulator: MujocoSimulator) -> None:
    holding(simulator)
    height = simulator.state([0]).object_pos[0, 0, 2]
    repeat(simulator, IDLE, 30)
    state = simulator.state([0])
    assert state.held[0] == -1 and not state.violation[0]
    assert state.object_pos[0, 0, 2] < height - 0.05


def test_a_released_object_has_no_contact_until_the_cup_has_moved_away(
    simulator: MujocoSimulator,
) -> None:
    arm_on_object(simulator)
    grip = IDLE.copy()
    grip[act.GRIP] = 1.0
    repeat(simulator, grip, 5)
    assert simulator.state([0]).held[0] == 0
    repeat(simulator, IDLE, 1)
    before = simulator.state([0])
    repeat(simulator, driving(0.15), 8)  # the cup slides over the box without moving it
    after = simulator.state([0])
    assert after.held[0] == -1
    assert np.linalg.norm(after.ee_pos[0] - before.ee_pos[0]) > 0.05
    np.testing.assert_allclose(after.object_pos[0, 0], before.object_pos[0, 0], atol=0.002)
    # Contacts are on again once the cup is farther away than the box is long.
    cup = simulator.home.cup_geom
    simulator.restore(0, simulator.snapshot(0))
    assert simulator.homes[0].geom_margin[cup] < 0.0
    repeat(simulator, driving(-0.5), 20)
    away = simulator.state([0]).ee_pos[0] - after.object_pos[0, 0]
    assert np.linalg.norm(away) > 2.0 * max(object_kind("003_cracker_box").half)
    assert simulator.homes[0].geom_margin[cup] >= 0.0


def test_a_held_object_pulled_off_the_cup_is_a_violation(simulator: MujocoSimulator) -> None:
    holding(simulator)
    home = simulator.homes[0]
    body = simulator.home.slot_body[0]
    grip = IDLE.copy()
    grip[act.GRIP] = 1.0
    grip[act.BASE] = -0.4, 0.0
    for _ in range(20):
        home.data.xfrc_applied[body, 0] = 8000.0
        simulator.step([0], grip[None])
        if simulator.state([0]).violation[0]:
            break
    state = simulator.state([0])
    assert state.violation[0] and state.held[0] == -1
    home.data.xfrc_applied[body] = 0.0
    repeat(simulator, IDLE, 1)
    assert not simulator.state([0]).violation[0]


def test_a_hold_breaks_15_centimetres_from_the_objects_centre(simulator: MujocoSimulator) -> None:
    holding(simulator)
    home = simulator.homes[0]
    body = simulator.home.slot_body[0]
    grip = IDLE.copy()
    grip[act.GRIP] = 1.0
    away = []
    for newton in range(0, 20_000, 100):
        home.data.xfrc_applied[body, 2] = -newton
        simulator.step([0], grip[None])
        state = simulator.state([0])
        away.append(np.linalg.norm(state.ee_pos[0] - state.object_pos[0, 0]))
        if state.violation[0]:
            break
    assert state.violation[0]
    # The cup held the upper face, 0.105 m from the centre, and came off after 5 cm.
    assert max(away[:-1]) < 0.15 <= away[-1] < 0.2


def test_every_object_can_be_held_at_every_point_of_its_surface() -> None:
    assert max(kind.bounding_radius for kind in object_kinds().values()) < 0.14


def test_the_cup_takes_the_object_that_it_touches_most_deeply() -> None:
    geom = np.array([[0, 7], [5, 1], [2, 5], [5, 3]], dtype=np.int32)
    distance = np.array([-0.5, 0.001, -0.002, -0.001])
    slot = np.array([-1, 0, 1, 2, -1, -1, -1, 3])
    assert touched(geom, distance, 5, slot) == 1
    assert touched(geom[:1], distance[:1], 5, slot) == -1


# -- an object in hand at the start ------------------------------------------------------------


def in_hand(name: str, yaw: float = 0.9, **changes: object) -> Episode:
    """Returns an episode that starts with one object in the cup and another on the floor."""
    x, y = roomiest(LAYOUT_A)
    others = [on_floor("013_apple", x - 0.8, y), on_floor(name, x, y + 0.9)]
    return dataclasses.replace(episode(LAYOUT_A, (x, y, yaw), *others), held=1, **changes)


@pytest.mark.parametrize("name", ["003_cracker_box", "005_tomato_soup_can", "024_bowl"])
def test_an_object_in_hand_at_the_start_hangs_upright_from_the_cup(
    simulator: MujocoSimulator, name: str
) -> None:
    simulator.reset([0], [in_hand(name)])
    state = simulator.state([0])
    assert state.held[0] == 1 and state.held_joint[0] == -1
    top = state.object_pos[0, 1] + object_kind(name).half[2] * UP
    np.testing.assert_allclose(top, state.ee_pos[0], atol=1e-6)
    turn = quat_matrix(state.object_quat[0, 1])
    np.testing.assert_allclose(turn[:, 2], UP, atol=1e-9)
    np.testing.assert_allclose(turn[:2, 0], [np.cos(0.9), np.sin(0.9)], atol=1e-9)
    # The object keeps its pose while the robot waits and drives.
    for action in [HOLD] * 20 + [driving(0.1, HOLD)] * 20:
        simulator.step([0], action[None])
        after = simulator.state([0])
        assert after.held[0] == 1 and not after.violation[0]
        away = after.object_pos[0, 1] + object_kind(name).half[2] * UP - after.ee_pos[0]
        assert np.linalg.norm(away) < 0.005
    assert after.force_total[0] == 0.0
    repeat(simulator, IDLE, 20)
    assert simulator.state([0]).held[0] == -1
    assert simulator.state([0]).object_pos[0, 1, 2] < state.object_pos[0, 1, 2] - 0.3


def test_held_objects_and_open_doors_are_kept_in_files(tmp_path: object) -> None:
    start = in_hand("024_bowl", articulation={FRIDGE: 1.5, DRAWER: 0.25})
    assert Episode.from_json(json.loads(json.dumps(start.to_json()))) == start
    save_episodes(f"{tmp_path}/set.jsonl.gz", [start])
    assert load_episodes(f"{tmp_path}/set.jsonl.gz") == [start]


def test_a_record_without_a_held_object_holds_none() -> None:
    record = in_hand("024_bowl").to_json()
    del record["held"]
    assert Episode.from_json(record).held == -1


@pytest.mark.parametrize("held", [2, -2])
def test_a_held_object_out_of_range_is_refused_in_one_line(held: int) -> None:
    record = in_hand("024_bowl").to_json() | {"held": held}
    with pytest.raises(UserError) as caught:
        Episode.from_json(record, where="line 7")
    assert str(caught.value) == f"line 7: held is {held}, but the episode has objects 0 to 1"


# -- doors and drawers -------------------------------------------------------------------------


def test_a_drawer_is_held_only_on_contact(simulator: MujocoSimulator) -> None:
    simulator.reset([0], [before_handle(DRAWER)])
    reach_face(simulator, DRAWER, gap=0.02, grip=1.0)
    assert simulator.state([0]).held_joint[0] == -1
    reach_face(simulator, DRAWER, gap=-0.01, grip=1.0)
    state = simulator.state([0])
    assert state.held_joint[0] == INDEX and state.held[0] == -1
    assert abs(joint(simulator)) < 0.005


def test_touching_a_drawer_without_the_grip_does_not_hold_it(simulator: MujocoSimulator) -> None:
    simulator.reset([0], [before_handle(DRAWER)])
    reach_face(simulator, DRAWER, gap=-0.02)
    state = simulator.state([0])
    assert state.force[0] > 0.0 and state.held_joint[0] == -1


@pytest.mark.parametrize(("across", "holds"), [(0.12, True), (-0.12, True), (0.2, False)])
def test_a_drawer_is_held_only_within_15_centimetres_of_its_marker(
    simulator: MujocoSimulator, across: float, holds: bool
) -> None:
    simulator.reset([0], [before_handle(DRAWER, across=across)])
    reach_face(simulator, DRAWER, gap=-0.02, grip=1.0, across=across)
    state = simulator.state([0])
    away = np.linalg.norm(state.ee_pos[0] - state.marker_pos[0, INDEX])
    assert (away < 0.15) == holds
    assert (state.held_joint[0] == INDEX) == holds
    assert holds or state.force[0] > 0.0, "the cup does not touch the face"


def test_driving_back_opens_a_held_drawer_and_driving_forward_closes_it(
    simulator: MujocoSimulator,
) -> None:
    take_drawer(simulator)
    grip = handle(LAYOUT_A, DRAWER)
    offset = simulator.state([0]).ee_pos[0] - grip.point(joint(simulator))
    for speed, steps in ((-0.2, 26), (0.0, 10), (0.1, 30)):
        for _ in range(steps):
            simulator.step([0], driving(speed, HOLD)[None])
            state = simulator.state([0])
            # The weld is a ball joint, so the cup stays on its point of the face.
            away = state.ee_pos[0] - grip.point(joint(simulator)) - offset
            assert np.linalg.norm(away) < 0.01
            assert state.held_joint[0] == INDEX and not state.violation[0]
        if speed == 0.0:
            assert 0.3 < joint(simulator) < grip.limit
            still = np.delete(state.joints[0], INDEX)
            np.testing.assert_allclose(still, 0.0, atol=1e-3)
    assert joint(simulator) < 0.2


def test_objects_in_a_drawer_move_with_it_and_stay_in_it(simulator: MujocoSimulator) -> None:
    bowl, apple = in_drawer("024_bowl"), in_drawer("013_apple")
    x, y, z = apple.pos
    aside = dataclasses.replace(apple, pos=(x, y + 0.2, z))
    take_drawer(simulator, bowl, aside)
    place = next(p for p in placed_receptacles(*resolve(LAYOUT_A)) if p.marker == DRAWER)
    start = simulator.state([0]).object_pos[0, :2].copy()
    pull_drawer(simulator)
    state = simulator.state([0])
    assert joint(simulator) > 0.25
    way = handle(LAYOUT_A, DRAWER).point(joint(simulator)) - handle(LAYOUT_A, DRAWER).point(0.0)
    for before, after in zip(start, state.object_pos[0, :2], strict=True):
        assert place.contains(after, way)
        assert not place.contains(after)
        assert after[2] == pytest.approx(before[2], abs=0.01)
    # The bowl does not roll, so it hardly moves in the drawer.
    assert np.linalg.norm(state.object_pos[0, 0] - start[0] - way) < 0.05


def test_releasing_a_drawer_does_not_push_it(simulator: MujocoSimulator) -> None:
    take_drawer(simulator)
    pull_drawer(simulator)
    before = simulator.state([0])
    for _ in range(30):
        simulator.step([0], IDLE[None])
        state = simulator.state([0])
        assert state.held_joint[0] == -1 and not state.violation[0]
        assert state.force[0] == 0.0
        assert abs(state.joints[0, INDEX] - before.joints[0, INDEX]) < 0.003
    # The drawer also stays in place when the robot backs off.
    repeat(simulator, driving(-0.2), 15)
    assert abs(joint(simulator) - before.joints[0, INDEX]) < 0.003
    assert simulator.state([0]).force_total[0] == before.force_total[0]


def test_gripping_again_on_the_face_holds_the_drawer_again(simulator: MujocoSimulator) -> None:
    take_drawer(simulator)
    pull_drawer(simulator)
    opened = joint(simulator)
    repeat(simulator, IDLE, 5)
    assert simulator.state([0]).held_joint[0] == -1
    repeat(simulator, HOLD, 1)
    assert simulator.state([0]).held_joint[0] == INDEX
    repeat(simulator, driving(0.1, HOLD), 20)
    assert joint(simulator) < opened - 0.1


def test_after_leaving_the_face_the_cup_needs_a_new_contact_to_hold(
    simulator: MujocoSimulator,
) -> None:
    take_drawer(simulator)
    pull_drawer(simulator)
    repeat(simulator, IDLE, 1)
    repeat(simulator, driving(-0.2), 8)
    opened = joint(simulator)
    repeat(simulator, HOLD, 3)
    assert simulator.state([0]).held_joint[0] == -1
    # Contacts are on again: the cup pushes the drawer that it passed through after release.
    repeat(simulator, IDLE, 1)
    repeat(simulator, driving(0.2), 20)
    assert joint(simulator) < opened - 0.1
    assert simulator.state([0]).held_joint[0] == -1


def test_a_drawer_torn_off_the_cup_is_a_violation(simulator: MujocoSimulator) -> None:
    take_drawer(simulator)
    pull_drawer(simulator)
    home, body = simulator.homes[0], simulator.home.marker_body[INDEX]
    blow = -100_000.0 * handle(LAYOUT_A, DRAWER).normal(0.0)  # more than the base could pull
    home.data.xfrc_applied[body, :3] = blow
    simulator.step([0], HOLD[None])
    home.data.xfrc_applied[body] = 0.0
    state = simulator.state([0])
    assert state.violation[0] and state.held_joint[0] == -1
    repeat(simulator, IDLE, 1)
    assert not simulator.state([0]).violation[0]


def test_the_fridge_turns_on_its_hinge_with_the_cup(simulator: MujocoSimulator) -> None:
    simulator.reset([0], [before_handle(FRIDGE)])
    reach_face(simulator, FRIDGE, gap=-0.01, grip=1.0)
    assert simulator.state([0]).held_joint[0] == JOINTS.index(FRIDGE)
    repeat(simulator, driving(-0.15, HOLD), 12)
    state = simulator.state([0])
    assert state.held_joint[0] == JOINTS.index(FRIDGE)
    assert state.joints[0, 0] > 0.1
    point = handle(LAYOUT_A, FRIDGE).point(float(state.joints[0, 0]))
    assert np.linalg.norm(state.ee_pos[0] - point) < 0.03


@pytest.mark.parametrize("steps", [12, 20])
def test_releasing_a_door_that_has_turned_into_the_cup_does_not_push_it(
    simulator: MujocoSimulator, steps: int
) -> None:
    """The ball joint lets the cup tilt into the face, so a contact would throw the door."""
    simulator.reset([0], [before_handle(FRIDGE)])
    reach_face(simulator, FRIDGE, gap=-0.01, grip=1.0)
    repeat(simulator, driving(-0.15, HOLD), steps)
    repeat(simulator, HOLD, 15)
    before = simulator.state([0])
    assert before.held_joint[0] == 0 and before.joints[0, 0] > 0.2
    for _ in range(30):
        simulator.step([0], IDLE[None])
        state = simulator.state([0])
        assert state.held_joint[0] == -1
        assert state.force[0] == 0.0
        assert abs(state.joints[0, 0] - before.joints[0, 0]) < 0.01
