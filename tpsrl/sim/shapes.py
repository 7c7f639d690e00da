"""Shapes of a home in the embedded engine, and poses of its moving bodies."""

import mujoco
import numpy as np

from tpsrl.render.shapes import Shape, ShapeKind, ShapePart
from tpsrl.sim.home_model import HomeModel
from tpsrl.sim.mjcf.home import NEVER_M, PARK_Z
from tpsrl.sim.mujoco_home import MujocoHome
from tpsrl.world.geometry import matrix_quat

_KINDS: dict[int, ShapeKind] = {
    int(mujoco.mjtGeom.mjGEOM_BOX): "box",
    int(mujoco.mjtGeom.mjGEOM_CYLINDER): "cylinder",
    int(mujoco.mjtGeom.mjGEOM_CAPSULE): "capsule",
    int(mujoco.mjtGeom.mjGEOM_SPHERE): "sphere",
    int(mujoco.mjtGeom.mjGEOM_PLANE): "plane",
}
_ABSENT_M = -5.0  # furniture that is absent from a layout is below this height


class Shapes:
    """Describes homes to viewers; reads their state and never changes it."""

    def __init__(self, home: HomeModel) -> None:
        self._home = home
        model = home.model
        self._moving = np.flatnonzero(model.body_weldid != 0)  # bodies not fixed to the world
        self._walls = {"floor", *(wall.name for wall in home.layout_set.walls)}
        self._row = {int(body): row for row, body in enumerate(self._moving)}

    def of(self, one: MujocoHome) -> list[Shape]:
        """Returns the visible shapes of a home."""
        model = one.model
        seen = (g for g in range(model.ngeom) if self._is_there(one, g))
        return [self._shape(one, geom) for geom in seen]

    def poses(self, one: MujocoHome) -> np.ndarray:
        """Returns the poses (m, 7) float32 of the moving bodies.

        A pose is x, y, z (m), then the quaternion w, x, y, z.
        """
        found = np.empty((len(self._moving), 7), dtype=np.float32)
        found[:, :3] = one.data.xpos[self._moving]
        found[:, 3:] = one.data.xquat[self._moving]
        return found

    def _is_there(self, one: MujocoHome, geom: int) -> bool:
        slot = int(self._home.geom_slot[geom])
        if slot >= 0:
            return slot < one.num_objects and one.model.geom_margin[geom] > 0.5 * NEVER_M
        height = one.data.geom_xpos[geom, 2]
        return bool(_ABSENT_M < height < PARK_Z / 2 and one.model.geom_rgba[geom, 3] > 0.0)

    def _shape(self, one: MujocoHome, geom: int) -> Shape:
        model, data = one.model, one.data
        row = self._row.get(int(model.geom_bodyid[geom]), -1)
        if row >= 0:
            pos, quat = model.geom_pos[geom], model.geom_quat[geom]
        else:
            pos, quat = data.geom_xpos[geom], matrix_quat(data.geom_xmat[geom].reshape(3, 3))
        return Shape(
            name=self._name(one, geom),
            kind=_KINDS[int(model.geom_type[geom])],
            part=self._part(geom),
            size=_three(model.geom_size[geom]),
            colour=_three(model.geom_rgba[geom, :3]),
            body=row,
            pos=_three(pos),
            quat=(float(quat[0]), float(quat[1]), float(quat[2]), float(quat[3])),
        )

    def _name(self, one: MujocoHome, geom: int) -> str:
        slot = int(self._home.geom_slot[geom])
        if slot >= 0 and one.episode is not None:
            return f"{slot}_{one.episode.objects[slot].name}"
        return str(one.model.geom(geom).name)

    def _part(self, geom: int) -> ShapePart:
        if self._home.robot_geom[geom]:
            return "robot"
        if self._home.geom_slot[geom] >= 0:
            return "object"
        return "wall" if self._home.model.geom(geom).name in self._walls else "furniture"


def _three(values: np.ndarray) -> tuple[float, float, float]:
    x, y, z = (float(value) for value in values)
    return x, y, z
