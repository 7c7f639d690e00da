"""Speed of the embedded engine on this machine, and agreement of its depth with MuJoCo's.

Figures of one core are measured in CPU time of the thread, as medians over many short turns in
which the quantities alternate, so that other load on the machine has little effect. Several
processes at once are measured in wall-clock time.
"""

import dataclasses
import functools
import multiprocessing
import time
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Barrier
from typing import Any

import mujoco
import numpy as np

from tpsrl.runtime import pool
from tpsrl.sim import datasets
from tpsrl.sim.mujoco_home import MujocoHome
from tpsrl.sim.mujoco_sim import MujocoSimulator
from tpsrl.world import action as act
from tpsrl.world.cameras import HEAD_DEPTH
from tpsrl.world.episode import Episode, ObjectPlacement
from tpsrl.world.fetch import HEAD_CAMERA_FAR_M, REST_ARM
from tpsrl.world.floor import CELL_M, CLOSED, floor_map, main_floor
from tpsrl.world.generator import robot_start
from tpsrl.world.kinematics import inverse
from tpsrl.world.objects import object_kind
from tpsrl.world.reach import CUP_AXIS, NO_OFFSET, SEEDS
from tpsrl.world.slots import CAPACITIES

OBJECTS = CAPACITIES
SIZES = (64, 128)
_EPISODES = 4
_TURN = 60  # control steps or frames in one timed turn
_POSES = 100
_PICTURES = {
    "depth": ("head_depth",),
    "rgb": ("head_rgb",),
    "depth_and_rgb": ("head_depth", "head_rgb"),
    "depth_rgb_and_semantic": ("head_depth", "head_rgb", "head_semantic"),
}
_PRESSED, _AHEAD_M = "003_cracker_box", 0.7


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """Settings: seconds per home size and situation, and the maximum number of processes."""

    seconds: float
    processes: int


def measure(options: Options, say: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """Returns all figures as JSON types; `say` is called with a line at each stage."""
    report: dict[str, Any] = {"engine": f"mujoco {mujoco.__version__}", "homes": []}
    for objects in OBJECTS:
        for situation, start in (("free", in_the_open), ("contact", among_objects)):
            say(f"{objects} objects, {situation}")
            rates = _rates(objects, start, options.seconds)
            report["homes"].append({"objects": objects, "situation": situation, **rates})
    say("reset and snapshots")
    report["milliseconds"] = _latencies()
    say("pictures of the head")
    report["pictures"] = [_pictures(size, options.seconds) for size in SIZES]
    say("depth against MuJoCo's rays")
    report["depth"] = [_compare_depth(size) for size in SIZES]
    report["processes"] = []
    for count in sorted({1, options.processes}):
        say(f"{count} processes")
        report["processes"].append(_in_processes(count, options.seconds))
    return report


# -- situations --------------------------------------------------------------------------------


def in_the_open(episode: Episode) -> Episode:
    """Moves the robot's start to the most open floor, where its motion touches nothing."""
    x, y = _roomiest(episode.layout)
    return dataclasses.replace(episode, robot_start=(x, y, 0.0))


def among_objects(episode: Episode) -> Episode:
    """As `in_the_open`, with a box on the floor for the cup to press, and objects around it."""
    x, y = _roomiest(episode.layout)
    objects = list(episode.objects)
    spots = ((0.0, 0.0), (0.0, 0.18), (0.0, -0.18), (0.16, 0.0))
    for i, (ahead, aside) in enumerate(spots):
        name = _PRESSED if i == 0 else objects[i].name
        pos = (x + _AHEAD_M + ahead, y + aside, object_kind(name).half[2] + 0.001)
        objects[i] = ObjectPlacement(name, pos, (1.0, 0.0, 0.0, 0.0), "floor")
    return dataclasses.replace(episode, robot_start=(x, y, 0.0), objects=tuple(objects))


def _roomiest(layout: str) -> tuple[float, float]:
    floor = floor_map(layout)
    distance = np.where(main_floor(layout), floor.distance, -1.0)
    iy, ix = np.unravel_index(np.argmax(distance), distance.shape)
    x, y = (np.array([ix, iy]) + 0.5) * CELL_M + floor.origin
    return (float(x), float(y))


def _actions(contact: bool) -> np.ndarray:
    """Returns (n, 1, 11): the base turns to and fro; the arm waves, or with `contact` stays."""
    swing = np.sign(np.sin(np.linspace(0, 2 * np.pi, _TURN, endpoint=False)))
    actions = np.zeros((_TURN, 1, act.SIZE))
    actions[:, 0, act.GRIP] = -1.0
    actions[:, 0, 9] = (0.04 if contact else 0.3) * swing
    if not contact:
        actions[:, 0, act.ARM] = 0.5 * swing[:, None]
    return actions


def _prepared(objects: int, start: Callable[[Episode], Episode]) -> Iterator[MujocoSimulator]:
    """Yields a simulator in its situation, in one apartment after another."""
    simulator = MujocoSimulator(slots=objects)
    for episode in _episodes(objects):
        simulator.reset([0], [start(episode)])
        action = np.zeros((1, act.SIZE))
        action[0, act.GRIP] = -1.0
        for _ in range(40):  # until objects at rest sleep
            simulator.step([0], action)
        if start is among_objects:
            for way in _down_to(2 * object_kind(_PRESSED).half[2]):
                action[0, act.ARM] = way
                simulator.step([0], action)
        yield simulator


def _episodes(objects: int) -> list[Episode]:
    return datasets.load("tidy_house", "val", _EPISODES, num_objects=objects, processes=1)


def _down_to(height: float) -> np.ndarray:
    """Returns arm actions (n, 7) that move the cup from rest to press `_AHEAD_M` ahead.

    The last target of the cup is 2 cm below `height` (m).
    """
    down, steps = np.array([0.0, 0.0, -1.0]), []
    at = np.array(REST_ARM)
    for above in (0.08, -0.02):
        point = np.array([_AHEAD_M, 0.0, height + above])
        found = [inverse(s, point, CUP_AXIS, down, s, NO_OFFSET, 200) for s in (at, *SEEDS)]
        posture = next(q for ok, q in found if ok)
        count = int(np.ceil(np.abs(posture - at).max() / act.ARM_DELTA_RAD))
        steps += [(posture - at) / count / act.ARM_DELTA_RAD] * count
        at = posture
    return np.array(steps)


# -- rates -------------------------------------------------------------------------------------


def _rates(objects: int, start: Callable[[Episode], Episode], seconds: float) -> dict[str, Any]:
    turns: dict[str, list[float]] = {}
    touching: list[bool] = []
    for simulator in _prepared(objects, start):
        works = _works(simulator, _actions(start is among_objects))
        snapshot = simulator.snapshot(0)
        for work in works.values():
            work(0)  # compiles
        end = time.perf_counter() + seconds / _EPISODES
        while not touching or time.perf_counter() < end:
            for name, work in works.items():
                simulator.restore(0, snapshot)  # so that all turns have the same motion
                begin = time.thread_time()
                for i in range(_TURN):
                    work(i)
                turns.setdefault(name, []).append(_TURN / (time.thread_time() - begin))
                if name == "steps_per_s":
                    touching.append(_robot_touches(simulator.homes[0]))
    rates: dict[str, Any] = {name: round(float(np.median(r)), 1) for name, r in turns.items()}
    return {**rates, "robot_in_contact": round(float(np.mean(touching)), 3)}


def _works(simulator: MujocoSimulator, actions: np.ndarray) -> dict[str, Callable[[int], object]]:
    """Returns the timed functions by name.

    Each call is one control step, one state, one frame, or a step with a frame.
    """

    def step(i: int) -> None:
        simulator.step([0], actions[i % len(actions)])

    def state(i: int) -> None:
        simulator.state([0])

    works: dict[str, Callable[[int], object]] = {"steps_per_s": step, "states_per_s": state}
    for size in SIZES:
        depth, both = _depth_works(simulator, step, size)
        works[f"depth_{size}_frames_per_s"] = depth
        works[f"steps_with_depth_{size}_per_s"] = both
    return works


def _depth_works(
    simulator: MujocoSimulator, step: Callable[[int], None], size: int
) -> tuple[Callable[[int], object], Callable[[int], object]]:
    def depth(i: int) -> None:
        simulator.depth([0], size, size)

    def both(i: int) -> None:
        step(i)
        simulator.depth([0], size, size)

    return depth, both


def _robot_touches(home: MujocoHome) -> bool:
    robot = home._home.robot_geom[home.data.contact.geom]
    return bool((robot[:, 0] != robot[:, 1]).any())


# -- latencies ---------------------------------------------------------------------------------


def _latencies() -> dict[str, float]:
    """Returns the milliseconds for a reset into another layout, a snapshot, and its restoration."""
    simulator = MujocoSimulator(slots=12)
    episodes = _episodes(12)
    works: dict[str, Callable[[int], object]] = {
        "reset": lambda i: simulator.reset([0], [episodes[i % len(episodes)]]),
        "snapshot": lambda i: simulator.snapshot(0),
    }
    for i in range(len(episodes)):
        works["reset"](i)
    snapshot = simulator.snapshot(0)
    works["restore"] = lambda i: simulator.restore(0, snapshot)
    spent: dict[str, list[float]] = {name: [] for name in works}
    for i in range(40):
        for name, work in works.items():
            begin = time.thread_time()
            work(i)
            spent[name].append(1000 * (time.thread_time() - begin))
    return {name: round(float(np.median(values)), 3) for name, values in spent.items()}


# -- pictures of several kinds ------------------------------------------------------------------


def _pictures(size: int, seconds: float) -> dict[str, float]:
    """Returns frames per second of combinations of head pictures, measured in start states."""
    turns: dict[str, list[float]] = {name: [] for name in _PICTURES}
    for simulator in _prepared(12, lambda episode: episode):
        works = {name: _looking(simulator, names, size) for name, names in _PICTURES.items()}
        for work in works.values():
            work()  # compiles
        end = time.perf_counter() + seconds / _EPISODES
        while not turns["depth"] or time.perf_counter() < end:
            for name, work in works.items():
                begin = time.thread_time()
                for _ in range(_TURN):
                    work()
                turns[name].append(_TURN / (time.thread_time() - begin))
    rates = {name: float(np.median(found)) for name, found in turns.items()}
    return {"size": size, **{name: round(rate, 1) for name, rate in rates.items()}}


def _looking(simulator: MujocoSimulator, names: tuple[str, ...], size: int) -> Callable[[], object]:
    if names == (HEAD_DEPTH,):
        return lambda: simulator.depth([0], size, size)
    return lambda: simulator.look([0], dict.fromkeys(names, (size, size)))


# -- depth against MuJoCo's own rays -----------------------------------------------------------


def _compare_depth(size: int) -> dict[str, float]:
    """Returns the caster's speed against `mj_multiRay` and agreement with `mj_ray`, same scenes."""
    simulator = MujocoSimulator(slots=12)
    home, rng = simulator.homes[0], np.random.default_rng(0)
    episodes = _episodes(12)
    ratios, agreement = [], []
    for i in range(_POSES):
        episode = episodes[i % len(episodes)]
        pose = robot_start(episode.layout, CLOSED, rng)
        simulator.reset([0], [dataclasses.replace(episode, robot_start=pose)])
        simulator.depth([0], size, size)  # into the processor's caches
        begin = time.thread_time()
        ours = simulator.depth([0], size, size)[0]
        middle = time.thread_time()
        rays_depth(home, size)
        ratios.append((time.thread_time() - middle) / (middle - begin))
        agreement.append(_agreement(home, ours))
    return {
        "size": size,
        "times_faster_than_multi_ray": round(float(np.median(ratios)), 1),
        "within_1_cm": round(float(np.mean(agreement)), 6),
        "poses": _POSES,
    }


def rays_depth(home: MujocoHome, size: int) -> np.ndarray:
    """Returns the head's depth (size, size) by `mj_multiRay`, 0 to 10 m mapped to 0 to 1."""
    camera = home._home.head_camera
    pos, turn = home.data.cam_xpos[camera], home.data.cam_xmat[camera].reshape(3, 3)
    across = (np.arange(size) + 0.5) * 2 / size - 1
    x, y = np.meshgrid(across, -across)
    local = np.stack([x, y, -np.ones_like(x)], axis=-1)
    directions = local / np.linalg.norm(local, axis=-1, keepdims=True) @ turn.T
    geom, distance = np.empty(size * size, dtype=np.int32), np.empty(size * size)
    mujoco.mj_multiRay(
        m=home.model,
        d=home.data,
        pnt=pos,
        vec=directions.ravel(),
        geomgroup=None,
        flg_static=1,
        bodyexclude=-1,
        geomid=geom,
        dist=distance,
        normal=None,
        nray=size * size,
        cutoff=3 * HEAD_CAMERA_FAR_M,
    )
    planar = distance.reshape(size, size) / np.linalg.norm(local, axis=-1)
    far = (geom.reshape(size, size) < 0) | (planar > HEAD_CAMERA_FAR_M)
    return np.where(far, 1.0, planar / HEAD_CAMERA_FAR_M).astype(np.float32)


def _agreement(home: MujocoHome, depth: np.ndarray) -> float:
    """Returns the share of 64 x 64 pixels of a picture (size, size) within 1 cm of `mj_ray`.

    Single rays are used because `mj_multiRay` misses capsules and cylinders close to the camera: up
    to 67 of 4,096 pixels, in all of which `mj_ray` agrees with the caster (MuJoCo 3.17).
    """
    camera, size = home._home.head_camera, len(depth)
    pos, turn = home.data.cam_xpos[camera], home.data.cam_xmat[camera].reshape(3, 3)
    geom = np.zeros(1, dtype=np.int32)
    within = 0
    for row in range(0, size, size // 64):
        for column in range(0, size, size // 64):
            x, y = (column + 0.5) * 2 / size - 1, 1 - (row + 0.5) * 2 / size
            # For a ray with forward component 1 the returned distance is planar depth.
            ray = turn @ np.array([x, y, -1.0])
            found = mujoco.mj_ray(home.model, home.data, pos, ray, None, 1, -1, geom)
            seen = min(found, HEAD_CAMERA_FAR_M) if geom[0] >= 0 else HEAD_CAMERA_FAR_M
            within += abs(seen - depth[row, column] * HEAD_CAMERA_FAR_M) < 0.01
    return within / 64**2


# -- several processes -------------------------------------------------------------------------


def _in_processes(count: int, seconds: float) -> dict[str, float]:
    """Returns steps with 64 x 64 depth per second of `count` processes, 12 objects, free motion."""
    context = multiprocessing.get_context("spawn")
    ready = functools.partial(_get_ready, context.Barrier(count))
    # One task per process, so that all processes work at the same time.
    total = float(sum(rate for _, rate in pool.run(ready, [seconds] * count, count)))
    return {
        "count": count,
        "steps_with_depth_64_per_s": round(total, 1),
        "per_process": round(total / count, 1),
    }


def _get_ready(barrier: Barrier) -> Callable[[float], float]:
    """Prepares a process; returns its function that measures steps per second.

    The function starts once all processes are at the barrier, and steps for the given seconds.
    """
    simulator = next(_prepared(12, in_the_open))
    actions = _actions(contact=False)
    both = _works(simulator, actions)["steps_with_depth_64_per_s"]
    both(0)

    def measure(seconds: float) -> float:
        rates: list[float] = []
        barrier.wait()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or not rates:
            begin = time.perf_counter()
            for i in range(_TURN):
                both(i)
            rates.append(_TURN / (time.perf_counter() - begin))
        return float(np.median(rates))

    return measure
