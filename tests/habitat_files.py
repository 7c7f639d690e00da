"""Datasets in the format of habitat-lab with invented content."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

from tpsrl.world.geometry import quat_matrix, yaw_quat
from tpsrl.world.layouts import PlacedReceptacle, placed_receptacles, resolve
from tpsrl.world.objects import object_kind

NAME = "v3_sc1_staging_03"
LAYOUT = f"replica_cad/{NAME}"
OURS = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])
LIFT = 0.004  # height (m) of the file's objects above their surface


def receptacle(name: str) -> PlacedReceptacle:
    return next(r for r in placed_receptacles(*resolve(LAYOUT)) if r.name == name)


def transform(
    name: str, on: str, aside: float = 0.0, yaw: float = 0.4, up: float = LIFT, frame: str = "z"
) -> list[list[float]]:
    """Returns the matrix (4, 4) of an upright object on a receptacle, in Habitat's world frame."""
    place = receptacle(on)
    centre = place.pos + place.rotation @ (aside, 0.0, 0.0)
    centre[2] = place.surface + object_kind(name).half[2] + up
    turn = OURS.T @ quat_matrix(yaw_quat(yaw))
    matrix = np.eye(4)
    matrix[:3, :3] = turn @ OURS if frame == "y" else turn
    matrix[:3, 3] = OURS.T @ centre
    return matrix.tolist()


def record(**changes: Any) -> dict[str, Any]:
    soup, box = "005_tomato_soup_can", "004_sugar_box"
    objects = [
        [f"{box}.object_config.json", transform(box, "counter_left", 0.1)],
        [f"{soup}.object_config.json", transform(soup, "table_1", -0.3)],
        [f"{box}.object_config.json", transform(box, "tv_stand", 0.2)],
    ]
    fields = {
        "episode_id": "7",
        "scene_id": f"data/replica_cad/configs/scenes/{NAME}.scene_instance.json",
        "start_position": [0.0, 0.0, 0.0],
        "start_rotation": [0.0, 0.0, 0.0, 1.0],
        "info": {"object_labels": {f"{box}_:0001": "any_targets|0"}},
        "ao_states": {},
        "rigid_objs": objects,
        "targets": {f"{box}_:0001": transform(box, "table_1", 0.3)},
    }
    return fields | changes


def write(path: Path, *records: dict[str, Any]) -> Path:
    path.write_bytes(gzip.compress(json.dumps({"episodes": list(records)}).encode()))
    return path
