"""What the worker tells of a home, in Habitat's frame, as a row of our world state."""

from typing import Any

import numpy as np

from tpsrl.world import action as act
from tpsrl.world.episode import Episode
from tpsrl.world.geometry import matrix_quat, quat_matrix, yaw_quat
from tpsrl.world.habitat import FRAMES, MESH_YAW, TO_OURS
from tpsrl.world.objects import object_kind
from tpsrl.world.state import JOINTS

HomeArrays = dict[str, np.ndarray]  # see `tpsrl.sim.habitat.worker.Home.state`

_MARKERS = sorted(JOINTS)  # the order of the worker's


def row(told: HomeArrays, episode: Episode, slots: int, frame: str) -> dict[str, Any]:
    """The values of `tpsrl.world.state.WorldState` by name, of one home, without batch axis.

    Args:
        told: what the worker says of the home
        episode: that it was reset with
        slots: objects that the state has room for
        frame: key of `FRAMES`, in which the data has its objects
    """
    base, before = _on_floor(told["base"]), _on_floor(told["before"])
    moved = base - before
    moved[2] = (moved[2] + np.pi) % (2 * np.pi) - np.pi
    pos = np.full((slots, 3), np.nan)
    quat = np.full((slots, 4), np.nan)
    for number, (pose, placed) in enumerate(zip(told["objects"], episode.objects, strict=True)):
        mesh = quat_matrix(yaw_quat(MESH_YAW.get(placed.name, 0.0)))
        pos[number] = TO_OURS @ pose[:3, 3]
        quat[number] = matrix_quat(TO_OURS @ pose[:3, :3] @ FRAMES[frame] @ mesh)
    order = [_MARKERS.index(name) for name in JOINTS]
    held = int(told["held_marker"])
    return {
        "base": base,
        "base_velocity": moved * act.CONTROL_HZ,
        "arm": told["arm"],
        "ee_pos": TO_OURS @ told["cup"][:3, 3],
        "ee_quat": np.array(matrix_quat(TO_OURS @ told["cup"][:3, :3])),
        "object_pos": pos,
        "object_quat": quat,
        "held": np.int64(told["held"]),
        "held_joint": np.int64(-1 if held < 0 else JOINTS.index(_MARKERS[held])),
        "joints": told["joints"][order],
        "marker_pos": told["markers"][order] @ TO_OURS.T,
        "force": told["force"][0],
        "force_total": told["force"][1],
        "violation": np.bool_(told["counts"][0]),
        "step": np.int64(told["counts"][1]),
    }


def mismatch(told: HomeArrays, episode: Episode, frame: str) -> float:
    """How far (m) bounding boxes and primitives are apart in the median, objects in a frame."""
    sizes = np.array([np.multiply(2.0, object_kind(o.name).half) for o in episode.objects])
    turned = np.abs(sizes @ np.abs(FRAMES[frame].T))
    return float(np.median(np.abs(turned - told["size"]).max(axis=1))) if len(sizes) else 0.0


def _on_floor(base: np.ndarray) -> np.ndarray:
    """x, z and heading in Habitat as x, y and yaw here."""
    return np.array([base[0], -base[1], base[2]])
