"""The embedded engine: a batch of MuJoCo homes, depth and colour by the analytic caster."""

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from tpsrl.errors import UserError
from tpsrl.render.cameras import Sphere
from tpsrl.render.caster import Caster
from tpsrl.render.flat import FlatPictures
from tpsrl.render.shapes import Shape
from tpsrl.sim import engines
from tpsrl.sim.base import Capabilities, Snapshot
from tpsrl.sim.classes import geom_categories, geom_classes, geom_instances
from tpsrl.sim.clearance import Clearance
from tpsrl.sim.control import all_finite
from tpsrl.sim.home_model import load_home_model
from tpsrl.sim.laser import Laser
from tpsrl.sim.mujoco_home import MujocoHome
from tpsrl.sim.observe import observe
from tpsrl.sim.pictures import Pictures
from tpsrl.sim.shapes import Shapes
from tpsrl.world import cameras
from tpsrl.world.action import SIZE
from tpsrl.world.episode import Episode
from tpsrl.world.fetch import (
    CLEARANCE_ROWS,
    HAND_CAMERA_AHEAD,
    HAND_CAMERA_FOV_DEG,
    HAND_CAMERA_POS,
    HAND_CAMERA_UP,
    HEAD_CAMERA_FOV_DEG,
    LASER_RAYS,
    NEIGHBOUR_ROWS,
)
from tpsrl.world.geometry import quat_matrix
from tpsrl.world.state import JOINTS, WorldState

_FOV_DEG = {"head": HEAD_CAMERA_FOV_DEG, "hand": HAND_CAMERA_FOV_DEG}
_HAND_TURN = np.column_stack(
    [np.cross(HAND_CAMERA_AHEAD, HAND_CAMERA_UP), HAND_CAMERA_UP, np.negative(HAND_CAMERA_AHEAD)]
)


class MujocoSimulator:
    """`tpsrl.sim.base.Simulator` on MuJoCo's C engine."""

    def __init__(
        self,
        num_envs: int = 1,
        slots: int = 30,
        layout_set: str = "replica_cad",
        filter_base: bool = True,
        object_margin: float = 0.0,
    ) -> None:
        if num_envs < 1:
            raise UserError(f"num_envs: must be at least 1, got {num_envs}")
        self.home = load_home_model(layout_set, slots)
        self.homes = [MujocoHome(self.home, filter_base) for _ in range(num_envs)]
        model = self.home.model
        self._caster = Caster(model.geom_type)
        self._laser = Laser(model.geom_type, ~self.home.robot_geom)
        self._clearance = Clearance(self.home, object_margin)
        self._pictures = Pictures(self.home, num_envs)
        self._shapes = Shapes(self.home)
        self._camera_local_pos = model.cam_pos[self.home.head_camera].copy()
        self._camera_local_mat = quat_matrix(model.cam_quat[self.home.head_camera])
        self._base_body = model.body("base").id

    @property
    def num_envs(self) -> int:
        """Number of homes."""
        return len(self.homes)

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the engine `mujoco`."""
        return engines.info("mujoco").capabilities

    def reset(self, env_ids: Sequence[int], episodes: Sequence[Episode]) -> None:
        """See `tpsrl.sim.base.Simulator.reset`."""
        for env, episode in zip(env_ids, episodes, strict=True):
            self.homes[env].reset(episode)
            self._pictures.cut(env)

    def step(self, env_ids: Sequence[int], actions: np.ndarray) -> None:
        """See `tpsrl.sim.base.Simulator.step`."""
        for env, action in zip(env_ids, checked_actions(actions, len(env_ids)), strict=True):
            self.homes[env].step(action)

    def state(self, env_ids: Sequence[int]) -> WorldState:
        """See `tpsrl.sim.base.Simulator.state`."""
        n, capacity, home = len(env_ids), self.home.capacity, self.home
        base, velocity = np.empty((n, 3)), np.empty((n, 3))
        arm, ee_pos, ee_quat = np.empty((n, 7)), np.empty((n, 3)), np.empty((n, 4))
        object_pos, object_quat = np.empty((n, capacity, 3)), np.empty((n, capacity, 4))
        held, joints = np.empty(n, dtype=np.int64), np.empty((n, len(JOINTS)))
        held_joint = np.empty(n, dtype=np.int64)
        markers = np.empty((n, len(JOINTS), 3))
        force, total = np.empty(n), np.empty(n)
        violation, step = np.empty(n, dtype=bool), np.empty(n, dtype=np.int64)
        moving = (base, velocity, arm, joints, markers, held)
        poses = (ee_pos, ee_quat, object_pos, object_quat)
        for row, env in enumerate(env_ids):
            one = self.homes[env]
            observe(
                row,
                one.held,
                one.base,
                one.arm,
                one.base_velocity,
                one.qpos,
                home.joint_qpos,
                one.xpos,
                one.xquat,
                home.slot_body,
                one.num_objects,
                home.marker_body,
                home.marker_local,
                home.cup_body,
                one.cup_pos,
                moving,
                poses,
            )
            held_joint[row] = one.held_joint
            force[row], total[row] = one.force, one.force_total
            violation[row], step[row] = one.violation, one.steps
        return WorldState(
            base=base,
            base_velocity=velocity,
            arm=arm,
            ee_pos=ee_pos,
            ee_quat=ee_quat,
            object_pos=object_pos,
            object_quat=object_quat,
            held=held,
            held_joint=held_joint,
            joints=joints,
            marker_pos=markers,
            force=force,
            force_total=total,
            violation=violation,
            step=step,
        )

    def depth(self, env_ids: Sequence[int], height: int = 64, width: int = 64) -> np.ndarray:
        """See `tpsrl.sim.base.Simulator.depth`."""
        out = np.empty((len(env_ids), height, width), dtype=np.float32)
        for row, env in enumerate(env_ids):
            one = self.homes[env]
            pos, mat = self._head_camera(one)
            self._caster.depth(
                one.data.geom_xpos, one.data.geom_xmat, one.model.geom_size, pos, mat, out[row]
            )
        return out

    def look(
        self, env_ids: Sequence[int], sizes: Mapping[str, cameras.Sides]
    ) -> dict[str, np.ndarray]:
        """See `tpsrl.sim.base.Simulator.look`."""
        count = len(env_ids)
        taken = {name: cameras.blank(name, sides, count) for name, sides in sizes.items()}
        for camera, sides, pictures in cameras.views(tuple(sizes.items())):
            shown = [(kind, taken[name]) for name, kind in pictures]
            for row, env in enumerate(env_ids):
                one = self.homes[env]
                self._flat.take(
                    one.geom_pos,
                    one.geom_mat,
                    one.geom_size,
                    one.model.geom_rgba,
                    *(self._head_camera(one) if camera == "head" else self._hand_camera(one)),
                    sides,
                    _FOV_DEG[camera],
                    **{kind: room[row] for kind, room in shown},
                )
        return taken

    def laser(self, env_ids: Sequence[int]) -> np.ndarray:
        """See `tpsrl.sim.base.Simulator.laser`."""
        out = np.empty((len(env_ids), LASER_RAYS), dtype=np.float32)
        for row, env in enumerate(env_ids):
            one = self.homes[env]
            base = one.xpos[self._base_body], one.xmat[self._base_body].reshape(3, 3)
            geoms = one.geom_pos, one.geom_mat, one.geom_size
            self._laser.ranges(*geoms, *base, out[row])
        return out

    def clearance(self, env_ids: Sequence[int], targets: np.ndarray) -> np.ndarray:
        """See `tpsrl.sim.base.Simulator.clearance`."""
        out = np.empty((len(env_ids), CLEARANCE_ROWS, 4), dtype=np.float32)
        for row, (env, target) in enumerate(zip(env_ids, targets.tolist(), strict=True)):
            self._clearance.measure(self.homes[env], target, out[row])
        return out

    def neighbours(
        self, env_ids: Sequence[int], targets: np.ndarray, points: np.ndarray
    ) -> np.ndarray:
        """See `tpsrl.sim.base.Simulator.neighbours`."""
        out = np.empty((len(env_ids), NEIGHBOUR_ROWS, 4), dtype=np.float32)
        for row, (env, target) in enumerate(zip(env_ids, targets.tolist(), strict=True)):
            self._clearance.neighbours(self.homes[env], target, points[row], out[row])
        return out

    def object_velocity(self, env_ids: Sequence[int], objects: np.ndarray) -> np.ndarray:
        """See `tpsrl.sim.base.Simulator.object_velocity`."""
        out = np.zeros((len(env_ids), 6), dtype=np.float32)
        for row, (env, slot) in enumerate(zip(env_ids, objects.tolist(), strict=True)):
            if slot < 0:
                continue
            data, dof = self.homes[env].data, self.home.slot_dof[slot]
            turn = data.xmat[self.home.slot_body[slot]].reshape(3, 3)
            out[row, :3] = data.qvel[dof : dof + 3]
            # MuJoCo gives the angular velocity of a free joint in the body's frame.
            out[row, 3:] = turn @ data.qvel[dof + 3 : dof + 6]
        return out

    def _head_camera(self, one: MujocoHome) -> tuple[np.ndarray, np.ndarray]:
        turn = one.data.xmat[self._base_body].reshape(3, 3)
        pos = one.data.xpos[self._base_body] + turn @ self._camera_local_pos
        return pos, turn @ self._camera_local_mat

    def _hand_camera(self, one: MujocoHome) -> tuple[np.ndarray, np.ndarray]:
        turn = one.data.xmat[self.home.cup_body].reshape(3, 3)
        return one.data.xpos[self.home.cup_body] + turn @ HAND_CAMERA_POS, turn @ _HAND_TURN

    @functools.cached_property
    def _flat(self) -> FlatPictures:
        instances, _ = self._instances
        numbers = geom_classes(self.home), instances, geom_categories(self.home)
        return FlatPictures(self.home.model.geom_type, *numbers)

    @functools.cached_property
    def _instances(self) -> tuple[np.ndarray, tuple[str, ...]]:
        return geom_instances(self.home)

    @property
    def instances(self) -> tuple[str, ...]:
        """See `tpsrl.sim.base.Simulator.instances`."""
        return self._instances[1]

    def shapes(self, env_id: int) -> list[Shape]:
        """See `tpsrl.sim.base.Simulator.shapes`."""
        return self._shapes.of(self.homes[env_id])

    def body_poses(self, env_id: int) -> np.ndarray:
        """See `tpsrl.sim.base.Simulator.body_poses`."""
        return self._shapes.poses(self.homes[env_id])

    def snapshot(self, env_id: int) -> Snapshot:
        """See `tpsrl.sim.base.Simulator.snapshot`."""
        return self.homes[env_id].snapshot()

    def restore(self, env_id: int, snapshot: Snapshot) -> None:
        """See `tpsrl.sim.base.Simulator.restore`."""
        self.homes[env_id].restore(snapshot)
        self._pictures.cut(env_id)

    def render(
        self,
        env_id: int,
        camera: str = "third_person",
        height: int = 360,
        width: int = 480,
        markers: Sequence[Sphere] = (),
    ) -> np.ndarray:
        """See `tpsrl.sim.base.Simulator.render`."""
        one = self.homes[env_id]
        head = self._head_camera(one)
        return self._pictures.take(env_id, one, head, camera, height, width, markers)

    def close(self) -> None:
        """See `tpsrl.sim.base.Simulator.close`."""
        self.homes = []


def checked_actions(actions: np.ndarray, count: int) -> np.ndarray:
    """Returns the actions as a contiguous float64 array (count, 11).

    Raises:
        UserError: the shape is wrong, or an entry is not finite.
    """
    actions = np.ascontiguousarray(actions, dtype=np.float64)
    if actions.shape != (count, SIZE):
        raise UserError(f"actions: shape is {actions.shape}, expected ({count}, {SIZE})")
    if not all_finite(actions):
        raise UserError("actions: not finite")
    return actions
