"""Conversion of episodes to habitat-lab's records, the inverse of `tpsrl.world.habitat`."""

import math
from typing import Any

import numpy as np

from tpsrl.errors import UserError
from tpsrl.world.episode import Episode
from tpsrl.world.geometry import quat_matrix, yaw_quat
from tpsrl.world.habitat import FRAMES, LINKS, MESH_YAW, TO_OURS
from tpsrl.world.layouts import load_layout_set
from tpsrl.world.objects import object_kind

_MARKERS = (
    ("cab_push_point_7", (0.3, 0.0, 0.0), "drawer1_top", "kitchen_counter"),
    ("cab_push_point_6", (0.3, 0.0, 0.0), "drawer2_top", "kitchen_counter"),
    ("cab_push_point_5", (0.3, 0.0, 0.0), "drawer3", "kitchen_counter"),
    ("cab_push_point_4", (0.3, 0.0, 0.0), "drawer4", "kitchen_counter"),
    ("fridge_push_point", (0.10, -0.62, 0.2), "top_door", "fridge"),
)


def to_habitat(episode: Episode, frame: str) -> dict[str, Any]:
    """Converts an episode to JSON types of habitat-lab's `RearrangeEpisode`.

    The keys `robot_position`, `robot_yaw`, `held` and `held_pose` are additions for the worker.

    Args:
        episode: in a layout of ReplicaCAD
        frame: key of `FRAMES`, the frame of object transforms in the data

    Raises:
        UserError: the layout is not one of ReplicaCAD's.
    """
    set_name, _, layout = episode.layout.partition("/")
    if set_name != "replica_cad" or layout not in load_layout_set("replica_cad").layouts:
        raise UserError(f"episode {episode.id}: layout '{episode.layout}' is not one of Habitat's")
    handles = _handles(episode)
    rigid = [
        [f"{o.name}.object_config.json", object_pose(o.name, o.pos, o.quat, frame).tolist()]
        for o in episode.objects
    ]
    turned = {o.name: o.quat for o in episode.objects}
    targets = {
        handles[t.object]: object_pose(
            episode.objects[t.object].name, t.goal, turned[episode.objects[t.object].name], frame
        ).tolist()
        for t in episode.targets
    }
    x, y, yaw = episode.robot_start
    return {
        "episode_id": episode.id,
        "scene_id": f"data/replica_cad/configs/scenes/{layout}.scene_instance.json",
        "scene_dataset_config": "data/replica_cad/replicaCAD.scene_dataset_config.json",
        "additional_obj_config_paths": ["data/objects/ycb/configs/"],
        "start_position": [x, 0.0, -y],
        "start_rotation": [0.0, math.sin(yaw / 2), 0.0, math.cos(yaw / 2)],
        "info": {
            "object_labels": {handle: f"any_targets|{n}" for n, handle in enumerate(targets)},
            "dist_mult": 1.0,
        },
        "ao_states": _joint_states(episode),
        "rigid_objs": rigid,
        "targets": targets,
        "markers": [
            {
                "name": name,
                "type": "articulated_object",
                "params": {"offset": list(offset), "link": link, "object": f"{body}_:0000"},
            }
            for name, offset, link, body in _MARKERS
        ],
        "robot_position": [x, -y],
        "robot_yaw": yaw,
        "held": episode.held,
        "held_pose": _hanging(episode, frame),
    }


def object_pose(name: str, pos: Any, quat: Any, frame: str) -> np.ndarray:
    """Returns the transform (4, 4) in Habitat of an object from the pose of its primitive.

    Args:
        name: of the object
        pos: (3,) position of the primitive, world frame (m)
        quat: (4,) orientation of the primitive, w, x, y, z
        frame: key of `FRAMES`, the frame of object transforms in the data
    """
    pose = np.eye(4)
    mesh = quat_matrix(yaw_quat(-MESH_YAW.get(name, 0.0)))
    pose[:3, :3] = TO_OURS.T @ quat_matrix(np.asarray(quat)) @ mesh @ FRAMES[frame].T
    pose[:3, 3] = TO_OURS.T @ np.asarray(pos)
    return pose


def _handles(episode: Episode) -> list[str]:
    counts: dict[str, int] = {}
    handles = []
    for placed in episode.objects:
        number = counts.get(placed.name, 0)
        counts[placed.name] = number + 1
        handles.append(f"{placed.name}_:{number:04d}")
    return handles


def _joint_states(episode: Episode) -> dict[str, dict[str, float]]:
    states: dict[str, dict[str, float]] = {}
    for name, _, link, body in _MARKERS:
        if value := episode.articulation.get(name, 0.0):
            states.setdefault(f"{body}_:0000", {})[str(LINKS[body].index(link))] = float(value)
    return states


def _hanging(episode: Episode, frame: str) -> list[list[float]]:
    """Returns the held object's pose relative to the cup's tip, upright with the base's yaw."""
    if episode.held < 0:
        return np.eye(4).tolist()
    placed = episode.objects[episode.held]
    quat, drop = yaw_quat(episode.robot_start[2]), object_kind(placed.name).half[2]
    return object_pose(placed.name, (0.0, 0.0, -drop), quat, frame).tolist()
