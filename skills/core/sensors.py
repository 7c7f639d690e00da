"""Sensors: the named parts of the vector "state", which a policy observes beside pictures.

There are six choices:

- "habitat": the vector that habitat-lab gives the policy of the skill beside the camera.
- "fetch": adds the laser scan and the odometry of the real robot's base, and the target in the
  base's axes, which the robot can compute from the arm's kinematics.
- "gaze": adds to "fetch" where the object to pick (Pick) or the hand (Place) is in the head's
  picture, and how the hand holds its object (Place).
- "mapping": adds to "gaze" a path on a map that the robot builds from its head camera and laser: to
  the goal, to where the arm reaches it (Pick, Place), or to the nearest floor not yet seen, and to
  what category pictures have shown.
- "full": one layout for HAB's seven skills, sufficient to learn them without a camera, mostly
  privileged. Navigate also gets the path along the floor and a scan of the map.
- "teacher": adds path and scan for all skills, the position of the object relative to its goal, its
  size, orientation and velocity, the clearance of the robot's body, and the recent positions of the
  robot. The state is then complete enough for a policy without memory.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from skills.core.arrays import Array
from skills.core.geometry import Constant, array_namespace, columns, each, length
from skills.core.skill import Skill
from skills.core.state import TaskState
from tpsrl.sim.base import MEASURES
from tpsrl.world.categories import CATEGORIES
from tpsrl.world.fetch import (
    ARM,
    CLEARANCE_RANGE_M,
    CLEARANCE_ROWS,
    HEAD_CAMERA_FOV_DEG,
    HEAD_CAMERA_POS,
    HEAD_CAMERA_TARGET,
    LASER_RANGE_M,
    LASER_RAYS,
    NEIGHBOUR_ROWS,
)
from tpsrl.world.scan import RANGE_M, RAYS
from tpsrl.world.state import WorldState


@dataclasses.dataclass(slots=True)
class Readings:
    """Sensor readings that are not in the world state; None where the policy does not observe them.

    From a map of the home: `way` (n, 3) is `skills.envs.path_meter.PathMeter.ahead`, `hand` (n, 4)
    `skills.envs.hand_meter.HandMeter.ahead`, `scan` (n, rays) `tpsrl.world.scan.Scanner.ranges`,
    `facing` (n,) the heading in the world frame, in radians, of the normal of the handle's face
    when the skill began.

    From the episode: `extent` (n, 3) are the half extents of the object in metres; `category`
    (n, categories) is one-hot, the category to find.

    From the engine: `laser` (n, rays) is `tpsrl.sim.base.Simulator.laser`, `clearance`
    (n, points, 4) `Simulator.clearance`, `neighbours` (n, points, 4) `Simulator.neighbours`,
    `gaps` (n, 2) `gaps_of` these, `motion` (n, 6) `Simulator.object_velocity`. `pictures` are those
    of `Simulator.look` by name, set only for policies that act in a plan or in an evaluation.

    From earlier steps: `trail` (n, 3, 3) is `skills.envs.trail.Trail.away`, `explored` (n, 3)
    `tpsrl.world.explored.ExploredMaps.ahead`, `frontier` (n, 3)
    `tpsrl.world.frontiers.FrontierMaps.ahead`, `sighting` (n, 3)
    `tpsrl.world.sightings.Sightings.away`, `search` (n, 3) and `spotted` (n, 4)
    `tpsrl.world.search_maps.SearchMaps.ahead` and `spotted`.
    """

    way: Any = None
    hand: Any = None
    scan: Any = None
    facing: Any = None
    extent: Any = None
    category: Any = None
    laser: Any = None
    clearance: Any = None
    neighbours: Any = None
    gaps: Any = None
    motion: Any = None
    trail: Any = None
    explored: Any = None
    frontier: Any = None
    sighting: Any = None
    search: Any = None
    spotted: Any = None
    pictures: Any = None


@dataclasses.dataclass(slots=True)
class SensorContext:
    """Argument of `Sensor.read`."""

    task: TaskState  # the goals, the steps so far, and the skill's memory
    measures: Any  # the skill's `Measures` of `world`
    world: WorldState
    readings: Readings


Reader = Callable[[SensorContext], Array]
Bound = float | tuple[float, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Sensor:
    """Sensor of `size` entries; `read` returns them (n, size), in metres, radians, seconds.

    A `privileged` sensor reads the true state of the world or a map of it, which a robot does not
    have. Entries are between `low` and `high`: one bound for all entries, or one for each.
    """

    size: int
    read: Reader
    privileged: bool = False
    low: Bound = -math.inf
    high: Bound = math.inf


def _arm(seen: SensorContext) -> Array:
    return seen.world.arm


def _ee(seen: SensorContext) -> Array:
    return seen.measures.ee


def _to_rest(seen: SensorContext) -> Array:
    return seen.measures.to_rest


def _holding(seen: SensorContext) -> Array:
    return seen.measures.holding[:, None]


def _velocity(seen: SensorContext) -> Array:
    return seen.measures.velocity


def _reach(seen: SensorContext) -> Array:
    return seen.measures.subject - seen.measures.ee


def _goal(seen: SensorContext) -> Array:
    return seen.measures.goal_point()


def _to_goal(seen: SensorContext) -> Array:
    return seen.measures.goal_point() - seen.measures.subject


def _margins(seen: SensorContext) -> Array:
    return columns(length(_to_goal(seen)), seen.measures.rest) - _ALLOWED_M


def _gap(seen: SensorContext) -> Array:
    # Zeros for skills without a gap: one layout for all, so that networks can be transferred.
    gap = seen.measures.gap if hasattr(seen.measures, "gap") else 0.0 * seen.world.force
    return gap[:, None]


def _goal_polar(seen: SensorContext) -> Array:
    return columns(seen.measures.distance, seen.measures.heading)


def _compass(seen: SensorContext) -> Array:
    heading = seen.measures.heading
    xp = array_namespace(heading)
    return columns(seen.measures.distance, xp.cos(heading), xp.sin(heading))


def _way(seen: SensorContext) -> Array:
    return seen.readings.way


def _explored(seen: SensorContext) -> Array:
    return seen.readings.explored


def _frontier(seen: SensorContext) -> Array:
    return seen.readings.frontier


def _sighting(seen: SensorContext) -> Array:
    return seen.readings.sighting


def _search(seen: SensorContext) -> Array:
    return seen.readings.search


def _spotted(seen: SensorContext) -> Array:
    return seen.readings.spotted


def _hand_way(seen: SensorContext) -> Array:
    return seen.readings.hand


def _scan(seen: SensorContext) -> Array:
    return seen.readings.scan


def _laser(seen: SensorContext) -> Array:
    return seen.readings.laser


def _category(seen: SensorContext) -> Array:
    return seen.readings.category


def _shape(seen: SensorContext) -> Array:
    world, index = seen.world, seen.task.object
    xp = array_namespace(world.base)
    known = index >= 0
    quat = each(world.object_quat, xp.where(known, index, 0))
    axes = [_in_base(world, axis) for axis in _axes(quat)]
    parts = xp.concat([seen.readings.extent, *axes], axis=-1)
    return xp.where(known[:, None], parts, 0.0)  # Absent objects are NaN.


def _motion(seen: SensorContext) -> Array:
    world, motion = seen.world, seen.readings.motion
    xp = array_namespace(motion)
    parts = xp.concat([_in_base(world, motion[:, :3]), _in_base(world, motion[:, 3:])], axis=-1)
    return xp.clip(parts, -_FAST, _FAST)


def _clearance(seen: SensorContext) -> Array:
    return _closeness(seen.readings.clearance)


def _neighbours(seen: SensorContext) -> Array:
    return _closeness(seen.readings.neighbours[:, :-1])


def _gaps(seen: SensorContext) -> Array:
    return seen.readings.gaps


def gaps_of(neighbours: Array, margin: float) -> Array:
    """Returns the distances (n, 2) in m from the cups to their targets and to other objects.

    Args:
        neighbours: (n, `NEIGHBOUR_ROWS`, 4), see `tpsrl.sim.base.Simulator.neighbours`
        margin: distance in m by which other objects appear nearer in `neighbours`
    """
    xp = array_namespace(neighbours)
    other = xp.minimum(neighbours[:, 0, 3] + margin, CLEARANCE_RANGE_M)
    return xp.stack([neighbours[:, -1, 3], other], axis=-1)


def _trail(seen: SensorContext) -> Array:
    xp = array_namespace(seen.world.base)
    rows = [seen.readings.trail[:, row] for row in range(3)]
    return xp.concat([_in_base(seen.world, row) for row in rows], axis=-1)


def _elapsed(seen: SensorContext) -> Array:
    steps = array_namespace(seen.world.base).astype(seen.task.steps, seen.world.base.dtype)
    return steps[:, None] / _LONG_STEPS


def _closeness(surfaces: Array) -> Array:
    """Converts directions and distances (n, points, 4) of surfaces to entries (n, 4 points)."""
    # Weighted by closeness: 1 on contact, 0 at the sensor's range.
    xp = array_namespace(surfaces)
    towards, distance = surfaces[..., :3], surfaces[..., 3:]
    closeness = xp.clip(1.0 - distance / CLEARANCE_RANGE_M, 0.0, 1.0)
    parts = xp.concat([closeness * closeness, closeness * towards], axis=-1)
    return xp.reshape(parts, (parts.shape[0], -1))


def _start_from_ee(seen: SensorContext) -> Array:
    return into_frame(seen.world.ee_quat, seen.task.memory.initial_position - seen.world.ee_pos)


def _goal_from_ee(seen: SensorContext) -> Array:
    return into_frame(seen.world.ee_quat, seen.task.position - seen.world.ee_pos)


def _start_reach(seen: SensorContext) -> Array:
    return _in_base(seen.world, seen.task.memory.initial_position - seen.world.ee_pos)


def _goal_reach(seen: SensorContext) -> Array:
    return _in_base(seen.world, seen.task.position - seen.world.ee_pos)


def _carried(seen: SensorContext) -> Array:
    world, grasp = seen.world, seen.task.grasp
    xp = array_namespace(world.ee_quat)
    turn = _rotation(world.ee_quat)
    centre, up = ((turn @ grasp[:, row, :, None])[:, :, 0] for row in range(2))
    to_goal = seen.task.position - world.ee_pos - centre
    parts = xp.concat([_in_base(world, to_goal), _in_base(world, up)], axis=-1)
    held = (world.held >= 0) & (world.held == seen.task.object)
    known = held & xp.any(grasp[:, 1] != 0.0, axis=-1)
    return xp.where(known[:, None], parts, 0.0)


def _start_gaze(seen: SensorContext) -> Array:
    return _gaze(seen.measures.ee + _start_reach(seen))


def _ee_gaze(seen: SensorContext) -> Array:
    return _gaze(seen.measures.ee)


def _gaze(point: Array) -> Array:
    """Projects points (n, 3) of the base frame into the head camera.

    Returns:
        (n, 3): right and down, -1 and 1 at the picture's edges and beyond them; distance along the
        camera's axis in metres.
    """
    xp = array_namespace(point)
    ahead = (point - _HEAD.like(point)) @ _HEAD_AXES.like(point)  # forward, right, down
    distance = ahead[:, 0]
    edge = math.tan(math.radians(HEAD_CAMERA_FOV_DEG / 2)) * xp.clip(distance, _NEAR_M, HOME_M)
    right, down = (xp.clip(ahead[:, axis] / edge, -1.0, 1.0) for axis in (1, 2))
    return columns(right, down, distance)


def _start_facing(seen: SensorContext) -> Array:
    angle = seen.readings.facing - seen.world.base[:, 2]
    xp = array_namespace(angle)
    return columns(xp.cos(angle), xp.sin(angle))


def _in_base(world: WorldState, vector: Array) -> Array:
    """Rotates vectors (n, 3) from the world frame to the base frame."""
    xp = array_namespace(vector)
    c, s = xp.cos(world.base[:, 2]), xp.sin(world.base[:, 2])
    x, y = vector[:, 0], vector[:, 1]
    return columns(c * x + s * y, c * y - s * x, vector[:, 2])


WAY = "way"  # path along the floor, from a map
EXPLORED = "explored_way"  # path along the floor, from a map that the robot builds
FRONTIER = "frontier_way"  # path along the floor to the nearest floor not yet seen
SIGHTING = "sighting"  # nearest seen instance of the category, from a perfect detector
SEARCH = "search_way"  # path to the nearest seen place of the category, else as FRONTIER
SPOTTED = "spotted"  # nearest place in which the robot's own pictures have shown the category
HAND_WAY = "hand_way"  # path of the cup through the air, from a map
SCAN = "scan"  # ranges all around the base, from a map
CARRIED = "carried"  # how the object sits in the hand, as known from its grasp
LASER = "laser"  # ranges of the laser on the base, from the engine
FACING = "start_facing"
TO_GOAL = "to_goal"  # vector from the object to its goal
MARGINS = "margins"  # distances minus their thresholds
SHAPE = "shape"  # size and orientation of the object, size from the episode
CATEGORY = "category"  # category to find, from the episode
MOTION = "motion"  # velocity of the object, from the engine
CLEARANCE = "clearance"  # clearance of the robot's body, from the engine
NEIGHBOURS = "neighbours"  # loose objects near cup and goal, from the engine
GAPS = "gaps"  # distances of the cup from objects, from the engine
GRIP_RULE = "grip_rule"  # whether to close the grip, by these distances
OF_GAPS = frozenset({GAPS, GRIP_RULE})  # sensors that need `Readings.gaps`
TRAIL = "trail"  # recent positions of cup and base
ELAPSED = "elapsed"  # time since the skill began

HOME_M = (
    30.0  # upper bound on distances between points of an apartment, and on paths along its floor
)
_ALLOWED_M = 0.15  # HAB: from the object to its goal, from the end effector to its resting point
_OUT_M = 2.0  # upper bound on the reach of the arm
_LONG_STEPS = 300.0  # HAB: horizon of a skill
# Joints exceed their limits a little under load.
_ARM_LOW, _ARM_HIGH = (
    tuple(joint.limits[side] + slack for joint in ARM) for side, slack in ((0, -0.2), (1, 0.2))
)
# Bound on velocities, m/s and rad/s: the base drives at up to 2.5 of either, collisions add to it.
_FAST = 10.0


def polar(read: Reader) -> Sensor:
    """Creates a sensor of a distance in the home and an angle."""
    return Sensor(2, read, low=(0.0, -math.pi), high=(HOME_M, math.pi))


def vector(read: Reader, longest_m: float, privileged: bool = False) -> Sensor:
    """Creates a sensor of a vector in space, with entries in [-`longest_m`, `longest_m`]."""
    return Sensor(3, read, privileged, -longest_m, longest_m)


def _head_axes() -> tuple[tuple[float, ...], ...]:
    """Returns the head camera's forward, right and down axes in the base frame, as columns."""
    forward = np.subtract(HEAD_CAMERA_TARGET, HEAD_CAMERA_POS)
    forward /= np.linalg.norm(forward)
    right = np.array([forward[1], -forward[0], 0.0]) / math.hypot(*forward[:2])
    axes = np.column_stack([forward, right, np.cross(forward, right)])
    return tuple(tuple(map(float, row)) for row in axes)


_HEAD, _HEAD_AXES = Constant(HEAD_CAMERA_POS), Constant(_head_axes())
_GAZE_LOW, _GAZE_HIGH = (-1.0, -1.0, -HOME_M), (1.0, 1.0, HOME_M)
_NEAR_M = 0.1  # of points beside or behind the camera, whose direction is undefined

SENSORS: dict[str, Sensor] = {
    "arm": Sensor(7, _arm, low=_ARM_LOW, high=_ARM_HIGH),  # joint positions
    "ee": vector(_ee, _OUT_M),  # end effector, base frame
    "to_rest": vector(_to_rest, _OUT_M),  # from the end effector to its resting point, base frame
    "holding": Sensor(1, _holding, low=0.0, high=1.0),  # 1 with an object or a handle in the cup
    "velocity": Sensor(3, _velocity, low=-_FAST, high=_FAST),  # of the base: forward, left, turn
    "reach": vector(_reach, HOME_M, True),  # from the end effector to object, handle or goal
    "goal": vector(_goal, HOME_M, True),  # where to place or go (else object, handle), base frame
    "gap": Sensor(1, _gap, True, -math.pi, math.pi),  # from the door or drawer to its goal state
    "goal_polar": polar(_goal_polar),  # distance over the floor, angle (left positive)
    # Distance over the floor, cosine and sine of the angle.
    "compass": Sensor(3, _compass, low=(0.0, -1.0, -1.0), high=(HOME_M, 1.0, 1.0)),
    # Path along the floor to Navigate's goal, or to where the arm can reach object, handle or goal:
    # length left, next corner of the shortest path in the base frame.
    WAY: Sensor(3, _way, True, (0.0, -HOME_M, -HOME_M), HOME_M),
    # As WAY, on a map built from head camera and laser since the skill began.
    EXPLORED: Sensor(3, _explored, False, (0.0, -HOME_M, -HOME_M), HOME_M),
    # As EXPLORED, to the nearest place from which floor not yet seen is visible.
    FRONTIER: Sensor(3, _frontier, False, (0.0, -HOME_M, -HOME_M), HOME_M),
    # 1 once an instance of the category has been seen; its surface, forward and left of the base.
    SIGHTING: Sensor(3, _sighting, True, (0.0, -HOME_M, -HOME_M), (1.0, HOME_M, HOME_M)),
    # As FRONTIER, but to 0.8 m from the nearest place in which a category picture of the head has
    # shown the category, once there is one.
    SEARCH: Sensor(3, _search, False, (0.0, -HOME_M, -HOME_M), HOME_M),
    # 1 once there is such a place; the place, forward and left of the base; share of the picture.
    SPOTTED: Sensor(4, _spotted, False, (0.0, -HOME_M, -HOME_M, 0.0), (1.0, HOME_M, HOME_M, 1.0)),
    # Path of the cup around furniture to object, handle or goal: length left, point 0.25 m ahead.
    HAND_WAY: Sensor(4, _hand_way, True, (0.0, -HOME_M, -HOME_M, -HOME_M), HOME_M),
    SCAN: Sensor(RAYS, _scan, True, 0.0, RANGE_M),  # all around the base's centre
    TO_GOAL: vector(_to_goal, HOME_M, True),  # from the object to where to place it, base frame
    # Distances object to goal and end effector to resting point, minus HAB's thresholds.
    MARGINS: Sensor(2, _margins, True, -_ALLOWED_M, HOME_M),
    # Half extents of the object, and its x and z axes in the base frame.
    SHAPE: Sensor(9, _shape, True, -1.0, 1.0),
    # One-hot: the category to find; all 0 for other tasks.
    CATEGORY: Sensor(len(CATEGORIES), _category, low=0.0, high=1.0),
    MOTION: Sensor(6, _motion, True, -_FAST, _FAST),  # velocity of the object, base frame
    # For each point: closeness squared, and closeness times the direction to the nearest surface.
    CLEARANCE: Sensor(4 * CLEARANCE_ROWS, _clearance, True, -1.0, 1.0),
    # As CLEARANCE: from the cup, and from object, handle or goal, to the nearest other object.
    NEIGHBOURS: Sensor(4 * (NEIGHBOUR_ROWS - 1), _neighbours, True, -1.0, 1.0),
    # Distance of the cup from the surface of the object, and from the nearest other object.
    GAPS: Sensor(2, _gaps, True, -HOME_M, CLEARANCE_RANGE_M),
    # Positions relative to moving averages over half a second (cup) and two seconds (cup, base), in
    # metres in the base frame; the last entry is the base's yaw in radians.
    TRAIL: Sensor(9, _trail, True, -HOME_M, HOME_M),
    ELAPSED: Sensor(1, _elapsed, low=0.0, high=10.0),  # control steps of the skill, divided by 300
    LASER: Sensor(LASER_RAYS, _laser, low=0.0, high=LASER_RANGE_M),  # from right to left
    "start_from_ee": vector(_start_from_ee, HOME_M),  # object's first position, end effector frame
    "goal_from_ee": vector(_goal_from_ee, HOME_M),  # where to place the object, end effector frame
    "start_reach": vector(_start_reach, HOME_M),  # end effector to first position, base frame
    "goal_reach": vector(_goal_reach, HOME_M),  # end effector to where to place, base frame
    # From the centre of the object in the hand to where to place it, and what was up when the hand
    # took it, base frame; zeros without the object, or if its grasp is not known.
    CARRIED: Sensor(6, _carried, False, (-HOME_M,) * 3 + (-1.0,) * 3, (HOME_M,) * 3 + (1.0,) * 3),
    # Place of the object's first position, or of the end effector, in the head's picture.
    "start_gaze": Sensor(3, _start_gaze, low=_GAZE_LOW, high=_GAZE_HIGH),
    "ee_gaze": Sensor(3, _ee_gaze, low=_GAZE_LOW, high=_GAZE_HIGH),
    # First heading of the face with the handle, relative to the base: cosine and sine.
    FACING: Sensor(2, _start_facing, low=-1.0, high=1.0),
}
FULL = ("arm", "ee", "to_rest", "holding", "velocity", "reach", "goal", "gap")

# Sensors that "teacher" adds to "full".
TEACHER = (
    SCAN, TO_GOAL, MARGINS, SHAPE, MOTION, CLEARANCE, WAY, NEIGHBOURS, HAND_WAY, TRAIL, ELAPSED,
    GAPS,
)  # fmt: skip
GAZES = ("start_gaze", "ee_gaze")  # points around which a policy can have a glimpse
OF_SEARCH = frozenset({SEARCH, SPOTTED})  # sensors that need category pictures of the head
FETCH = ("velocity", LASER)  # sensors that "fetch" adds for every skill


def known(skill: Skill) -> Mapping[str, Sensor]:
    """Returns all sensors available to a skill, by name: the shared ones and its own."""
    return {**SENSORS, **skill.own_sensors} if skill.own_sensors else SENSORS


def measured(names: Iterable[str]) -> frozenset[str]:
    """Returns the entries of `tpsrl.sim.base.MEASURES` that the sensors `names` need."""
    return frozenset(MEASURES).intersection(
        NEIGHBOURS if name in OF_GAPS else name for name in names
    )


def observe(skill: Skill, names: tuple[str, ...], seen: SensorContext) -> Array:
    """Returns the vectors "state" (n, k) float32 of the sensors `names`.

    `seen.readings` must have the readings that these sensors use.
    """
    xp = array_namespace(seen.world.base)
    parts = [read(seen) for read in _readers(skill, names)]
    return xp.astype(xp.concat(parts, axis=-1), xp.float32)


@functools.cache
def _readers(skill: Skill, names: tuple[str, ...]) -> tuple[Reader, ...]:
    sensors = known(skill)
    return tuple(sensors[name].read for name in names)


def into_frame(quat: Array, vector: Array) -> Array:
    """Rotates vectors (n, 3) from the world to frames oriented by `quat` (n, 4), (w, x, y, z)."""
    return (vector[:, None, :] @ _rotation(quat))[:, 0]


def _rotation(quat: Array) -> Array:
    """Returns the matrices (n, 3, 3) from frames oriented by `quat` (n, 4) to the world frame."""
    xp = array_namespace(quat)
    products = quat[:, :, None] * quat[:, None, :]
    return xp.reshape(xp.reshape(products, (-1, 16)) @ _TURN.like(quat), (-1, 3, 3))


def _axes(quat: Array) -> tuple[Array, Array]:
    """Returns the x and z axes (n, 3) of bodies with orientations (n, 4), in the world frame."""
    w, x, y, z = (quat[:, i] for i in range(4))
    return (
        columns(1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y + w * z), 2.0 * (x * z - w * y)),
        columns(2.0 * (x * z + w * y), 2.0 * (y * z - w * x), 1.0 - 2.0 * (x * x + y * y)),
    )


def _rotation_table() -> tuple[tuple[float, ...], ...]:
    """Returns the matrix (16, 9) from products of a quaternion's entries to a rotation matrix."""
    ww, wx, wy, wz, xx, xy, xz, yy, yz, zz = 0, 1, 2, 3, 5, 6, 7, 10, 11, 15
    entries = (
        {ww: 1, xx: 1, yy: -1, zz: -1},
        {xy: 2, wz: -2},
        {xz: 2, wy: 2},
        {xy: 2, wz: 2},
        {ww: 1, xx: -1, yy: 1, zz: -1},
        {yz: 2, wx: -2},
        {xz: 2, wy: -2},
        {yz: 2, wx: 2},
        {ww: 1, xx: -1, yy: -1, zz: 1},
    )
    return tuple(tuple(float(entry.get(row, 0)) for entry in entries) for row in range(16))


_TURN = Constant(_rotation_table())
