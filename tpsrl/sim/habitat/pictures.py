"""Colour pictures of homes in Habitat: camera poses, and markers drawn over the pictures."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tpsrl.errors import unknown
from tpsrl.render.cameras import THIRD_PERSON_FOV_DEG, CameraPose, Sphere, third_person_camera
from tpsrl.sim.pictures import CAMERAS, CATCH_UP_S, CHEST_M
from tpsrl.world.action import CONTROL_HZ
from tpsrl.world.fetch import HEAD_CAMERA_FOV_DEG
from tpsrl.world.habitat import TO_OURS
from tpsrl.world.layouts import load_layout_set

_NEAR_M = 0.05  # markers nearer to the camera, or behind it, are not drawn


class HabitatCamera:
    """Cameras of one home; the third-person camera follows as in `tpsrl.sim.pictures`."""

    def __init__(self) -> None:
        (x0, y0), (x1, y1) = load_layout_set("replica_cad").floor
        self._bounds = (x0, y0, x1, y1)
        self._last: tuple[int, CameraPose] | None = None

    def ask(
        self, camera: str, base: np.ndarray, cup: np.ndarray, step: int, height: int, width: int
    ) -> dict[str, Any]:
        """Returns the request for the worker; see `tpsrl.sim.habitat.worker.Home.picture`.

        Args:
            camera: "third_person" or "head"
            base: x, y and yaw of the robot
            cup: (3,) position of the cup
            step: control steps since the reset
            height: of the picture in pixels
            width: of the picture in pixels

        Raises:
            UserError: the camera is unknown.
        """
        if camera not in CAMERAS:
            raise unknown("camera", camera, CAMERAS)
        request: dict[str, Any] = {"height": height, "width": width, "pose": None, "seen": None}
        if camera == "head":
            return request | {"fov": HEAD_CAMERA_FOV_DEG}
        previous, follow = None, 1.0
        if self._last is not None and self._last[0] <= step:
            previous = self._last[1]
            follow = 1.0 - math.exp((self._last[0] - step) / (CONTROL_HZ * CATCH_UP_S))
        view = third_person_camera(base, cup, self._bounds, previous, follow)
        self._last = step, view
        pose = np.eye(4)
        pose[:3, :3], pose[:3, 3] = TO_OURS.T @ view.mat, TO_OURS.T @ view.pos
        chest = TO_OURS.T @ np.array([*base[:2], CHEST_M])
        across = 2.0 * math.atan(math.tan(math.radians(THIRD_PERSON_FOV_DEG) / 2) * width / height)
        request |= {"pose": pose.tolist(), "seen": chest.tolist()}
        return request | {"fov": math.degrees(across)}


def draw_markers(
    picture: np.ndarray, pose: np.ndarray, fov: float, markers: Sequence[Sphere]
) -> None:
    """Draws spheres as discs over a picture, even where the scene hides them.

    Args:
        picture: (height, width, 3) uint8, modified in place
        pose: (4, 4) pose of the camera in Habitat's frame
        fov: horizontal field of view in degrees
        markers: spheres in the world frame
    """
    height, width, _ = picture.shape
    focal = width / 2 / math.tan(math.radians(fov) / 2)
    rows, columns = np.mgrid[:height, :width] + 0.5
    for marker in markers:
        x, y, z = pose[:3, :3].T @ (TO_OURS.T @ np.array(marker.pos) - pose[:3, 3])
        if -z < _NEAR_M:
            continue
        column, row = width / 2 - focal * x / z, height / 2 + focal * y / z
        inside = np.hypot(rows - row, columns - column) <= max(focal * marker.radius / -z, 1.0)
        picture[inside] = np.rint(255.0 * np.array(marker.rgb))
