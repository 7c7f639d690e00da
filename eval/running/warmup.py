"""Compiles ahead of time what the first evaluation would compile.

numba compiles a loop at its first call, once for each combination of argument types, and caches the
machine code on disk. The jobs of this module are short real runs, so the types are the right ones.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from eval.presets import AgentPreset
from eval.running import agents
from skills import registry
from skills.core.interface import SkillGoal
from tpsrl.runtime import machine, pool
from tpsrl.world import action as act
from tpsrl.world.cameras import PICTURES
from tpsrl.world.episode import Episode, ObjectPlacement, Target
from tpsrl.world.floor import CELL_M, floor_map, main_floor
from tpsrl.world.geodesic import distance_field, free_floor
from tpsrl.world.handles import handle
from tpsrl.world.layouts import PlacedReceptacle, placed_receptacles, resolve
from tpsrl.world.objects import object_kind
from tpsrl.world.placement import circle, gap
from tpsrl.world.scenarios import DRAWERS, load_scenario

_LAYOUT = "replica_cad/v3_sc3_staging_00"
_OBJECT, _FROM, _TO = "003_cracker_box", "table_2", "counter_right"


def warm_up() -> Iterator[tuple[str, float]]:
    """Runs all jobs in parallel; yields the name and the duration (s) of each when it is done."""
    names = list(JOBS)
    for index, seconds in pool.run(_worker, names, min(machine.cores(), len(names)), names):
        yield names[index], seconds


def _worker() -> Callable[[str], float]:
    return _timed


def _timed(job: str) -> float:
    started = time.perf_counter()
    JOBS[job]()
    return time.perf_counter() - started


def carry_one_object() -> bool:
    """Runs engine, planner and scripted skills: one object from a table to the counter.

    Returns:
        Whether the object arrived.
    """
    from planner.execution.executor import Executor
    from planner.execution.limits import execution_limits
    from tpsrl import sim

    simulator = sim.make(slots=12)
    limits = execution_limits(episode_steps=900)
    plan_around_a_pole()
    lead_the_cup_back()
    episode = one_object_episode()
    policies = agents.Policies(AgentPreset(), {})
    executor = Executor(simulator, policies, reset_arm=agents.reset_arm(), limits=limits)
    return executor.run(episode).success


def plan_around_a_pole() -> np.ndarray | None:
    """Plans an arm path (k, 7) around an obstacle, so that the planner is compiled.

    The job's episode may not need a path that is not straight.
    """
    from tpsrl.motion.arm.rrt import plan_path
    from tpsrl.world.collision import ARM_SPHERES, BOX, REST, ArmChecker, Bodies

    middle, half = np.array([[0.58, 0.0, 0.6]]), np.array([[0.04, 0.04, 0.6]])
    pole = Bodies(np.array([BOX]), middle, np.eye(3)[None], half)
    near, _ = pole.seen_from(np.zeros(3))
    right, left = REST.copy(), REST.copy()
    right[0], left[0] = -0.8, 0.8
    return plan_path(ArmChecker(ARM_SPHERES, near), right, left, margin=0.01)


def lead_the_cup_back() -> list[np.ndarray]:
    """Plans base paths (k, 3) that move the cup back, so that this planner is compiled.

    The job's episode may not need such a path.
    """
    from tpsrl.motion.base.tip_tracking import ways_back
    from tpsrl.world.collision import NO_BODIES, REST
    from tpsrl.world.footprint import make_footprint
    from tpsrl.world.kinematics import cup_pose

    footprint = make_footprint(_LAYOUT, REST, NO_BODIES)
    base = np.array([*one_object_episode().robot_start[:2], 0.0])
    return ways_back(footprint, base, cup_pose(REST)[0], np.array([0.1]))


def make_and_show_an_episode() -> None:
    """Runs episode generation, settling, depth and colour images."""
    from tpsrl import sim
    from tpsrl.render.cameras import Sphere
    from tpsrl.sim import datasets
    from tpsrl.world.generator import Source

    source = Source(load_scenario("tidy_house"), "val", 0, 12)
    (episode,), _ = datasets.generate(source, range(1), processes=1)
    simulator = sim.make(slots=12)
    simulator.reset([0], [episode])
    simulator.depth([0])
    simulator.look([0], {name: (64, 64) for name in PICTURES})
    simulator.render(0, markers=[Sphere((0.0, -3.0, 1.0), 0.1, (1.0, 0.0, 0.0))])


def open_a_drawer() -> bool:
    """Runs skill environments, drawers and shortest paths over the floor.

    Returns:
        Whether the drawer was opened.
    """
    from skills.envs.environment import SkillEnv
    from skills.envs.episodes import run
    from skills.starts.start import Start

    look_at_the_floor()
    touch_one_thing()
    episode = one_object_episode()
    far_off = Start(episode, SkillGoal(0, episode.objects[0].pos))
    driving = SkillEnv(registry.carrying_out("nav").name, starts=[far_off], num_objects=12)
    driving.reset(options={"start": 0})
    driving.step(np.zeros(act.SIZE))
    starts, opener = [Start(*before_a_drawer())], registry.carrying_out("open_cab")
    opening = SkillEnv(opener.name, starts=starts, num_objects=12, depth=(64, 64))
    (result,) = run(opening, opener.make_scripted(), [0])
    return result.success


def touch_one_thing() -> None:
    """Compiles contact detection for a single contact.

    The array of a single contact is contiguous in memory, those of several contacts are not: numba
    treats them as different types.
    """
    from tpsrl.sim.contacts import touched

    touched(np.zeros((1, 2), np.int32), np.zeros(1), 0, np.zeros(2, np.int32))


def look_at_the_floor() -> None:
    """Runs the queries of the floor that start states of skills and of PointNav need."""
    gap(circle(1.0), circle(1.0))
    floor = free_floor(_LAYOUT)
    start = one_object_episode().robot_start[:2]
    floor_map(_LAYOUT).clearance(*start)
    field = distance_field(floor, floor.snap(*start) or start, radius_m=0.5)
    field.distance(*start), field.distances(np.array([start])), field.path(*start)


JOBS: dict[str, Callable[[], Any]] = {
    "planner and skills": carry_one_object,
    "skill environments": open_a_drawer,
    "generator and pictures": make_and_show_an_episode,
}


def one_object_episode() -> Episode:
    """Returns an episode made without the generator; the robot starts far from obstacles."""
    layout_set, layout = resolve(_LAYOUT)
    places = {place.name: place for place in placed_receptacles(layout_set, layout)}
    floor = floor_map(_LAYOUT)
    room = np.where(main_floor(_LAYOUT), floor.distance, -1.0)
    iy, ix = np.unravel_index(np.argmax(room), room.shape)
    start = (floor.origin[0] + (ix + 0.5) * CELL_M, floor.origin[1] + (iy + 0.5) * CELL_M, 0.0)
    thing = ObjectPlacement(_OBJECT, _standing_on(places[_FROM]), (1.0, 0.0, 0.0, 0.0), _FROM)
    target = Target(0, _standing_on(places[_TO]), _TO)
    return Episode("warmup", "tidy_house", "val", _LAYOUT, start, (thing,), (target,))


def before_a_drawer() -> tuple[Episode, SkillGoal]:
    """Returns an episode that starts in front of a closed drawer, without objects, and its goal."""
    marker = DRAWERS["drawer_right_top"]
    where = handle(_LAYOUT, marker)
    x, y, _ = where.point(0.0) + 0.9 * where.normal(0.0)
    yaw = math.atan2(*-where.normal(0.0)[1::-1])
    start = (float(x), float(y), yaw)
    episode = dataclasses.replace(one_object_episode(), robot_start=start, objects=(), targets=())
    return episode, SkillGoal(marker=marker)


def _standing_on(place: PlacedReceptacle) -> tuple[float, float, float]:
    """Returns the centre of the object when it stands in the middle of a receptacle."""
    half = object_kind(_OBJECT).half[2]
    return float(place.pos[0]), float(place.pos[1]), place.surface + half + 0.002
