"""Sensor readings from a map of the home, the episode and the engine.

Training and deployment share this code, so that a policy gets the same observations in both. The
map has doors and drawers in their positions at the start of the skill.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from skills.core.path_metrics import PathProgress
from skills.core.sensors import (
    CATEGORY,
    CLEARANCE,
    EXPLORED,
    FACING,
    FRONTIER,
    HAND_WAY,
    LASER,
    MOTION,
    NEIGHBOURS,
    OF_GAPS,
    OF_SEARCH,
    SCAN,
    SHAPE,
    SIGHTING,
    TRAIL,
    WAY,
    Readings,
    gaps_of,
)
from skills.core.skill import Skill
from skills.core.state import TaskState
from skills.envs.hand_meter import HandMeter
from skills.envs.path_meter import PathMeter, check_array
from skills.envs.trail import TRAIL_ARRAY, Trail
from tpsrl.errors import UserError
from tpsrl.sim.base import Simulator
from tpsrl.world.cameras import HEAD_CATEGORY
from tpsrl.world.categories import CATEGORIES
from tpsrl.world.episode import Episode
from tpsrl.world.explored import ExploredMaps
from tpsrl.world.floor import floor_map, rounded
from tpsrl.world.frontiers import FrontierMaps
from tpsrl.world.handles import handle
from tpsrl.world.objects import object_kind
from tpsrl.world.scan import Scanner
from tpsrl.world.search_maps import SearchMaps
from tpsrl.world.sightings import Sightings
from tpsrl.world.state import JOINTS, WorldState

_ARM_REACH_M = 1.0  # from a point that the arm has to reach, where a path on an explored map ends
_EXPLORED = "explored."  # prefix of array names in a snapshot, as are the next three
_FRONTIERS, _SIGHTINGS, _SEARCH = "frontiers.", "sightings.", "search."
_SCANNED = "scan_joints"  # name of the array: positions of doors and drawers on the scanner's map


class MapSensors:
    """Readings of map, path, scan, handle and object for n homes in which one skill runs.

    `meter` is the `PathMeter` of the base, None if no path is needed; `drives` is whether the skill
    drives to a goal.

    Args:
        skill: definition of the skill
        names: names of the policy's sensors
        num_homes: n
        thresholds: success thresholds of the skill
        rewards_way: whether progress of the base along its path is rewarded
        rewards_hand: whether progress of the cup along its path is rewarded
        object_margin: distance in metres by which other objects appear nearer to the hand
    """

    def __init__(
        self,
        skill: Skill,
        names: Sequence[str],
        num_homes: int,
        thresholds: Any,
        rewards_way: bool = False,
        rewards_hand: bool = False,
        object_margin: float = 0.0,
    ) -> None:
        self._skill, reach_m = skill, skill.reach_m(thresholds)
        self.drives = reach_m is not None or skill.follows_path
        measured = self.drives or rewards_way or rewards_hand or WAY in names
        self.meter = (
            PathMeter(
                num_homes,
                reach_m or 0.0,
                skill.surveys_floor,
                near=not self.drives,
                allow_unreachable=not skill.follows_path,
            )
            if measured
            else None
        )
        follows_hand = rewards_hand or HAND_WAY in names
        self._hand = HandMeter(num_homes) if follows_hand else None
        self._shows_hand = HAND_WAY in names
        self._trail = Trail(num_homes) if TRAIL in names else None
        self._explored = ExploredMaps(num_homes) if EXPLORED in names else None
        self._frontiers = FrontierMaps(num_homes) if FRONTIER in names else None
        self._sightings = Sightings(num_homes) if SIGHTING in names else None
        self._search = None if OF_SEARCH.isdisjoint(names) else SearchMaps(num_homes)
        self._reach_m = _ARM_REACH_M if reach_m is None else reach_m
        self._scanner = Scanner(num_homes) if SCAN in names else None
        self._scanned = np.zeros((num_homes, len(JOINTS)))
        self._facing = np.zeros(num_homes) if FACING in names else None
        self._extent = np.zeros((num_homes, 3)) if SHAPE in names else None
        seeks = CATEGORY in names or self._search is not None
        self._sought = np.zeros((num_homes, len(CATEGORIES))) if seeks else None
        self._sees_laser = not {LASER, EXPLORED, FRONTIER, *OF_SEARCH}.isdisjoint(names)
        self._feels = CLEARANCE in names
        self._sees_motion = MOTION in names
        self._sees_gaps = not OF_GAPS.isdisjoint(names)
        self._margin_m = object_margin
        self._sees_neighbours = self._sees_gaps or NEIGHBOURS in names
        self._shows_way = WAY in names
        self._follows = skill.follows_path or rewards_way or rewards_hand

    def begin(
        self,
        homes: Sequence[int],
        episodes: Sequence[Episode],
        state: TaskState,
        world: WorldState,
    ) -> None:
        """Starts the skill in m homes with these episodes, tasks and current worlds."""
        layouts = [episode.layout for episode in episodes]
        goals = np.asarray(self._skill.destination(state))
        if self.meter is not None:
            categories = [self._category(episode) for episode in episodes]
            self.meter.begin(homes, layouts, goals, world, categories)
        if self._hand is not None:
            self._hand.begin(homes, layouts, goals, world)
        if self._trail is not None:
            self._trail.begin(homes, world)
        if self._explored is not None:
            self._explored.begin(homes, np.asarray(world.base))
        if self._frontiers is not None:
            self._frontiers.begin(homes, np.asarray(world.base))
        if self._search is not None:
            self._search.begin(homes, np.asarray(world.base))
        for row, (home, episode) in enumerate(zip(homes, episodes, strict=True)):
            self._map(home, episode.layout, np.asarray(world.joints[row]))
            self._face(home, episode.layout, int(state.joint[row]), world.joints[row])
            self._size(home, episode, int(state.object[row]))
            self._seek(home, episode)
            if self._sightings is not None:
                joints = rounded(np.asarray(world.joints[row]))
                self._sightings.begin(home, episode.layout, episode.category, joints)

    def drive(self, homes: Sequence[int], world: WorldState) -> PathProgress | None:
        """Updates paths and trail after the control step that led to `world`; returns `path`."""
        if self._hand is not None:
            self._hand.drive(homes, world)
        if self._trail is not None:
            self._trail.drive(homes, world)
        if self.meter is None:
            return None
        self.meter.drive(homes, world)
        return self.path(homes)

    def path(self, homes: Sequence[int]) -> PathProgress | None:
        """Returns the progress along the paths, None if success and reward do not depend on it."""
        if self.meter is None or not self._follows:
            return None
        path = self.meter.path(homes)
        if self._hand is not None:
            path.hand = self._hand.gained(homes)
        return path

    def read(
        self, homes: Sequence[int], world: WorldState, measured: Readings | None = None
    ) -> Readings:
        """Returns the readings at the current positions, except those of explored maps.

        Args:
            homes: numbers of m homes
            world: state of these homes
            measured: readings of the engine, which are copied to the result
        """
        readings = Readings() if measured is None else dataclasses.replace(measured)
        if self._shows_way and self.meter is not None:
            readings.way = self.meter.ahead(homes, world.base)
        if self._shows_hand and self._hand is not None:
            readings.hand = self._hand.ahead(homes, world)
        if self._trail is not None:
            readings.trail = self._trail.away(homes, world)
        if self._scanner is not None:
            readings.scan = self._scanner.ranges(homes, world.base)
        if self._facing is not None:
            readings.facing = self._facing[np.asarray(homes)]
        if self._extent is not None:
            readings.extent = self._extent[np.asarray(homes)]
        if self._sought is not None:
            readings.category = self._sought[np.asarray(homes)]
        return readings

    @property
    def asks_engine(self) -> bool:
        """Whether a sensor needs the readings that `measure` gets from the engine."""
        needs = self._sees_laser, self._feels, self._sees_motion, self._sees_neighbours
        return any(needs)

    def measure(
        self, readings: Readings, simulator: Simulator, env_ids: Sequence[int], state: TaskState
    ) -> Readings:
        """Adds the engine's measurements in m homes with these tasks to `readings`, in place.

        `Readings.neighbours` is left as it is, if it is set.
        """
        targets = np.asarray(state.object)
        if self._sees_laser:
            readings.laser = simulator.laser(env_ids)
        if self._feels:
            readings.clearance = simulator.clearance(env_ids, targets)
        if self._sees_motion:
            readings.motion = simulator.object_velocity(env_ids, targets)
        if self._sees_neighbours and readings.neighbours is None:
            points = np.asarray(self._skill.destination(state))
            readings.neighbours = simulator.neighbours(env_ids, targets, points)
        if self._sees_gaps and readings.neighbours is not None:
            readings.gaps = gaps_of(readings.neighbours, self._margin_m)
        return readings

    def read_explored(
        self,
        readings: Readings,
        homes: Sequence[int],
        state: TaskState,
        world: WorldState,
        depth: np.ndarray | None,
        looks: bool,
    ) -> Readings:
        """Adds readings of the maps that the robots build themselves to `readings`, in place.

        Args:
            readings: readings with those of `measure`, and with pictures for a search
            homes: numbers of m homes
            state: state of their tasks
            world: state of these homes
            depth: (m, height, width) of the head camera, None without one
            looks: whether to update maps and sightings with the current pictures and laser
        """
        base, steps = np.asarray(world.base), np.asarray(state.steps)
        if self._frontiers is not None:
            if looks:
                self._frontiers.look(homes, world, readings.laser, depth)
            readings.frontier = self._frontiers.ahead(homes, base, steps)
        if self._sightings is not None:
            if looks:
                self._sightings.look(homes, base)
            readings.sighting = self._sightings.away(homes, base)
        if self._search is not None and self._sought is not None:
            if looks:
                assert depth is not None
                found = self._sought[np.asarray(homes)]
                sought = np.where(found.any(axis=1), 1 + found.argmax(axis=1), 0)
                shown = readings.pictures[HEAD_CATEGORY]
                self._search.look(homes, world, readings.laser, depth, shown, sought)
            readings.search, readings.spotted = self._search.read(homes, base, steps)
        if self._explored is not None:
            if looks:
                self._explored.look(homes, world, readings.laser, depth)
            goals = np.asarray(self._skill.destination(state))
            most, near = self._reach_m, min(self._reach_m, _ARM_REACH_M)
            reach = np.where(np.asarray(state.joint) >= 0, most, near)  # openings need room
            readings.explored = self._explored.ahead(homes, base, goals, reach, steps, most)
        return readings

    def to_arrays(self, home: int) -> dict[str, np.ndarray]:
        """Returns the state of a home's sensors as numpy copies by name, for snapshots."""
        arrays = {} if self.meter is None else self.meter.to_arrays(home)
        if self._hand is not None:
            arrays |= self._hand.to_arrays(home)
        if self._trail is not None:
            arrays |= self._trail.to_arrays(home)
        if self._explored is not None:
            arrays |= _prefixed(_EXPLORED, self._explored.to_arrays(home))
        if self._frontiers is not None:
            arrays |= _prefixed(_FRONTIERS, self._frontiers.to_arrays(home))
        if self._sightings is not None:
            arrays |= _prefixed(_SIGHTINGS, self._sightings.to_arrays(home))
        if self._search is not None:
            arrays |= _prefixed(_SEARCH, self._search.to_arrays(home))
        if self._scanner is not None:
            arrays[_SCANNED] = self._scanned[home].copy()
        if self._facing is not None:
            arrays[FACING] = self._facing[home : home + 1].copy()
        return arrays

    def restore(
        self, home: int, arrays: Mapping[str, np.ndarray], episode: Episode, state: TaskState
    ) -> None:
        """Restores the state of a home's sensors from `to_arrays`.

        Args:
            home: number of the home
            arrays: result of `to_arrays`
            episode: episode of the home
            state: state of its task, batch of one

        Raises:
            UserError: an array is missing or unknown, has another shape, or is not finite.
        """
        arrays = dict(arrays)
        scanned, facing = arrays.pop(_SCANNED, None), arrays.pop(FACING, None)
        for name, array, kept, shape in (
            (_SCANNED, scanned, self._scanner, (len(JOINTS),)),
            (FACING, facing, self._facing, (1,)),
        ):
            if (array is None) != (kept is None):
                raise UserError(f"path: array {name} missing or unknown")
            if array is not None:
                check_array(name, array, shape)
        layout = episode.layout
        if self._hand is not None:
            names = self._hand.names()
            if missing := [name for name in names if name not in arrays]:
                raise UserError(f"path: arrays {', '.join(missing)} missing")
            hand = {name: arrays.pop(name) for name in names}
            self._hand.restore(home, hand, layout, self._skill.destination(state)[0])
        explored, frontiers, sightings, search = (
            _taken(arrays, prefix, kept is not None)
            for prefix, kept in (
                (_EXPLORED, self._explored),
                (_FRONTIERS, self._frontiers),
                (_SIGHTINGS, self._sightings),
                (_SEARCH, self._search),
            )
        )
        if self._explored is not None:
            self._explored.restore(home, explored)
        if self._frontiers is not None:
            self._frontiers.restore(home, frontiers)
        if self._sightings is not None:
            self._sightings.restore(home, sightings, layout, episode.category)
        if self._search is not None:
            self._search.restore(home, search)
        if (TRAIL_ARRAY in arrays) != (self._trail is not None):
            raise UserError(f"path: array {TRAIL_ARRAY} missing or unknown")
        if self._trail is not None:
            self._trail.restore(home, arrays.pop(TRAIL_ARRAY))
        self._size(home, episode, int(state.object[0]))
        self._seek(home, episode)
        if self.meter is not None:
            goal, category = self._skill.destination(state)[0], self._category(episode)
            self.meter.restore(home, arrays, layout, goal, category)
        elif arrays:
            raise UserError(f"path: arrays {', '.join(sorted(arrays))} unknown")
        if scanned is not None:
            self._map(home, layout, scanned)
        if facing is not None and self._facing is not None:
            self._facing[home] = facing[0]

    def _map(self, home: int, layout: str, joints: np.ndarray) -> None:
        if self._scanner is not None:
            self._scanned[home] = joints
            self._scanner.set(home, floor_map(layout, joints=rounded(joints)))

    def _face(self, home: int, layout: str, joint: int, joints: np.ndarray) -> None:
        """Stores the heading of the face of a joint's handle; nothing for joint -1."""
        if self._facing is not None and joint >= 0:
            normal = handle(layout, JOINTS[joint]).normal(float(joints[joint]))
            self._facing[home] = np.arctan2(normal[1], normal[0])

    def _size(self, home: int, episode: Episode, index: int) -> None:
        """Stores the half extents of the object, zeros for none."""
        if self._extent is not None:
            half = object_kind(episode.objects[index].name).half if index >= 0 else (0.0, 0.0, 0.0)
            self._extent[home] = half

    def _category(self, episode: Episode) -> str:
        """Returns the category that the path leads to, "" if it leads to the goal's position."""
        return episode.category if "category" in self._skill.needs else ""

    def _seek(self, home: int, episode: Episode) -> None:
        """Stores the category to find as a one-hot vector, zeros for none."""
        if self._sought is not None:
            self._sought[home] = [name == episode.category for name in CATEGORIES]


def _prefixed(prefix: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {f"{prefix}{name}": values for name, values in arrays.items()}


def _taken(arrays: dict[str, np.ndarray], prefix: str, known: bool) -> dict[str, np.ndarray]:
    """Removes the arrays with a prefix from `arrays` and returns them without the prefix.

    Raises:
        UserError: there are such arrays, but `known` is False.
    """
    names = [name for name in arrays if name.startswith(prefix)]
    if names and not known:
        raise UserError(f"path: arrays {', '.join(names)} unknown")
    return {name.removeprefix(prefix): arrays.pop(name) for name in names}
