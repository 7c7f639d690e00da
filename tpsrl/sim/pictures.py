"""Colour pictures of homes in the embedded engine: visible geoms and camera poses."""

import math
from collections.abc import Sequence

import numpy as np

from tpsrl.errors import unknown
from tpsrl.render.cameras import THIRD_PERSON_FOV_DEG, CameraPose, Sphere, third_person_camera
from tpsrl.render.shading import Shader
from tpsrl.sim.home_model import HomeModel
from tpsrl.sim.mujoco_home import MujocoHome
from tpsrl.world.action import CONTROL_HZ
from tpsrl.world.fetch import HEAD_CAMERA_FOV_DEG
from tpsrl.world.layouts import BodyKind

CAMERAS = ("third_person", "head")
CATCH_UP_S = 0.8  # time constant of the third-person camera's smoothing
CHEST_M = 0.8  # height of the point of the robot that must stay visible
_TALL_M = 1.2


class Pictures:
    """Renders homes; reads their state and never changes it.

    The third-person camera follows its robot smoothly: it starts from its pose in the home's last
    picture and moves by an amount that depends on the control steps since then, so two pictures
    of the same moment are equal.
    """

    def __init__(self, home: HomeModel, num_envs: int) -> None:
        model = home.model
        (x0, y0), (x1, y1) = home.layout_set.floor
        self._bounds = (x0, y0, x1, y1)
        self._shader = Shader(
            model.geom_type, cutaway=_cutaway_groups(home), floor_bounds=self._bounds
        )
        self._last: list[tuple[int, CameraPose] | None] = [None] * num_envs

    def cut(self, env_id: int) -> None:
        """Forgets the last pose of a home's third-person camera, as after a reset."""
        self._last[env_id] = None

    def take(
        self,
        env_id: int,
        one: MujocoHome,
        head: tuple[np.ndarray, np.ndarray],
        camera: str,
        height: int,
        width: int,
        markers: Sequence[Sphere],
    ) -> np.ndarray:
        """Renders a picture; see `tpsrl.sim.base.Simulator.render`.

        `head` is the pose of the head camera: position (3,) and orientation (3, 3).

        Raises:
            UserError: the camera is unknown.
        """
        if camera not in CAMERAS:
            raise unknown("camera", camera, CAMERAS)
        data, model = one.data, one.model
        scene = (data.geom_xpos, data.geom_xmat, model.geom_size, model.geom_rgba)
        if camera == "head":
            return self._shader.render(
                *scene, *head, height, width, HEAD_CAMERA_FOV_DEG, markers=markers
            )
        pose = self._third_person(env_id, one)
        robot = np.array([*one.base[:2], CHEST_M])
        return self._shader.render(
            *scene,
            pose.pos,
            pose.mat,
            height,
            width,
            THIRD_PERSON_FOV_DEG,
            focus=np.array([robot, one.cup_pos]),
            markers=markers,
        )

    def _third_person(self, env_id: int, one: MujocoHome) -> CameraPose:
        last, previous, follow = self._last[env_id], None, 1.0
        if last is not None and last[0] <= one.steps:
            previous = last[1]
            follow = 1.0 - math.exp((last[0] - one.steps) / (CONTROL_HZ * CATCH_UP_S))
        pose = third_person_camera(one.base, one.cup_pos, self._bounds, previous, follow)
        self._last[env_id] = (one.steps, pose)
        return pose


def _cutaway_groups(home: HomeModel) -> np.ndarray:
    """Returns (G,) int: a group number for each wall or piece of furniture to cut away, else -1.

    Low pieces that carry objects are never cut away: they hardly hide the robot from above, and
    the objects on them would float.
    """
    model, bodies = home.model, home.layout_set.bodies
    carriers = {name for place in home.layout_set.receptacles.values() for name in place.bodies}
    pieces = {wall.name for wall in home.layout_set.walls}
    pieces |= {n for n, kind in bodies.items() if n not in carriers or _height(kind) > _TALL_M}
    groups: dict[str, int] = {}
    result = np.full(model.ngeom, -1)
    for geom in range(model.ngeom):
        root = model.body_rootid[model.geom_bodyid[geom]]
        piece = model.geom(geom).name.split("/")[0] if root == 0 else model.body(root).name
        if piece in pieces:
            result[geom] = groups.setdefault(piece, len(groups))
    return result


def _height(kind: BodyKind) -> float:
    """Returns the height (m) from the lowest to the highest point of a body's own boxes."""
    ends = [(box.pos[2] - box.half[2], box.pos[2] + box.half[2]) for box in kind.boxes]
    return max(high for _, high in ends) - min(low for low, _ in ends)
