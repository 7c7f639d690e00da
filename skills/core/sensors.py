"""The vector that a policy is shown beside depth: named sensors, one after the other.

There are five choices. "habitat" is what habitat-lab's skill gives its policy beside the camera.
"fetch" adds the laser scan and the odometry that the real robot has on its base, and says where the
target is along the base's axes as well, as the arm's kinematics tell it. "mapping" adds to "fetch",
for skills that drive, the path on a map of what the robot has seen itself, to the goal or to
what it has not seen yet. "full" is one
layout for HAB's seven skills which says enough to learn them without a camera, much of which no
robot could know; to Navigate, which would be blind, it adds the way along the floor and a scan of
the map. "teacher" adds both for all, where the object is from its goal, its size, orientation
and velocity, how near the robot's body is to what stands around it, and where the robot has just
been, which makes the state complete enough for a policy without memory.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

from skills.core.arrays import Array
from skills.core.geometry import Constant, array_namespace, columns, each, length
from skills.core.skill import Skill
from skills.core.state import TaskState
from tpsrl.world.categories import CATEGORIES
from tpsrl.world.fetch import (
    ARM,
    CLEARANCE_RANGE_M,
    CLEARANCE_ROWS,
    LASER_RANGE_M,
    LASER_RAYS,
    NEIGHBOUR_ROWS,
)
from tpsrl.world.scan import RANGE_M, RAYS
from tpsrl.world.state import WorldState


@dataclasses.dataclass(slots=True)
class Readings:
    """What no world state tells, for a policy that is shown it; None where it is not.

    By a map of the home: `way` (n, 3) is `skills.envs.path_meter.PathMeter.ahead`, `scan` (n, rays)
    is `tpsrl.world.scan.Scanner.ranges`, `facing` (n,) the direction in the world, in radians, in
    which the face of the handle looked when the skill began. By the episode: `extent` (n, 3) are
    the half extents of the object, in metres, `category` (n, categories) is 1 for the one that is
    to be found. By the engine: `laser` (n, rays) is `tpsrl.sim.base.Simulator.laser`,
    `clearance` (n, points, 4) `Simulator.clearance`,
    `neighbours` (n, points, 4) `Simulator.neighbours`, `motion` (n, 6)
    `Simulator.object_velocity`, `pictures` those of `Simulator.look` by name, of a policy that acts
    in a plan or alone. By the steps before: `trail` (n, 3, 3) is
    `skills.envs.trail.Trail.away`, `explored` (n, 3) `tpsrl.world.explored.ExploredMaps.ahead`,
    `frontier` (n, 3) `tpsrl.world.frontiers.FrontierMaps.ahead`, `sighting` (n, 3)
    `tpsrl.world.sightings.Sightings.away`.
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
    motion: Any = None
    trail: Any = None
    explored: Any = None
    frontier: Any = None
    sighting: Any = None
    pictures: Any = None


@dataclasses.dataclass(slots=True)
class SensorContext:
    """For `Sensor.read`: what a policy may be shown of a world."""

    task: TaskState  # the goals, the steps so far, and the skill's memory
    measures: Any  # the skill's own `Measures` of `world`
    world: WorldState
    readings: Readings


Reader = Callable[[SensorContext], Array]
Bound = float | tuple[float, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Sensor:
    """So many numbers; `read` gives them (n, size), in metres, radians, seconds.

    `privileged` is what a robot does not have: the true state of the world, or a map of it. All
    numbers lie between `low` and `high`, one for all of them or one for each.
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
    # One layout for all skills, so that a network can be carried from one to another.
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
    return xp.where(known[:, None], parts, 0.0)  # also of objects that are not there, NaN


def _motion(seen: SensorContext) -> Array:
    world, motion = seen.world, seen.readings.motion
    xp = array_namespace(motion)
    parts = xp.concat([_in_base(world, motion[:, :3]), _in_base(world, motion[:, 3:])], axis=-1)
    return xp.clip(parts, -_FAST, _FAST)


def _clearance(seen: SensorContext) -> Array:
    return _closeness(seen.readings.clearance)


def _neighbours(seen: SensorContext) -> Array:
    return _closeness(seen.readings.neighbours)


def _trail(seen: SensorContext) -> Array:
    xp = array_namespace(seen.world.base)
    rows = [seen.readings.trail[:, row] for row in range(3)]
    return xp.concat([_in_base(seen.world, row) for row in rows], axis=-1)


def _elapsed(seen: SensorContext) -> Array:
    steps = array_namespace(seen.world.base).astype(seen.task.steps, seen.world.base.dtype)
    return steps[:, None] / _LONG_STEPS


def _closeness(surfaces: Array) -> Array:
    """Directions and distances (n, points, 4) of surfaces as (n, 4 points) numbers."""
    # What is nearer counts for more, and what is far for nothing.
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


def _start_facing(seen: SensorContext) -> Array:
    angle = seen.readings.facing - seen.world.base[:, 2]
    xp = array_namespace(angle)
    return columns(xp.cos(angle), xp.sin(angle))


def _in_base(world: WorldState, vector: Array) -> Array:
    """Vectors (n, 3) of the world along the axes of the base."""
    xp = array_namespace(vector)
    c, s = xp.cos(world.base[:, 2]), xp.sin(world.base[:, 2])
    x, y = vector[:, 0], vector[:, 1]
    return columns(c * x + s * y, c * y - s * x, vector[:, 2])


WAY = "way"  # along the floor, by a map
EXPLORED = "explored_way"  # along the floor, by a map of what the robot has seen
FRONTIER = "frontier_way"  # along the floor, to what the robot has not seen yet
SIGHTING = "sighting"  # of what is to be found, by a perfect detector
HAND_WAY = "hand_way"  # of the cup, through the air, by a map
SCAN = "scan"  # all around the base, by a map
LASER = "laser"  # of the laser on the base, by the engine
FACING = "start_facing"
TO_GOAL = "to_goal"  # of the object that is to be placed
MARGINS = "margins"  # of distances that are to fall under a threshold
SHAPE = "shape"  # of the object, by the episode
CATEGORY = "category"  # of what is to be found, by the episode
MOTION = "motion"  # of the object, by the engine
CLEARANCE = "clearance"  # of the robot's body, by the engine
NEIGHBOURS = "neighbours"  # loose objects beside cup and goal, by the engine
TRAIL = "trail"  # of cup and base, by the steps before
ELAPSED = "elapsed"  # since the skill began

HOME_M = (
    30.0  # no two points of an apartment are farther apart, nor is a way along its floor longer
)
_ALLOWED_M = 0.15  # HAB: from the object to its goal, from the end effector to its resting point
_OUT_M = 2.0  # that the arm reaches out
_LONG_STEPS = 300.0  # HAB: what a skill may take
# Stops give way a little under load.
_ARM_LOW, _ARM_HIGH = (
    tuple(joint.limits[side] + slack for joint in ARM) for side, slack in ((0, -0.2), (1, 0.2))
)
# Of the base, m/s and rad/s: it drives at up to 2.5 of either, and collisions add to that.
_FAST = 10.0


def polar(read: Reader) -> Sensor:
    """A sensor of a distance in the home and an angle."""
    return Sensor(2, read, low=(0.0, -math.pi), high=(HOME_M, math.pi))


def vector(read: Reader, longest_m: float, privileged: bool = False) -> Sensor:
    """A sensor of a vector in space, each entry of which is so long at most."""
    return Sensor(3, read, privileged, -longest_m, longest_m)


SENSORS: dict[str, Sensor] = {
    "arm": Sensor(7, _arm, low=_ARM_LOW, high=_ARM_HIGH),  # joint positions
    "ee": vector(_ee, _OUT_M),  # end effector, base frame
    "to_rest": vector(_to_rest, _OUT_M),  # from the end effector to its resting point, base frame
    "holding": Sensor(1, _holding, low=0.0, high=1.0),  # 1 with an object or a handle in the cup
    "velocity": Sensor(3, _velocity, low=-_FAST, high=_FAST),  # of the base: forward, left, turn
    "reach": vector(_reach, HOME_M, True),  # from the end effector to object, handle or goal
    "goal": vector(_goal, HOME_M, True),  # where to place or go (else object, handle), base frame
    "gap": Sensor(1, _gap, True, -math.pi, math.pi),  # what the door or drawer lacks
    "goal_polar": polar(_goal_polar),  # distance over the floor, angle (left positive)
    # Distance over the floor, cosine and sine of the angle.
    "compass": Sensor(3, _compass, low=(0.0, -1.0, -1.0), high=(HOME_M, 1.0, 1.0)),
    # Along the floor to where Navigate has to go, or where the arm can get at object, handle or
    # goal: what is left, next corner of the shortest path.
    WAY: Sensor(3, _way, True, (0.0, -HOME_M, -HOME_M), HOME_M),
    # The same by a map of what head camera and laser have seen since the skill began.
    EXPLORED: Sensor(3, _explored, False, (0.0, -HOME_M, -HOME_M), HOME_M),
    # The same to the nearest place where it can look at floor that it has not seen yet.
    FRONTIER: Sensor(3, _frontier, False, (0.0, -HOME_M, -HOME_M), HOME_M),
    # 1 when a thing of the category has been seen, and how far forward and left its surface is.
    SIGHTING: Sensor(3, _sighting, True, (0.0, -HOME_M, -HOME_M), (1.0, HOME_M, HOME_M)),
    # Of the cup around furniture to object, handle or goal: what is left, a place 0.25 m ahead.
    HAND_WAY: Sensor(4, _hand_way, True, (0.0, -HOME_M, -HOME_M, -HOME_M), HOME_M),
    SCAN: Sensor(RAYS, _scan, True, 0.0, RANGE_M),  # all around the base's centre
    TO_GOAL: vector(_to_goal, HOME_M, True),  # from the object to where to place it, base frame
    # Object to goal and end effector to resting point, less what HAB allows.
    MARGINS: Sensor(2, _margins, True, -_ALLOWED_M, HOME_M),
    # Half extents of the object, and where its x and z axes point, base frame.
    SHAPE: Sensor(9, _shape, True, -1.0, 1.0),
    # 1 for the category that is to be found, 0 for the others and for other tasks.
    CATEGORY: Sensor(len(CATEGORIES), _category, low=0.0, high=1.0),
    MOTION: Sensor(6, _motion, True, -_FAST, _FAST),  # velocity of the object, base frame
    # Of each point closeness squared, and the direction to the nearest surface times closeness.
    CLEARANCE: Sensor(4 * CLEARANCE_ROWS, _clearance, True, -1.0, 1.0),
    # The same, from the cup and from object, handle or goal to the nearest other loose object.
    NEIGHBOURS: Sensor(4 * NEIGHBOUR_ROWS, _neighbours, True, -1.0, 1.0),
    # Where cup and base are, from where they were on average in the last half second (cup) and two
    # seconds (cup, base); metres in the base frame, the last entry radians.
    TRAIL: Sensor(9, _trail, True, -HOME_M, HOME_M),
    ELAPSED: Sensor(1, _elapsed, low=0.0, high=10.0),  # steps since the skill began, of 300
    LASER: Sensor(LASER_RAYS, _laser, low=0.0, high=LASER_RANGE_M),  # from right to left
    "start_from_ee": vector(_start_from_ee, HOME_M),  # where the object was, end effector's frame
    "goal_from_ee": vector(_goal_from_ee, HOME_M),  # where to place it, end effector's frame
    "start_reach": vector(_start_reach, HOME_M),  # from the end effector to there, base frame
    "goal_reach": vector(_goal_reach, HOME_M),
    # Which way the face with the handle looked, from the base's heading: cosine and sine.
    FACING: Sensor(2, _start_facing, low=-1.0, high=1.0),
}
FULL = ("arm", "ee", "to_rest", "holding", "velocity", "reach", "goal", "gap")

# What "teacher" adds to "full".
TEACHER = (
    SCAN, TO_GOAL, MARGINS, SHAPE, MOTION, CLEARANCE, WAY, NEIGHBOURS, HAND_WAY, TRAIL, ELAPSED,
)  # fmt: skip
FETCH = ("velocity", LASER)  # what "fetch" adds for every skill


def known(skill: Skill) -> Mapping[str, Sensor]:
    """Every sensor that a skill may have, by name: those of all skills and its own."""
    return {**SENSORS, **skill.own_sensors} if skill.own_sensors else SENSORS


def observe(skill: Skill, names: tuple[str, ...], seen: SensorContext) -> Array:
    """The vectors (n, k) float32 of the sensors `names`, which need their readings."""
    xp = array_namespace(seen.world.base)
    parts = [read(seen) for read in _readers(skill, names)]
    return xp.astype(xp.concat(parts, axis=-1), xp.float32)


@functools.cache
def _readers(skill: Skill, names: tuple[str, ...]) -> tuple[Reader, ...]:
    sensors = known(skill)
    return tuple(sensors[name].read for name in names)


def into_frame(quat: Array, vector: Array) -> Array:
    """Vectors (n, 3) of the world in frames turned by quaternions (n, 4), (w, x, y, z)."""
    xp = array_namespace(quat)
    products = quat[:, :, None] * quat[:, None, :]
    turn = xp.reshape(xp.reshape(products, (-1, 16)) @ _TURN.like(quat), (-1, 3, 3))
    return (vector[:, None, :] @ turn)[:, 0]


def _axes(quat: Array) -> tuple[Array, Array]:
    """Where the x and z axes (n, 3) of bodies turned by quaternions (n, 4) point in the world."""
    w, x, y, z = (quat[:, i] for i in range(4))
    return (
        columns(1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y + w * z), 2.0 * (x * z - w * y)),
        columns(2.0 * (x * z + w * y), 2.0 * (y * z - w * x), 1.0 - 2.0 * (x * x + y * y)),
    )


def _rotation_table() -> tuple[tuple[float, ...], ...]:
    """(16, 9): makes a rotation matrix of the products of a quaternion's entries."""
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
