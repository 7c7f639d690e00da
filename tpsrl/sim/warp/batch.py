"""The engine `warp`: homes that step together on one device."""

import contextlib
import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import mujoco_warp
import numpy as np
import torch
import warp as wp

from tpsrl.errors import RunError, UserError
from tpsrl.sim import engines
from tpsrl.sim.base import Capabilities
from tpsrl.sim.batch.contacts import Contacts, largest_forces, touched_most
from tpsrl.sim.batch.holding import ContactForces, CupHolds, HoldRules, RuleArrays
from tpsrl.sim.batch.looped import check_actions
from tpsrl.sim.clearance import obstacles_of
from tpsrl.sim.home_model import load_home_model
from tpsrl.sim.mjcf.home import SUBSTEPS
from tpsrl.sim.mujoco_sim import MujocoSimulator
from tpsrl.sim.warp.arrays import STATE_FIELDS, DeviceHomes
from tpsrl.sim.warp.bank import StartBank
from tpsrl.sim.warp.caster import cast_depth, cast_laser
from tpsrl.sim.warp.clearance import measure, measure_loose
from tpsrl.sim.warp.command import command
from tpsrl.sim.warp.scan import cast_scan
from tpsrl.sim.warp.starts import BatchStart, start_of
from tpsrl.world import action as act
from tpsrl.world.episode import Episode
from tpsrl.world.fetch import (
    CLEARANCE_POINTS,
    CLEARANCE_ROWS,
    HEAD_CAMERA_FAR_M,
    HEAD_CAMERA_FOV_DEG,
    LASER_POS,
    LASER_RANGE_M,
    NEIGHBOUR_ROWS,
    laser_angles,
)
from tpsrl.world.floor import FloorMap, floor_map
from tpsrl.world.geometry import quat_matrix
from tpsrl.world.scan import RAYS
from tpsrl.world.state import WorldState

# A home of 12 objects at rest has 50 contacts and 320 rows of constraints.
_CONTACTS_PER_SLOT, _CONSTRAINTS_PER_SLOT = 12, 72
_RESETS = 256  # start states sent to the device at once
_LOST = {
    "constraints": int(mujoco_warp.OverflowType.NEFC | mujoco_warp.OverflowType.NJMAX_NNZ),
    "contacts": int(
        mujoco_warp.OverflowType.BROADPHASE
        | mujoco_warp.OverflowType.NARROWPHASE
        | mujoco_warp.OverflowType.CCD
    ),
}
_NOT_FINITE = 1 << 30  # beside the engine's own bits
_NEVER_BEGUN = -2  # place of a home's episode; -1 for one given to `reset`


class WarpBatch:
    """`tpsrl.sim.batch.base.BatchSimulator` on mujoco-warp.

    Args:
        num_envs: number of homes.
        slots: maximum number of objects in an episode, 12 or 30.
        layout_set: name of a set of apartments in `tpsrl.world.layouts`.
        filter_base: whether to keep the base's target on the free floor.
        device: warp device; by default torch's current GPU if there is one, else the CPU.
        contacts: room for pairs of geoms that may touch, per home; all homes share the room.
        constraints: room for rows of constraints, per home.
    """

    def __init__(
        self,
        num_envs: int = 1,
        slots: int = 12,
        layout_set: str = "replica_cad",
        filter_base: bool = True,
        device: str | None = None,
        contacts: int | None = None,
        constraints: int | None = None,
    ) -> None:
        wp.config.log_level = wp.LOG_ERROR  # otherwise warp logs each kernel it loads
        if num_envs < 1:
            raise UserError(f"num_envs: must be at least 1, got {num_envs}")
        self.home = load_home_model(layout_set, slots)
        self._name = device or default_device()
        self._room = {
            "contacts": contacts or _CONTACTS_PER_SLOT * slots,
            "constraints": constraints or _CONSTRAINTS_PER_SLOT * slots,
        }
        self._arrays = DeviceHomes(self.home, num_envs, self._room, self._name)
        self.device = torch.device(wp.device_to_torch(self._name))
        self._filtered = filter_base
        self._stage = MujocoSimulator(1, slots, layout_set, filter_base=False)
        self._floor_of: dict[str, int] = {}  # by apartment
        self._floors: list[FloorMap] = []
        self._named_by_reset = ["-"] * num_envs  # episode of each home
        self._prepared: StartBank | None = None
        self._begun: list[WorldState] = []  # of the prepared start states
        self._all_begun = False
        self._graph: Any = None
        self._make_state(num_envs, slots)
        self._make_views(num_envs)

    def _make_state(self, count: int, slots: int) -> None:
        """Allocates the state of the rules for each home, and buffers for commands."""

        def full(value: float, *shape: int, kind: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.full((count, *shape), value, dtype=kind, device=self.device)

        integer = torch.int64
        self.holds = CupHolds(
            full(-1, kind=integer),
            full(-1, kind=integer),
            full(-1, kind=integer),
            full(0, kind=torch.bool),
        )
        self.forces = ContactForces(full(0.0), full(0.0), full(0.0))
        self.steps = full(0, kind=integer)
        self.arm_target = full(0.0, 7)
        self._num_objects = full(0, kind=integer)
        self._longest = full(0.0, slots)
        self._object_geom = full(-1, slots, kind=integer)
        self._ramp = full(0.0, SUBSTEPS, 7)
        self._velocity = full(0.0, 3)
        self._maps = wp.zeros((1, 2, 2), dtype=float, device=self._name)
        self._map_of = full(0, kind=torch.int32)
        self._episode = full(_NEVER_BEGUN, kind=integer)
        self._lost, self._lost_episode = full(0, kind=torch.int32), full(-1, kind=integer)
        self._contacts_lost, self._crowded_episode = full(0.0), full(-1, kind=integer)

    def _make_views(self, count: int) -> None:
        """Makes tensors of addresses, and views of the engine's arrays."""
        home, arrays = self.home, self._arrays

        def tensor(values: np.ndarray) -> torch.Tensor:
            return torch.as_tensor(values, device=self.device)

        self._robot, self._grasp = tensor(home.robot_geom), tensor(home.geom_grasp)
        self._slot_body, self._joint_qpos = tensor(home.slot_body), tensor(home.joint_qpos)
        self._marker_body = tensor(home.marker_body)
        self._marker = tensor(home.marker_local).float()
        self._slot = torch.arange(home.capacity, device=self.device)
        self._base_body = home.model.body("base").id
        camera = home.head_camera
        self._camera = (
            wp.vec3(*home.model.cam_pos[camera]),
            wp.mat33(*quat_matrix(home.model.cam_quat[camera]).ravel()),
        )
        self._angles = tensor(np.array(laser_angles(), np.float32))
        self._slot_dof = tensor(home.slot_dof)
        self._six = torch.arange(6, device=self.device)
        bodies = [home.model.body(name).id for name, _ in CLEARANCE_POINTS]
        self._points = tensor(np.array(bodies, np.int32))
        self._local = tensor(np.array([point for _, point in CLEARANCE_POINTS], np.float32))
        geoms, slots = obstacles_of(home)
        loose = slots >= 0
        self._obstacles = tensor(geoms), tensor(slots)
        self._loose = tensor(geoms[loose]), tensor(slots[loose])
        self._rules = HoldRules(home, self.device)
        self._bodies = RuleArrays(
            arrays.of_data["xpos"],
            arrays.of_data["xquat"],
            arrays.of_data["xmat"],
            arrays.tip,
            arrays.of_model["eq_data"],
            arrays.of_data["eq_active"],
            arrays.of_model["geom_margin"][:, home.cup_geom],
        )
        contact, data = arrays.data.contact, arrays.data
        self._found = wp.to_torch(data.nacon)
        self._rows = wp.to_torch(data.efc.force)
        self._contact_row = torch.arange(data.naconmax, device=self.device)
        self._contact = tuple(
            wp.to_torch(values)
            for values in (
                contact.worldid,
                contact.geom,
                contact.dist,
                contact.dim,
                contact.efc_address,
            )
        )

    @property
    def num_envs(self) -> int:
        """Number of homes."""
        return len(self.steps)

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the engine `warp`, with the device of the tensors."""
        return dataclasses.replace(engines.info("warp").capabilities, device=self.device.type)

    # -- reset ---------------------------------------------------------------------------------

    def reset(self, env_ids: Sequence[int], episodes: Sequence[Episode]) -> None:
        """See `tpsrl.sim.batch.base.BatchSimulator.reset`."""
        for first in range(0, len(env_ids), _RESETS):
            some = slice(first, first + _RESETS)
            self.begin(env_ids[some], list(self._staged(episodes[some])))

    def begin(self, env_ids: Sequence[int], starts: Sequence[BatchStart]) -> None:
        """Puts homes into start states that a home of the C engine has prepared."""
        if not env_ids:
            return
        where = torch.as_tensor(env_ids, device=self.device)
        which = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)
        which[where] = True
        rows = torch.zeros(self.num_envs, dtype=torch.int64, device=self.device)
        rows[where] = torch.arange(len(starts), device=self.device)
        for env, start in zip(env_ids, starts, strict=True):
            self._named_by_reset[env] = start.episode.id
        self._enter(self._bank(starts), which, rows)

    def prepare(self, episodes: Sequence[Episode]) -> None:
        """See `tpsrl.sim.batch.base.BatchSimulator.prepare`."""
        self._begun = []
        self._prepared = self._bank(self._staged(episodes, self._begun), named=True)

    def prepared(self) -> WorldState:
        """See `tpsrl.sim.batch.base.BatchSimulator.prepared`."""
        return WorldState.joined(self._begun)

    def restart(self, which: torch.Tensor, starts: torch.Tensor) -> None:
        """See `tpsrl.sim.batch.base.BatchSimulator.restart`."""
        if self._prepared is None:
            raise UserError("restart: no start states were prepared")
        self._enter(self._prepared, which.to(self.device), starts.to(self.device))

    def _staged(
        self, episodes: Iterable[Episode], states: list[WorldState] | None = None
    ) -> Iterator[BatchStart]:
        """Yields the start states of episodes, and appends their worlds to `states`."""
        for episode in episodes:
            self._stage.reset([0], [episode])
            if states is not None:
                states.append(self._stage.state([0]))
            yield start_of(self.home, self._stage.homes[0])

    def _bank(self, starts: Iterable[BatchStart], named: bool = False) -> StartBank:
        """Copies start states to the device, with the maps of their floors; see `StartBank`."""
        bank = StartBank(starts, self._columns(), self._floor_of, named)
        if self._filtered and len(self._floors) < len(self._floor_of):
            self._floors = [floor_map(layout) for layout in self._floor_of]
            maps = np.stack([one.distance for one in self._floors])
            self._maps = wp.array(maps, dtype=float, device=self._name)
        return bank

    def _columns(self) -> dict[str, torch.Tensor]:
        """Returns the tensors that a start state determines, by column of `StartBank`."""
        return {
            **self._arrays.of_model,
            **self._arrays.of_data,
            "held": self.holds.held,
            "arm_target": self.arm_target,
            "longest": self._longest,
            "object_geom": self._object_geom,
            "num_objects": self._num_objects,
            "episode": self._episode,
            "floor": self._map_of,
        }

    def _enter(self, bank: StartBank, which: torch.Tensor, starts: torch.Tensor) -> None:
        bank.put(self._columns(), which, starts)
        holds, forces = self.holds, self.forces
        for values, first in (
            (holds.held_joint, -1),
            (holds.leaving, -1),
            (holds.violation, False),
            *((values, 0) for values in (forces.last, forces.total, forces.level, self.steps)),
        ):
            values.masked_fill_(which, first)
        with self._on_stream():
            mujoco_warp.kinematics(self._arrays.model, self._arrays.data)

    # -- step ----------------------------------------------------------------------------------

    def step(self, actions: torch.Tensor, moving: torch.Tensor | None = None) -> None:
        """See `tpsrl.sim.batch.base.BatchSimulator.step`."""
        check_actions(actions, self.num_envs)
        if not self._all_begun:
            self._check_begun()
        before = None if moving is None else [values.clone() for values in self._changing()]
        actions = actions.to(self.device, torch.float32)
        grip = actions[:, act.GRIP] >= 0.0
        with self._on_stream():
            self._command(actions)
            self._rules.release(self.holds, self._bodies, ~grip)
            force = self._substeps()
            mujoco_warp.kinematics(self._arrays.model, self._arrays.data)
        self._note_lost(moving)
        self.forces.count(force)
        self.steps = self.steps + 1
        touched = touched_most(self._contacts(), self.num_envs, self.home.cup_geom, self._grasp)
        self._rules.after_step(self.holds, self._bodies, touched, grip, self._longest)
        if before is not None and moving is not None:
            self._put_back(before, moving.to(self.device))

    def _command(self, actions: torch.Tensor) -> None:
        origin = self._floors[0].origin if self._floors else (0.0, 0.0)
        wp.launch(
            command,
            self.num_envs,
            inputs=[
                wp.from_torch(actions.contiguous()),
                self._arrays.data.qpos,
                int(self.home.base_qpos[0]),
                int(self.home.arm_qpos[0]),
                wp.from_torch(self.arm_target),
                self._filtered,
                self._maps,
                wp.from_torch(self._map_of),
                *origin,
            ],
            outputs=[wp.from_torch(self._ramp), wp.from_torch(self._velocity)],
            device=self._name,
        )
        self._arrays.of_data["ctrl"][:, 7:10] = self._velocity

    def _substeps(self) -> torch.Tensor:
        """Runs the physics of a control step; returns the largest counted contact force (n,)."""
        self._arrays.overflow.zero_()
        slot = self.holds.held.clamp(min=0)
        held = self._object_geom.gather(1, slot[:, None])[:, 0]
        held = torch.where(self.holds.held >= 0, held, -1)
        peak = torch.zeros(self.num_envs, device=self.device)
        for substep in range(SUBSTEPS):
            self._arrays.of_data["ctrl"][:, :7] = self._ramp[:, substep]
            self._physics()
            force = largest_forces(
                self._contacts(), self._rows, self._robot, self.home.floor_geom, held
            )
            peak = torch.maximum(peak, force)
        return peak

    def _physics(self) -> None:
        """Runs one physics step; on a GPU it is captured once and then launched as a graph."""
        model, data = self._arrays.model, self._arrays.data
        if self.device.type != "cuda":
            mujoco_warp.step(model, data)
            return
        if self._graph is None:
            # A capture must not use torch's stream, and does not execute the step.
            with wp.ScopedStream(wp.Stream(self._name)), wp.ScopedCapture() as recorded:
                mujoco_warp.step(model, data)
            self._graph = recorded.graph
        wp.capture_launch(self._graph, stream=self._stream())

    def _contacts(self) -> Contacts:
        return Contacts(self._contact_row < self._found, *self._contact)

    def _stream(self) -> Any:
        return wp.stream_from_torch(torch.cuda.current_stream(self.device))

    @contextlib.contextmanager
    def _on_stream(self) -> Iterator[None]:
        """Runs warp's kernels on this device inside the block, on a GPU in torch's stream."""
        with wp.ScopedDevice(self._name), contextlib.ExitStack() as queue:
            if self.device.type == "cuda":
                queue.enter_context(wp.ScopedStream(self._stream()))
            yield

    # -- errors of the engine ------------------------------------------------------------------

    def _check_begun(self) -> None:
        new = (self._episode == _NEVER_BEGUN).nonzero()
        if len(new):
            raise UserError(f"step: environment {int(new[0, 0])} has not been reset")
        self._all_begun = True

    def _note_lost(self, moving: torch.Tensor | None) -> None:
        """Notes dropped contacts and constraints, and states that are not finite, for `check`.

        The engine continues silently in all three cases.
        """
        lost = self._arrays.overflow.to(torch.int32)
        finite = torch.isfinite(self._arrays.of_data["qpos"]).all(1)
        lost = torch.where(finite, lost, lost | _NOT_FINITE)
        if moving is not None:
            lost = torch.where(moving.to(self.device), lost, 0)
        first = (self._lost == 0) & (lost != 0)
        self._lost_episode = torch.where(first, self._episode, self._lost_episode)
        # All homes share the room for contacts, so the home with the most contacts is named.
        live = self._contact_row < self._found
        home = torch.where(live, self._contact[0], 0).long()
        count = torch.zeros_like(self._contacts_lost).scatter_add(0, home, live.float())
        full = ((lost & _LOST["contacts"]) != 0).any()
        full &= ((self._lost & _LOST["contacts"]) == 0).all()
        self._contacts_lost = torch.where(full, count, self._contacts_lost)
        self._crowded_episode = torch.where(full, self._episode, self._crowded_episode)
        self._lost = self._lost | lost

    def check(self) -> None:
        """See `tpsrl.sim.batch.base.BatchSimulator.check`."""
        if not bool((self._lost != 0).any()):
            return
        lost, crowded = self._lost.cpu(), int(self._contacts_lost.argmax())
        self._lost = torch.zeros_like(self._lost)
        for what, bits in _LOST.items():
            where = ((lost & bits) != 0).nonzero()
            if len(where):
                env, episode = int(where[0, 0]), self._lost_episode
                if what == "contacts":
                    env, episode = crowded, self._crowded_episode
                raise RunError(
                    f"{self._named(env, episode)} has too many {what} (room for "
                    f"{self._room[what]} per home); create the simulator with a larger `{what}`"
                )
        where = ((lost & _NOT_FINITE) != 0).nonzero()
        if len(where):
            named = self._named(int(where[0, 0]), self._lost_episode)
            raise RunError(f"{named} is not finite")

    def _named(self, env: int, episode: torch.Tensor) -> str:
        """Describes a home, given the places (n,) of the homes' episodes among prepared ones."""
        name, number = self._named_by_reset[env], int(episode[env])
        if number >= 0 and self._prepared is not None:
            name = self._prepared.ids[number]
        return f"warp: environment {env} (episode {name})"

    # -- homes that do not move ------------------------------------------------------------------

    def _changing(self) -> list[torch.Tensor]:
        """Returns every tensor that a step changes."""
        of_data, of_model = self._arrays.of_data, self._arrays.of_model
        holds, forces = self.holds, self.forces
        return [
            *(of_data[name] for name in (*STATE_FIELDS, "eq_active")),
            *(of_model[name] for name in ("eq_data", "geom_margin")),
            *(holds.held, holds.held_joint, holds.leaving, holds.violation),
            *(forces.last, forces.total, forces.level, self.steps, self.arm_target),
        ]

    def _put_back(self, before: list[torch.Tensor], moving: torch.Tensor) -> None:
        """Restores the state before the step in homes that are not `moving`."""
        for values, old in zip(self._changing(), before, strict=True):
            moves = moving.reshape(-1, *[1] * (values.ndim - 1))
            values.copy_(torch.where(moves, values, old))
        with self._on_stream():
            mujoco_warp.kinematics(self._arrays.model, self._arrays.data)

    # -- state and depth -------------------------------------------------------------------------

    @property
    def qpos(self) -> torch.Tensor:
        """Joint positions (n, nq) in MuJoCo's order."""
        return self._arrays.of_data["qpos"]

    @property
    def qvel(self) -> torch.Tensor:
        """Joint velocities (n, nv) in MuJoCo's order."""
        return self._arrays.of_data["qvel"]

    @property
    def cup_margin(self) -> torch.Tensor:
        """Contact margins (n,) of the cups in metres; -1 where contacts are disabled."""
        return self._bodies.cup_margin

    def state(self) -> WorldState:
        """See `tpsrl.sim.batch.base.BatchSimulator.state`."""
        home, bodies = self.home, self._bodies
        first, dof = int(home.base_qpos[0]), int(home.base_dof[0])
        arm = int(home.arm_qpos[0])
        absent = (self._slot >= self._num_objects[:, None])[..., None]
        marker = bodies.pos[:, self._marker_body] + torch.einsum(
            "nkij,kj->nki", bodies.mat[:, self._marker_body], self._marker
        )
        return WorldState(
            base=self.qpos[:, first : first + 3],
            base_velocity=self.qvel[:, dof : dof + 3],
            arm=self.qpos[:, arm : arm + len(self.arm_target[0])],
            ee_pos=bodies.tip,
            ee_quat=bodies.quat[:, home.cup_body],
            object_pos=bodies.pos[:, self._slot_body].masked_fill(absent, math.nan),
            object_quat=bodies.quat[:, self._slot_body].masked_fill(absent, math.nan),
            held=self.holds.held,
            held_joint=self.holds.held_joint,
            joints=self.qpos[:, self._joint_qpos],
            marker_pos=marker,
            force=self.forces.last,
            force_total=self.forces.total,
            violation=self.holds.violation,
            step=self.steps,
        )

    def depth(self, height: int = 64, width: int = 64) -> torch.Tensor:
        """See `tpsrl.sim.batch.base.BatchSimulator.depth`."""
        tan_half = math.tan(math.radians(HEAD_CAMERA_FOV_DEG) / 2)
        given = (*self._camera, tan_half, HEAD_CAMERA_FAR_M)
        return self._cast(cast_depth, (self.num_envs, height, width), *given)

    def laser(self) -> torch.Tensor:
        """See `tpsrl.sim.batch.base.BatchSimulator.laser`."""
        own, angles = wp.from_torch(self._robot), wp.from_torch(self._angles)
        given = (own, wp.vec3(*LASER_POS), angles, LASER_RANGE_M)
        return self._cast(cast_laser, (self.num_envs, len(self._angles)), *given)

    def clearance(self, targets: torch.Tensor) -> torch.Tensor:
        """See `tpsrl.sim.batch.base.BatchSimulator.clearance`."""
        points = wp.from_torch(self._points), wp.from_torch(self._local, dtype=wp.vec3)
        given = (*points, self._base_body, self.home.cup_body, *self._named_slots(targets))
        return self._measure(measure, self._obstacles, CLEARANCE_ROWS, *given)

    def neighbours(self, targets: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
        """See `tpsrl.sim.batch.base.BatchSimulator.neighbours`."""
        second = wp.from_torch(points.float().contiguous(), dtype=wp.vec3)
        given = (self._base_body, self.home.cup_body, *self._named_slots(targets), second)
        return self._measure(measure_loose, self._loose, NEIGHBOUR_ROWS, *given)

    def scan(
        self, maps: torch.Tensor, origin: tuple[float, float], rows: torch.Tensor
    ) -> torch.Tensor:
        """See `tpsrl.sim.batch.base.BatchSimulator.scan`."""
        out = torch.empty((self.num_envs, RAYS), device=self.device)
        base = self.state().base.contiguous()
        given = wp.from_torch(maps), wp.from_torch(rows.contiguous()), *origin
        with self._on_stream():
            wp.launch(
                cast_scan,
                (self.num_envs, RAYS),
                inputs=[*given, wp.from_torch(base, dtype=wp.vec3)],
                outputs=[wp.from_torch(out)],
                device=self._name,
            )
        return out

    def object_velocity(self, objects: torch.Tensor) -> torch.Tensor:
        """See `tpsrl.sim.batch.base.BatchSimulator.object_velocity`."""
        slot = objects.clamp(min=0)
        columns = self._slot_dof[slot][:, None] + self._six
        moving = self.qvel.gather(1, columns)
        body = self._slot_body[slot][:, None, None, None].expand(-1, 1, 3, 3)
        turn = self._bodies.mat.gather(1, body)[:, 0]
        # MuJoCo gives the angular velocity of a free joint in the body's frame.
        spin = torch.einsum("nij,nj->ni", turn, moving[:, 3:])
        return torch.cat([moving[:, :3], spin], 1).masked_fill(objects[:, None] < 0, 0.0)

    def _named_slots(self, targets: torch.Tensor) -> tuple[Any, Any]:
        """Returns the slots of held objects and targets (n,) as arrays of the engine."""
        held = self.holds.held.contiguous(), targets.contiguous()
        return wp.from_torch(held[0]), wp.from_torch(held[1])

    def _measure(
        self, kernel: Any, obstacles: tuple[torch.Tensor, torch.Tensor], rows: int, *given: Any
    ) -> torch.Tensor:
        """Runs a kernel of distances to geoms; returns (n, rows, 4)."""
        model, data = self._arrays.model, self._arrays.data
        out = torch.empty((self.num_envs, rows, 4), device=self.device)
        with self._on_stream():
            wp.launch(
                kernel,
                (self.num_envs, rows),
                inputs=[
                    *map(wp.from_torch, obstacles),
                    model.geom_type,
                    model.geom_size,
                    model.geom_rbound,
                    model.geom_margin,
                    data.geom_xpos,
                    data.geom_xmat,
                    data.xpos,
                    data.xmat,
                    *given,
                ],
                outputs=[wp.from_torch(out, dtype=wp.vec4)],
                device=self._name,
            )
        return out

    def _cast(self, kernel: Any, shape: tuple[int, ...], *given: Any) -> torch.Tensor:
        """Runs a kernel of rays from the base with its own inputs; returns an array of `shape`."""
        model, data = self._arrays.model, self._arrays.data
        out = torch.empty(shape, device=self.device)
        with self._on_stream():
            wp.launch(
                kernel,
                shape,
                inputs=[
                    model.geom_type,
                    model.geom_size,
                    model.geom_rbound,
                    data.geom_xpos,
                    data.geom_xmat,
                    data.xpos,
                    data.xmat,
                    self._base_body,
                    *given,
                ],
                outputs=[wp.from_torch(out)],
                device=self._name,
            )
        return out

    def close(self) -> None:
        """See `tpsrl.sim.batch.base.BatchSimulator.close`."""


def default_device() -> str:
    """Returns torch's current GPU if warp and torch both support GPUs, else the CPU."""
    both = wp.is_cuda_available() and torch.cuda.is_available()
    return f"cuda:{torch.cuda.current_device()}" if both else "cpu"
