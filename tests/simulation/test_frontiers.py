"""Frontiers of the explored map, and what is seen of the goal category."""

import collections
import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from homes import LAYOUT_A, driving, episode, roomiest

from skills.core import sensors
from skills.core.inputs import PolicyInputs
from skills.envs.environment import SkillEnv
from skills.objectnav import segmenter
from skills.objectnav.frontier import ColourExplorer, FrontierExplorer, PictureExplorer
from skills.objectnav.starts import objectnav_start
from tpsrl.errors import UserError
from tpsrl.sim.mujoco_sim import MujocoSimulator
from tpsrl.world import action as act
from tpsrl.world import frontiers
from tpsrl.world.cameras import HEAD_CATEGORY, HEAD_RGB
from tpsrl.world.categories import CATEGORIES
from tpsrl.world.explored import CELL_M, SIDE
from tpsrl.world.floor import CELL_M as FLOOR_CELL_M
from tpsrl.world.floor import CLOSED, floor_map
from tpsrl.world.frontiers import FrontierMaps
from tpsrl.world.search_maps import REACH_M, SearchMaps
from tpsrl.world.sightings import SIGHT_M, Sightings
from tpsrl.world.viewpoints import instances

MIDDLE = SIDE // 2
TURN = driving(0.0)
TURN[act.BASE] = (0.0, 1.0)


@pytest.fixture(scope="module")
def one() -> MujocoSimulator:
    return MujocoSimulator(1, slots=12)


def with_maps(looked: np.ndarray, seen: np.ndarray | None = None) -> FrontierMaps:
    """Returns maps of one environment with `looked` and `seen` (obstacle) cells (SIDE, SIDE)."""
    maps = FrontierMaps(1)
    maps.begin([0], np.zeros((1, 3)))
    seen = np.zeros((SIDE, SIDE), bool) if seen is None else seen
    arrays = maps.to_arrays(0)
    maps.restore(0, {**arrays, "looked": np.packbits(looked), "seen": np.packbits(seen)})
    return maps


def rectangle(rows: tuple[int, int], columns: tuple[int, int]) -> np.ndarray:
    """Returns a rectangle of cells (SIDE, SIDE) bool; rows and columns count from the middle."""
    cells = np.zeros((SIDE, SIDE), bool)
    cells[MIDDLE + rows[0] : MIDDLE + rows[1], MIDDLE + columns[0] : MIDDLE + columns[1]] = True
    return cells


def slowly_nearest(maps: FrontierMaps) -> list[tuple[int, int]]:
    """Returns the frontiers (column, row) with the fewest moves from the middle, without specks."""
    level, looked = maps.explored.level[0], maps._looked[0]
    beside = ((0, 1), (1, 0), (0, -1), (-1, 0))
    around = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]

    def edge(y: int, x: int) -> bool:
        unseen = (not looked[y + dy, x + dx] and level[y + dy, x + dx] < 3 for dy, dx in beside)
        return bool(looked[y, x] and level[y, x] < 3 and any(unseen))

    queue, moves = collections.deque([(MIDDLE, MIDDLE)]), {(MIDDLE, MIDDLE): 0}
    found: list[tuple[int, int]] = []
    while queue:
        y, x = queue.popleft()
        if found and moves[y, x] > moves[found[0][1], found[0][0]]:
            break
        if edge(y, x) and sum(edge(y + dy, x + dx) for dy, dx in around) >= 3:
            found.append((x, y))
        for dy, dx in around:
            there = (y + dy, x + dx)
            free = level[there] < 3 or level[y, x] >= 3
            if there not in moves and looked[there] and free:
                moves[there] = moves[y, x] + 1
                queue.append(there)
    return found


def test_the_nearest_frontier_agrees_with_a_slow_search() -> None:
    rng = np.random.default_rng(2)
    ways = 0
    for _ in range(12):
        looked = rectangle((-20, 20), (-20, 20)) & (rng.random((SIDE, SIDE)) < 0.995)
        seen = rectangle((-25, 25), (-25, 25)) & (rng.random((SIDE, SIDE)) < 0.02)
        seen &= ~rectangle((-4, 5), (-4, 5))
        maps = with_maps(looked, seen)
        maps._choose(0, 1e-6, 1e-6)
        column, row = (int(value) for value in maps.to_arrays(0)["frontier"])
        assert (column, row) in (slowly_nearest(with_maps(looked, seen)) or [(-1, -1)])
        ways += column >= 0 and max(abs(column - MIDDLE), abs(row - MIDDLE)) > 3
    assert ways > 6


def test_the_path_leads_to_the_frontier() -> None:
    # Everything has been seen except for the area more than 3 m ahead.
    maps = with_maps(rectangle((-MIDDLE, MIDDLE), (-MIDDLE, 30)))
    maps._choose(0, 1e-6, 1e-6)
    length, forward, left = maps.ahead([0], np.zeros((1, 3)), np.zeros(1))[0]
    assert (length, forward) == pytest.approx((2.95, 2.95), abs=0.1) and abs(left) < 0.6


def test_the_search_restarts_once_everything_has_been_seen() -> None:
    maps = with_maps(np.ones((SIDE, SIDE), bool))
    maps._choose(0, 0.0, 0.0)
    assert not maps._looked.any()
    assert maps.ahead([0], np.zeros((1, 3)), np.zeros(1)).tolist() == [[0.0, 0.0, 0.0]]


def test_a_frontier_that_stays_unseen_is_abandoned() -> None:
    maps = with_maps(rectangle((-5, 5), (-5, 5)))
    chosen = []
    for _ in range(3 * frontiers._PATIENCE):
        maps._choose(0, 1e-6, 1e-6)
        chosen.append(tuple(maps.to_arrays(0)["frontier"]))
    assert len(set(chosen)) == 3
    assert max(collections.Counter(chosen).values()) == frontiers._PATIENCE + 1


def test_visible_floor_and_furniture_count_as_seen(one: MujocoSimulator) -> None:
    x, y = roomiest(LAYOUT_A)
    one.reset([0], [episode(LAYOUT_A, (x, y, 0.0))])
    maps = FrontierMaps(1)
    maps.begin([0], one.state([0]).base)
    counts = []
    for _ in range(90):
        one.step([0], TURN[None])
        maps.look([0], one.state([0]), one.laser([0]), one.depth([0], 64, 64))
        counts.append(int(maps._looked.sum()))
    iy, ix = np.nonzero(maps._looked[0])
    points = np.stack([ix + 0.5, iy + 0.5], axis=1) * CELL_M + maps.explored.origin[0]
    away = np.linalg.norm(points - np.array([x, y]), axis=1)
    assert counts[0] < 0.5 * counts[-1] and away.max() < 1.5 * 5.0
    floor = floor_map(LAYOUT_A)
    at = np.floor((points - floor.origin) / FLOOR_CELL_M).astype(int)
    inside = (at >= 0).all(axis=1) & (at < np.array(floor.distance.shape)[::-1]).all(axis=1)
    clear = floor.distance[at[inside, 1], at[inside, 0]]
    # Seen cells are free floor or surfaces on it; hardly any are within or behind walls.
    assert np.mean(clear > -0.4) > 0.97
    # After a turn on the spot, all near free floor has been seen.
    near = [(dx, dy) for dx in np.linspace(-1, 1, 9) for dy in np.linspace(-1, 1, 9)]
    cells = np.floor((np.add(near, (x, y)) - maps.explored.origin[0]) / CELL_M).astype(int)
    assert np.mean(maps._looked[0, cells[:, 1], cells[:, 0]]) > 0.9


def test_an_object_is_sighted_once_in_view_and_then_remembered() -> None:
    (fridge,) = instances(LAYOUT_A, "fridge")
    at = fridge.viewpoints[0]
    towards = math.atan2(fridge.centre[1] - at[1], fridge.centre[0] - at[0])
    facing, averted = np.array([[*at, towards]]), np.array([[*at, towards + math.pi]])
    found = Sightings(2)
    found.begin(1, LAYOUT_A, "fridge", CLOSED)
    found.look([1], averted)
    assert found.away([1], averted).tolist() == [[0.0, 0.0, 0.0]]
    found.look([1], facing)
    _, forward, left = found.away([1], facing)[0]
    assert 0.2 < math.hypot(forward, left) < 1.3 and forward > abs(left)
    assert found.away([1], averted)[0] == pytest.approx([1.0, -forward, -left])
    found.look([1], averted)
    assert found.away([1], averted)[0, 0] == 1.0
    found.forget(1)
    assert found.away([1], averted)[0, 0] == 0.0


def test_nothing_is_sighted_beyond_the_range_of_the_detector() -> None:
    (sofa,) = instances(LAYOUT_A, "sofa")
    for away, expected in ((SIGHT_M - 1.0, True), (SIGHT_M + 2.5, False)):
        x, y, _ = sofa.centre
        base = np.array([x - away, y, 0.0])
        centre, rotation, half = (boxes[:0] for boxes in sofa.others)
        alone = dataclasses.replace(sofa, others=(centre, rotation, half))
        assert Sightings.sees(alone, base) == expected


def looking(one: MujocoSimulator, maps: SearchMaps, category: str) -> None:
    """Adds what the robot in home 0 sees of a category to its map."""
    sought = np.array([1 + CATEGORIES.index(category)])
    seen = one.depth([0], 64, 64), one.look([0], {HEAD_CATEGORY: (64, 64)})[HEAD_CATEGORY]
    maps.look([0], one.state([0]), one.laser([0]), *seen, sought)


def test_a_search_leads_to_what_its_pictures_have_shown(one: MujocoSimulator) -> None:
    (sofa,) = instances(LAYOUT_A, "sofa")
    x, y, _ = sofa.centre
    free = [at for at in sofa.viewpoints if np.hypot(at[0] - x, at[1] - y) > 1.2]
    at = free[0]
    towards = math.atan2(y - at[1], x - at[0])
    maps = SearchMaps(1)
    one.reset([0], [episode(LAYOUT_A, (at[0], at[1], towards))])
    base = one.state([0]).base
    maps.begin([0], base)
    looking(one, maps, "fridge")
    assert maps.spotted([0], base).tolist() == [[0.0] * 4]
    looking(one, maps, "sofa")
    seen, forward, left, share = maps.spotted([0], base)[0]
    assert seen == 1.0 and 0.02 < share < 1.0
    # The cell is that of a surface of the sofa, at most a cell and a pixel beside it.
    c, s = math.cos(base[0, 2]), math.sin(base[0, 2])
    point = base[0, :2] + np.array([c * forward - s * left, s * forward + c * left])
    assert sofa.away(point[None])[0] < 0.15
    assert math.hypot(forward, left) == pytest.approx(sofa.away(base)[0], abs=0.3)
    # From farther away the path leads to it, and then ends beside it.
    there = base + np.array([[-2.0 * c, -2.0 * s, 0.0]])
    length, ahead, _ = maps.ahead([0], there, np.zeros(1))[0]
    expected = math.hypot(forward + 2.0, left) - REACH_M
    assert length == pytest.approx(expected, abs=0.35) and ahead > 0.3
    maps.forget([0])
    assert maps.spotted([0], base)[0, 0] == 0.0


def test_far_pixels_and_other_categories_are_not_found(one: MujocoSimulator) -> None:
    one.reset([0], [episode(LAYOUT_A, (*roomiest(LAYOUT_A), 0.0))])
    base = one.state([0]).base
    for distance, number, expected in ((4.5, 3, 1.0), (5.5, 3, 0.0), (4.5, 4, 0.0)):
        maps = SearchMaps(1)
        maps.begin([0], base)
        depth = np.full((1, 16, 16), distance / 10.0, np.float32)
        category = np.full((1, 16, 16), number, np.uint8)
        for _ in range(4):
            maps.look([0], one.state([0]), one.laser([0]), depth, category, np.array([3]))
        assert maps.spotted([0], base)[0, 0] == expected
    maps.look([0], one.state([0]), one.laser([0]), depth, 0 * category, np.array([0]))
    assert maps.spotted([0], base)[0, 0] == 0.0


def test_the_segmenter_finds_categories_in_colour(one: MujocoSimulator) -> None:
    same = []
    for index in range(12):
        one.reset([0], [objectnav_start(index).episode])
        shown = one.look([0], {HEAD_RGB: (64, 64), HEAD_CATEGORY: (64, 64)})
        found = segmenter.load().categories(shown[HEAD_RGB])
        assert found.shape == (1, 64, 64) and found.dtype == np.uint8
        same.append(np.mean(found == shown[HEAD_CATEGORY]))
    assert np.mean(same) > 0.95


def test_a_snapshot_contains_frontiers_and_sightings() -> None:
    names = (sensors.FRONTIER, sensors.SIGHTING, sensors.SEARCH, sensors.SPOTTED, "gps")
    cameras = {"head_depth": 32, "head_category": 32}
    options: dict[str, Any] = {"sensors": names, "cameras": cameras, "split": "val"}
    env = SkillEnv("objectnav", simulator=MujocoSimulator(1, slots=12), **options)
    shown, _ = env.reset(options={"start": 2})
    frozen = None
    for step in range(40):
        if step == 15:
            frozen = env.snapshot()
        assert env.observation_space["state"].contains(shown["state"])
        shown, *_ = env.step(TURN)
    assert frozen is not None
    expected = shown
    env.reset(options={"start": 3})
    env.restore(frozen)
    for _ in range(25):
        shown, *_ = env.step(TURN)
    np.testing.assert_array_equal(shown["state"], expected["state"])
    env.close()


def test_mapping_sensors_include_the_frontier_but_no_privileged_sighting() -> None:
    inputs = PolicyInputs.of("objectnav", "mapping", 64)
    assert inputs.sensors[-1] == sensors.FRONTIER and inputs.privileged == ()
    seeing = PolicyInputs.of("objectnav", "mapping", cameras="head_depth:64,head_category:64")
    assert seeing.sensors[-2:] == (sensors.SEARCH, sensors.SPOTTED) and seeing.privileged == ()
    assert seeing.choices() == ["mapping"] and len(seeing.mapped) == 2
    apart = PolicyInputs.of("objectnav", "full", cameras="head_depth:64,head_category:32")
    assert sensors.OF_SEARCH.isdisjoint(apart.complete().sensors)
    assert {*sensors.OF_SEARCH} < {*seeing.complete().sensors}
    assert PolicyInputs.of("objectnav", (sensors.SIGHTING,)).privileged == (sensors.SIGHTING,)


@pytest.mark.parametrize(
    ("pictures", "nearest"),
    [
        ({"depth": 48}, "head_depth:48,head_category:48"),
        ({"cameras": "head_category:32x48"}, "head_depth:32x48,head_category:32x48"),
        ({"cameras": "head_depth:64,head_category:32"}, "head_depth:32,head_category:32"),
    ],
)
def test_a_search_needs_depth_and_categories_of_one_size(pictures: Any, nearest: str) -> None:
    with pytest.raises(UserError, match=rf"^sensors: spotted needs .*cameras={nearest}$"):
        PolicyInputs.of("objectnav", (sensors.SPOTTED,), **pictures)


def test_damaged_maps_and_sightings_are_refused() -> None:
    searched = SearchMaps(1)
    whole = searched.to_arrays(0)
    for name, values, message in (
        ("hits", whole["hits"][:5], "array hits is missing or of another shape"),
        ("share", whole["share"] * np.nan, "array share is damaged"),
        ("frontier", whole["frontier"] + SIDE + 1, "array frontier is damaged"),
    ):
        with pytest.raises(UserError, match=message):
            searched.restore(0, {**whole, name: values})
    maps, found = FrontierMaps(1), Sightings(1)
    good = maps.to_arrays(0)
    for name, values, message in (
        ("looked", good["looked"][:5], "array looked is missing or of another shape"),
        ("frontier", good["frontier"] + SIDE + 1, "array frontier is damaged"),
        ("waited", good["waited"].astype(float), "array waited is damaged"),
        ("origin", good["origin"] * np.nan, "array origin is damaged"),
    ):
        with pytest.raises(UserError, match=message):
            maps.restore(0, {**good, name: values})
    with pytest.raises(UserError, match="array seen is missing or damaged"):
        found.restore(0, {}, LAYOUT_A, "chair")
    broken = {**found.to_arrays(0), "joints": np.full(5, np.nan)}
    with pytest.raises(UserError, match="array joints is damaged"):
        found.restore(0, broken, LAYOUT_A, "chair")


@pytest.mark.parametrize("explorer", [FrontierExplorer, PictureExplorer, ColourExplorer])
def test_the_explorers_stop_only_near_a_visible_goal_object(
    one: MujocoSimulator,
    explorer: type[FrontierExplorer] | type[PictureExplorer],
) -> None:
    start = objectnav_start(0)
    (thing, *_) = instances(start.episode.layout, start.episode.category)
    one.reset([0], [start.episode])
    agent = explorer()
    agent.begin(start.episode, start.goal, one.state([0]))
    for _ in range(200):
        world = one.state([0])
        action = agent.act(world, one.depth([0], 64, 64)[0], agent.measure(one, 0))
        if action[act.STOP] > 0:
            break
        one.step([0], action[None])
    assert action[act.STOP] > 0
    assert thing.away(world.base)[0] < 1.0 and thing.sees(world.base)[0]
