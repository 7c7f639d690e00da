"""Conversion of a home's state from the worker, in Habitat's frame, to a row of `WorldState`."""

from typing import Any

import numpy as np

from tpsrl.world import action as act
from tpsrl.world.episode import Episode
from tpsrl.world.geometry import matrix_quat, quat_matrix, yaw_quat
from tpsrl.world.habitat import FRAMES, MESH_YAW, TO_OURS
from tpsrl.world.objects import object_kind
from tpsrl.world.state import JOINTS

HomeArrays = dict[str, np.ndarray]  # see `tpsrl.sim.habitat.worker.Home.state`

_MARKERS = sorted(JOINTS)  # in the worker's order


def row(arrays: HomeArrays, episode: Episode, slots: int, frame: str) -> dict[str, Any]:
    """Returns one home's values of `tpsrl.world.state.WorldState` by name, without batch axis.

    Args:
        arrays: state of the home from the worker
        episode: episode of the last reset
        slots: number of object rows
        frame: key of `FRAMES`, the frame of object transforms in the data
    """
    base, before = _on_floor(arrays["base"]), _on_floor(arrays["before"])
    moved = base - before
    moved[2] = (moved[2] + np.pi) % (2 * np.pi) - np.pi
    pos = np.full((slots, 3), np.nan)
    quat = np.full((slots, 4), np.nan)
    for number, (pose, placed) in enumerate(zip(arrays["objects"], episode.objects, strict=True)):
        mesh = quat_matrix(yaw_quat(MESH_YAW.get(placed.name, 0.0)))
        pos[number] = TO_OURS @ pose[:3, 3]
        quat[number] = matrix_quat(TO_OURS @ pose[:3, :3] @ FRAMES[frame] @ mesh)
    order = [_MARKERS.index(name) for name in JOINTS]
    held = int(arrays["held_marker"])
    return {
        "base": base,
        "base_velocity": moved * act.CONTROL_HZ,
        "arm": arrays["arm"],
        "ee_pos": TO_OURS @ arrays["cup"][:3, 3],
        "ee_quat": np.array(matrix_quat(TO_OURS @ arrays["cup"][:3, :3])),
        "object_pos": pos,
        "object_quat": quat,
        "held": np.int64(arrays["held"]),
        "held_joint": np.int64(-1 if held < 0 else JOINTS.index(_MARKERS[held])),
        "joints": arrays["joints"][order],
        "marker_pos": arrays["markers"][order] @ TO_OURS.T,
        "force": arrays["force"][0],
        "force_total": arrays["force"][1],
        "violation": np.bool_(arrays["counts"][0]),
        "step": np.int64(arrays["counts"][1]),
    }


def mismatch(arrays: HomeArrays, episode: Episode, frame: str) -> float:
    """Returns the median size difference (m) of bounding boxes and primitives in a frame."""
    sizes = np.array([np.multiply(2.0, object_kind(o.name).half) for o in episode.objects])
    turned = np.abs(sizes @ np.abs(FRAMES[frame].T))
    return float(np.median(np.abs(turned - arrays["size"]).max(axis=1))) if len(sizes) else 0.0


def _on_floor(base: np.ndarray) -> np.ndarray:
    """Converts x, z and heading in Habitat to x, y and yaw in the world frame."""
    return np.array([base[0], -base[1], base[2]])
