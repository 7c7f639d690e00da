"""Training apartments with fridge and furniture at other places."""

import math

import numpy as np
import pytest

from skills.starts import mixture
from skills.starts.source import StartSource
from tpsrl.errors import UserError
from tpsrl.world import rearranging
from tpsrl.world.doors import joints_at
from tpsrl.world.floor import layout_obstacles
from tpsrl.world.generator import Source, make_episode
from tpsrl.world.geometry import quat_matrix
from tpsrl.world.layouts import load_layout_set, resolve
from tpsrl.world.placement import box_prism, furniture
from tpsrl.world.scenarios import DRAWERS, FRIDGE, load_scenario

SET = load_layout_set("replica_cad")
EVERY = rearranging.names(SET)
NAMES = [name for name in EVERY if name[-1] in "12"]  # the fridge has moved
FURNISHED = [name for name in EVERY if name[-1] in "34"]
HELD_OUT = {layout.poses["fridge"].pos[:2] for layout in SET.split("val")}


def test_each_training_apartment_and_no_other_has_four_variants() -> None:
    plain = [layout.name for layout in SET.split("train")]
    assert [name[:-2] for name in EVERY] == plain * 4
    assert [name[-2:] for name in EVERY[:: len(plain)]] == ["~1", "~2", "~3", "~4"]
    with pytest.raises(UserError, match="unknown value 'v3_sc0_staging_00~5'; did you mean"):
        SET.layout("v3_sc0_staging_00~5")
    with pytest.raises(UserError, match="layout: unknown value 'v3_sc3_staging_00~1'"):
        resolve("replica_cad/v3_sc3_staging_00~1")


def test_only_the_fridge_moves_and_keeps_away_from_held_out_places() -> None:
    places = set()
    for name in NAMES:
        found, plain = SET.layout(name), SET.layout(name[:-2])
        moved = [body for body, pose in found.poses.items() if pose != plain.poses[body]]
        assert (moved, found.split, found.family) == (["fridge"], "rearranged", plain.family)
        x, y, z = found.poses["fridge"].pos
        assert z == plain.poses["fridge"].pos[2]
        assert min(math.dist((x, y), other) for other in HELD_OUT) >= 0.6
        places.add((round(x, 1), round(y, 1)))
    assert len(places) > 60


# in the last two, the fridge was once drawn in front of the drawers
@pytest.mark.parametrize("name", [*NAMES[::9], "v3_sc0_staging_00~2", "v3_sc0_staging_05~2"])
def test_a_moved_fridge_overlaps_no_furniture_and_no_open_drawer(name: str) -> None:
    layout, opened = f"replica_cad/{name}", joints_at(dict.fromkeys(DRAWERS.values(), 0.45))
    every, others = layout_obstacles(layout), furniture(layout, opened, without="fridge")
    own = [i for i, body in enumerate(every.names) if body.partition("/")[0] == "fridge"]
    assert own
    for i in own:
        assert others.fits(box_prism(every.centre[i], every.rotation[i], every.half[i]), 0.0)


def test_counter_fridge_and_furniture_move_in_furnished_variants() -> None:
    places, ends, moved, gone = set(), [], [], []
    for name in FURNISHED[::3]:
        found, plain = SET.layout(name), SET.layout(name[:-2])
        assert (found.split, found.family) == ("rearranged", plain.family)
        assert set(found.poses) == set(plain.poses)
        counter, fridge = found.poses["kitchen_counter"], found.poses["fridge"]
        assert min(math.dist(fridge.pos[:2], other) for other in HELD_OUT) >= 0.6
        places.add((round(counter.pos[0], 1), round(counter.pos[1], 1)))
        along = (quat_matrix(counter.quat).T @ np.subtract(fridge.pos, counter.pos))[1]
        ends.append(np.sign(along) if 1.85 < abs(along) < 2.1 else 0)
        cupboard = found.poses["kitchenCupboard_01"]
        above = quat_matrix(counter.quat).T @ np.subtract(cupboard.pos, counter.pos)
        np.testing.assert_allclose(above, [-0.3, 0.0, 1.5], atol=0.02)
        there = [body for body, pose in plain.poses.items() if pose.present]
        moved.append(np.mean([found.poses[body] != plain.poses[body] for body in there]))
        gone.append(sum(not found.poses[body].present for body in there))
    assert len(places) > 20
    assert np.mean(np.equal(ends, 1)) > 0.25 and np.mean(np.equal(ends, -1)) > 0.25
    assert 0.4 < np.mean(moved) < 0.9
    assert np.mean(gone) < 0.5 and max(gone) <= 2  # furniture without any free place


@pytest.mark.parametrize("name", FURNISHED[::9])
def test_moved_furniture_overlaps_no_other_furniture(name: str) -> None:
    layout, plain = f"replica_cad/{name}", SET.layout(name[:-2])
    every = layout_obstacles(layout)
    bodies = [box.partition("/")[0] for box in every.names]
    found = SET.layout(name)
    moved = {b for b in plain.poses if found.poses[b] != plain.poses[b]}
    for i, body in enumerate(bodies):
        if body in moved:
            own = box_prism(every.centre[i], every.rotation[i], every.half[i])
            assert furniture(layout, without=body).fits(own, -0.03), every.names[i]


def test_many_moved_fridges_have_an_obstacle_beside_the_hinge() -> None:
    def beside(name: str) -> bool:
        pose = SET.layout(name).poses["fridge"]
        yaw = 2.0 * math.atan2(pose.quat[3], pose.quat[0])
        hinge = SET.link(FRIDGE)[1].pos
        assert hinge[1] < 0.0
        turn = np.array([[math.cos(yaw), -math.sin(yaw)], [math.sin(yaw), math.cos(yaw)]])
        low, high = (
            np.array([hinge[0] + 0.05, hinge[1] - 0.5]),
            np.array([hinge[0] + 0.2, hinge[1]]),
        )
        centre = np.append(np.array(pose.pos[:2]) + turn @ (low + high) / 2, 1.0)
        rotation = np.eye(3)
        rotation[:2, :2] = turn
        space = box_prism(centre, rotation, np.append((high - low) / 2, 0.9))
        return not furniture(f"replica_cad/{name}", without="fridge").fits(space, 0.0)

    share = np.mean([beside(name) for name in NAMES])
    assert 0.45 < share < 0.95
    plain = [layout.name for layout in SET.split("train")]
    assert share > np.mean([beside(name) for name in plain])


def test_starts_in_rearranged_apartments_can_be_part_of_a_mixture() -> None:
    part, own = mixture.parse("rearranged:0.7,own:0.3")
    assert (part.rearranged, part.weight, own.rearranged) == (True, 0.7, False)
    text = mixture.whole_paths("rearranged:0.7,own:0.3")
    assert text == "rearranged:0.7,own:0.3"
    assert mixture.is_mixture("rearranged")
    with pytest.raises(UserError, match="did you mean 'rearranged'"):
        mixture.parse("rearange")
    with pytest.raises(UserError, match="'half' is not a weight"):
        mixture.parse("rearranged:half")


def test_starts_are_in_rearranged_apartments_only_if_requested() -> None:
    source = StartSource("close_fridge", "rearranged", num_objects=1, num_episodes=2)
    mixed = StartSource("close_fridge", "own:0.5,rearranged:0.5", num_objects=1, num_episodes=2)
    for row in (0, 1):
        start = source[row]
        assert start.episode.layout == f"replica_cad/{NAMES[row]}"
        assert start.episode.split == rearranging.SPLIT
        assert mixed[2 * row + 1].episode == start.episode
        assert mixed[2 * row].episode.layout == f"replica_cad/{NAMES[row][:-2]}"


def test_episodes_leave_out_apartments_whose_kitchen_is_out_of_reach() -> None:
    source = Source(load_scenario("set_table"), "rearranged", num_objects=2)
    walled = EVERY.index("v3_sc0_staging_09~3")  # the counter's front is not on the main floor
    layouts = [
        make_episode(source, index, lambda draft: draft)[0].layout
        for index in range(walled - 1, walled + 2)
    ]
    following = f"replica_cad/{EVERY[walled + 1]}"
    assert layouts == [f"replica_cad/{EVERY[walled - 1]}", following, following]
