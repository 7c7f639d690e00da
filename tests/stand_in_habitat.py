"""Stand-in for habitat-lab: modules with its names, without physics, and a Python that finds them.

The base rolls 0.1 m above the floor, as on Habitat's navigation mesh, and the arm follows. The cup
is fixed to the base and holds an object within 0.15 m. The environment variable `FAULT` selects a
fault: "crash", "hang" or "raise" in the second step, "crash_once" in the second step of one process
only, "import" when habitat_sim is imported, "protocol" for a worker with another protocol version.
"""

import sys
from pathlib import Path

from tpsrl.sim.habitat.worker import NEEDED, OBJECTS
from tpsrl.world.objects import object_kinds

_SIM = """
import os
__version__ = "0.3.3"
built_with_bullet = True
if os.environ.get("FAULT") == "import":
    raise ImportError("libEGL.so.1: cannot open shared object file")
"""

_MAGNUM = """
import numpy as np

class Vector3(np.ndarray):
    def __new__(cls, *values):
        return np.array(values, dtype=float).view(cls)

class Matrix4(np.ndarray):
    def __new__(cls, columns):
        return np.array(columns, dtype=float).T.copy().view(cls)

    translation = property(lambda self: np.asarray(self)[:3, 3])

    def transposed(self):
        return np.asarray(self).T.copy().view(Matrix4)

    def inverted(self):
        return np.linalg.inv(np.asarray(self)).view(Matrix4)

    def transform_point(self, point):
        return (np.asarray(self) @ [*point, 1.0])[:3]
"""

_HABITAT = """
import os, sys, time
from types import SimpleNamespace as Space
import magnum as mn
import numpy as np

__version__ = "0.3.3"
FAULT = os.environ.get("FAULT")
NAMES = ("cab_push_point_4", "cab_push_point_5", "cab_push_point_6", "cab_push_point_7",
         "fridge_push_point")

class Node(dict):
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__

def get_config(name):
    sensors = Node(head_depth_sensor=Node(height=256, width=256))
    robot = Node(sim_sensors=sensors)
    simulator = Node(habitat_sim_v0=Node(), agents=Node(main_agent=robot))
    return Node(habitat=Node(task=Node(), simulator=simulator, dataset=Node()))

class Body:
    linear_velocity = angular_velocity = np.zeros(3)

    def __init__(self, columns):
        self.transformation = mn.Matrix4(np.array(columns).T)
        self.translation = self.transformation.translation
        self.aabb = Space(size=lambda: np.array([0.16, 0.21, 0.07]))

class Robot:
    def __init__(self):
        self.params = Space(ee_links=[0], base_offset=np.zeros(3))
        self.base_pos, self.base_rot = mn.Vector3(0, 0.1, 0), 0.0
        self.arm_joint_pos = self.arm_motor_pos = np.zeros(7)
        self.sim_obj = self
        self.transformation = None
        self.update()

    def put(self, position):
        self.at = position - self.params.base_offset

    base_pos = property(lambda self: self.at + self.params.base_offset, put)

    def update(self):
        cos, sin = np.cos(self.base_rot), np.sin(self.base_rot)
        pose = np.array([[cos, 0, sin, 0], [0, 1, 0, 0], [-sin, 0, cos, 0], [0, 0, 0, 1.0]])
        pose[:3, 3] = self.at
        self.transformation = pose.view(mn.Matrix4)
        self.arm_joint_pos = self.arm_motor_pos

    def ee_transform(self):
        offset = np.eye(4)
        offset[:3, 3] = 0.5, 1.0, 0.0
        return (np.asarray(self.transformation) @ offset).view(mn.Matrix4)

    def get_link_scene_node(self, link):
        return Space(absolute_transformation=self.ee_transform)

class Sim:
    ac_freq_ratio = 4

    def __init__(self, config):
        self.config, self.articulated_agent = config, Robot()
        self.bodies, self.steps = [], 0
        self.grasp_mgr = Space(snap_idx=None, snapped_marker_id=None, snap_to_obj=self.hold,
                               is_violating_hold_constraint=lambda: False)
        depth = Space(draw_observation=lambda: None, get_observation=self.draw)
        self._sensors = {"head_depth": depth}
        shown = Space(get_observation=lambda seen: seen["head_depth"])
        self._sensor_suite = Space(sensors={"head_depth": shown})

    scene_obj_ids = property(lambda self: [100 + n for n in range(len(self.bodies))])

    def hold(self, name, **how):
        self.grasp_mgr.snap_idx = name

    def get_rigid_object_manager(self):
        return Space(get_object_by_id=lambda name: self.bodies[name - 100])

    def get_all_markers(self):
        return {name: self.get_marker(name) for name in NAMES}

    def get_marker(self, name):
        n = NAMES.index(name)
        return Space(get_targ_js=lambda: 0.1 * n,
                     get_current_position=lambda: np.array([n, 2.0, 3.0]))

    def perform_discrete_collision_detection(self): pass
    def _update_markers(self): pass
    def maybe_update_articulated_agent(self): self.articulated_agent.update()

    def internal_step(self, dt, update_articulated_agent):
        self.steps += 1
        if self.steps > self.ac_freq_ratio:
            once = FAULT == "crash_once" and not os.path.exists("crashed")
            if FAULT == "crash" or once:
                open("crashed", "w").close()
                print("Assertion btFoo failed", file=sys.stderr, flush=True)
                os.kill(os.getpid(), 11)
            if FAULT == "hang":
                time.sleep(600)
            if FAULT == "raise":
                raise ValueError("Created bad constraint")

    def draw(self):
        depth = self.config.agents.main_agent.sim_sensors.head_depth_sensor
        rows = np.arange(depth.height, dtype=np.float32) / depth.height
        return np.tile(rows[:, None, None], (1, depth.width, 1))

class Arm:
    def __init__(self, sim): self.sim = sim

    def step(self, arm_action, grip_action):
        robot, grasp = self.sim.articulated_agent, self.sim.grasp_mgr
        robot.arm_motor_pos = robot.arm_motor_pos + 0.0125 * arm_action
        if grip_action < 0:
            grasp.snap_idx = None
        elif grasp.snap_idx is None:
            for name, body in zip(self.sim.scene_obj_ids, self.sim.bodies):
                away = body.transformation.translation - robot.ee_transform().translation
                if np.linalg.norm(away) < 0.15:
                    grasp.snap_idx = name

class Base:
    def __init__(self, sim): self.sim = sim

    def step(self, base_vel):
        robot = self.sim.articulated_agent
        robot.base_rot += base_vel[1] * 10 / 120
        way = np.array([np.cos(robot.base_rot), 0, -np.sin(robot.base_rot)])
        robot.base_pos = robot.base_pos + base_vel[0] * 10 / 120 * way

class Env:
    def __init__(self, config, dataset):
        self.sim = Sim(config.simulator)
        actions = {"arm_action": Arm(self.sim), "base_velocity": Base(self.sim)}
        forces = lambda robot: (0.0, 0.0, 25.0 * self.sim.steps)
        self.task = Space(actions=actions, get_coll_forces=forces)

    def reset(self):
        rows = sorted(self.current_episode.rigid_objs, key=lambda row: row[0])
        self.sim.bodies = [Body(pose) for _, pose in rows]
        self.sim.steps, self.sim.grasp_mgr.snap_idx = 0, None

    def close(self): pass
"""

_CONFIG = """
import contextlib
read_write = lambda config: contextlib.nullcontext()
"""

_SENSORS = """
class HeadRGBSensorConfig:
    def __init__(self, height, width): pass
"""

_DATASET = """
class RearrangeEpisode:
    def __init__(self, **fields):
        self.__dict__.update(fields)

class RearrangeDatasetV0:
    def __init__(self, config): pass
"""


def install(folder: Path, fault: str = "") -> str:
    """Writes the modules into a folder, and returns the path of a Python that finds them."""
    for name, text in (
        ("habitat_sim/__init__.py", _SIM),
        ("magnum.py", _MAGNUM),
        ("habitat/__init__.py", _HABITAT),
        ("habitat/config/__init__.py", _CONFIG),
        ("habitat/config/default_structured_configs.py", _SENSORS),
        ("habitat/datasets/rearrange/rearrange_dataset.py", _DATASET),
    ):
        path = folder / "modules" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    program = folder / "python"
    program.write_text(
        f'#!/bin/sh\nFAULT={fault} PYTHONPATH={folder / "modules"} exec {sys.executable} "$@"\n'
    )
    program.chmod(0o755)
    return str(program)


def data(folder: Path) -> str:
    """Creates the data files of homes and objects, all empty, and returns their folder."""
    kinds = [f"{OBJECTS}/{kind}.object_config.json" for kind in object_kinds()]
    for path in [*NEEDED, *kinds]:
        if path != OBJECTS:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).touch()
    return str(folder)
