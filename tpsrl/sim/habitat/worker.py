"""One home in habitat-lab, run by the Habitat interpreter: `python worker.py DESCRIPTOR`.

This file must also run in Python 3.9, and imports only the standard library, numpy, habitat and
habitat_sim. Requests and replies are frames on a socket: eight bytes with the lengths of a JSON
header and of the array bytes, the header, and the concatenated bytes of the arrays, whose names,
dtypes and shapes are in the header. A request that takes longer than the seconds `within_s` of its
header ends the process, in whichever library it hangs and whether or not the other end waits.
Positions in frames are Habitat's: metres, y up.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import platform
import socket
import struct
import sys
import traceback
from collections.abc import Iterable
from typing import Any

import numpy as np

PROTOCOL = 1
CONFIG = "benchmark/rearrange/multi_task/tidy_house.yaml"
EMPTY_TASK = "RearrangeEmptyTask-v0"
OBJECTS = "data/objects/ycb/configs"
# Files that every home needs, relative to the folder that holds data/, and their datasets.
NEEDED = {
    "data/replica_cad/replicaCAD.scene_dataset_config.json": "rearrange_task_assets",
    OBJECTS: "ycb",
    "data/robots/hab_fetch/robots/hab_suction.urdf": "hab_fetch",
}
DEPTH = "head_depth"  # name of the sensor
BEFORE_M, LEAST_M = 0.15, 0.9  # camera distances: in front of an occluder, least to the robot
FORCE_RISE_N = 20.0  # min_force of habitat-lab's RobotForce

WireArrays = dict[str, np.ndarray]
Message = tuple[dict[str, Any], WireArrays]


class Refusal(Exception):
    """Error that the user can fix; its text is the message."""


def send(link: socket.socket, header: dict[str, Any], arrays: WireArrays | None = None) -> None:
    """Sends one frame."""
    arrays = arrays or {}
    layout = [[name, value.dtype.str, list(value.shape)] for name, value in arrays.items()]
    text = json.dumps(dict(header, arrays=layout)).encode()
    body = b"".join(value.tobytes() for value in arrays.values())
    link.sendall(struct.pack("<II", len(text), len(body)) + text + body)


def receive(link: socket.socket) -> Message:
    """Waits for one frame and returns its header and arrays.

    Raises:
        EOFError: the other end has closed the socket.
    """
    text_size, body_size = struct.unpack("<II", _exactly(link, 8))
    header = json.loads(_exactly(link, text_size).decode())
    body, arrays, at = _exactly(link, body_size), {}, 0
    for name, kind, shape in header.pop("arrays"):
        dtype = np.dtype(kind)
        end = at + dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        arrays[name] = np.frombuffer(body[at:end], dtype=dtype).reshape(shape).copy()
        at = end
    return header, arrays


def _exactly(link: socket.socket, count: int) -> bytes:
    parts: list[bytes] = []
    while count:
        part = link.recv(min(count, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def versions() -> dict[str, str]:
    """Returns the versions of Python and packages, and whether habitat_sim has Bullet.

    Raises:
        Refusal: a package cannot be imported.
    """
    found = {"python": platform.python_version(), "numpy": np.__version__}
    for name in ("habitat_sim", "habitat"):
        try:
            found[name] = str(__import__(name).__version__)
        except Exception as error:  # a broken build may raise any exception
            message = f"{name} cannot be imported ({type(error).__name__}: {error})"
            raise Refusal(message) from None
    found["bullet"] = str(getattr(__import__("habitat_sim"), "built_with_bullet", False))
    return found


def missing(folder: str) -> dict[str, str]:
    """Returns the files of `NEEDED` that a folder lacks, each with its dataset."""
    return {
        path: source
        for path, source in NEEDED.items()
        if not os.path.exists(os.path.join(folder, path))
    }


class Home:
    """A home in habitat-lab's RearrangeSim, stepped as in habitat-lab's environments.

    `settings` has data (folder that holds `data/`), gpu (number, -1: software), height and width
    of the depth, seed, rest (7 joint positions of the arm at the start), and colour (whether
    textures are loaded, which colour pictures need).
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        lacking = missing(settings["data"])
        if lacking:
            path, source = sorted(lacking.items())[0]
            raise Refusal(f"{os.path.join(settings['data'], path)} is missing; download '{source}'")
        os.chdir(settings["data"])
        self.env: Any = None
        self.order: list[int] = []
        self.steps, self.violation = 0, False
        self.force = self.total = self.level = 0.0
        self.before = np.zeros(3)

    def reset(self, record: dict[str, Any]) -> WireArrays:
        """Puts the home into the start state of an episode and returns its state."""
        from habitat.datasets.rearrange.rearrange_dataset import RearrangeEpisode

        own = {"robot_yaw", "robot_position", "held", "held_pose"}
        _check_objects(name for name, _ in record["rigid_objs"])
        episode = RearrangeEpisode(**{k: v for k, v in record.items() if k not in own})
        names = [name for name, _ in episode.rigid_objs]
        # habitat-lab sorts an episode's objects by their names.
        self.order = sorted(range(len(names)), key=names.__getitem__)
        if self.env is None:
            self.env = self._make(episode)
        self.env.current_episode = episode
        self.env.reset()
        self._place(record)
        self.steps, self.violation = 0, False
        self.sim.perform_discrete_collision_detection()
        self.force = self.level = self._contact_force()
        self.total = 0.0
        self.before = self._base()
        return self.state()

    @property
    def sim(self) -> Any:
        return self.env.sim

    @property
    def robot(self) -> Any:
        return self.env.sim.articulated_agent

    def _make(self, episode: Any) -> Any:
        import habitat
        from habitat.config import read_write
        from habitat.config.default_structured_configs import HeadRGBSensorConfig
        from habitat.datasets.rearrange.rearrange_dataset import RearrangeDatasetV0

        settings = self.settings
        config = habitat.get_config(CONFIG)
        with read_write(config):
            config.habitat.seed = settings["seed"]
            task, simulator = config.habitat.task, config.habitat.simulator
            task.type = EMPTY_TASK
            for part in ("measurements", "lab_sensors"):
                task[part] = {}
            task.reward_measure = task.success_measure = None
            simulator.concur_render = False
            simulator.habitat_sim_v0.gpu_device_id = settings["gpu"]
            robot = simulator.agents.main_agent
            robot.joint_start_override = list(settings["rest"])
            robot.joint_start_noise = 0.0
            depth = robot.sim_sensors.head_depth_sensor
            depth.height, depth.width = settings["height"], settings["width"]
            if settings["colour"]:
                # habitat-sim loads textures only if it starts with a colour sensor.
                robot.sim_sensors["head_rgb_sensor"] = HeadRGBSensorConfig(height=16, width=16)
        dataset = RearrangeDatasetV0(None)
        dataset.config = config.habitat.dataset
        dataset.episodes = [episode]
        return habitat.Env(config=config.habitat, dataset=dataset)

    def _place(self, record: dict[str, Any]) -> None:
        """Puts robot, arm and held object where the episode has them."""
        import magnum as mn

        robot, sim = self.robot, self.sim
        x, z = record["robot_position"]
        # The navigation mesh lies above the floor (0.1 m in ReplicaCAD), but the robot stands on
        # the floor.
        over = float(robot.base_pos[1])
        robot.params.base_offset = mn.Vector3(0.0, over, 0.0)
        robot.base_pos = mn.Vector3(x, over, z)
        robot.base_rot = record["robot_yaw"]
        rest = np.array(self.settings["rest"], dtype=np.float32)
        robot.arm_joint_pos = rest
        robot.arm_motor_pos = rest
        robot.update()
        held = record["held"]
        if held >= 0:
            name = sim.scene_obj_ids[self.order.index(held)]
            body = sim.get_rigid_object_manager().get_object_by_id(name)
            pose = np.array(record["held_pose"])
            pose[:3, 3] += np.array(robot.ee_transform().translation)
            body.transformation = mn.Matrix4(pose.tolist()).transposed()
            link = robot.sim_obj.get_link_scene_node(robot.params.ee_links[0])
            inverse = link.absolute_transformation().inverted()
            sim.grasp_mgr.snap_to_obj(
                int(name),
                force=False,
                rel_pos=inverse.transform_point(body.translation),
                keep_T=robot.ee_transform().inverted() @ body.transformation,
                should_open_gripper=False,
            )
        sim.maybe_update_articulated_agent()
        sim._update_markers()

    def step(self, action: np.ndarray) -> WireArrays:
        """Takes one control step with an action (11,) and returns the state after it.

        The sequence is that of habitat-lab's `EmbodiedTask.step`, without pictures.
        """
        task, sim = self.env.task, self.sim
        self.before = self._base()
        arm, grip, base = action[:7].astype(np.float32), action[7:8], action[8:10]
        task.actions["arm_action"].step(arm_action=arm.copy(), grip_action=grip)
        task.actions["base_velocity"].step(base_vel=base)
        sim.maybe_update_articulated_agent()
        for _ in range(sim.ac_freq_ratio):
            sim.internal_step(-1, update_articulated_agent=False)
        sim._update_markers()
        self.violation = bool(sim.grasp_mgr.is_violating_hold_constraint())
        if self.violation:
            sim.grasp_mgr.desnap(True)
        self._count_force()
        self.steps += 1
        return self.state()

    def _contact_force(self) -> float:
        return float(self.env.task.get_coll_forces(None)[2])

    def _count_force(self) -> None:
        """Sums rises of the contact force, as `RobotForce.update_metric` of habitat-lab."""
        self.force = self._contact_force()
        rise = self.force - self.level
        if rise > FORCE_RISE_N:
            self.total += rise
        if rise > FORCE_RISE_N or rise < 0.0:
            self.level = self.force

    def _base(self) -> np.ndarray:
        """Returns x, z and heading about y of the base."""
        pose = np.array(self.robot.sim_obj.transformation)
        return np.array([pose[0, 3], pose[2, 3], np.arctan2(-pose[2, 0], pose[0, 0])])

    def state(self) -> WireArrays:
        """Returns the state in Habitat's frame, with objects in the order of the episode."""
        sim, robot, manager = self.sim, self.robot, self.sim.get_rigid_object_manager()
        bodies = [manager.get_object_by_id(name) for name in sim.scene_obj_ids]
        poses, motion, size = (np.zeros((len(bodies), *s)) for s in ((4, 4), (6,), (3,)))
        for number, body in enumerate(bodies):
            row = self.order[number]
            poses[row] = np.array(body.transformation)
            motion[row, :3], motion[row, 3:] = body.linear_velocity, body.angular_velocity
            size[row] = np.array(body.aabb.size())
        held, names = sim.grasp_mgr.snap_idx, sorted(sim.get_all_markers())
        markers = [sim.get_marker(name) for name in names]
        marker = sim.grasp_mgr.snapped_marker_id
        return {
            "base": self._base(),
            "before": self.before,
            "arm": np.array(robot.arm_joint_pos, dtype=np.float64),
            "cup": np.array(robot.ee_transform(), dtype=np.float64),
            "objects": poses,
            "motion": motion,
            "size": size,
            "joints": np.array([one.get_targ_js() for one in markers], dtype=np.float64),
            "markers": np.array([one.get_current_position() for one in markers]),
            "held": np.array(-1 if held is None else self.order[sim.scene_obj_ids.index(held)]),
            "held_marker": np.array(-1 if marker is None else names.index(marker)),
            "force": np.array([self.force, self.total]),
            "counts": np.array([int(self.violation), self.steps]),
        }

    def depth(self) -> WireArrays:
        """Returns head depth (height, width) float32, 0 to 10 m mapped to 0 to 1."""
        sensor = self.sim._sensors[DEPTH]
        sensor.draw_observation()
        raw = {DEPTH: sensor.get_observation()}
        seen = self.sim._sensor_suite.sensors[DEPTH].get_observation(raw)
        return {"depth": np.asarray(seen, dtype=np.float32)[..., 0]}

    def picture(self, view: dict[str, Any]) -> WireArrays:
        """Returns a colour picture (height, width, 3) uint8, and the camera's pose (4, 4).

        Args:
            view: height and width in pixels, fov (horizontal, degrees), pose (4, 4) of the camera
                with x right, y up and z backward, or None for the head camera, and with a pose
                the point `seen` (3,), to which the camera moves nearer if something is between

        Raises:
            Refusal: textures are not loaded.
        """
        import habitat_sim
        import magnum as mn

        sim, name = self.sim, "picture {height} {width} {fov}".format(**view)
        if not self.settings["colour"]:
            raise Refusal("colour: false, but images need textures; use true")
        if name not in sim._sensors:
            camera = habitat_sim.CameraSensorSpec()
            camera.uuid, camera.sensor_type = name, habitat_sim.SensorType.COLOR
            camera.resolution, camera.hfov = [view["height"], view["width"]], mn.Deg(view["fov"])
            sim.add_sensor(camera)
        sensor, pose = sim._sensors[name], view["pose"]
        if pose is None:
            pose = sim._sensors[DEPTH]._sensor_object.node.absolute_transformation()
        else:
            pose = self._unhidden(mn.Matrix4(pose).transposed(), mn.Vector3(*view["seen"]))
        node = sensor._sensor_object.node
        node.transformation = node.parent.absolute_transformation().inverted() @ pose
        sensor.draw_observation()
        shown = np.ascontiguousarray(sensor.get_observation()[..., :3])
        return {"picture": shown, "pose": np.array(pose, dtype=np.float64)}

    def _unhidden(self, pose: Any, seen: Any) -> Any:
        """Returns a camera's pose, moved towards the point `seen` past anything between."""
        import magnum as mn

        way = pose.translation - seen
        free = self._free(seen, way)
        if free == 1.0:
            return pose
        moved = seen + way.normalized() * max(free * way.length() - BEFORE_M, LEAST_M)
        return mn.Matrix4.from_(pose.rotation(), moved)

    def rays(self, arrays: WireArrays) -> WireArrays:
        """Returns the free share (n,) of each ray `along` (n, 3) `from` (3,), robot ignored."""
        import magnum as mn

        start = mn.Vector3(*arrays["from"])
        return {"shares": np.array([self._free(start, mn.Vector3(*w)) for w in arrays["along"]])}

    def _free(self, start: Any, way: Any) -> float:
        """Returns the share of a ray before its first hit, robot ignored."""
        import habitat_sim

        robot = self.robot.sim_obj
        own = {robot.object_id, *robot.link_object_ids}
        ray = habitat_sim.geo.Ray(start, way.normalized())
        found = self.sim.cast_ray(ray, way.length())
        hits = [hit.ray_distance for hit in found.hits if hit.object_id not in own]
        return min(hits, default=way.length()) / way.length()

    def close(self) -> None:
        """Frees the simulator."""
        if self.env is not None:
            self.env.close()


def _check_objects(names: Iterable[str]) -> None:
    """Checks that the data has the objects.

    Raises:
        Refusal: an object is missing.
    """
    for name in names:
        path = os.path.join(OBJECTS, name)
        if not os.path.exists(path):
            raise Refusal(f"{os.path.abspath(path)} is missing; download 'ycb'")


def draw(gpu: int) -> None:
    """Draws an empty scene on a GPU; -1 is software rendering."""
    import habitat_sim

    backend = habitat_sim.SimulatorConfiguration()
    backend.scene_id, backend.gpu_device_id = "NONE", gpu
    camera = habitat_sim.CameraSensorSpec()
    camera.uuid, camera.sensor_type = "depth", habitat_sim.SensorType.DEPTH
    agent = habitat_sim.agent.AgentConfiguration(sensor_specifications=[camera])
    simulator = habitat_sim.Simulator(habitat_sim.Configuration(backend, [agent]))
    try:
        simulator.get_sensor_observations()
    finally:
        simulator.close()


def serve(link: socket.socket) -> None:
    """Handles requests until the request "close" or the end of the connection.

    Raises:
        EOFError: the other end has closed the socket.
    """
    home: Any = None
    while True:
        faulthandler.cancel_dump_traceback_later()
        header, arrays = receive(link)
        faulthandler.dump_traceback_later(header["within_s"], exit=True)
        try:
            ask = header["ask"]
            if ask == "hello":
                if header["protocol"] != PROTOCOL:
                    raise Refusal(f"protocol {header['protocol']}, this worker has {PROTOCOL}")
                send(link, {"protocol": PROTOCOL, "versions": versions()})
            elif ask == "open":
                home = Home(header["settings"])
                send(link, {})
            elif ask == "draw":
                draw(header["gpu"])
                send(link, {})
            elif ask == "reset":
                send(link, {}, home.reset(header["episode"]))
            elif ask == "step":
                send(link, {}, home.step(arrays["action"]))
            elif ask == "depth":
                send(link, {}, home.depth())
            elif ask == "rays":
                send(link, {}, home.rays(arrays))
            elif ask == "picture":
                send(link, {}, home.picture(header["camera"]))
            elif ask == "close":
                if home is not None:
                    home.close()
                send(link, {})
                return
            else:
                raise Refusal(f"unknown request '{ask}'")
        except Refusal as error:
            send(link, {"refused": str(error)})
        except Exception as error:
            traceback.print_exc()
            message = " ".join(str(error).split())
            send(link, {"failed": f"{type(error).__name__}: {message}"})


def main() -> None:
    """Serves the socket whose descriptor is the first argument."""
    link = socket.socket(fileno=int(sys.argv[1]))
    with contextlib.suppress(EOFError, ConnectionError):  # the other end has closed
        serve(link)


if __name__ == "__main__":
    main()
