"""A furnished apartment as a static MuJoCo model, for tests of cameras and renderers."""

import functools
import gzip
import json
import math
from collections.abc import Iterator
from importlib import resources

import mujoco
import numpy as np

ROBOT = (
    # type, position, size, Euler angles (degrees), relative to the base.
    ("cylinder", (0.0, 0.0, 0.18), (0.28, 0.18), (0, 0, 0)),
    ("box", (-0.09, 0.0, 0.65), (0.12, 0.17, 0.35), (0, 0, 0)),
    ("box", (0.06, 0.0, 1.08), (0.09, 0.14, 0.06), (0, 0, 0)),
    ("capsule", (0.20, -0.10, 0.85), (0.06, 0.15), (0, 60, -30)),
    ("capsule", (0.42, -0.14, 0.86), (0.055, 0.14), (0, 120, 20)),
    ("capsule", (0.60, -0.08, 0.90), (0.05, 0.12), (0, 80, 20)),
    ("cylinder", (0.73, -0.03, 0.92), (0.02, 0.04), (0, 80, 20)),
)
ROBOT_POSE = (0.9, -1.1, -2.4)

# type, position, size: all types, on the floor, on tables and in the air.
OBJECTS = (
    ("sphere", (-0.1, -1.3, 0.78), (0.0375,)),
    ("cylinder", (-0.2, -1.6, 0.80), (0.051, 0.07)),
    ("box", (-0.1, -1.9, 0.84), (0.03, 0.079, 0.105)),
    ("capsule", (-0.3, -2.1, 0.80), (0.03, 0.06)),
    ("cylinder", (0.2, -1.0, 0.10), (0.033, 0.05)),
    ("sphere", (1.9, -3.1, 0.6), (0.3,)),
    ("capsule", (2.6, -1.0, 0.9), (0.15, 0.4)),
    ("cylinder", (0.9, -2.6, 0.4), (0.25, 0.4)),
)


def _boxes(data: dict) -> Iterator[tuple[str, list[float], list[float], list[float], float]]:
    """Yields body name, body position, box centre, box half sizes and body yaw."""
    scene = data["scenes"][0]
    for name, pose in scene["furniture"].items():
        if pose["present"]:
            for box in data["furniture"][data["body_type"][name]]["boxes"]:
                yield name, pose["pos"], box["pos"], box["half"], pose["yaw"]
    for name, pose in scene["articulated"].items():
        if not pose["present"]:
            continue
        item = data["articulated"][name]
        for box in item["body_boxes"]:
            yield name, pose["pos"], box["pos"], box["half"], pose["yaw"]
        for joint in item["joints"]:
            for box in joint.get("boxes", ()):
                centre = [a + b for a, b in zip(joint["pos"], box["pos"], strict=True)]
                yield name, pose["pos"], centre, box["half"], pose["yaw"]
    for wall in data["shell"]["common"]["walls"]:
        yield "wall", wall["pos"], [0, 0, 0], wall["half"], wall["yaw"]


COLOURS = {
    "wall": (0.93, 0.90, 0.85),
    "fridge": (0.80, 0.83, 0.86),
    "kitchen_counter": (0.62, 0.66, 0.62),
    "sofa": (0.36, 0.50, 0.58),
    "table_01": (0.72, 0.54, 0.36),
    "tvstand": (0.50, 0.38, 0.30),
    "rug_02": (0.68, 0.34, 0.30),
}


@functools.cache
def furnished_model() -> mujoco.MjModel:
    """Returns the first layout of the packaged set with a stand-in robot and primitives."""
    path = resources.files("tpsrl.world").joinpath("data/replica_cad.json.gz")
    data = json.loads(gzip.decompress(path.read_bytes()))
    lines = ['<geom name="floor" type="plane" size="0 0 1" rgba=".78 .68 .56 1"/>']
    for index, (name, pos, centre, half, yaw) in enumerate(_boxes(data)):
        cos, sin = math.cos(yaw), math.sin(yaw)
        x = pos[0] + cos * centre[0] - sin * centre[1]
        y = pos[1] + sin * centre[0] + cos * centre[1]
        rgb = COLOURS.get(name, (0.66, 0.58, 0.48))
        lines.append(
            f'<geom name="{name}/{index}" type="box" pos="{x} {y} {pos[2] + centre[2]}" '
            f'size="{half[0]} {half[1]} {half[2]}" euler="0 0 {math.degrees(yaw)}" '
            f'rgba="{rgb[0]} {rgb[1]} {rgb[2]} 1"/>'
        )
    for index, (kind, pos, size) in enumerate(OBJECTS):
        lines.append(_primitive(f"object/{index}", kind, pos, size, (20 * index, 35 * index, 0)))
    robot = "".join(_primitive(f"robot/{i}", *part) for i, part in enumerate(ROBOT))
    x, y, yaw = ROBOT_POSE
    lines.append(f'<body pos="{x} {y} 0" euler="0 0 {math.degrees(yaw)}">{robot}</body>')
    return mujoco.MjModel.from_xml_string(
        f'<mujoco><compiler angle="degree"/><worldbody>{"".join(lines)}</worldbody></mujoco>'
    )


def _primitive(name: str, kind: str, pos: tuple, size: tuple, euler: tuple) -> str:
    colour = (0.35 + 0.5 * (len(name) * size[0] * 7 % 1), 0.45, 0.7 - size[0])
    return (
        f'<geom name="{name}" type="{kind}" pos="{" ".join(map(str, pos))}" '
        f'size="{" ".join(map(str, size))}" euler="{" ".join(map(str, euler))}" '
        f'rgba="{colour[0]} {colour[1]} {colour[2]} 1"/>'
    )


def look_at(position: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Returns a camera orientation (3, 3), columns right, up, backward (MuJoCo's `cam_xmat`)."""
    back = position - target
    back /= np.linalg.norm(back)
    right = np.cross([0.0, 0.0, 1.0], back)
    right /= np.linalg.norm(right)
    return np.stack([right, np.cross(back, right), back], axis=1)


def random_cameras(count: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns random camera poses in the rooms.

    Heights are 0.2 to 2 m, pitches up to 40 degrees up or down, with any heading.
    """
    rng = np.random.default_rng(seed)
    cameras = []
    for _ in range(count):
        position = rng.uniform([-2.0, -4.0, 0.2], [3.5, 0.5, 2.0])
        yaw, pitch = rng.uniform(-math.pi, math.pi), rng.uniform(-0.7, 0.7)
        direction = [
            math.cos(yaw) * math.cos(pitch),
            math.sin(yaw) * math.cos(pitch),
            math.sin(pitch),
        ]
        cameras.append((position, look_at(position, position + direction)))
    return cameras
