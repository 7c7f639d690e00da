"""One home in MuJoCo's C engine: its model copy, its data, and the state outside the engine."""

from typing import Any

import mujoco
import numpy as np

from tpsrl.errors import UserError
from tpsrl.sim import frozen
from tpsrl.sim.base import Overlap, Snapshot
from tpsrl.sim.contacts import largest_force, touched, worst_overlap
from tpsrl.sim.control import command
from tpsrl.sim.home_model import MUTABLE_FIELDS, HomeModel
from tpsrl.sim.mjcf.home import SUBSTEPS
from tpsrl.world import action as act
from tpsrl.world.episode import Episode
from tpsrl.world.fetch import REST_ARM
from tpsrl.world.floor import FloorMap, floor_map
from tpsrl.world.geometry import quat_multiply
from tpsrl.world.layouts import resolve
from tpsrl.world.objects import ObjectKind, object_kind
from tpsrl.world.state import JOINTS

ENGINE = f"mujoco-{mujoco.__version__}/5"

FORCE_RISE_N = 20.0  # smaller rises are not summed (min_force of HAB's RobotForce)
HOLD_LIMIT_M = 0.15  # HAB's hold_thresh: a hold ends at this distance from the cup
# Distances from a released handle at which the cup has contacts again, in front of the handle and
# in any direction: a soft cup does not kick a face that it releases.
OFF_M, FAR_OFF_M = 0.03, 0.15
HANDLE_M = 0.15  # HAB's grasp_thresh: largest distance from marker to grasp of a handle
_OVERLAP_LIMIT_M = 0.01
_NO_FLOOR = FloorMap((0.0, 0.0), np.zeros((2, 2), dtype=np.float32))
_SLEEP = int(mujoco.mjtEnableBit.mjENBL_SLEEP)
_SCALARS = ("ntree_awake", "nbody_awake", "nparent_awake", "nv_awake", "time")


class MujocoHome:
    """One home that can be stepped, observed, frozen and restored."""

    def __init__(self, home: HomeModel, filter_base: bool) -> None:
        self._home = home
        self._filter_base = filter_base
        self.model = home.model.__copy__()
        self.data = mujoco.MjData(self.model)
        self._arrays = _data_arrays(self.data)
        # The engine never reallocates its arrays, so views of them are valid as long as the data.
        self.base = _run(self.data.qpos, home.base_qpos)
        self.base_velocity = _run(self.data.qvel, home.base_dof)
        self.arm = _run(self.data.qpos, home.arm_qpos)
        self.qpos, self.xpos, self.xquat = self.data.qpos, self.data.xpos, self.data.xquat
        self.cup_pos = self.data.site_xpos[home.cup_site]
        self.xmat = self.data.xmat
        self.geom_pos, self.geom_mat = self.data.geom_xpos, self.data.geom_xmat
        self.geom_size, self.geom_bound = self.model.geom_size, self.model.geom_rbound
        self.geom_margin = self.model.geom_margin
        self._arm_ctrl, self._base_ctrl = self.data.ctrl[:7], self.data.ctrl[7:10]
        self._ramp = np.empty((SUBSTEPS, 7))
        self.episode: Episode | None = None
        self._floor = _NO_FLOOR
        self._clear()
        self._kinds = frozen.kinds(self._freeze())

    def _clear(self) -> None:
        self.arm_target = np.array(REST_ARM)
        self.held = -1  # slot
        self.held_joint = -1  # index into JOINTS
        # Released handle or object that the cup is not clear of yet: index into JOINTS, or slot +
        # len(JOINTS).
        self._leaving = -1
        self.force = 0.0
        self.force_total = 0.0
        self._force_level = 0.0  # N, from which the next rise is measured
        self.violation = False
        self.steps = 0

    @property
    def num_objects(self) -> int:
        """Number of objects of the episode, which use the first slots."""
        return 0 if self.episode is None else len(self.episode.objects)

    # -- reset ---------------------------------------------------------------------------------

    def reset(self, episode: Episode) -> None:
        """Puts the home into the start state of an episode.

        After an error the home is unusable until the next reset.

        Raises:
            UserError: see `tpsrl.sim.base.Simulator.reset`.
        """
        home, model, data = self._home, self.model, self.data
        self._prepare(episode)
        mujoco.mj_resetData(model, data)
        data.qpos[home.base_qpos] = episode.robot_start
        data.qpos[home.arm_qpos] = REST_ARM
        for slot in range(len(episode.objects), home.capacity):
            start = int(home.slot_qpos[slot])
            data.qpos[start : start + 7] = home.park(model, slot)
        for slot, placement in enumerate(episode.objects):
            start = int(home.slot_qpos[slot])
            data.qpos[start : start + 7] = (*placement.pos, *placement.quat)
        for key, value in episode.articulation.items():
            data.qpos[home.joint_qpos[JOINTS.index(key)]] = value
        data.ctrl[:7] = REST_ARM
        self._clear()
        # With sleep enabled, static bodies would keep the poses of the last layout.
        model.opt.enableflags &= ~_SLEEP
        mujoco.mj_forward(model, data)
        if episode.held >= 0:
            kind = object_kind(episode.objects[episode.held].name)
            self._hang(episode.held, kind)
            mujoco.mj_forward(model, data)
        model.opt.enableflags |= _SLEEP
        self._refuse_overlap(episode)

    def _hang(self, slot: int, kind: ObjectKind) -> None:
        """Puts an object upright under the cup, with the yaw of the base, and holds it."""
        start, yaw = int(self._home.slot_qpos[slot]), float(self.base[2])
        drop = np.array([0.0, 0.0, kind.half[2]])
        self.data.qpos[start : start + 3] = self.cup_pos - drop
        self.data.qpos[start + 3 : start + 7] = np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2)
        mujoco.mj_kinematics(self.model, self.data)
        self._weld(slot)

    def _prepare(self, episode: Episode) -> None:
        """Writes the episode into the model's fields."""
        layout_set, layout = resolve(episode.layout)
        if layout_set is not self._home.layout_set:
            raise UserError(
                f"episode {episode.id}: layout '{episode.layout}' is not in this home's layout "
                f"set '{self._home.layout_set.name}'"
            )
        for key in episode.articulation:
            if key not in JOINTS:
                layout_set.link(key)
        self._home.check_room(episode)
        for field in MUTABLE_FIELDS:
            getattr(self.model, field)[:] = getattr(self._home.model, field)
        self._home.apply_layout(self.model, layout)
        for slot, placement in enumerate(episode.objects):
            self._home.apply_object(self.model, slot, object_kind(placement.name))
        self.episode = episode
        self._floor = floor_map(episode.layout) if self._filter_base else _NO_FLOOR

    def _refuse_overlap(self, episode: Episode) -> None:
        home, contact = self._home, self.data.contact
        loose = home.robot_geom | (home.geom_slot >= 0)
        depth, one, other = worst_overlap(contact.geom, contact.dist, loose)
        if depth < -_OVERLAP_LIMIT_M:
            raise Overlap(
                episode.id,
                f"{self._name(one)} overlaps {self._name(other)} by {-depth:.3f} m "
                f"(at most {_OVERLAP_LIMIT_M} m)",
            )

    def _kind(self, slot: int) -> ObjectKind:
        """Returns the kind of an object of the episode."""
        assert self.episode is not None
        return object_kind(self.episode.objects[slot].name)

    def _geom(self, slot: int) -> int:
        """Returns the geom of an object of the episode."""
        return self._home.object_geom(slot, self._kind(slot))

    def _name(self, geom: int) -> str:
        slot = int(self._home.geom_slot[geom])
        if slot >= 0 and self.episode is not None:
            return f"objects[{slot}] ({self.episode.objects[slot].name})"
        if self._home.robot_geom[geom]:
            return f"the robot ({self.model.body(self.model.geom_bodyid[geom]).name})"
        return str(self.model.geom(geom).name)

    # -- step ----------------------------------------------------------------------------------

    def step(self, action: np.ndarray) -> None:
        """Takes one control step: `SUBSTEPS` physics steps under one action (11,)."""
        home, model, data = self._home, self.model, self.data
        command(
            action,
            self.base,
            self.arm,
            self.arm_target,
            self._ramp,
            self._base_ctrl,
            self._filter_base,
            self._floor.distance,
            *self._floor.origin,
        )
        self.violation = False
        if action[act.GRIP] < 0.0 and (self.held >= 0 or self.held_joint >= 0):
            self._release()
        held_geom = self._geom(self.held) if self.held >= 0 else -1
        peak = 0.0
        for arm in self._ramp:
            self._arm_ctrl[:] = arm
            mujoco.mj_step(model, data)
            if data.ncon:
                contact = data.contact
                force = largest_force(
                    contact.geom,
                    contact.dim,
                    contact.efc_address,
                    data.efc_force,
                    home.robot_geom,
                    home.floor_geom,
                    held_geom,
                )
                peak = max(peak, force)
        mujoco.mj_kinematics(model, data)  # otherwise poses lag the state by a substep
        self._count_force(peak)
        self.steps += 1
        self._hold(grip=bool(action[act.GRIP] >= 0.0))

    def _hold(self, grip: bool) -> None:
        """Updates the cup's hold after a control step; `grip` is whether the action grips.

        `tpsrl.sim.batch.holding` implements the same rules for many homes at once.
        """
        if self.held >= 0 or self.held_joint >= 0:
            self._watch_hold()
        elif self._leaving >= 0:
            self._leave(grip)
        elif grip and self.data.ncon:
            self._grasp()

    def _count_force(self, force: float) -> None:
        """Sums the rises of the force (N) from step to step, as habitat-lab's RobotForce does."""
        rise = force - self._force_level
        if rise > FORCE_RISE_N:
            self.force_total += rise
        if rise > FORCE_RISE_N or rise < 0.0:
            self._force_level = force
        self.force = force

    def _grasp(self) -> None:
        home, contact = self._home, self.data.contact
        found = touched(contact.geom, contact.dist, home.cup_geom, home.geom_grasp)
        if 0 <= found < home.capacity:
            self._weld(found)
        elif found >= 0:
            self._hold_link(found - home.capacity)

    def _weld(self, slot: int) -> None:
        """Holds an object at its current pose relative to the cup."""
        home, model, data = self._home, self.model, self.data
        body, cup = home.slot_body[slot], home.cup_body
        turn = data.xmat[cup].reshape(3, 3)
        relative = turn.T @ (data.xpos[body] - data.xpos[cup])
        inverse = data.xquat[cup] * np.array([1.0, -1.0, -1.0, -1.0])
        weld = model.eq_data[home.slot_weld[slot]]
        weld[0:3] = 0.0
        weld[3:6] = relative
        weld[6:10] = quat_multiply(inverse, data.xquat[body])
        weld[10] = 1.0
        data.eq_active[home.slot_weld[slot]] = True
        # With a margin of -1 m the cup has no contacts, which would work against the weld.
        model.geom_margin[home.cup_geom] = -1.0
        self.held = int(slot)

    def _hold_link(self, joint: int) -> None:
        """Holds a door or drawer by a ball joint at the cup's tip if the tip is near the handle."""
        home, model, data = self._home, self.model, self.data
        body, cup, tip = home.marker_body[joint], home.cup_body, self.cup_pos
        turn = data.xmat[body].reshape(3, 3)
        local = turn.T @ (tip - data.xpos[body])
        if float(np.linalg.norm(local - home.marker_local[joint])) > HANDLE_M:
            return
        connect = model.eq_data[home.marker_connect[joint]]
        connect[0:3] = data.xmat[cup].reshape(3, 3).T @ (tip - data.xpos[cup])
        connect[3:6] = local
        data.eq_active[home.marker_connect[joint]] = True
        model.geom_margin[home.cup_geom] = -1.0
        self.held_joint = joint

    def _release(self) -> None:
        active = self.data.eq_active
        if self.held >= 0:
            active[self._home.slot_weld[self.held]] = False
            self._leaving = len(JOINTS) + self.held
        else:
            active[self._home.marker_connect[self.held_joint]] = False
            self._leaving = self.held_joint
        self.held = self.held_joint = -1

    def _feel(self) -> None:
        """Enables contacts of the cup."""
        cup = self._home.cup_geom
        self.model.geom_margin[cup] = self._home.model.geom_margin[cup]

    def _leave(self, grip: bool) -> None:
        """Ends a release once the cup is clear; before that, gripping holds the handle again."""
        if self._is_off():
            self._leaving = -1
            self._feel()
        elif grip and self._leaving < len(JOINTS):
            self.data.eq_active[self._home.marker_connect[self._leaving]] = True
            self.held_joint, self._leaving = self._leaving, -1

    def _watch_hold(self) -> None:
        if self._hold_error() >= HOLD_LIMIT_M:
            self.violation = True
            self._release()

    def _is_off(self) -> bool:
        """Returns whether the cup is clear of the object or handle that it released.

        For an object, the cup's tip must be farther from its centre than its longest side, as in
        habitat-lab (`RearrangeGraspManager.desnap`). For a handle, the tip must be `OFF_M` away in
        front of it or `FAR_OFF_M` in any direction: a drawer may follow the hand, and contacts that
        start deep inside would throw it back.
        """
        home, data = self._home, self.data
        if self._leaving >= len(JOINTS):
            slot = self._leaving - len(JOINTS)
            away = float(np.linalg.norm(self.cup_pos - data.xpos[home.slot_body[slot]]))
            return away >= 2.0 * max(self._kind(slot).half)
        body = home.marker_body[self._leaving]
        anchor = self.model.eq_data[home.marker_connect[self._leaving]][3:6]
        local = data.xmat[body].reshape(3, 3).T @ (self.cup_pos - data.xpos[body]) - anchor
        away = float(np.linalg.norm(local))
        return (away > OFF_M and bool(local[0] > 0.0)) or away > FAR_OFF_M

    def _hold_error(self) -> float:
        """Returns the distance (m) of the cup's tip from the held object's centre or handle."""
        if self.held_joint >= 0:
            return self._handle_error(self.held_joint)
        centre = self.data.xpos[self._home.slot_body[self.held]]
        return float(np.linalg.norm(self.cup_pos - centre))

    def _handle_error(self, joint: int) -> float:
        """Returns the distance (m) of the cup's tip from its grasp point on a door or drawer."""
        home, data = self._home, self.data
        body = home.marker_body[joint]
        anchor = self.model.eq_data[home.marker_connect[joint]][3:6]
        taken = data.xpos[body] + data.xmat[body].reshape(3, 3) @ anchor
        return float(np.linalg.norm(self.cup_pos - taken))

    # -- snapshots -----------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Returns everything that the next step depends on, as arrays.

        Raises:
            UserError: the home has not been reset yet.
        """
        if self.episode is None:
            raise UserError("snapshot: the home has not been reset yet")
        return Snapshot(ENGINE, self.episode, self._freeze())

    def _freeze(self) -> dict[str, np.ndarray]:
        arrays = {f"data/{n}": getattr(self.data, n).copy() for n in self._arrays}
        arrays |= {f"model/{n}": getattr(self.model, n).copy() for n in MUTABLE_FIELDS}
        for name in _SCALARS:
            arrays[f"scalar/{name}"] = np.array(getattr(self.data, name))
        arrays["home/arm_target"] = self.arm_target.copy()
        arrays["home/integers"] = np.array(
            [self.held, self.held_joint, self._leaving, self.steps, int(self.violation)]
        )
        arrays["home/forces"] = np.array([self.force, self.force_total, self._force_level])
        return arrays

    def restore(self, snapshot: Snapshot) -> None:
        """Restores the home from a snapshot; after an error it is unusable until the next reset.

        Raises:
            UserError: the snapshot comes from another engine version or another home size, is
                damaged, or has an episode that does not fit the home.
        """
        if snapshot.engine != ENGINE:
            raise UserError(f"snapshot: engine is '{snapshot.engine}', this one is '{ENGINE}'")
        arrays, size = snapshot.arrays, len(self.qpos)
        found = arrays["data/qpos"].shape if "data/qpos" in arrays else (size,)
        if len(found) == 1 and found[0] != size:
            raise UserError(
                f"snapshot: qpos has {found[0]} entries, this home {size}; "
                "use a simulator with the same slots"
            )
        frozen.check_kinds(arrays, self._kinds)
        self._prepare(snapshot.episode)
        frozen.check_values(arrays, self.model, self.num_objects)
        mujoco.mj_resetData(self.model, self.data)
        for name, value in arrays.items():
            kind, _, field = name.partition("/")
            if kind == "model":
                getattr(self.model, field)[:] = value
            elif kind == "data":
                getattr(self.data, field)[:] = value
            elif kind == "scalar":
                setattr(self.data, field, value.item())
        self.arm_target = arrays["home/arm_target"].copy()
        held, held_joint, leaving, steps, violation = arrays["home/integers"].tolist()
        self.held, self.held_joint, self._leaving = held, held_joint, leaving
        self.steps, self.violation = steps, bool(violation)
        self.force, self.force_total, self._force_level = arrays["home/forces"].tolist()


def _run(values: np.ndarray, entries: np.ndarray) -> np.ndarray:
    """Returns a view of consecutive entries."""
    start = int(entries[0])
    assert np.array_equal(entries, np.arange(start, start + len(entries)))
    return values[start : start + len(entries)]


def _data_arrays(data: Any) -> tuple[str, ...]:
    """Returns the names of the data's own arrays, without the arena's, which each step rebuilds."""
    arena = ("efc_", "iefc_", "efm_", "island_", "map_", "ifrc_", "iacc", "tree_isl", "dof_isl")
    names = []
    for name in dir(data):
        if name.startswith(("_", *arena)):
            continue
        value = getattr(data, name)
        if isinstance(value, np.ndarray) and value.size and value.flags.writeable:
            names.append(name)
    return tuple(names)
